// A token and its life: how long it lives, counted from its reception, and when it is refreshed. Pure.
import { hash } from 'node:crypto'
import type { Instant } from '../lib/clock.ts'
import { isRecord, parseJson } from '../lib/input.ts'
import { FINGERPRINT_LENGTH, type ExpirySource } from '../protocol.ts'
import type { Grant } from './outcome.ts'

/** Longest access token that is accepted, in characters. */
export const MAX_TOKEN_LENGTH = 16 * 1024
/** Visible ASCII but what ends or escapes a text in headers, shells and files of variables. */
export const TOKEN = /^[!#-&(-+\--:<-[\]-~]+$/

export interface Token {
  readonly accessToken: string
  /** First 16 hex digits of its SHA-256: its name where it may not be shown. */
  readonly fingerprint: string
  /** Counts tokens, from 1. */
  readonly generation: number
  readonly baseUrl: string
  /** Id of the pair that obtained it. */
  readonly pair: string
  /** Its wall clock shows all instants of the token: so their texts change only when that clock is set. */
  readonly received: Instant
  /** The life that was obtained, in ms. */
  readonly lifeMs: number
  /** End of that life, on the boot clock. */
  readonly expiresAtMs: number
  readonly expirySource: ExpirySource
  /** `exp` of a JWT, in ms since the epoch; null: it has none. */
  readonly expMs: number | null
  /** Time of the next refresh, on the boot clock. */
  readonly refreshAtMs: number
  /** Half of the time to the refresh that the last answer planned: a later report begins a new row. */
  readonly calmAtMs: number
  /** The life that was left at the last answer that gave it, in ms: no new token can be expected to have more. */
  readonly givenMs: number
  /** Clients caused the request that gave it last. */
  readonly isOfClients: boolean
  /** Clients reported it since it was given last. */
  readonly isReported: boolean
  /** It was reported, and then given again by the service. */
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
/** A NumericDate beyond this is milliseconds (of 2001 or later) from a service that took them for seconds. */
const MAX_NUMERIC_DATE = 1e12
/** Clocks, whole seconds and the time of a request make two counts of one life differ by less. */
const COUNT_GRAIN_MS = 2_000

/** Time from the start of a life to its refresh, in ms. `drawn` is from [0, 1). */
export function refreshAfterMs(lifeMs: number, drawn: number): number {
  if (lifeMs < SHORT_LIFE_MS) return Math.max(MIN_REFRESH_AFTER_MS, lifeMs / 2)
  const latestMs = MAX_REFRESH_AFTER_MS * (1 - DRAWN_SHARE * drawn)
  return Math.min(lifeMs * (2 / 3 - DRAWN_SHARE * drawn), latestMs)
}

type Plan = Pick<Token, 'lifeMs' | 'expiresAtMs' | 'refreshAtMs' | 'calmAtMs' | 'givenMs'>

/** A life of this length from `startMs` on, planned at `nowMs`; all on the boot clock. */
export function lifeFrom(startMs: number, lifeMs: number, at: { nowMs: number; drawn: number }): Plan {
  const expiresAtMs = startMs + lifeMs
  const refreshAtMs = startMs + refreshAfterMs(lifeMs, at.drawn)
  const calmAtMs = at.nowMs + (refreshAtMs - at.nowMs) / 2
  return { lifeMs, expiresAtMs, refreshAtMs, calmAtMs, givenMs: expiresAtMs - at.nowMs }
}

interface Receipt {
  readonly generation: number
  readonly baseUrl: string
  readonly pair: string
  /** Life assumed for a token that does not say its own, in ms. */
  readonly maxAgeMs: number
  readonly isOfClients: boolean
  readonly now: Instant
  readonly drawn: number
}

/** The token of a grant, with or without life left. `before`: the token that is held, perhaps the same. */
export function tokenOf(grant: Grant, before: Token | null, receipt: Receipt): Token {
  const { generation, baseUrl, pair, isOfClients, now, drawn } = receipt
  const { accessToken, ageMs = 0 } = grant
  const received = { bootMs: now.bootMs - ageMs, wallMs: now.wallMs - ageMs }
  const known = knownLife(grant, now.wallMs) ?? { lifeMs: Infinity, expirySource: 'assumed' as const }
  const { lifeMs, expirySource } = { ...known, ...grant }
  const fresh: Token = {
    accessToken,
    fingerprint: fingerprintOf(accessToken),
    generation: generation + 1,
    baseUrl,
    pair,
    received,
    // Of two assumed lives the shorter counts: the one that another host sent, or the one here.
    ...lifeFrom(received.bootMs, expirySource === 'assumed' ? Math.min(lifeMs, receipt.maxAgeMs) : lifeMs, {
      nowMs: now.bootMs,
      drawn,
    }),
    expirySource,
    expMs: numericDateMs(claimsOf(accessToken).exp) ?? null,
    isOfClients,
    isReported: false,
    isUnchanged: false,
  }
  return before?.fingerprint === fresh.fingerprint ? sameAgain(before, fresh, now.bootMs) : fresh
}

/**
 * The same token given again keeps its number and its time of reception. One whose life the service counts down
 * is asked for again at half of what is left: a cache may have another token any moment. A life that is counted
 * anew is a new plan.
 */
function sameAgain(before: Token, fresh: Token, nowMs: number): Token {
  const { generation, received, lifeMs } = before
  const same = { ...fresh, generation, received, isUnchanged: before.isReported || before.isUnchanged }
  const isLater = fresh.expiresAtMs > before.expiresAtMs + COUNT_GRAIN_MS
  const isAnew = fresh.expirySource === 'assumed' || (fresh.expirySource === 'response' && isLater)
  if (isAnew) return same
  const expiresAtMs = Math.min(before.expiresAtMs, fresh.expiresAtMs)
  const leftMs = expiresAtMs - nowMs
  const waitMs = Math.min(leftMs, Math.max(MIN_AGAIN_MS, leftMs / 2), MAX_REFRESH_AFTER_MS)
  return {
    ...same,
    lifeMs,
    expiresAtMs,
    refreshAtMs: nowMs + waitMs,
    calmAtMs: nowMs + waitMs / 2,
    givenMs: leftMs,
  }
}

/** How far two clocks are ahead of the boot clock, in ms; null: the service has not shown its own. */
export interface Clocks {
  readonly wallMs: number
  readonly serviceMs: number | null
}

/**
 * Until then a token may be handed out, on the boot clock: its end, or twice the life that was assumed for it. A
 * JWT ends at its `exp`, too, once both our clock and the service's show that as past.
 */
export function usableUntilOf(token: Token, { wallMs, serviceMs }: Clocks): number {
  const { expirySource, expiresAtMs, lifeMs, expMs } = token
  const endMs = expirySource === 'assumed' ? expiresAtMs + lifeMs : expiresAtMs
  if (expMs === null || serviceMs === null) return endMs
  return Math.min(endMs, expMs - Math.min(wallMs, serviceMs))
}

export function fingerprintOf(accessToken: string): string {
  return hash('sha256', accessToken).slice(0, FINGERPRINT_LENGTH)
}

/**
 * The life a JWT says for itself, in ms: the smaller of `exp - iat` and `exp` minus the answer's `Date`,
 * whichever are known, else `exp` minus our clock; so a wrong local clock does no harm. Undefined if it is no
 * JWT or has no `exp`. Zero or less: it arrived expired. Nothing else of the token is read, and no signature
 * is checked.
 */
export function jwtLifeMs(
  accessToken: string,
  moment: { serverDateMs?: number | undefined; wallMs: number },
): number | undefined {
  const { exp, iat } = claimsOf(accessToken)
  const expMs = numericDateMs(exp)
  if (expMs === undefined) return undefined
  // No token was issued before 1970: such an `iat` means nothing.
  const startMs = Math.max(numericDateMs(iat) ?? -1, moment.serverDateMs ?? -1)
  return Math.min(MAX_LIFE_MS, expMs - (startMs < 0 ? moment.wallMs : startMs))
}

/** The smallest known life of a grant, in ms: by the token or by the answer; undefined: neither says one. */
export function knownLife(
  { accessToken, serverDateMs, answerLifeMs }: Grant,
  wallMs: number,
): { lifeMs: number; expirySource: ExpirySource } | undefined {
  const ownMs = jwtLifeMs(accessToken, { serverDateMs, wallMs })
  if (answerLifeMs !== undefined && answerLifeMs < (ownMs ?? Infinity))
    return { lifeMs: Math.min(MAX_LIFE_MS, answerLifeMs), expirySource: 'response' }
  return ownMs === undefined ? undefined : { lifeMs: ownMs, expirySource: 'jwt' }
}

function claimsOf(accessToken: string): { exp?: unknown; iat?: unknown } {
  const [, payload = '', signature, ...more] = accessToken.split('.')
  if (signature === undefined || more.length > 0) return {}
  // Anything else than an object has no claims: an opaque token that happens to have two dots.
  const claims = parseJson(Buffer.from(payload, 'base64url').toString())
  return isRecord(claims) ? claims : {}
}

/** RFC 7519 NumericDate (seconds since the epoch) in ms; undefined if it is none. */
function numericDateMs(value: unknown): number | undefined {
  if (!Number.isFinite(value)) return undefined
  const date = value as number
  const seconds = date > MAX_NUMERIC_DATE ? date / 1000 : date
  return seconds > MAX_NUMERIC_DATE ? undefined : seconds * 1000
}
