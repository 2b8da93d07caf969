// A token and its life: how long it lives, counted from when we received it, and when it is to be refreshed.
import { createHash } from 'node:crypto'
import type { Instant } from '../lib/clock.ts'

export interface Token {
  readonly accessToken: string
  /** First 16 hex digits of its SHA-256: how it is named where it may not be shown. */
  readonly fingerprint: string
  /** Counts tokens, from 1. */
  readonly generation: number
  readonly baseUrl: string
  readonly received: Instant
  /** The life that was obtained, in ms. */
  readonly lifeMs: number
  /** End of that life, on the boot clock. */
  readonly expiresAtMs: number
  /** Whether the token itself says when it expires (JWT, `exp`), or a life is assumed for it. */
  readonly expirySource: 'jwt' | 'assumed'
  /** When the next is to be fetched, on the boot clock. */
  readonly refreshAtMs: number
}

/** Lives shorter than this are refreshed at half, longer ones at two thirds less a draw. */
const SHORT_LIFE_MS = 120_000
const REFRESH_SHARE = 2 / 3
const SHORT_REFRESH_SHARE = 1 / 2
/** Share of the life that is drawn and taken off the refresh, so that a fleet that starts together does not refresh together. */
const DRAWN_SHARE = 0.1
/** However short a life is, two fetches are at least so far apart. */
const MIN_REFRESH_AFTER_MS = 1_000
/** A NumericDate beyond this (the year 5138) is milliseconds, written by a service that took them for seconds. */
const MAX_NUMERIC_DATE = 1e11

/** How long after its start a life is to be refreshed. `drawn` is from [0, 1). */
export function refreshAfterMs(lifeMs: number, drawn: number): number {
  const share = lifeMs < SHORT_LIFE_MS ? SHORT_REFRESH_SHARE : REFRESH_SHARE - DRAWN_SHARE * drawn
  return Math.max(MIN_REFRESH_AFTER_MS, lifeMs * share)
}

export function fingerprintOf(accessToken: string): string {
  return createHash('sha256').update(accessToken).digest('hex').slice(0, 16)
}

/**
 * The life a JWT says for itself, in ms: the smaller of `exp - iat` and `exp` minus the answer's `Date`, whichever
 * are known, else `exp` minus our clock; so a wrong local clock does no harm. Undefined where it is no JWT or says
 * none. Zero or less: it arrived expired. Nothing else of the token is read, and no signature is checked.
 */
export function jwtLifeMs(
  accessToken: string,
  moment: { serverDateMs?: number | undefined; wallMs: number },
): number | undefined {
  const { exp, iat } = claimsOf(accessToken)
  const expMs = numericDateMs(exp)
  if (expMs === undefined) return undefined
  const starts = [numericDateMs(iat), moment.serverDateMs].filter((start) => start !== undefined)
  return expMs - (starts.length > 0 ? Math.max(...starts) : moment.wallMs)
}

interface Claims {
  readonly exp?: unknown
  readonly iat?: unknown
}

function claimsOf(accessToken: string): Claims {
  const [, payload = '', signature, ...more] = accessToken.split('.')
  if (signature === undefined || more.length > 0) return {}
  try {
    // Whatever else than an object it is: it has no claims.
    return (JSON.parse(Buffer.from(payload, 'base64url').toString()) as Claims | null) ?? {}
  } catch {
    // Not JSON: an opaque token that happens to have two dots.
    return {}
  }
}

/** RFC 7519 NumericDate (seconds since the epoch) in ms; undefined where it is none. */
function numericDateMs(value: unknown): number | undefined {
  if (!Number.isFinite(value)) return undefined
  const date = value as number
  const seconds = date > MAX_NUMERIC_DATE ? date / 1000 : date
  return seconds > MAX_NUMERIC_DATE ? undefined : seconds * 1000
}
