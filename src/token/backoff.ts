// The wait after a failure: exponential with equal jitter, never shorter than the service asked for.
import type { TransientFailure } from './outcome.ts'

export interface RetryPolicy {
  readonly initialDelayMs: number
  readonly maxDelayMs: number
}

/** Longest wait between attempts while there is no usable token. */
export const MAX_DELAY_WITHOUT_TOKEN_MS = 60_000
/** The shortest interval of `rejected`; the longest is twice as long. */
const REJECTED_INTERVAL_MS = 300_000
/** The bound of a 429 without `Retry-After`. */
const RATE_LIMITED_DEFAULT_MS = 60_000

/**
 * The cap on a delay: `maxDelay`. While there is no usable token, it is at most a minute; while there is one, at most the
 * rest of its life (`leftMs`), so that the life does not end before the next attempt.
 */
export function delayCapMs({ initialDelayMs, maxDelayMs }: RetryPolicy, leftMs: number): number {
  if (leftMs <= 0) return Math.min(maxDelayMs, MAX_DELAY_WITHOUT_TOKEN_MS)
  return Math.min(maxDelayMs, Math.max(initialDelayMs, leftMs))
}

/** A delay d doubles with each attempt up to the cap, and is drawn from [d/2, d], at the cap too. `drawn` is from [0, 1). */
export function backoffMs(attempts: number, initialDelayMs: number, capMs: number, drawn: number): number {
  const delayMs = Math.min(capMs, initialDelayMs * 2 ** (attempts - 1))
  return delayMs / 2 + (delayMs / 2) * drawn
}

/**
 * The wait after the `attempts`-th failure in a row, in ms, the part of it that only an operator may shorten (`Retry-After`,
 * the interval of `rejected`), and `Retry-After` alone. `leftMs`: the rest of the usable token's life; 0: there is none.
 */
export function retryWait(
  failure: Pick<TransientFailure, 'reason' | 'retryAfterMs'>,
  situation: { attempts: number; policy: RetryPolicy; leftMs: number; random: () => number },
): { waitMs: number; minWaitMs: number; boundMs: number } {
  const { attempts, policy, leftMs, random } = situation
  const { reason, retryAfterMs = reason === 'rate-limited' ? RATE_LIMITED_DEFAULT_MS : null } = failure
  // Hosts that get the same Retry-After at the same time do not ask again at the same time.
  const boundMs = retryAfterMs === null ? 0 : retryAfterMs + Math.max(retryAfterMs / 5, 1_000) * random()
  if (reason === 'rejected') {
    const minWaitMs = Math.max(boundMs, REJECTED_INTERVAL_MS * (1 + random()))
    return { waitMs: minWaitMs, minWaitMs, boundMs }
  }
  const delayMs = backoffMs(attempts, policy.initialDelayMs, delayCapMs(policy, leftMs), random())
  return { waitMs: Math.max(boundMs, delayMs), minWaitMs: boundMs, boundMs }
}
