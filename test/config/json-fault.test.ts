import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'

import { findJsonFault } from '../../src/config/json-fault.ts'

describe('where a text stops being JSON', () => {
  it.each([
    ['{"a": x}', 1, 7, 'keys and texts are in double quotes'],
    ['{\n  "a": 1,\n}', 3, 1, 'a key in double quotes should be here: there is no comma before a "}"'],
    ['{\n  // no\n}', 2, 3, 'JSON has no comments: remove it, or use a .yaml file'],
    ['{"a" 1}', 1, 6, '":" should be here'],
    ['{"a": 1 "b": 2}', 1, 9, '"," or the closing bracket should be here'],
    ['{"a": "b\nc"}', 1, 7, 'this string is not closed on its line: write a line break in it as \\n'],
    ['{"a": "b\\c"}', 1, 7, 'a backslash in this string must be written twice'],
    ['{"a": 1', 1, 8, 'the file ends too early: "," or the closing bracket should be here'],
    ['', 1, 1, 'the file ends too early: a value should be here'],
    ['{"a": 1} }', 1, 10, 'nothing more should be here'],
    ['{"a": "b\tc"}', 1, 7, 'this string holds a control character: write a tab in it as \\t'],
    ['['.repeat(201), 1, 201, 'is nested more than 200 levels deep'],
    ['{"a": 1,\n "b": {"a": 2}, "a": 3}', 2, 17, 'the same key is above already: remove one of the two'],
  ])('%j', (text, line, column, sentence) => {
    expect(findJsonFault(text)).toBe(`line ${line}, column ${column}: ${sentence}`)
  })

  it('is found exactly where JSON.parse refuses, whatever the text', () => {
    const pieces = fc.constantFrom(
      ' ',
      '\n',
      ...String.raw`{ } [ ] , : "a" " 1 - true nul \u12 / .5e`.split(' '),
    )
    const broken = fc.tuple(fc.json(), fc.nat(), pieces).map(([text, at, piece]) => {
      const index = at % (text.length + 1)
      return text.slice(0, index) + piece + text.slice(index)
    })
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string(),
          fc.array(pieces).map((all) => all.join('')),
          fc.json(),
          broken,
        ),
        (text) => {
          let isJson = true
          try {
            JSON.parse(text)
          } catch {
            isJson = false
          }
          const fault = findJsonFault(text)
          if (fault?.includes('the same key')) return
          expect(fault === undefined).toBe(isJson)
        },
      ),
      { numRuns: 3_000 },
    )
  })

  it('is found where a key is there twice, however deep', () => {
    const key = fc.constantFrom('a', 'b', 'c', '\n', '"')
    fc.assert(
      fc.property(fc.array(key, { maxLength: 5 }), fc.boolean(), (keys, isDeep) => {
        const object = `{${keys.map((name) => `${JSON.stringify(name)}: 1`).join(', ')}}`
        const text = isDeep ? `[{"a": ${object}}]` : object
        expect(findJsonFault(text) === undefined).toBe(new Set(keys).size === keys.length)
      }),
    )
  })
})
