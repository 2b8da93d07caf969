import { expect, test } from 'vitest'
import { escapeUnsafe, wrap } from '../../src/lib/display-text.ts'

test.each([
  ['a line end', '\n', '\\u000a'],
  ['the escape of a terminal', '\u001b', '\\u001b'],
  ['a C1 control, which some terminals obey', '\u009b', '\\u009b'],
  ['a line separator', '\u2028', '\\u2028'],
  ['a mark that turns the writing direction', '\u202e', '\\u202e'],
  ['a character without width', '\u200b', '\\u200b'],
  ['half a character', '\ud83d', '\\ud83d'],
  ['a character of private use above the first plane', '\u{f0000}', '\\udb80\\udc00'],
])('%s is escaped as in JSON', (_, character, escaped) => {
  expect(escapeUnsafe(`a${character}b`)).toBe(`a${escaped}b`)
  expect(JSON.parse(`"${escaped}"`)).toBe(character)
})

test('letters of any script stay', () => {
  expect(escapeUnsafe('Grüße, 東京 😀')).toBe('Grüße, 東京 😀')
})

test('a text is wrapped at spaces, and a longer word has a line of its own', () => {
  expect(wrap('aa bb cc longer-word e ff', 5)).toEqual(['aa bb', 'cc', 'longer-word', 'e ff'])
})
