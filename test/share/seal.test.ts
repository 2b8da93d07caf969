// The seal: a text opens with the account's secrets, for its own key, and with nothing else.
import { expect, test } from 'vitest'
import { createSeal, type Contents } from '../../src/share/seal.ts'

const seal = createSeal('account and secret', 'kyc-tokend')
const record: Contents['record'] = {
  kind: 'ok',
  accessToken: 'the-token',
  expirySource: 'jwt',
  at: 1_800_000_000_000,
  id: '0123456789abcdef',
  by: 'web-1',
  until: 1_800_000_900_000,
}

test('a text opens with the secret, for its key; a token of 16 KiB goes through', () => {
  const long = { ...record, accessToken: 'x'.repeat(16_384) }
  const text = seal.seal('record', long)
  expect(seal.open('record', text)).toEqual(long)
  expect(seal.open('lease', text)).toBeNull()
  expect(createSeal('account and other secret', 'kyc-tokend').open('record', text)).toBeNull()
  // What a host writes, every host reads.
  expect(text).toMatch(/^[A-Za-z0-9+/=]{1,65535}$/)
})

test('a text with one changed bit, a cut one and any other text open to nothing', () => {
  const bytes = Buffer.from(seal.seal('record', record), 'base64')
  for (let bit = 0; bit < bytes.length * 8; bit += 1) {
    const changed = Buffer.from(bytes)
    changed[bit >> 3]! ^= 1 << (bit & 7)
    expect(seal.open('record', changed.toString('base64'))).toBeNull()
  }
  for (let length = 0; length < bytes.length; length += 1)
    expect(seal.open('record', bytes.subarray(0, length).toString('base64'))).toBeNull()
  for (const text of ['', 'x', '=', 'AAAA'.repeat(20)]) expect(seal.open('lease', text)).toBeNull()
})

test('a text and the keys show nothing of the account, and no two texts are the same', () => {
  const [one, other] = [seal.seal('record', record), seal.seal('record', record)]
  expect(one).not.toBe(other)
  for (const hidden of ['the-token', 'web-1', 'secret'])
    expect(Buffer.from(one, 'base64').toString('latin1')).not.toContain(hidden)
  const { record: key, lease } = seal.keys
  expect(key).toMatch(/^kyc-tokend:3:\{[\da-f]{32}\}:record$/)
  // One slot of a cluster.
  expect(lease).toBe(key.replace('record', 'lease'))
})

test('every build opens what another one of this version wrote, with a key that is made of the secret', () => {
  const text = 'eHBLHsEgJMBUDJkkFf1p9h27y4/NJJW5HCuVSQMK5YEtHgTWRAmN52ZkfUTcamhDOqLZHsYcakUNjYlGWkn0wA=='
  expect(seal.open('lease', text)).toEqual({ id: '1', by: 'a', at: 1, until: 2 })
})
