// Reads from the facts of the state: which token is served now, when the service is asked, and with which pair. Pure.
import type { Instant } from '../lib/clock.ts'
import type { PermanentReason, Phase } from '../protocol.ts'
import type { TransientFailure } from './outcome.ts'
import { recordOf, type PairRecord, type Policy, type Step, type TokenState } from './state.ts'
import type { Token } from './token.ts'

/** By so much a new token may have less life than the last answer gave, in ms. */
const LIFE_MARGIN_MS = 30_000

/**
 * Until then the token, or a former one, may be handed out, on the boot clock: its end, or twice the life that was
 * assumed for it. A JWT ends at its `exp`, too, once both our clock and the service's show that as past. -Infinity:
 * there is none.
 */
export function usableUntilMs({ token: held, clocks }: TokenState, now: Instant, token = held): number {
  if (token === null) return -Infinity
  const { expirySource, expiresAtMs, lifeMs, expMs } = token
  const endMs = expirySource === 'assumed' ? expiresAtMs + lifeMs : expiresAtMs
  if (expMs === null || clocks.serviceMs === null) return endMs
  return Math.min(endMs, expMs - Math.min(now.wallMs - now.bootMs, clocks.serviceMs))
}
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
  // An answer to another host is no failure of this one.
  const isFailing = failure !== null && failure.askedBy === null && failure.reason !== 'not-asked'
  return isFailing || isStale(token, now) ? 'degraded' : 'ready'
}

/** The record of another pair in the files, which comes into use by giving a token; null: they hold the running one. */
export function candidateOf(state: TokenState): PairRecord | null {
  return state.newest === state.running ? null : recordOf(state, state.newest)
}
/** Reports whether the service said no to the pair itself. */
export function isRefused({ refusal, failure }: PairRecord): boolean {
  return refusal !== null || failure?.reason === 'rejected'
}

// ---- when the service is asked

/** Longest wait between attempts while there is no usable token. */
const MAX_DELAY_WITHOUT_TOKEN_MS = 60_000
/** The shortest wait after `rejected`; the longest is twice as long. */
const REJECTED_MS = 300_000
/** The shortest time between two requests of clients; it doubles with each of MAX_PACE tokens in a row. */
const CLIENT_INTERVAL_MS = 30_000
export const MAX_PACE = 2

/** An attempt to come. `pair`: the fingerprint of the pair. */
export interface Plan {
  readonly pair: string
  /** On the boot clock, not before now; Infinity: not until somebody acts. */
  readonly atMs: number
  readonly by: 'operator' | 'client' | 'plan'
}

/** The next attempt: an operator's first, else the earliest; of equals that with the newest pair. */
export function next(state: TokenState, now: Instant): Plan {
  const { inFlight } = state
  if (inFlight !== null) return { pair: inFlight.pair, atMs: Infinity, by: 'plan' }
  return plansOf(state, now).reduce((first, plan) => (plan.atMs < first.atMs ? plan : first))
}

/** When a pair is asked next, on the boot clock, not before now; now: it is asked. Infinity: not until somebody acts. */
export function dueAtMs(state: TokenState, now: Instant, pair = state.running): number {
  if (state.inFlight?.pair === pair) return now.bootMs
  return Math.min(...plansOf(state, now).map((plan) => (plan.pair === pair ? plan.atMs : Infinity)))
}

function plansOf(state: TokenState, now: Instant): Plan[] {
  const { wish, newest, running } = state
  const { bootMs } = now
  return [
    ...(wish === null ? [] : [{ pair: state[wish], atMs: bootMs, by: 'operator' } as const]),
    { pair: newest, atMs: plannedAtMs(state, newest, now), by: 'plan' },
    { pair: running, atMs: plannedAtMs(state, running, now), by: 'plan' },
    { pair: running, atMs: Math.max(bootMs, clientsAtMs(state)), by: 'client' },
  ]
}

/** When a pair is asked without an operator and without clients. */
function plannedAtMs(state: TokenState, pair: string, now: Instant): number {
  const { token } = state
  const { attempts, refusal, soonAtMs, lateAtMs, floorAtMs, resumeAtMs } = recordOf(state, pair)
  // A candidate is asked, also where the token that was kept over a restart is its own.
  let wishedMs = token?.pair === pair && pair === state.running ? token.refreshAtMs : 0
  if (refusal !== null) wishedMs = refusal.isLifted ? 0 : Infinity
  // The end of the token shortens a long wait.
  else if (attempts > 0) wishedMs = Math.max(soonAtMs, Math.min(lateAtMs, usableUntilMs(state, now)))
  return Math.max(now.bootMs, wishedMs, floorAtMs, resumeAtMs)
}

/** When the running pair is asked for clients; Infinity: they want nothing, or a retry comes anyway. */
function clientsAtMs(state: TokenState): number {
  const { want, requestedAtMs, pace } = state.clients
  const { attempts, refusal, floorAtMs, resumeAtMs } = recordOf(state, state.running)
  if (want === 'nothing' || attempts > 0 || refusal !== null) return Infinity
  const pacedMs = (requestedAtMs ?? -Infinity) + CLIENT_INTERVAL_MS * 2 ** pace
  return Math.max(pacedMs, floorAtMs, resumeAtMs)
}

/** The wait after so many failures: a delay d doubles up to the cap, and is drawn from [d/2, d], at the cap too. */
export function retryAfter(
  attempts: number,
  { initialDelayMs, maxDelayMs }: Policy,
  { now, drawn }: Step,
): Pick<PairRecord, 'attempts' | 'soonAtMs' | 'lateAtMs'> {
  const delayMs = Math.min(maxDelayMs, initialDelayMs * 2 ** (attempts - 1))
  const drawnIn = (mostMs: number): number => now.bootMs + (mostMs / 2) * (1 + drawn)
  const soonMs = Math.min(delayMs, MAX_DELAY_WITHOUT_TOKEN_MS)
  return { attempts, soonAtMs: drawnIn(soonMs), lateAtMs: drawnIn(delayMs) }
}

/** The instant before which a failure lets nobody but an operator ask. */
export function floorAfter(
  { reason, retryAfterMs = 0 }: Pick<TransientFailure, 'reason' | 'retryAfterMs'>,
  { now, drawn }: Step,
): number {
  // Hosts that get the same Retry-After at the same time do not ask again at the same time.
  const waitMs = reason === 'rejected' ? REJECTED_MS * (1 + drawn) : retryAfterMs * (1 + drawn / 5)
  return now.bootMs + waitMs
}
