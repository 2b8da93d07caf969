// The seal: opens what it closed, and nothing else.
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { Secret } from '../../src/lib/secret.ts'
import { createSeal, type Sealed, type SealOptions } from '../../src/share/seal.ts'
import type { Pair } from '../../src/share/store.ts'
import { waitOf, type HostSpecific } from '../../src/share/wait.ts'

const account = (
  change: Partial<Record<'baseUrl' | 'description' | 'apiKey' | 'apiSecret' | 'key', string>> = {},
): SealOptions => {
  const {
    baseUrl = 'https://service.test',
    apiKey = 'key',
    apiSecret = 'a secret',
    key,
    description = null,
  } = change
  return {
    baseUrl,
    description,
    credentials: { apiKey: new Secret(apiKey), apiSecret: new Secret(apiSecret) },
    key: key === undefined ? null : new Secret(key),
  }
}
const seal = createSeal(account())
const PAIR: Pair = { fence: 1_800_000_000_001, id: '0123456789abcdef' }
const common = { by: 'web-1', at: 1_800_000_000_000, end: 1_800_003_600_000 }
const token: Sealed<'record'> = { kind: 'ok', ...common, accessToken: 'eyJ.abc.def', expirySource: 'jwt' }
const refusal: Sealed<'record'> = {
  kind: 'permanent',
  ...common,
  reason: 'account-inactive',
  detail: 'ö',
  status: 500,
  says: 'o',
}
const wait: Sealed<'lease'> = {
  kind: 'postponed',
  ...common,
  reason: 'network',
  unconfirmed: null,
  detail: 'No route',
}

test('a text opens with the secret, for its key and pair', () => {
  const { says: _, ...refusalOfOlderVersion } = refusal
  for (const record of [token, refusal, refusalOfOlderVersion])
    expect(seal.open('record', seal.seal('record', PAIR, record))).toEqual({ ...record, ...PAIR })
  expect(seal.open('lease', seal.seal('lease', PAIR, wait))).toEqual({ ...wait, ...PAIR })
  expect(seal.open('lease', seal.seal('record', PAIR, token))).toBeNull()
})

test('a text with one changed bit does not open, nor under another fence or id', () => {
  const text = seal.seal('record', PAIR, token)
  const [fence, id, box = ''] = text.split(' ')
  const bytes = Buffer.from(box, 'base64')
  for (let bit = 0; bit < bytes.length * 8; bit += 1) {
    const changed = Buffer.from(bytes)
    changed[bit >> 3] = (changed[bit >> 3] ?? 0) ^ (1 << (bit & 7))
    expect(seal.open('record', `${fence} ${id} ${changed.toString('base64')}`)).toBeNull()
  }
  for (const head of ['1800000000002 0123456789abcdef', '1800000000001 0123456789abcdee'])
    expect(seal.open('record', `${head} ${box}`)).toBeNull()
  expect(seal.open('record', `${fence} ${String(id).toUpperCase()} ${box}`)).toBeNull()
})

test.each([
  ['secret', { apiSecret: 'another secret' }],
  ['key', { apiKey: 'another key' }],
  ['service', { baseUrl: 'https://other.test' }],
  ['description', { description: '{"send":"form"}' }],
  ['share.key', { key: 'sixteen bytes or more' }],
])('another %s has another name in the store, and opens nothing', (_what, change) => {
  const other = createSeal(account(change))
  expect(other.accountKey).not.toBe(seal.accountKey)
  expect(other.open('record', seal.seal('record', PAIR, token))).toBeNull()
})

test('secret and share.key cannot be cut differently', () => {
  expect(createSeal(account({ apiSecret: 'ab', key: 'c' })).accountKey).not.toBe(
    createSeal(account({ apiSecret: 'a', key: 'bc' })).accountKey,
  )
})

test('any other text is opened to nothing', () => {
  const text = fc.string({ unit: 'binary', maxLength: 200 })
  fc.assert(
    fc.property(text, fc.maxSafeNat(), (given, fence) => {
      expect(seal.open('record', given)).toBeNull()
      expect(seal.open('record', `${fence} ${PAIR.id} ${Buffer.from(given).toString('base64')}`)).toBeNull()
    }),
  )
})

test('a text shows nothing of the answer, and no two are the same', () => {
  const [one, two] = [seal.seal('record', PAIR, token), seal.seal('record', PAIR, token)]
  expect(Buffer.from(one.split(' ')[2] ?? '', 'base64').toString('latin1')).not.toMatch(/eyJ|web-1/)
  expect(one).not.toBe(two)
})

