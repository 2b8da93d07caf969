// The wait after a failure: exponential with equal jitter, never shorter than the service asked for.
import type { TransientFailure } from './outcome.ts'

export interface RetryPolicy {
  readonly initialDelayMs: number
  readonly maxDelayMs: number
}

export interface RetryWait {
  /** Until the next attempt, in ms. */
  readonly waitMs: number
  /** The part of it that only an operator may shorten (`Retry-After`, the interval of `rejected`), in ms. */
  readonly minWaitMs: number
}

/** Longest wait between attempts while there is no usable token. */
export const MAX_DELAY_WITHOUT_TOKEN_MS = 60_000
const REJECTED_INTERVAL_MS = { from: 300_000, to: 600_000 }
const RATE_LIMITED_DEFAULT_MS = 60_000
const RETRY_AFTER_SPREAD = { share: 0.2, atLeastMs: 1_000 }

/**
 * The cap on a delay: `maxDelay`, and no more than a minute while there is no usable token; with one no more than what
 * is left of its life (`leftMs`), so that it does not end before the next attempt.
 */
export function delayCapMs({ initialDelayMs, maxDelayMs }: RetryPolicy, leftMs: number): number {
  if (leftMs <= 0) return Math.min(maxDelayMs, MAX_DELAY_WITHOUT_TOKEN_MS)
  return Math.min(maxDelayMs, Math.max(initialDelayMs, leftMs))
}

/** A delay d doubles with each attempt up to the cap, and is drawn from [d/2, d], at the cap too. `drawn` is from [0, 1). */
export function backoffMs(
  attempts: number,
  initialDelayMs: number,
  capMs: number,
  randomUnit: number,
): number {
  const delayMs = Math.min(capMs, initialDelayMs * 2 ** (attempts - 1))
  return delayMs / 2 + (delayMs / 2) * randomUnit
}

/** The wait after the failure that was the `attempts`-th in a row. `leftMs`: of the usable token's life; 0: there is none. */
export function retryWait(
  failure: Pick<TransientFailure, 'reason' | 'retryAfterMs'>,
  situation: { attempts: number; policy: RetryPolicy; leftMs: number; random: () => number },
): RetryWait {
  const { attempts, policy, leftMs, random } = situation
  const minWaitMs = Math.max(minIntervalMs(failure.reason, random), retryAfterMs(failure, random))
  const delayMs = backoffMs(attempts, policy.initialDelayMs, delayCapMs(policy, leftMs), random())
  return { waitMs: Math.max(minWaitMs, failure.reason === 'rejected' ? 0 : delayMs), minWaitMs }
}

function minIntervalMs(reason: TransientFailure['reason'], random: () => number): number {
  if (reason !== 'rejected') return 0
  return REJECTED_INTERVAL_MS.from + (REJECTED_INTERVAL_MS.to - REJECTED_INTERVAL_MS.from) * random()
}

function retryAfterMs(
  failure: Pick<TransientFailure, 'reason' | 'retryAfterMs'>,
  random: () => number,
): number {
  const boundMs =
    failure.retryAfterMs ?? (failure.reason === 'rate-limited' ? RATE_LIMITED_DEFAULT_MS : undefined)
  if (boundMs === undefined) return 0
  const spreadMs = Math.max(boundMs * RETRY_AFTER_SPREAD.share, RETRY_AFTER_SPREAD.atLeastMs)
  return boundMs + spreadMs * random()
}
