// What clients wish, more life or another token than the refused one, and the pace of requests for it.
import type { Instant } from '../lib/clock.ts'
import type { RejectVerdict } from '../protocol.ts'
import {
  dueAtMs,
  isAsking,
  plannedAttempt,
  refusalOf,
  usableToken,
  type ClientPace,
  type TokenState,
} from './state.ts'
import type { Token } from './token.ts'

/**
 * The shortest time between two requests of clients, in a fleet of all its hosts; it doubles, and again, as
 * their tokens are reported.
 */
export const CLIENT_INTERVAL_MS = 30_000
const MAX_DOUBLINGS = 2
const MINUTE_MS = 60_000
const MAX_AGES = 10

/** A client needs a token with this life left. A need of more than the last token's life changes nothing. */
export function afterClientNeed(state: TokenState, minValidMs: number, now: Instant): TokenState {
  const { token } = state
  if (token === null || refusalOf(state) !== null || isAsking(state)) return state
  // The service would give the same token, with the same end.
  if (token.isSameUntilEnd) return state
  if (minValidMs > token.lifeMs || token.expiresAtMs - now.bootMs >= minValidMs) return state
  return withClientRequest(state, now)
}

export interface RejectDecision {
  readonly verdict: RejectVerdict
  readonly retryAfterMs?: number
}

/** A client reports the token with this fingerprint as refused by the service. */
export function afterReject(
  before: TokenState,
  fingerprint: string,
  now: Instant,
): { state: TokenState; decision: RejectDecision } {
  const token = usableToken(before, now)
  if (token !== null && token.fingerprint !== fingerprint)
    return { state: before, decision: { verdict: 'replaced' } }
  if (refusalOf(before) !== null) return { state: before, decision: { verdict: 'refused' } }
  if (token === null) return { state: before, decision: { verdict: 'refreshing' } }
  const reported = withReport(before, token, now)
  const isUnchanged = before.rejection?.isUnchanged === true
  // A token that is the same until its end was asked for once because of a report: again changes nothing.
  const state =
    isAsking(before) || (token.isSameUntilEnd && isUnchanged) ? reported : withClientRequest(reported, now)
  const retryAfterMs = dueAtMs(state) - now.bootMs
  if (isAsking(state) || retryAfterMs <= 0) return { state, decision: { verdict: 'refreshing' } }
  return { state, decision: { verdict: isUnchanged ? 'unchanged' : 'held', retryAfterMs } }
}

/** The same state if the answer that gave the token was reported before. */
function withReport(state: TokenState, token: Token, now: Instant): TokenState {
  const { rejection, pace } = state
  const { isOfClients, received } = token
  if (rejection !== null && !isOfClients) return state
  const reported = isPastHalf(state, now) ? 0 : pace.reported + (isOfClients ? 1 : 0)
  return {
    ...state,
    token: { ...token, isOfClients: false },
    rejection: rejection ?? { ageMs: now.bootMs - received.bootMs, isUnchanged: false },
    pace: { ...pace, reported },
  }
}

/** A token that stays unreported for half its plan ends the row of reported ones. */
function isPastHalf({ token, rejection }: TokenState, now: Instant): boolean {
  if (token === null || rejection !== null) return false
  const { refreshAtMs, received } = token
  return now.bootMs - received.bootMs >= (refreshAtMs - received.bootMs) / 2
}
const reportedInARow = (state: TokenState, now: Instant): number =>
  isPastHalf(state, now) ? 0 : state.pace.reported

/** The pace once another token is there. */
export function paceAfterToken(state: TokenState, now: Instant): ClientPace {
  return { ...state.pace, reported: reportedInARow(state, now) }
}

/** Plans the request of a client, at once or as the pace allows, unless another attempt comes first. */
function withClientRequest(state: TokenState, now: Instant): TokenState {
  const isRefreshAhead = plannedAttempt(state).cause === 'refresh' && dueAtMs(state) > now.bootMs
  if (state.next !== null || !isRefreshAhead) return state
  const { requestedMs } = state.pace
  const doublings = Math.min(MAX_DOUBLINGS, Math.max(0, reportedInARow(state, now) - 1))
  const atMs = requestedMs === null ? now.bootMs : requestedMs + CLIENT_INTERVAL_MS * 2 ** doublings
  return { ...state, next: { cause: 'client', atMs } }
}

// ---- tokens that end before `refresh.maxAge`

/** The ages of early ends, once the service has given another token than the one that was reported. */
export function endedEarlyAfter(state: TokenState, maxAgeMs: number): readonly number[] {
  const { token, rejection, endedEarlyMs } = state
  if (token?.expirySource !== 'assumed' || rejection === null || rejection.ageMs >= maxAgeMs)
    return endedEarlyMs
  return [...endedEarlyMs, rejection.ageMs].slice(-MAX_AGES)
}

/** The `refresh.maxAge` that would fit these ages: the shortest in whole minutes, at least one; in ms. */
export function fittingMaxAgeMs(endedEarlyMs: readonly number[]): number {
  return Math.max(1, Math.floor(Math.min(...endedEarlyMs) / MINUTE_MS)) * MINUTE_MS
}
