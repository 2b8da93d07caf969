// What the facts of the state mean now: judgements for those who read it. Pure.
import type { Instant } from '../lib/clock.ts'
import type { PermanentReason, Phase } from '../protocol.ts'
import { dueAtMs, usableUntilMs } from './schedule.ts'
import { recordOf, type PairRecord, type TokenState } from './state.ts'
import type { Token } from './token.ts'

/** By so much a new token may have less life than the last answer gave, in ms. */
const LIFE_MARGIN_MS = 30_000

/** The token to hand out now, if there is one. */
export function usableToken(state: TokenState, now: Instant): Token | null {
  return now.bootMs < usableUntilMs(state, now) ? state.token : null
}
/** Past the life that was assumed for it. */
export function isStale(token: Token, now: Instant): boolean {
  return now.bootMs >= token.expiresAtMs
}
/** When the token goes stale or out of use next, on the boot clock; Infinity: it does not. */
export function nextExpiryMs(state: TokenState, now: Instant): number {
  const moments = [state.token?.expiresAtMs ?? 0, usableUntilMs(state, now)]
  return Math.min(...moments.filter((moment) => moment > now.bootMs))
}
/** Reports whether a new token can be expected to have this life left, in ms: the last answer had it. */
export function canMeet({ expiresAtMs, givenAtMs }: Token, minValidMs: number): boolean {
  return minValidMs <= expiresAtMs - givenAtMs - LIFE_MARGIN_MS
}
/** When the last usable token was lost: now, while there is one. */
export function lostAt(state: TokenState, now: Instant): Instant {
  const { token, tokenless } = state
  if (token === null) return tokenless.since
  const bootMs = Math.min(now.bootMs, usableUntilMs(state, now))
  return { bootMs, wallMs: bootMs + state.clocks.wallMs }
}
/** The clock by which clients see the instants of a token: so their texts change only when it is set. */
export function shownClock({ clocks }: TokenState): Instant {
  return { bootMs: 0, wallMs: clocks.wallMs }
}

/** Why the running pair is refused, which is final until somebody acts; null: it is not. */
export function refusalOf(state: TokenState): PermanentReason | null {
  return recordOf(state, state.running).refusal?.reason ?? null
}

export function phaseOf(state: TokenState, now: Instant): Phase {
  if (refusalOf(state) !== null) return 'refused'
  const token = usableToken(state, now)
  if (token === null) return state.token === null && state.lastSuccessAt === null ? 'starting' : 'expired'
  const { failure } = recordOf(state, state.running)
  // What another host was answered is no failure of this one.
  const isFailing = failure !== null && failure.askedBy === null && failure.reason !== 'not-asked'
  return isFailing || isStale(token, now) ? 'degraded' : 'ready'
}

/** What is known of another pair in the files, which comes into use by giving a token; null: they hold the running one. */
export function candidateOf(state: TokenState): PairRecord | null {
  return state.newest === state.running ? null : recordOf(state, state.newest)
}
/** Reports whether the service said no to the pair itself. */
export function isRefused({ refusal, failure }: PairRecord): boolean {
  return refusal !== null || failure?.reason === 'rejected'
}

/** Reports whether an attempt is under way, or one with the running pair is due. */
export function isAnswerAhead(state: TokenState, now: Instant): boolean {
  return state.inFlight !== null || dueAtMs(state, now) <= now.bootMs
}
