// The seal: opens what it closed, and nothing else.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { createSeal, type SealOptions, type SharedRecord } from '../../src/share/seal.ts'
import type { RecordHead } from '../../src/share/store.ts'
import { Secret } from '../../src/lib/secret.ts'
import { anyRecord } from '../support/share-world.ts'

const account = (
  change: Partial<Record<'baseUrl' | 'description' | 'apiKey' | 'apiSecret' | 'key', string>> = {},
): SealOptions => {
  const {
    baseUrl = 'https://service.test',
    apiKey = 'key',
    apiSecret = 'a secret of the account',
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
const head: RecordHead = { fence: 1_800_000_000_001, atMs: 1_800_000_000_000, notBeforeMs: 0 }
const token: SharedRecord = {
  kind: 'ok',
  by: 'web-1',
  accessToken: 'eyJ.abc.def',
  lifeMs: 3_600_000,
  expirySource: 'jwt',
  ageMs: 0,
}

const anyText = fc.string({ unit: 'binary', maxLength: 200 })
const anyMs = fc.integer({ min: 0, max: 2 ** 52 })
const anyHead = fc.record({ fence: anyMs, atMs: anyMs, notBeforeMs: anyMs })

test('a box opens with the secret and the head it was closed with', () => {
  const seal = createSeal(account())
  fc.assert(
    fc.property(anyRecord, anyHead, (record, under) => {
      expect(seal.decrypt(seal.encrypt(record, under), under)).toEqual(record)
    }),
  )
})

test('a box with one changed bit does not open', () => {
  const seal = createSeal(account())
  const bytes = Buffer.from(seal.encrypt(token, head), 'base64')
  for (let bit = 0; bit < bytes.length * 8; bit += 1) {
    const changed = Buffer.from(bytes)
    changed[bit >> 3] = (changed[bit >> 3] ?? 0) ^ (1 << (bit & 7))
    expect(seal.decrypt(changed.toString('base64'), head)).toBeNull()
  }
})

test('a box does not open under another fence, age or wait', () => {
  const seal = createSeal(account())
  fc.assert(
    fc.property(anyRecord, anyHead, anyHead, (record, under, other) => {
      fc.pre(JSON.stringify(under) !== JSON.stringify(other))
      expect(seal.decrypt(seal.encrypt(record, under), other)).toBeNull()
    }),
  )
})

test.each([
  ['secret', { apiSecret: 'another secret' }],
  ['key', { apiKey: 'another key' }],
  ['service', { baseUrl: 'https://other.test' }],
  ['description', { description: '{"send":"form"}' }],
  ['share.key', { key: 'sixteen bytes or more' }],
])('another %s has another name in the store, and opens nothing', (_what, change) => {
  const seal = createSeal(account())
  const other = createSeal(account(change))
  expect(other.accountKey).not.toBe(seal.accountKey)
  expect(other.decrypt(seal.encrypt(token, head), head)).toBeNull()
})

test('secret and share.key cannot be cut differently', () => {
  expect(createSeal(account({ apiSecret: 'ab', key: 'c' })).accountKey).not.toBe(
    createSeal(account({ apiSecret: 'a', key: 'bc' })).accountKey,
  )
})

test('hosts of version 1.1.0 have the same name for the account, and read each other’s records', () => {
  const seal = createSeal(account())
  expect(seal.accountKey).toBe('7162bd76bdb4b53ae8877f6ade9b20bb')
  const former =
    'AWV4aacqoWxtm8f37Cvb10zz4tZzKJF53ocOZ6Q6F6cvJhNjoUXV9kJaG6qiyCrVpyTbaLC1h7Gk9mxCK1aP8BQxpDGpY0LNIQxFy4gU6cj9WNS3KClt3HlhHYXTED+fy5wihQrbvrJQ6q+ekgE54V76eWo5Qh4hMzBAA9NNT3OJqCM='
  expect(seal.decrypt(former, head)).toEqual(token)
})

test('any text is opened to nothing', () => {
  const seal = createSeal(account())
  fc.assert(
    fc.property(anyText, (text) => {
      expect(seal.decrypt(text, head)).toBeNull()
      expect(seal.decrypt(`${seal.encrypt(token, head)}${text}`, head)).toEqual(text === '' ? token : null)
    }),
  )
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 400 }), (bytes) => {
      expect(seal.decrypt(Buffer.from([1, ...bytes]).toString('base64'), head)).toBeNull()
    }),
  )
})

test('a box shows nothing of the record, and no two are the same', () => {
  const seal = createSeal(account())
  const box = seal.encrypt(token, head)
  expect(Buffer.from(box, 'base64').toString('latin1')).not.toContain('eyJ')
  expect(seal.encrypt(token, head)).not.toBe(box)
})

describe('what holds the secret and speaks another language', () => {
  test.each([
    ['another kind', { kind: 'rumour', by: 'web-1' }],
    ['no token', { kind: 'ok', by: 'web-1', lifeMs: 1, expirySource: 'jwt' }],
    ['a life that is no number', { ...token, lifeMs: null }],
    ['no host', { ...token, by: undefined }],
    [
      'no word for a reason',
      { kind: 'transient', by: 'web-1', reason: 5, detail: '', status: null, attempts: 1, token: null },
    ],
    ['no record', null],
  ])('is not understood: %s', (_what, record) => {
    const seal = createSeal(account())
    expect(seal.decrypt(seal.encrypt(record as unknown as SharedRecord, head), head)).toBeNull()
  })
})

test('a token of 16 KiB goes through, a record of more than 32 KiB does not', () => {
  const seal = createSeal(account())
  const long: SharedRecord = { ...token, accessToken: 'x'.repeat(16 * 1024) }
  expect(seal.decrypt(seal.encrypt(long, head), head)).toEqual(long)
  const longest: SharedRecord = { ...token, accessToken: 'x'.repeat(32 * 1024 - 200) }
  expect(seal.decrypt(seal.encrypt(longest, head), head)).toEqual(longest)
  expect(() => seal.encrypt({ ...token, accessToken: 'x'.repeat(32 * 1024) }, head)).toThrow(RangeError)
})
