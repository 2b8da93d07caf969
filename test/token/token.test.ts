import * as fc from 'fast-check'
import { expect, test } from 'vitest'
import { fingerprintOf } from '../../src/protocol.ts'
import { lifeOf } from '../../src/token/token.ts'
import { jwtOf } from '../support/jwt.ts'

const nowS = 1_800_000_000
const MAX_AGE_MS = 7
const withPayload = (text: string): string => `x.${Buffer.from(text).toString('base64url')}.y`
const lifeMsOf = (accessToken: string): number =>
  lifeOf({ kind: 'ok', accessToken }, nowS * 1_000, MAX_AGE_MS).lifeMs

const ended = jwtOf({ exp: nowS })
test.each([
  ['is no JWT', ['abc', 'a.b', 'a.b.c', 'a..c', `${ended}.more`, ended.replace(/\.[^.]+$/, '')]],
  ['holds no object', ['[1]', 'null', '5', '"exp"', '{"exp":1800000060'].map(withPayload)],
  ['has no exp that is a number', [jwtOf({}), jwtOf({ exp: 'soon' }), jwtOf({ exp: null })]],
  ['has no date that can be, as one in ms', [nowS * 1_000, 1e300].map((exp) => jwtOf({ exp, iat: exp }))],
  ['has an exp beyond all numbers', ['{"exp":1e999}', '{"exp":-1e999}'].map(withPayload)],
])('the life of a token that %s is assumed', (_, tokens) => {
  for (const token of tokens) expect(lifeMsOf(token), token).toBe(MAX_AGE_MS)
})

test('the life of a JWT is a century at most, and an iat before 1970 says nothing', () => {
  expect(lifeMsOf(jwtOf({ exp: 1e12 }))).toBe(100 * 365 * 24 * 3_600_000)
  expect(lifeMsOf(jwtOf({ exp: nowS + 60, iat: -1e13 }))).toBe(60_000)
  expect(lifeMsOf(jwtOf({ exp: nowS + 60, iat: 0 }))).toBe((nowS + 60) * 1_000)
})

test('the life of a token is read from any text whatsoever without a throw', () => {
  const json = fc.json().map((text) => Buffer.from(text).toString('base64url'))
  const parts = fc.array(fc.oneof(fc.string(), fc.base64String(), json), { maxLength: 4 })
  fc.assert(fc.property(parts, (texts) => Number.isFinite(lifeMsOf(texts.join('.')))))
})

test('a token is named by the first 16 hex digits of its SHA-256', () => {
  expect(fingerprintOf('token')).toBe('3c469e9d6c5875d3')
})
