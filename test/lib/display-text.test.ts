import { expect, test } from 'vitest'
import { escapeUnsafe, escapeUnsafeIn, removeUnsafe, wrap } from '../../src/lib/display-text.ts'

test.each([
  ['a line end', '\n', '\\u000a'],
  ['the escape of a terminal', '\u001b', '\\u001b'],
  ['a C1 control, which some terminals obey', '\u009b', '\\u009b'],
  ['a line separator', '\u2028', '\\u2028'],
  ['a mark that turns the writing direction', '\u202e', '\\u202e'],
  ['a character without width', '\u200b', '\\u200b'],
  ['half a character', '\ud83d', '\\ud83d'],
  ['a character of private use above the first plane', '\u{f0000}', '\\udb80\\udc00'],
])('%s is escaped as in JSON, and removed', (_, character, escaped) => {
  expect(escapeUnsafe(`a${character}b`)).toBe(`a${escaped}b`)
  expect(JSON.parse(`"${escaped}"`)).toBe(character)
  expect(removeUnsafe(`a${character}b`)).toBe('ab')
})

test('letters of any script stay, and so does what is no string', () => {
  const value = { text: 'Grüße, 東京 😀', number: 1, none: null, list: [true, 'é\n'] }
  expect(escapeUnsafeIn(value)).toEqual({ ...value, list: [true, 'é\\u000a'] })
})

test('a text is wrapped at spaces, and a longer word has a line of its own', () => {
  expect(wrap('aa bb cc longer-word e ff', 5)).toEqual(['aa bb', 'cc', 'longer-word', 'e ff'])
})
