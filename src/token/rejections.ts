// Clients' wishes: a longer life, a token that the service refused, the age that such reports teach, and their pace.
import type { Instant } from '../lib/clock.ts'
import type { RejectVerdict } from '../protocol.ts'
import { dueAtMs, isAsking, usableToken, type Policy, type TokenState } from './state.ts'

/** The shortest time between two requests that clients caused. */
export const CLIENT_INTERVAL_MS = 30_000
const LEARNED_MAX_AGE = { forMs: 24 * 3_600_000, share: 4 / 5, atLeastMs: 60_000, fromAgeMs: 60_000 }

/** A client needs a token with this life left. A need of more than the last token's whole life changes nothing. */
export function afterClientNeed(state: TokenState, minValidMs: number, now: Instant): TokenState {
  const { token } = state
  if (token === null || state.refusal !== null || isAsking(state)) return state
  if (minValidMs > token.lifeMs || token.expiresAtMs - now.bootMs >= minValidMs) return state
  return withClientRequest(state)
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
): { state: TokenState; verdict: RejectDecision } {
  const token = usableToken(before, now)
  if (token !== null && token.fingerprint !== fingerprint)
    return { state: before, verdict: { verdict: 'replaced' } }
  if (before.refusal !== null) return { state: before, verdict: { verdict: 'refused' } }
  if (token === null) return { state: before, verdict: { verdict: 'refreshing' } }
  const rejection = before.rejection ?? { fingerprint, ageMs: now.bootMs - token.received.bootMs }
  const state = rejection === before.rejection ? before : { ...before, rejection }
  if (isAsking(state) || dueAtMs(state) <= now.bootMs) return { state, verdict: { verdict: 'refreshing' } }
  const next = withClientRequest(state)
  const retryAfterMs = dueAtMs(next) - now.bootMs
  if (retryAfterMs <= 0) return { state: next, verdict: { verdict: 'refreshing' } }
  if (state.unchanged === token.fingerprint) return { state, verdict: { verdict: 'unchanged', retryAfterMs } }
  return { state: next, verdict: { verdict: 'held', retryAfterMs } }
}

/** Plans the request that a client wishes: at once, or when the pace allows it. */
function withClientRequest(state: TokenState): TokenState {
  const clientRequestAtMs = (state.lastClientRequestAtMs ?? -Infinity) + CLIENT_INTERVAL_MS
  return clientRequestAtMs === state.clientRequestAtMs ? state : { ...state, clientRequestAtMs }
}

/** The life of a token that does not say its own, in ms: the setting, or the shorter one that was learned. */
export function assumedLifeMs({ learnedMaxAge }: TokenState, policy: Policy, now: Instant): number {
  const isLearned = learnedMaxAge !== null && now.bootMs - learnedMaxAge.atMs < LEARNED_MAX_AGE.forMs
  return isLearned ? Math.min(policy.maxAgeMs, learnedMaxAge.maxAgeMs) : policy.maxAgeMs
}

/** The maximum age after a report: learned if the reported token did not say its own life and the service replaced it. */
export function learnMaxAge(
  state: TokenState,
  replacement: string,
  now: Instant,
): TokenState['learnedMaxAge'] {
  const { token, rejection, learnedMaxAge } = state
  if (token?.expirySource !== 'assumed' || rejection === null) return learnedMaxAge
  if (rejection.ageMs <= LEARNED_MAX_AGE.fromAgeMs || replacement === token.fingerprint) return learnedMaxAge
  const learnedMs = Math.min(token.lifeMs, LEARNED_MAX_AGE.share * rejection.ageMs)
  return { maxAgeMs: Math.max(LEARNED_MAX_AGE.atLeastMs, learnedMs), atMs: now.bootMs }
}
