// The plan after a failure: exponential backoff with equal jitter, never sooner than the service asked for.
import type { TransientFailure } from './outcome.ts'

export interface RetryPolicy {
  readonly initialDelayMs: number
  readonly maxDelayMs: number
}

/** Longest wait between attempts while there is no usable token. */
export const MAX_DELAY_WITHOUT_TOKEN_MS = 60_000
/** The shortest wait after `rejected`; the longest is twice as long. */
const REJECTED_MS = 300_000
/** The time between two readings of a ready-made assertion that is not good. */
const ASSERTION_MS = 15_000
/** The wait that a 429 without `Retry-After` asks for. */
const RATE_LIMITED_MS = 60_000
/** The longest `Retry-After` that is followed. */
export const MAX_RETRY_AFTER_MS = 3_600_000
/** The longest wait: that, and the fifth by which hosts come apart. */
export const MAX_RETRY_WAIT_MS = MAX_RETRY_AFTER_MS * 1.2
/** The part of a token's life, at its end, in which the last attempt before that end falls. */
const LAST_SHARE = 1 / 10

/** The life of the usable token, in ms. */
export interface LifeLeft {
  /** Until it goes stale or out of use, whichever is next. */
  readonly freshMs: number
  /** Until it goes out of use. */
  readonly usableMs: number
  /** All of it. */
  readonly lifeMs: number
}
/** A life that ends no wait. */
export const ENDLESS: LifeLeft = { freshMs: Infinity, usableMs: Infinity, lifeMs: Infinity }

interface RetrySituation {
  readonly nowMs: number
  /** Failures in a row, this one included. */
  readonly attempts: number
  readonly policy: RetryPolicy
  /** From [0, 1). */
  readonly drawn: number
  /** Null: there is no usable token. */
  readonly left: LifeLeft | null
  /** The one that an earlier answer set; 0: none did. */
  readonly notBeforeMs: number
}

/** The next attempt after a failure, and the bound that only an operator passes; on the boot clock. */
export function retryPlan(
  { reason, retryAfterMs }: Pick<TransientFailure, 'reason' | 'retryAfterMs'>,
  { nowMs, attempts, policy, drawn, left, notBeforeMs: earlierMs }: RetrySituation,
): { retryAtMs: number; notBeforeMs: number } {
  // Nothing was asked, and nothing need be waited for but the file.
  if (reason === 'assertion')
    return { retryAtMs: Math.max(nowMs + ASSERTION_MS, earlierMs), notBeforeMs: earlierMs }
  const isRejected = reason === 'rejected'
  const wishedMs = isRejected
    ? REJECTED_MS * (1 + drawn)
    : backoffMs(attempts, { ...policy, maxDelayMs: delayCapMs(policy, left) }, drawn)
  const waitMs = left === null ? wishedMs : withinLifeMs(wishedMs, left, drawn)
  const askedForMs = retryAfterMs ?? (reason === 'rate-limited' ? RATE_LIMITED_MS : undefined)
  const paceEndsAtMs = isRejected ? nowMs + waitMs : 0
  const askedUntilMs = askedForMs === undefined ? 0 : nowMs + spread(askedForMs, drawn)
  const notBeforeMs = Math.max(earlierMs, paceEndsAtMs, askedUntilMs)
  return { retryAtMs: Math.max(nowMs + waitMs, notBeforeMs), notBeforeMs }
}

/** Hosts that get the same Retry-After at the same time do not ask again at the same time. */
function spread(askedForMs: number, drawn: number): number {
  return askedForMs + Math.max(askedForMs / 5, 1_000) * drawn
}

/**
 * The cap on a delay: `maxDelay`; without a usable token a minute at most, with one the rest of its life at
 * most, so that the next attempt comes before its end.
 */
export function delayCapMs({ initialDelayMs, maxDelayMs }: RetryPolicy, left: LifeLeft | null): number {
  if (left === null) return Math.min(maxDelayMs, MAX_DELAY_WITHOUT_TOKEN_MS)
  return Math.min(maxDelayMs, Math.max(initialDelayMs, left.freshMs))
}

/** A delay d doubles with each attempt up to the cap, and is drawn from [d/2, d], at the cap too. */
export function backoffMs(attempts: number, policy: RetryPolicy, drawn: number): number {
  const delayMs = Math.min(policy.maxDelayMs, policy.initialDelayMs * 2 ** (attempts - 1))
  return delayMs / 2 + (delayMs / 2) * drawn
}

/** A wait that would end after the token's life ends in its last tenth, if that has not begun. */
function withinLifeMs(waitMs: number, { usableMs, lifeMs }: LifeLeft, drawn: number): number {
  const lastMs = LAST_SHARE * lifeMs
  if (waitMs < usableMs || usableMs <= lastMs) return waitMs
  const fromMs = Math.max(usableMs - lastMs, usableMs / 2)
  return fromMs + (usableMs - fromMs) * drawn
}
