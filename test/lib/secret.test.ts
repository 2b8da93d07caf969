import { inspect } from 'node:util'
import { expect, test } from 'vitest'
import { createRedaction, formEncoded, holdsSecret, Secret } from '../../src/lib/secret.ts'

test('a secret is shown by reveal alone', () => {
  const secret = new Secret('s3cret')
  expect([String(secret), JSON.stringify({ secret }), inspect({ secret })].join()).not.toContain('s3cret')
  expect(secret.reveal()).toBe('s3cret')
})

test.each([
  ['as it is', 's3cr et+=ü/'],
  ['percent-encoded', encodeURIComponent('s3cr et+=ü/')],
  ['percent-encoded in small letters', 's3cr%20et%2b%3d%c3%bc%2f'],
  ['as a form has it', 's3cr+et%2B%3D%C3%BC%2F'],
  ['in base64', Buffer.from('s3cr et+=ü/').toString('base64').replaceAll('=', '')],
  ['in base64url', Buffer.from('s3cr et+=ü/').toString('base64url')],
  ['JSON of ASCII only', String.raw`s3cr et+=\u00fc/`],
  ['JSON as PHP writes it', String.raw`s3cr et+=\u00fc\/`],
])('a secret is replaced %s', (_, form) => {
  expect(createRedaction(['s3cr et+=ü/'])(`got ${form}.`)).toBe('got [secret].')
})

test.each(['s3cret-4711', 'S3cret/+of=the"account', 'pässword', '????>>>>~~~~'])(
  '%s is found in the base64 of any text that contains it, and replaced there',
  (secret) => {
    const logins = ['', 'k:', 'key:'].map((before) => `${before}${formEncoded(secret)}`)
    const jsons = ['', 'a', 'ab'].map((key) => JSON.stringify({ [key]: secret }).replaceAll('/', '\\/'))
    const texts = ['', ':', 'k:', 'key:', '{"key":"'].flatMap((before) =>
      ['', '"', '"}', '"}.'].map((after) => `${before}${secret}${after}`),
    )
    for (const shown of [...texts, ...logins, ...jsons])
      for (const encoding of ['base64', 'base64url'] as const) {
        const text = Buffer.from(shown).toString(encoding)
        expect(holdsSecret(text, secret), text).toBe(true)
        expect(holdsSecret(createRedaction([secret])(text), secret), text).toBe(false)
        expect(holdsSecret(text, `${secret.slice(0, -1)}_`), text).toBe(false)
      }
  },
)

test('a secret of fewer than 8 characters is replaced in words of others alone, and found where nothing else is', () => {
  const others = (secrets: string[]) => createRedaction(secrets, { isShortReplaced: true })
  expect(createRedaction(['kyc', ''])('kyc-tokend')).toBe('kyc-tokend')
  expect(others(['kyc', ''])('kyc-tokend')).toBe('[secret]-tokend')
  expect(others(['s', 'c'])('yes, secrets')).toBe('ye[secret], [secret]e[secret]ret[secret]')
  const login = Buffer.from('mykeyx:abc123').toString('base64')
  expect(others(['mykeyx', 'abc123'])(login)).not.toContain('FiYzEyM')
  for (const text of ['abc', 'YWJj']) expect(holdsSecret(text, 'abc')).toBe(true)
  for (const text of ['abcd', 'xYWJj']) expect(holdsSecret(text, 'abc')).toBe(false)
})

test('nothing is left of a secret that begins with another one', () => {
  for (const secrets of [
    ['acme-corp', 'acme-corp-4711'],
    ['acme-corp-4711', 'acme-corp'],
  ])
    expect(createRedaction(secrets)('acme-corp, acme-corp-4711')).toBe('[secret], [secret]')
})
