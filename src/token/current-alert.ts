// The condition that an operator must know of now: a judgement on the facts of the state. Pure.
import type { Instant } from '../lib/clock.ts'
import type { PostponedReason, Reason } from '../protocol.ts'
import { alarmOf, dueAtMs, failureOf, noTokenForMs, noTokenSince } from './selectors.ts'
import { recordOf, type Refusal, type TokenState } from './state.ts'

export interface CurrentAlert {
  readonly reason: Refusal['reason'] | 'no-token'
  readonly detail: string
  readonly since: Instant
  /** When the last usable token was lost, once there has been none for `alerts.noTokenAfter`, awake. */
  readonly noTokenSince: Instant | null
  /** The failure behind `no-token`, if an attempt has failed. */
  readonly failure: Reason | PostponedReason | null
  /** The host of the fleet that asked the service, if that was another one. */
  readonly askedBy: string | null
}

const NO_FAILURE = {
  reason: null,
  detail: 'There has been no usable token, and no attempt has failed',
  askedBy: null,
}
/** An attempt that is postponed without a reason is postponed for a moment. */
const MOMENT_MS = 15_000

/**
 * A refusal, or `rejected`, of the running pair outranks `no-token`. That is not raised while an attempt is
 * awaited: after a start or a suspend it may bring a token. `noTokenAfterMs`: null for never. `isRaised`: one that
 * was raised stays meanwhile.
 */
export function currentAlert(
  state: TokenState,
  now: Instant,
  noTokenAfterMs: number | null,
  { isRaised = false } = {},
): CurrentAlert | null {
  const lost = noTokenSince(state, now)
  const forMs = noTokenForMs(state)
  const isLong = lost !== null && noTokenAfterMs !== null && forMs >= noTokenAfterMs
  const alarm = alarmOf(state)
  if (alarm !== null) {
    const { reason, detail, since, askedBy } = alarm
    return { reason, detail, since, askedBy, noTokenSince: isLong ? lost : null, failure: null }
  }
  if (!isLong || (isAwaited(state, now) && !isRaised)) return null
  // Only the time awake counts: so the limit may have been reached long after that of the clock.
  const reachedAgoMs = forMs - noTokenAfterMs
  const since = { bootMs: now.bootMs - reachedAgoMs, wallMs: now.wallMs - reachedAgoMs }
  // The last attempt of the fleet: its host notifies people.
  const { reason: failure, detail, askedBy } = failureOf(state, now) ?? NO_FAILURE
  return { reason: 'no-token', detail, since, noTokenSince: lost, failure, askedBy }
}

/** An attempt is due, under way, or postponed for a moment. */
function isAwaited(state: TokenState, now: Instant): boolean {
  const { postponed } = recordOf(state, state.running)
  const isForMoment = postponed !== null && postponed.reason === null
  return state.inFlight !== null || dueAtMs(state, now) <= now.bootMs + (isForMoment ? MOMENT_MS : 0)
}
