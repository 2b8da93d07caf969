// The condition that an operator must know of now: a function of the state, the time and `alerts.noTokenAfter`.
import type { Instant } from '../lib/clock.ts'
import { remedies, type PostponedReason, type Reason } from './outcome.ts'
import { dueAtMs, noTokenSince, type Alert, type TokenState } from './state.ts'

export interface CurrentAlert {
  readonly reason: Alert['reason'] | 'no-token'
  readonly detail: string
  readonly since: Instant
  /** A sentence without a full stop. */
  readonly remedy: string
  /** Since when there has been no usable token, once that is longer than `alerts.noTokenAfter`. */
  readonly noTokenSince: Instant | null
  /** The failure behind `no-token`, where an attempt has failed. */
  readonly failure: Reason | PostponedReason | null
  /** The host of the fleet that asked the service, where that was another one. */
  readonly askedBy: string | null
}

const NOTHING_FAILED = {
  detail: 'There has been no usable token, and no attempt has failed',
  remedy:
    'Check with `kyc-tokend status` what kyc-tokend waits for, and with `kyc-tokend check` its configuration',
}

/**
 * A refusal and `rejected` outrank `no-token`, which is not raised before the first attempt after a start has ended.
 * `noTokenAfterMs`: null for never.
 */
export function currentAlert(
  state: TokenState,
  now: Instant,
  noTokenAfterMs: number | null,
  { isRaised = false } = {},
): CurrentAlert | null {
  const since = noTokenSince(state, now)
  const isLong = since !== null && noTokenAfterMs !== null && now.bootMs - since.bootMs >= noTokenAfterMs
  const { alert } = state
  if (alert !== null) {
    const remedy = remedies[alert.reason]
    return { ...alert, remedy, noTokenSince: isLong ? since : null, failure: null }
  }
  // An attempt that is due, or under way, may end it.
  const isFirstAwaited = !state.hasAttempted && dueAtMs(state) <= now.bootMs
  return isLong && (isRaised || !isFirstAwaited) ? noTokenAlert(state, since, noTokenAfterMs) : null
}

function noTokenAlert(state: TokenState, since: Instant, afterMs: number): CurrentAlert {
  // The last attempt of the fleet: its host notifies people.
  const failure = state.postponement ?? state.failure
  return {
    reason: 'no-token',
    ...(failure === null ? NOTHING_FAILED : { detail: failure.detail, remedy: remedies[failure.reason] }),
    since: { bootMs: since.bootMs + afterMs, wallMs: since.wallMs + afterMs },
    noTokenSince: since,
    failure: failure?.reason ?? null,
    askedBy: failure?.askedBy ?? null,
  }
}
