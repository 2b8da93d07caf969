import { inspect } from 'node:util'
import { expect, test } from 'vitest'
import { redact, Secret } from '../../src/lib/secret.ts'

test('a secret is shown by reveal alone', () => {
  const secret = new Secret('s3cret')
  expect([String(secret), JSON.stringify({ secret }), inspect({ secret })].join()).not.toContain('s3cret')
  expect(secret.reveal()).toBe('s3cret')
})

test.each([
  ['the key first', ['acme', 'acme-4711']],
  ['the secret first', ['acme-4711', 'acme']],
])('nothing is left of a secret that begins with another one, %s', (_, secrets) => {
  expect(redact('key acme, secret acme-4711', secrets)).toBe('key [secret], secret [secret]')
})

test.each(['a"b c/d', 'a"b c/d+', 'pässword'])('the usual shapes of %s are hidden too', (secret) => {
  const shapes = [
    JSON.stringify(secret),
    encodeURIComponent(secret),
    Buffer.from(secret).toString('base64'),
    Buffer.from(secret).toString('base64url'),
  ]
  expect(redact(shapes.join(' '), [secret])).toBe('"[secret]" [secret] [secret] [secret]')
})

test('an empty secret hides nothing', () => {
  expect(redact('words', [''])).toBe('words')
})
