// When the service is asked, and with which pair. Pure: the loop waits for `next`, and nothing else asks.
import type { Instant } from '../lib/clock.ts'
import type { TransientFailure } from './outcome.ts'
import { recordOf, type PairRecord, type Policy, type Step, type TokenState } from './state.ts'

/** Longest wait between attempts while there is no usable token. */
const MAX_DELAY_WITHOUT_TOKEN_MS = 60_000
/** The shortest wait after `rejected`; the longest is twice as long. */
const REJECTED_MS = 300_000
/** The shortest time between two requests of clients; it doubles, and again, as their tokens are reported. */
const CLIENT_INTERVAL_MS = 30_000
/** So many tokens in a row count, each but the first doubles the wait. */
export const MAX_PACE = 3

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
    ...wish.map((role): Plan => ({ pair: state[role], atMs: bootMs, by: 'operator' })),
    { pair: newest, atMs: plannedAtMs(state, newest, now), by: 'plan' },
    { pair: running, atMs: plannedAtMs(state, running, now), by: 'plan' },
    { pair: running, atMs: Math.max(bootMs, clientsAtMs(state)), by: 'client' },
  ]
}

/** When a pair is asked without an operator and without clients. */
function plannedAtMs(state: TokenState, pair: string, now: Instant): number {
  const { token } = state
  const { attempts, refusal, soonAtMs, lateAtMs, floorAtMs, resumeAtMs } = recordOf(state, pair)
  let wishedMs = token?.pair === pair ? token.refreshAtMs : 0
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
  const pacedMs = (requestedAtMs ?? -Infinity) + CLIENT_INTERVAL_MS * 2 ** Math.max(0, pace - 1)
  return Math.max(pacedMs, floorAtMs, resumeAtMs)
}

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
