// A token and its life: how long it lives, counted from its reception, and when it is refreshed. Pure.
import type { Instant } from '../lib/clock.ts'
import { parseRecord } from '../lib/input.ts'
import { fingerprintOf, type ExpirySource } from '../protocol.ts'
import type { Grant } from './outcome.ts'

/** Longest access token that is accepted, in characters. */
export const MAX_TOKEN_LENGTH = 16 * 1024
/** Visible ASCII but what ends or escapes a text in headers, shells and files of variables. */
export const TOKEN = /^[!#-&(-+\--:<-[\]-~]+$/

export interface Token {
  readonly accessToken: string
  /** First 16 hex digits of its SHA-256: its name where it may not be shown. */
  readonly fingerprint: string
  /** Id of the pair that obtained it. */
  readonly pair: string
  /** When it was received, on the boot clock. */
  readonly receivedAtMs: number
  /** When an answer gave it last, on the boot clock. */
  readonly givenAtMs: number
  /** The life that was obtained, in ms. */
  readonly lifeMs: number
  /** End of that life, on the boot clock. */
  readonly expiresAtMs: number
  readonly expirySource: ExpirySource
  /** `exp` of a JWT, in ms since the epoch; null: it has none. */
  readonly expMs: number | null
  /** Time of the next refresh, on the boot clock. */
  readonly refreshAtMs: number
  /** The last answer gave it again. */
  readonly isUnchanged: boolean
}

/** Lives shorter than this are refreshed at half, longer ones at two thirds less a draw. */
const SHORT_LIFE_MS = 120_000
/** Share of the life that is drawn and taken off: a fleet that starts together does not refresh together. */
const DRAWN_SHARE = 0.1
/** The shortest time from one fetch to the refresh, however short the life is. */
const MIN_REFRESH_AFTER_MS = 1_000
/** The longest time to the refresh: a wrong date must not keep a token for years. */
const MAX_REFRESH_AFTER_MS = 24 * 3_600_000
/** The shortest time to the refresh of a token that the service gave again. */
const MIN_AGAIN_MS = 5_000
/** A century: longer lives are counted as this one, so that every instant can be written as a date. */
const MAX_LIFE_MS = 100 * 365 * 24 * 3_600_000
/** Clocks, whole seconds and the time of a request make two counts of one life differ by less. */
const COUNT_GRAIN_MS = 2_000

/** A life of this length from `startMs` on, on the boot clock. `drawn` is from [0, 1). */
export function lifeFrom(
  startMs: number,
  lifeMs: number,
  drawn: number,
): Pick<Token, 'lifeMs' | 'expiresAtMs' | 'refreshAtMs'> {
  const drawnShare = DRAWN_SHARE * drawn
  const longMs = Math.min(lifeMs * (2 / 3 - drawnShare), MAX_REFRESH_AFTER_MS * (1 - drawnShare))
  const refreshAfterMs = lifeMs < SHORT_LIFE_MS ? Math.max(MIN_REFRESH_AFTER_MS, lifeMs / 2) : longMs
  return { lifeMs, expiresAtMs: startMs + lifeMs, refreshAtMs: startMs + refreshAfterMs }
}

/**
 * The token of a grant to this pair, with or without life left. `before`: the token that is held, perhaps the same.
 * `maxAgeMs`: the life of a token that does not say its own.
 */
export function tokenOf(
  grant: Grant,
  { before, pair, maxAgeMs }: { before: Token | null; pair: string; maxAgeMs: number },
  { now, drawn }: { now: Instant; drawn: number },
): Token {
  const { accessToken, ageMs = 0 } = grant
  const receivedAtMs = now.bootMs - ageMs
  const { lifeMs, expirySource, expMs } = { ...lifeOf(grant, now.wallMs, maxAgeMs), ...grant }
  // Of two assumed lives the shorter counts: another host may have another `maxAge`.
  const leastMs = expirySource === 'assumed' ? Math.min(lifeMs, maxAgeMs) : lifeMs
  const fresh: Token = {
    accessToken,
    fingerprint: fingerprintOf(accessToken),
    pair,
    receivedAtMs,
    givenAtMs: now.bootMs,
    ...lifeFrom(receivedAtMs, leastMs, drawn),
    expirySource,
    expMs,
    isUnchanged: false,
  }
  return before?.fingerprint === fresh.fingerprint ? sameAgain(before, fresh) : fresh
}

/**
 * The same token given again keeps its time of reception. One whose life the service counts down is asked for again
 * at half of what is left: a cache may have another token any moment. A life that is counted anew is a new plan.
 */
function sameAgain({ receivedAtMs, lifeMs, expiresAtMs: beforeMs }: Token, fresh: Token): Token {
  const { givenAtMs: nowMs } = fresh
  const same = { ...fresh, receivedAtMs, isUnchanged: true }
  if (fresh.expirySource !== 'jwt' && fresh.expiresAtMs > beforeMs + COUNT_GRAIN_MS) return same
  const expiresAtMs = Math.min(beforeMs, fresh.expiresAtMs)
  const leftMs = expiresAtMs - nowMs
  const waitMs = Math.min(leftMs, Math.max(MIN_AGAIN_MS, leftMs / 2), MAX_REFRESH_AFTER_MS)
  return { ...same, lifeMs, expiresAtMs, refreshAtMs: nowMs + waitMs }
}

/**
 * The life of a grant, in ms: the smaller of those that the token and the answer say, else `maxAgeMs`. That of a JWT is
 * the smaller of `exp - iat` and `exp` minus the answer's `Date`, whichever are known, else `exp` minus our clock; so a
 * wrong local clock does no harm. Zero or less: it arrived expired. No signature is checked.
 */
export function lifeOf(
  { accessToken, serverDateMs, answerLifeMs = Infinity }: Grant,
  wallMs: number,
  maxAgeMs: number,
): Pick<Token, 'lifeMs' | 'expirySource' | 'expMs'> {
  const { expMs, iatMs } = datesOf(accessToken)
  // No token was issued before 1970: such an `iat` means nothing.
  const startMs = Math.max(iatMs ?? -1, serverDateMs ?? -1)
  const ownMs = expMs === null ? Infinity : expMs - (startMs < 0 ? wallMs : startMs)
  const saidMs = Math.min(ownMs, answerLifeMs)
  if (saidMs === Infinity) return { lifeMs: maxAgeMs, expirySource: 'assumed', expMs }
  return { lifeMs: Math.min(MAX_LIFE_MS, saidMs), expirySource: saidMs < ownMs ? 'response' : 'jwt', expMs }
}

/** `exp` and `iat` of a JWT (RFC 7519), in ms since the epoch; null: it is none, or says no date that can be. */
function datesOf(accessToken: string): { expMs: number | null; iatMs: number | null } {
  const parts = accessToken.split('.')
  const payload = parts.length === 3 ? Buffer.from(parts[1]!, 'base64url').toString() : ''
  // Anything else than an object has no claims: an opaque token that happens to have two dots.
  const { exp, iat } = parseRecord(payload) ?? {}
  // Up to the year 33,658.
  const inMs = (seconds: unknown): number | null =>
    typeof seconds === 'number' && Math.abs(seconds) <= 1e12 ? seconds * 1_000 : null
  return { expMs: inMs(exp), iatMs: inMs(iat) }
}
