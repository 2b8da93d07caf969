// What clients wish, more life or another token than the one that they reported. Pure.
import type { Instant } from '../lib/clock.ts'
import type { RejectVerdict } from '../protocol.ts'
import { dueAtMs, MAX_PACE, usableUntilMs } from './schedule.ts'
import { recordOf, withRecord, type TokenState } from './state.ts'
import type { Token } from './token.ts'

/** By so much a new token may have less life than the last answer gave, in ms. */
const LIFE_MARGIN_MS = 30_000

/** Reports whether a new token can be expected to have this life left, in ms. */
export function canMeet({ givenMs }: Pick<Token, 'givenMs'>, minValidMs: number): boolean {
  return minValidMs <= givenMs - LIFE_MARGIN_MS
}

/** A client needs a token with this life left, in ms. */
export function afterNeed(state: TokenState, minValidMs: number, now: Instant): TokenState {
  const { token } = state
  if (token === null || !isServed(state, now) || state.clients.areWaiting) return state
  if (token.expiresAtMs - now.bootMs >= minValidMs || !canMeet(token, minValidMs)) return state
  return { ...state, clients: { ...state.clients, areWaiting: true } }
}

export interface RejectDecision {
  readonly verdict: RejectVerdict
  readonly retryAfterMs?: number
}

/** A client reports the token with this fingerprint as refused by the service. */
export function afterReport(
  before: TokenState,
  fingerprint: string,
  now: Instant,
): { state: TokenState; decision: RejectDecision } {
  const { token } = before
  const isUsable = usableUntilMs(before, now) > now.bootMs
  if (token !== null && isUsable && token.fingerprint !== fingerprint)
    return { state: before, decision: { verdict: 'replaced' } }
  const isAsking = before.inFlight?.pair === before.running
  // An operator asks about a refused account: the answer may be another token.
  if (recordOf(before, before.running).refusedWith !== null)
    return { state: before, decision: { verdict: isAsking ? 'refreshing' : 'refused' } }
  if (token === null || !isUsable) return { state: before, decision: { verdict: 'refreshing' } }
  const state = withReport(before, token, now)
  const retryAfterMs = dueAtMs(state, now) - now.bootMs
  if (isAsking || retryAfterMs <= 0) return { state, decision: { verdict: 'refreshing' } }
  return { state, decision: { verdict: token.isUnchanged ? 'unchanged' : 'held', retryAfterMs } }
}

/** The first report of what an answer gave sets the pace; each wakes an attempt that was postponed. */
function withReport(state: TokenState, token: Token, now: Instant): TokenState {
  const { clients, running } = state
  if (token.isReported && clients.areWaiting) return state
  const inARow = Math.min(clients.pace + (token.isOfClients ? 1 : 0), MAX_PACE)
  const pace = token.isReported ? clients.pace : now.bootMs >= token.calmAtMs ? 0 : inARow
  const record = recordOf(state, running)
  const postponed = record.postponed && { ...record.postponed, untilMs: 0 }
  return withRecord(
    { ...state, token: { ...token, isReported: true }, clients: { ...clients, areWaiting: true, pace } },
    running,
    { ...record, postponed },
  )
}

function isServed(state: TokenState, now: Instant): boolean {
  return usableUntilMs(state, now) > now.bootMs && recordOf(state, state.running).refusedWith === null
}
