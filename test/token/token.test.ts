import * as fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { fingerprintOf } from '../../src/protocol.ts'
import { knownLife } from '../../src/token/token.ts'
import { jwtOf } from '../support/jwt.ts'

const nowS = 1_800_000_000
const ours = nowS * 1000
const jwtLifeMs = (accessToken: string, wallMs: number) =>
  knownLife({ kind: 'ok', accessToken }, wallMs)?.lifeMs

describe('the life of a JWT', () => {
  test('is unknown for a token without a readable exp', () => {
    const opaque = [
      'abc',
      'a.b',
      'a.b.c',
      'a..c',
      jwtOf({}),
      jwtOf({ exp: 'soon' }),
      jwtOf({ exp: null }),
      ...['[1]', 'null', '5', 'true', '"exp"', '{"exp":1e999}', '{"exp":-1e999}', '{"exp":1800000060'].map(
        (payload) => `x.${Buffer.from(payload).toString('base64url')}.y`,
      ),
      `${jwtOf({ exp: nowS })}.more`,
      jwtOf({ exp: nowS }).split('.').slice(0, 2).join('.'),
    ]
    for (const token of opaque) expect(jwtLifeMs(token, ours), token).toBeUndefined()
  })

  test('is a century at most, and an iat before 1970 says nothing', () => {
    const century = 100 * 365 * 24 * 3_600_000
    expect(jwtLifeMs(jwtOf({ exp: 1e12 }), ours)).toBe(century)
    // No date that can be, such as one in ms.
    for (const exp of [nowS * 1_000, 1e300, 1e308])
      expect(jwtLifeMs(jwtOf({ exp, iat: exp }), ours)).toBe(undefined)
    expect(jwtLifeMs(jwtOf({ exp: nowS + 60, iat: -1e13 }), ours)).toBe(60_000)
    expect(jwtLifeMs(jwtOf({ exp: nowS + 60, iat: 0 }), ours)).toBe((nowS + 60) * 1_000)
  })

  test('is read from any text whatsoever without a throw', () => {
    const part = fc.oneof(
      fc.string(),
      fc.base64String(),
      fc.json().map((json) => Buffer.from(json).toString('base64url')),
    )
    fc.assert(
      fc.property(fc.array(part, { maxLength: 4 }), (parts) => {
        const lifeMs = jwtLifeMs(parts.join('.'), ours)
        expect(lifeMs === undefined || Number.isFinite(lifeMs)).toBe(true)
      }),
    )
  })
})

test('a token is named by the first 16 hex digits of its SHA-256', () => {
  expect(fingerprintOf('token')).toBe('3c469e9d6c5875d3')
})
