import { inspect } from 'node:util'
import { expect, test } from 'vitest'
import { credentialTexts, sharedTexts } from '../../src/config/credentials.ts'
import { holdsSecret, redact } from '../../src/lib/redaction.ts'
import { Secret } from '../../src/lib/secret.ts'

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

test.each(['s3cret-4711', 'S3cret/+of=the"account', 'pässword', '????>>>>~~~~'])(
  '%s is found in the base64 of any text that contains it, and its own is hidden there',
  (secret) => {
    for (const before of ['', ':', 'k:', 'key:', '{"key":"'])
      for (const after of ['', '"', '"}', '"}.'])
        for (const encoding of ['base64', 'base64url'] as const) {
          const text = Buffer.from(`${before}${secret}${after}`).toString(encoding)
          expect(holdsSecret(text, secret), text).toBe(true)
          expect(holdsSecret(redact(text, [secret]), secret), text).toBe(false)
          expect(holdsSecret(text, `${secret.slice(0, -1)}_`), text).toBe(false)
        }
  },
)

test('a short secret is only found where nothing else is', () => {
  for (const text of ['abc', 'YWJj']) expect(holdsSecret(text, 'abc')).toBe(true)
  for (const text of ['abcd', 'xYWJj']) expect(holdsSecret(text, 'abc')).toBe(false)
})

test('one that may be contained encoded is found as it is alone', () => {
  const encoded = Buffer.from('key-of-the-account').toString('base64')
  const found = (text: string) => holdsSecret(text, 'key-of-the-account', { isEncoded: false })
  expect([found('a key-of-the-account'), found(encoded), found(`x${encoded}`)]).toEqual([true, true, false])
})

test('an empty secret hides nothing', () => {
  expect(redact('words', [''])).toBe('words')
})

test.each([
  ['percent-encoded in small letters', 's3cr%20et%2b%3d%c3%bc%2f'],
  ['form-encoded in small letters', 's3cr+et%2b%3d%c3%bc%2f'],
  ['percent-encoded as a part of a path', 's3cr%20et%2B%3D%C3%BC/'],
  ['JSON of ASCII only', String.raw`s3cr et+=\u00fc/`],
  ['JSON as PHP writes it', String.raw`s3cr et+=\u00fc\/`],
])('a secret is hidden %s', (_, shape) => {
  expect(redact(`got ${shape}.`, ['s3cr et+=ü/'])).toBe('got [secret].')
})

test('a secret of one character is hidden once, also where it is in the mark of another', () => {
  expect(redact('yes, secrets', ['s', 'c'])).toBe('ye[secret], [secret]e[secret]ret[secret]')
})

test('the texts of a key and a secret are these two, and every further secret adds to them', () => {
  const pair = { apiKey: new Secret('key'), apiSecret: new Secret('secret') }
  expect(credentialTexts(pair)).toEqual(['key', 'secret'])
  expect(credentialTexts({ ...pair, apiSecret: null })).toEqual(['key', null])
  const further = { b: new Secret('2'), a: new Secret('1') }
  expect(credentialTexts({ ...pair, further })).toEqual(['key', 'secret', ['a', '1'], ['b', '2']])
})

test('the key of a fleet is made of the secrets of the account, and of no certificate of one host', () => {
  const pair = { apiKey: new Secret('key'), apiSecret: new Secret('secret') }
  const own = { 'request.clientCertificate.key': new Secret('of one host') }
  const third = { 'service.parameters.realm': new Secret('third') }
  expect(sharedTexts(pair, null)).toEqual(['secret', null])
  expect(sharedTexts({ ...pair, further: own }, new Secret('more'))).toEqual(['secret', 'more'])
  expect(sharedTexts({ ...pair, further: { ...own, ...third } }, null)).toEqual([
    'secret',
    null,
    ['service.parameters.realm', 'third'],
  ])
})
