// Tokens of the stand-in: shaped like the service's, signed with a random key, and remembered until they expire.
import { createHmac, randomBytes } from 'node:crypto'

export type SandboxTokens = ReturnType<typeof createTokens>

export function createTokens(lifetimeMs: number) {
  const key = randomBytes(32)
  const expiries = new Map<string, number>()

  function remember(token: string, expiresAtMs: number, nowMs: number): string {
    for (const [old, oldExpiresAtMs] of expiries) if (oldExpiresAtMs <= nowMs) expiries.delete(old)
    expiries.set(token, expiresAtMs)
    return token
  }
  /** Whole seconds, as most services have them: `exp` is `iat` and the life. */
  function jwt(iatMs: number): { token: string; expiresAtMs: number } {
    const iat = Math.floor(iatMs / 1000)
    const exp = iat + Math.ceil(lifetimeMs / 1000)
    const jti = randomBytes(9).toString('base64url')
    const claims = { iss: 'kyc-tokend sandbox', sub: 'sandbox', iat, exp, jti }
    const content = `${encoded({ alg: 'HS256', typ: 'JWT' })}.${encoded(claims)}`
    const signature = createHmac('sha256', key).update(content).digest('base64url')
    return { token: `${content}.${signature}`, expiresAtMs: exp * 1000 }
  }

  return {
    /** A JWT (HS256) that says when it expires. */
    issueJwt(nowMs: number): string {
      const { token, expiresAtMs } = jwt(nowMs)
      return remember(token, expiresAtMs, nowMs)
    },
    /** A JWT whose expiry is past. */
    issueExpired: (nowMs: number): string => jwt(nowMs - lifetimeMs - 60_000).token,
    /** A token that says nothing of itself, and expires as the others do. */
    issueOpaque: (nowMs: number): string =>
      remember(randomBytes(24).toString('base64url'), nowMs + lifetimeMs, nowMs),
    /** Until when it is taken, in ms since the epoch; undefined where it is not. */
    expiryOf(token: string, nowMs: number): number | undefined {
      const expiresAtMs = expiries.get(token)
      return expiresAtMs !== undefined && expiresAtMs > nowMs ? expiresAtMs : undefined
    },
  }
}

function encoded(value: unknown): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url')
}
