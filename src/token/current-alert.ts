// What an operator must know of now: a judgement on the facts of the state. Pure.
import type { Instant } from '../lib/clock.ts'
import type { PostponedReason, Reason } from '../protocol.ts'
import { dueAtMs, noTokenSince, type Objection, type TokenState } from './state.ts'

/** The condition that an operator must know of now. */
export interface CurrentAlert {
  readonly reason: Objection['reason'] | 'no-token'
  readonly detail: string
  readonly since: Instant
  /** When the last usable token was lost, once there has been none for `alerts.noTokenAfter`, awake. */
  readonly noTokenSince: Instant | null
  /** The failure behind `no-token`, if an attempt has failed. */
  readonly failure: Reason | PostponedReason | null
  /** The host of the fleet that asked the service, if that was another one. */
  readonly askedBy: string | null
}

const NOTHING_FAILED = 'There has been no usable token, and no attempt has failed'

/**
 * An objection outranks `no-token`. That is not raised while an attempt is awaited: after a start or a
 * suspend it may bring a token. `noTokenAfterMs`: null for never.
 */
export function currentAlert(
  state: TokenState,
  now: Instant,
  noTokenAfterMs: number | null,
  { isRaised = false } = {},
): CurrentAlert | null {
  const since = noTokenSince(state, now)
  const { forMs } = state.tokenless
  const isLong = since !== null && noTokenAfterMs !== null && forMs >= noTokenAfterMs
  if (state.objection !== null) {
    const { reason, detail, since: objectedAt, askedBy } = state.objection
    return { reason, detail, since: objectedAt, askedBy, noTokenSince: isLong ? since : null, failure: null }
  }
  if (!isLong || (isAwaited(state, now) && !isRaised)) return null
  // Only the time awake counts: so the limit may have been reached long after that of the clock.
  const reachedAgoMs = forMs - noTokenAfterMs
  const reachedAt = { bootMs: now.bootMs - reachedAgoMs, wallMs: now.wallMs - reachedAgoMs }
  return noTokenAlert(state, since, reachedAt)
}

/** An attempt that is put off without a reason is put off for a moment. */
const MOMENT_MS = 15_000

/** An attempt is due, under way, or put off for a moment. */
function isAwaited(state: TokenState, now: Instant): boolean {
  const isForMoment = state.next !== null && state.postponement === null
  return dueAtMs(state) <= now.bootMs + (isForMoment ? MOMENT_MS : 0)
}

function noTokenAlert(state: TokenState, noTokenFrom: Instant, since: Instant): CurrentAlert {
  // The last attempt of the fleet: its host notifies people.
  const trouble = state.postponement ?? state.failure
  return {
    reason: 'no-token',
    detail: trouble?.detail ?? NOTHING_FAILED,
    since,
    noTokenSince: noTokenFrom,
    failure: trouble?.reason ?? null,
    askedBy: state.postponement?.askedBy ?? null,
  }
}
