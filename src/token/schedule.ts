// When the service is asked, and with which pair. Pure: the loop waits for `next`, and nothing else asks.
import type { Instant } from '../lib/clock.ts'
import type { TransientFailure } from './outcome.ts'
import { recordOf, type PairRecord, type Policy, type TokenState } from './state.ts'
import { usableUntilOf } from './token.ts'

/** Longest wait between attempts while there is no usable token. */
const MAX_DELAY_WITHOUT_TOKEN_MS = 60_000
/** The shortest wait after `rejected`; the longest is twice as long. */
const REJECTED_MS = 300_000
/** The wait that a 429 without `Retry-After` asks for. */
const RATE_LIMITED_MS = 60_000
/** The longest `Retry-After` that is followed. */
export const MAX_RETRY_AFTER_MS = 3_600_000
/** The longest wait: that, and the fifth by which hosts come apart. */
export const MAX_RETRY_WAIT_MS = MAX_RETRY_AFTER_MS * 1.2
/** A changed ready-made assertion lifts a refusal at most once in this time. */
export const LIFT_MS = 300_000
/**
 * The shortest time between two requests of clients, in a fleet of all its hosts; it doubles, and again, as
 * their tokens are reported.
 */
export const CLIENT_INTERVAL_MS = 30_000
/** So many tokens in a row count, each but the first doubles the wait. */
export const MAX_PACE = 3

/** An attempt to come. `pair`: the fingerprint of the pair. */
export interface Plan {
  readonly pair: string
  /** On the boot clock; Infinity: not until somebody acts. */
  readonly atMs: number
  readonly by: 'operator' | 'clients' | 'plan'
}

/** The next attempt: an operator's first, else the earliest; of equals that with the newest pair. */
export function next(state: TokenState, now: Instant): Plan {
  const { inFlight, wish, newest, running } = state
  if (inFlight !== null) return { pair: inFlight.pair, atMs: Infinity, by: 'plan' }
  const [role] = wish
  if (role !== undefined) return { pair: state[role], atMs: now.bootMs, by: 'operator' }
  const plans: Plan[] = [
    { pair: newest, atMs: plannedAtMs(state, newest, now), by: 'plan' },
    { pair: running, atMs: plannedAtMs(state, running, now), by: 'plan' },
    { pair: running, atMs: clientsAtMs(state, now), by: 'clients' },
  ]
  return plans.reduce((first, plan) => (plan.atMs < first.atMs ? plan : first))
}

/** When the running pair is asked next, on the boot clock, not before now. Infinity: not until somebody acts. */
export function dueAtMs(state: TokenState, now: Instant): number {
  if (state.wish.some((role) => state[role] === state.running)) return now.bootMs
  return Math.min(plannedAtMs(state, state.running, now), clientsAtMs(state, now))
}

/** When a pair is asked without an operator and without clients. */
export function plannedAtMs(state: TokenState, pair: string, now: Instant): number {
  const { token, assertion, policy } = state
  const record = recordOf(state, pair)
  const untilMs = usableUntilMs(state, now)
  let barredMs = 0
  if (record.refusedWith !== null && state.startMayAsk !== pair)
    barredMs = record.refusedWith === assertion.content ? Infinity : assertion.liftAtMs
  let wishedMs = 0
  if (record.attempts > 0) wishedMs = retryAtMs(record, policy, untilMs)
  else if (record.refusedWith === null && token?.pair === pair) wishedMs = token.refreshAtMs
  return Math.max(now.bootMs, wishedMs, barredMs, record.floorMs, record.postponed?.untilMs ?? 0)
}

/** The end of the token shortens a long wait. */
function retryAtMs(record: PairRecord, policy: Policy, untilMs: number): number {
  const { attempts, failedAtMs, drawn } = record
  const withCap = (maxDelayMs: number): number =>
    failedAtMs +
    backoffMs(attempts, { ...policy, maxDelayMs: Math.min(policy.maxDelayMs, maxDelayMs) }, drawn)
  const lateMs = withCap(Infinity)
  return lateMs <= untilMs ? lateMs : Math.max(withCap(MAX_DELAY_WITHOUT_TOKEN_MS), Math.min(lateMs, untilMs))
}

/** When the running pair is asked for clients; Infinity: they want nothing, or a retry comes anyway. */
function clientsAtMs(state: TokenState, now: Instant): number {
  const { clients, running } = state
  const { attempts, refusedWith, floorMs, postponed } = recordOf(state, running)
  if (!clients.areWaiting || attempts > 0 || refusedWith !== null) return Infinity
  const paceMs = CLIENT_INTERVAL_MS * 2 ** Math.max(0, clients.pace - 1)
  const pacedMs = clients.requestedMs === null ? 0 : clients.requestedMs + paceMs
  return Math.max(now.bootMs, pacedMs, floorMs, postponed?.untilMs ?? 0)
}

/** Until then the token, or a former one, may be handed out, on the boot clock; -Infinity: there is none. */
export function usableUntilMs({ token: present, clocks }: TokenState, now: Instant, token = present): number {
  if (token === null) return -Infinity
  return usableUntilOf(token, { ...clocks, wallMs: now.wallMs - now.bootMs })
}

/** A delay d doubles with each attempt up to the cap, and is drawn from [d/2, d], at the cap too. */
export function backoffMs(
  attempts: number,
  { initialDelayMs, maxDelayMs }: { initialDelayMs: number; maxDelayMs: number },
  drawn: number,
): number {
  const delayMs = Math.min(maxDelayMs, initialDelayMs * 2 ** (attempts - 1))
  return delayMs / 2 + (delayMs / 2) * drawn
}

/** The instant before which a failure lets nobody but an operator ask; 0: it says none. */
export function floorAfter(
  { reason, retryAfterMs }: Pick<TransientFailure, 'reason' | 'retryAfterMs'>,
  nowMs: number,
  drawn: number,
): number {
  if (reason === 'rejected') return nowMs + REJECTED_MS * (1 + drawn)
  const askedForMs = retryAfterMs ?? (reason === 'rate-limited' ? RATE_LIMITED_MS : 0)
  if (askedForMs === 0) return 0
  // Hosts that get the same Retry-After at the same time do not ask again at the same time.
  const mostMs = Math.min(askedForMs, MAX_RETRY_AFTER_MS)
  return nowMs + mostMs + Math.max(mostMs / 5, 1_000) * drawn
}
