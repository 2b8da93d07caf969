import { expect, test } from 'vitest'
import { escapeUnsafe, wrap } from '../../src/lib/display-text.ts'

test('what could steer a terminal, or is not seen, is escaped as in JSON; letters of any script stay', () => {
  const letters = 'Grüße, 東京 😀'
  const unsafe = '\n\u001b\u009b\u2028\u202e\u200b\ud83d \u{f0000}'
  const escaped = escapeUnsafe(`${letters}${unsafe}`)
  expect(escaped).toMatch(new RegExp(String.raw`^${letters}[\\0-9a-f u]+$`))
  expect(JSON.parse(`"${escaped}"`)).toBe(`${letters}${unsafe}`)
})

test('a text is wrapped at spaces, and a longer word has a line of its own', () => {
  expect(wrap('aa bb cc longer-word e ff', 5)).toEqual(['aa bb', 'cc', 'longer-word', 'e ff'])
})
