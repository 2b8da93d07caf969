import { inspect } from 'node:util'
import { describe, expect, test } from 'vitest'
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
  ['percent-encoded', encodeURIComponent('s3cr et+=ü/')],
  ['in base64', Buffer.from('s3cr et+=ü/').toString('base64')],
  ['in base64url', Buffer.from('s3cr et+=ü/').toString('base64url')],
  ['percent-encoded in small letters', 's3cr%20et%2b%3d%c3%bc%2f'],
  ['form-encoded in small letters', 's3cr+et%2b%3d%c3%bc%2f'],
  ['percent-encoded as a part of a path', 's3cr%20et%2B%3D%C3%BC/'],
  ['JSON of ASCII only', String.raw`s3cr et+=\u00fc/`],
  ['JSON as PHP writes it', String.raw`s3cr et+=\u00fc\/`],
])('a secret is hidden %s', (_, shape) => {
  expect(redact(`got ${shape}.`, ['s3cr et+=ü/'])).toBe('got [secret].')
})

describe('what an echo may be encoded as', () => {
  const secret = 's3cr et+="ü"/4711'
  const percent = (text: string) => encodeURIComponent(text)
  const base64 = (text: string) => Buffer.from(text).toString('base64')
  const hex = (text: string) => Buffer.from(text).toString('hex')
  const units = (text: string, format: (digits: string) => string) =>
    text.replaceAll(/[^\w ]/g, (unit) => format(unit.charCodeAt(0).toString(16).padStart(4, '0')))
  const encodings: Record<string, (text: string) => string> = {
    percent,
    'percent of each byte': (text) => hex(text).replaceAll(/../g, '%$&'),
    base64,
    base64url: (text) => Buffer.from(text).toString('base64url'),
    hex,
    'hex in capitals': (text) => hex(text).toUpperCase(),
    'HTML by number': (text) => text.replaceAll(/[^\w ]/g, (unit) => `&#${unit.charCodeAt(0)};`),
    'HTML by number in hex': (text) => units(text, (digits) => `&#x${digits};`),
    'HTML by name': (text) =>
      text
        .replaceAll('&', '&amp;')
        .replaceAll('"', '&quot;')
        .replaceAll('+', '&plus;')
        .replaceAll('=', '&equals;')
        .replaceAll('ü', '&uuml;')
        .replaceAll('/', '&sol;'),
    'escapes of JSON': (text) => units(text, (digits) => `\\u${digits}`),
    'escapes of JSON in capitals': (text) => units(text, (digits) => `\\u${digits.toUpperCase()}`),
    JSON: (text) => JSON.stringify(text).slice(1, -1),
  }
  const names = Object.keys(encodings)
  test.each(names.flatMap((one) => names.map((other) => [one, other] as const)))('%s of %s', (one, other) => {
    const echo = encodings[one]!(encodings[other]!(secret))
    for (const text of [echo, `got ${echo}.`, `{"detail":"bad value","value":"${echo}"}`]) {
      const shown = redact(text, ['other-key-1', secret])
      expect(shown, text).toContain('[secret]')
      expect(shown).not.toMatch(new RegExp(`4711|${base64('4711')}|${hex('4711')}`, 'i'))
      expect(holdsSecret(text, secret), text).toBe(true)
    }
  })

  test('of five encodings one within the other nothing is left, and the words beside it stay', () => {
    const deep = base64(base64(hex(base64(percent(secret)))))
    expect(redact(`you sent ${deep} to us`, [secret])).toBe('you sent [secret] to us')
    const escaped = percent(percent(percent(percent(percent(secret)))))
    expect(redact(`you sent ${escaped} to us`, [secret])).toBe('you sent [secret] to us')
  })

  test('at the end of a text of 64 KiB it is hidden, too', () => {
    const encoded = base64(secret)
    const text = '- '.repeat(32 * 1024).slice(encoded.length) + encoded
    expect(text).toHaveLength(64 * 1024)
    expect(redact(text, [secret])).not.toContain(encoded)
  })

  test('whose parts are words of their own: all of the text is hidden', () => {
    expect(redact('you sent two &quot;words&quot; of it', ['two "words" of'])).toBe('[secret]')
  })

  test('texts that only look encoded stay as they are', () => {
    const texts = [
      '100 % of it & more; a\\b \\u12 &#; &unknown; &#99999999; %zz',
      'authorization-servers 0123456789abcdef0123456789abcdef deadbeefdeadbeef',
      `${'x'.repeat(64 * 1024)} ${'%41'.repeat(1_000)}`,
    ]
    for (const text of texts) expect(redact(text, [secret, 'k'.repeat(20), '~'])).toBe(text)
  })

  test('a long text is decoded in no time to speak of', () => {
    const nested = Array.from({ length: 5 })
      .reduce<string>(base64, 'x'.repeat(15_000))
      .slice(0, 64 * 1024)
    for (const text of [nested, '%25'.repeat(21_000), '&amp;'.repeat(13_000), 'A'.repeat(65_000)]) {
      const from = performance.now()
      redact(text, [secret])
      expect(performance.now() - from).toBeLessThan(2_000)
    }
  })
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