test.each([
  ['another kind', { ...token, kind: 'rumour' }],
  ['no token', { ...token, accessToken: undefined }],
  ['an end that is no number', { ...token, end: null }],
  ['no host', { ...token, by: undefined }],
  ['no known reason', { ...refusal, reason: 'bored' }],
  ['nothing', null],
])('who knows the secret and speaks another language is not understood: %s', (_what, content) => {
  expect(seal.open('record', seal.seal('record', PAIR, content as Sealed<'record'>))).toBeNull()
})

test('a token of 16 KiB goes through', () => {
  const long = { ...token, accessToken: 'x'.repeat(16 * 1024) }
  expect(seal.open('record', seal.seal('record', PAIR, long))).toMatchObject(long)
})

/** What hosts of 2.0.0 wrote: a token, a refusal and a wait, each the box of a text. */
const BOXES_2_0_0 = {
  token: [
    'cjptMDIjUsRsAIJOmHiluxordr1makiG/fF6lBpAGSnkZy918cg8K/Mix6wW2jhuarGIyl7xmOuD2gkjjNXibH/U',
    'TJqeaoW7aRJ+wvKOX94umjRC6C2HZB9XqWmUTkb1veZWCdU2g1l2HWqT91KhGQXvIRe8uhVS0voRLXBj87kro7IQ',
    'r+ASog==',
  ].join(''),
  refusal: [
    'm1zU2UH9GsYQXdew1ZEXEp541sLcCIYY0UraRgCq4WVhZ9u7hFJcPMTtUxhcPWEGlBSJoKvoqOXNAlzpkkgBXIwr',
    'pa/EtdNZuy62+uykhBYvDI8LG0KnWjdwBzt3mNUwdNvdo5wWO8eO/eCH7BHk0sIsHItJiq5XkFSNXtxdBgWuSucD',
    'ygJEXJaQIdqZhJkFM45TvCcR2Iy+mwpzYumMWMA1AXr+uECjYH5lzZmG3wRoZDVLPkDnU3lb3ftvqU5wh92Iui7+',
    'UtmjhBpIQsFH4uONaY2b25o=',
  ].join(''),
  wait: [
    'u+qfbbKBUST0zjBfs9uPxKI/MIEKgiMCzjQx+/PkAqG8u12i2xqaZoZjZX/N0eQ0D1iiKEAwtgZm9oJNcP2u5t68',
    'LEHmixJbgtGJ3iVloBt3bf/9NoJKSeqz5F8yyxAyb5ig7roEVQER3iYcQmcsZOkEKHI4fymBo0fK6YX8/I3V5cDR',
    'fZLkmRHQfQ==',
  ].join(''),
}

test('a text of 2.0.0 opens: hosts of both versions are one fleet', () => {
  const former = createSeal(
    account({ baseUrl: 'https://api.example.com', apiSecret: 'the secret of the account' }),
  )
  const pair = { fence: 1_780_000_000_000, id: '0123456789abcdef' }
  const textOf = (box: string): string => `${pair.fence} ${pair.id} ${box}`
  const facts = { by: 'web-1', at: 1_780_000_000_000, end: 1_780_000_900_000, ...pair }
  expect(former.accountKey).toBe('e698e52b1357d0e7d1fc6e863f8bf349')
  expect(former.open('record', textOf(BOXES_2_0_0.token))).toEqual({
    kind: 'ok',
    accessToken: 'a.b.c',
    expirySource: 'jwt',
    ...facts,
  })
  expect(former.open('record', textOf(BOXES_2_0_0.refusal))).toMatchObject({
    kind: 'permanent',
    reason: 'account-inactive',
    ...facts,
  })
  expect(former.open('lease', textOf(BOXES_2_0_0.wait))).toEqual({
    kind: 'postponed',
    reason: 'rate-limited',
    detail: '429',
    unconfirmed: null,
    ...facts,
  })
})

test.each(['account-inactive', 'account-not-found', 'assertion', 'rejected'] as const)(
  'a wait for %s is one that 2.0.0 can read',
  (reason) => {
    const outcome = { kind: 'permanent', reason, detail: '', status: 401 } as HostSpecific
    const sent = { ...PAIR, by: 'web-1', sentAtMs: 0 }
    const clocks = { bootMs: () => 0, storeMs: (bootMs: number) => bootMs }
    const around = { link: clocks, askedForMs: 0, notBeforeMs: 0, unconfirmed: null }
    const known = [
      'rate-limited',
      'server-error',
      'malformed-answer',
      'network',
      'timeout',
      'tls',
      'rejected',
    ]
    expect(known).toContain(waitOf(outcome, sent, around).reason)
  },
)
