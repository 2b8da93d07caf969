// The tokens of the stand-in: issues them, and knows when each expires.
import { createHmac, randomBytes } from 'node:crypto'
import type { TokenKind } from './scenarios.ts'

/** Time since the expiry of an expired token. */
const EXPIRED_MS = 60_000

export function createTokens(lifetimeMs: number) {
  const key = randomBytes(32)
  const expiries = new Map<string, number>()

  function jwt(claims: object): string {
    const content = `${encoded({ alg: 'HS256', typ: 'JWT' })}.${encoded(claims)}`
    return `${content}.${createHmac('sha256', key).update(content).digest('base64url')}`
  }

  return {
    issue(kind: TokenKind, nowMs: number): string {
      for (const [old, expiresAtMs] of expiries) if (expiresAtMs <= nowMs) expiries.delete(old)
      // Whole seconds, as most services have them: `exp` is `iat` and the life.
      const iat = Math.floor((kind === 'expired' ? nowMs - lifetimeMs - EXPIRED_MS : nowMs) / 1_000)
      const exp = iat + Math.ceil(lifetimeMs / 1_000)
      const jti = randomBytes(24).toString('base64url')
      const token =
        kind === 'opaque' ? jti : jwt({ iss: 'kyc-tokend sandbox', sub: 'sandbox', iat, exp, jti })
      expiries.set(token, exp * 1_000)
      return token
    },
    /** When a valid token expires, in ms since the epoch; undefined for any other. */
    expiryOf(token: string, nowMs: number): number | undefined {
      const expiresAtMs = expiries.get(token)
      return expiresAtMs !== undefined && expiresAtMs > nowMs ? expiresAtMs : undefined
    },
  }
}

function encoded(value: unknown): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url')
}
