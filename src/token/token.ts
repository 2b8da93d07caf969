// A token and its life: how long it lives, counted from its reception, and when it is to be refreshed.
import type { Instant } from '../lib/clock.ts'
import { sha256 } from '../lib/crypto.ts'
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
  /** The credentials that it was obtained with, see TokenState. */
  readonly credentialsId: string
  /** Its wall clock shows all instants of the token: so their texts change only when that clock is set. */
  readonly received: Instant
  /** The life that was obtained, in ms. */
  readonly lifeMs: number
  /** End of that life, on the boot clock. */
  readonly expiresAtMs: number
  readonly expirySource: ExpirySource
  /** Time of the next refresh, on the boot clock. */
  readonly refreshAtMs: number
  /** The number of the answer that gave it last (see TokenState). */
  readonly answer: number
  /** A client caused the request that gave it last, and none has reported it since. */
  readonly isOfClients: boolean
  /** The service gave it again with its life counted down: it gives no other before the end of that life. */
  readonly isSameUntilEnd: boolean
  /** The text by which `share/` knows this answer again; null: it is not shared. */
  readonly known: string | null
}

/** Reports whether both are of the same service, whatever the credentials. */
export function isSameService(one: ServiceKey, other: ServiceKey): boolean {
  return one.baseUrl === other.baseUrl && descriptionOf(one) === descriptionOf(other)
}
type ServiceKey = Pick<Token, 'baseUrl' | 'credentialsId'>

/** The fingerprint of the service's description, see TokenState; undefined: it is the standard one. */
function descriptionOf({ credentialsId }: ServiceKey): string | undefined {
  const [description, id] = credentialsId.split(':')
  return id === undefined ? undefined : description
}

/** Lives shorter than this are refreshed at half, longer ones at two thirds less a draw. */
const SHORT_LIFE_MS = 120_000
/** Share of the life that is drawn and taken off: a fleet that starts together does not refresh together. */
const DRAWN_SHARE = 0.1
/** The shortest time from one fetch to the refresh, however short the life is. */
const MIN_REFRESH_AFTER_MS = 1_000
/** The longest time to the refresh: a wrong date must not keep a token for years. */
const MAX_REFRESH_AFTER_MS = 24 * 3_600_000
/** A century: longer lives are counted as this one, so that every instant can be written as a date. */
const MAX_LIFE_MS = 100 * 365 * 24 * 3_600_000
/** A NumericDate beyond this is milliseconds (of 2001 or later) from a service that took them for seconds. */
const MAX_NUMERIC_DATE = 1e12

/** Time from the start of a life to its refresh, in ms. `drawn` is from [0, 1). */
export function refreshAfterMs(lifeMs: number, drawn: number): number {
  if (lifeMs < SHORT_LIFE_MS) return Math.max(MIN_REFRESH_AFTER_MS, lifeMs / 2)
  const latestMs = MAX_REFRESH_AFTER_MS * (1 - DRAWN_SHARE * drawn)
  return Math.min(lifeMs * (2 / 3 - DRAWN_SHARE * drawn), latestMs)
}

/** A life of this length from this moment on, with its end and its refresh, on the boot clock. */
export function lifeFrom(
  startMs: number,
  lifeMs: number,
  drawn: number,
): Pick<Token, 'lifeMs' | 'expiresAtMs' | 'refreshAtMs'> {
  return { lifeMs, expiresAtMs: startMs + lifeMs, refreshAtMs: startMs + refreshAfterMs(lifeMs, drawn) }
}

/** Clocks, whole seconds and the time of a request make two counts of one life differ by less. */
const COUNT_GRAIN_MS = 2_000
/** The request at the end of a life that the service counts down comes within this time after it. */
const AFTER_END_MS = 1_000

/**
 * The same token given again keeps its number and its time of reception. If its life is counted down, as that
 * of a JWT always is, the service gives no other token before the end of that life, and is asked then; a life
 * that is counted anew is a new plan.
 */
export function sameAgain(
  before: Token,
  fresh: Token,
  { now, drawn }: { now: Instant; drawn: number },
): Token {
  const { generation, received } = before
  const isOlder = fresh.received.bootMs - received.bootMs > 2 * COUNT_GRAIN_MS
  const isNotLater = isOlder && fresh.expiresAtMs <= before.expiresAtMs + COUNT_GRAIN_MS
  const isCountedDown = fresh.expirySource === 'jwt' || (fresh.expirySource === 'response' && isNotLater)
  if (!isCountedDown) return { ...fresh, generation, received }
  const expiresAtMs = Math.min(before.expiresAtMs, fresh.expiresAtMs)
  const refreshAtMs = Math.min(expiresAtMs + AFTER_END_MS * drawn, now.bootMs + MAX_REFRESH_AFTER_MS)
  const { lifeMs } = before
  return { ...fresh, generation, received, lifeMs, expiresAtMs, refreshAtMs, isSameUntilEnd: true }
}

export function fingerprintOf(accessToken: string): string {
  return sha256(accessToken).slice(0, FINGERPRINT_LENGTH)
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

/** The `exp` of a JWT, in ms since the epoch; null: it has none. Undefined: the text is no JWT. */
export function jwtEndMs(text: string): number | null | undefined {
  const [head = '', payload = '', ...more] = text.split('.')
  const isWhole = more.length === 1 && [head, payload, more[0]!].every((part) => /^[\w-]+$/.test(part))
  const isObject = (part: string): boolean => isRecord(parseJson(Buffer.from(part, 'base64url').toString()))
  if (!isWhole || ![head, payload].every(isObject)) return undefined
  return numericDateMs(claimsOf(text).exp) ?? null
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
