// What the facts of the state mean now: the one way in which other rooms read them. Pure.
import type { Instant } from '../lib/clock.ts'
import type { PermanentReason, Phase, PostponedReason, Reason, TokenUse } from '../protocol.ts'
import { dueAtMs, plannedAtMs, usableUntilMs } from './schedule.ts'
import { recordOf, type PairRecord, type Refusal, type TokenState } from './state.ts'
import type { Token } from './token.ts'
import { lostAt } from './transitions.ts'

export { dueAtMs, usableUntilMs } from './schedule.ts'
export type { Notes, TokenState } from './state.ts'

/** The token to hand out now, if there is one. */
export function usableToken(state: TokenState, now: Instant): Token | null {
  return now.bootMs < usableUntilMs(state, now) ? state.token : null
}
/** Past the life that was assumed for it. */
export function isStale(token: Token, now: Instant): boolean {
  return now.bootMs >= token.expiresAtMs
}
/** Since when there has been no usable token; null: there is one. Counted across restarts. */
export function noTokenSince(state: TokenState, now: Instant): Instant | null {
  return usableToken(state, now) === null ? lostAt(state, now) : null
}
/** How long there has been no usable token while the daemon ran and the host was awake, in ms. */
export function noTokenForMs(state: TokenState): number {
  return state.tokenless.forMs
}
/** Reports whether the service has ever given a token, which a restart may have dropped since. */
export function hasHadToken({ token, lastSuccessAt }: TokenState): boolean {
  return token !== null || lastSuccessAt !== null
}

const runningOf = (state: TokenState): PairRecord => recordOf(state, state.running)

/** The refusal of the running pair, which is final until somebody acts; null: it is not refused. */
export function refusalOf(state: TokenState): (Refusal & { readonly reason: PermanentReason }) | null {
  const { refusedWith, refusal } = runningOf(state)
  if (refusedWith === null || refusal === null || refusal.reason === 'rejected') return null
  return { ...refusal, reason: refusal.reason }
}
/** The last answer to the running pair of which an operator must know: refused or `rejected`. A token ends it. */
export function alarmOf(state: TokenState): Refusal | null {
  return runningOf(state).refusal
}

export function phaseOf(state: TokenState, now: Instant): Phase {
  if (refusalOf(state) !== null) return 'refused'
  const token = usableToken(state, now)
  if (token !== null) return runningOf(state).failure !== null || isStale(token, now) ? 'degraded' : 'ready'
  return hasHadToken(state) ? 'expired' : 'starting'
}

/** Why the running pair has no newer token: its last failure since its last success, as a status shows it. */
export interface FailureView {
  readonly reason: Reason | PostponedReason
  /** One line for people. */
  readonly detail: string
  /** HTTP status of the answer; null: there was none. */
  readonly status: number | null
  readonly since: Instant
  /** Failures in a row; a refusal is one, a postponed attempt none. */
  readonly attempts: number
  /** The host of the fleet that asked; null: this one. */
  readonly askedBy: string | null
  /** On the boot clock; Infinity: not until somebody acts. */
  readonly retryAtMs: number
}

/** Failures in a row. A request that is under way has not failed yet. */
function attemptsOf(state: TokenState, pair: string): number {
  const { inFlight } = state
  const isCounted = inFlight?.pair === pair && inFlight.isSent
  return recordOf(state, pair).attempts - (isCounted ? 1 : 0)
}

/** Null: the last attempt gave a token, or there was none yet. */
export function failureOf(state: TokenState, now: Instant): FailureView | null {
  const { failure, postponed } = runningOf(state)
  const retryAtMs = dueAtMs(state, now)
  const refusal = refusalOf(state)
  if (refusal !== null) return { ...refusal, attempts: 1, retryAtMs }
  if (failure !== null) return { ...failure, attempts: attemptsOf(state, state.running), retryAtMs }
  if (postponed === null || postponed.reason === null) return null
  return { ...postponed, reason: postponed.reason, status: null, attempts: 0, retryAtMs }
}

/** Another pair in the files, which comes into use by giving a token. */
export interface CandidateView {
  readonly id: string
  /** When it became the candidate. */
  readonly since: Instant
  /** Its last answer; null: it was not asked with yet. */
  readonly reason: Reason | null
  readonly detail: string | null
  readonly status: number | null
  readonly attempts: number
  /** When the service said no to it; null: it did not. */
  readonly answeredAt: Instant | null
  /** On the boot clock, not before now; while it is asked, the start of that. Infinity: not by itself. */
  readonly nextAttemptAtMs: number
  /** The service said no to the pair itself. */
  readonly isRefused: boolean
}

/** Null: the files hold the running pair. */
export function candidateOf(state: TokenState, now: Instant): CandidateView | null {
  const { newest, running, newestSince: since } = state
  if (newest === running) return null
  const { failure, refusal, refusedWith } = recordOf(state, newest)
  const last = refusedWith === null ? failure : refusal
  return {
    id: newest,
    since,
    reason: last?.reason ?? null,
    detail: last?.detail ?? null,
    status: last?.status ?? null,
    attempts: refusedWith === null ? attemptsOf(state, newest) : 1,
    answeredAt: refusal?.since ?? null,
    nextAttemptAtMs: attemptAtMs(state, newest, now),
    isRefused: refusedWith !== null || failure?.reason === 'rejected',
  }
}

function attemptAtMs(state: TokenState, pair: string, now: Instant): number {
  if (state.inFlight?.pair === pair) return state.inFlight.since.bootMs
  return pair === state.running ? dueAtMs(state, now) : plannedAtMs(state, pair, now)
}

/**
 * The next attempt with the running pair, on the boot clock, not before now; while it is asked, the start of
 * that. Infinity: not until somebody acts.
 */
export function nextAttemptAtMs(state: TokenState, now: Instant): number {
  return attemptAtMs(state, state.running, now)
}

/** Reports whether an attempt is under way, or one with the running pair is due by this moment of the boot clock. */
export function isAnswerAhead(state: TokenState, byMs: number, now: Instant): boolean {
  return state.inFlight !== null || dueAtMs(state, now) <= byMs
}

/** Reports whether there is a usable token, or no attempt under way or due. */
export function isSettled(state: TokenState, now: Instant): boolean {
  return usableToken(state, now) !== null || !isAnswerAhead(state, now.bootMs, now)
}

/** The service, how its tokens are used, and when it was asked. */
export interface ServiceView {
  readonly baseUrl: string
  readonly use: TokenUse
  /** Statuses by which the API says that a token is refused. */
  readonly refusedBy: readonly number[]
  /** Requests of this process. */
  readonly requests: number
  readonly lastRequestAt: Instant | null
  /** Null: this service has given no token yet. */
  readonly lastSuccessAt: Instant | null
}

export function serviceOf(state: TokenState): ServiceView {
  const { service, requests, lastRequestAt, lastSuccessAt } = state
  return { ...service, requests, lastRequestAt, lastSuccessAt }
}

/** Reports whether clients reported this token, and the service has given another one since. */
export function isReplacedByReport(state: TokenState, fingerprint: string): boolean {
  return state.reportedFingerprint === fingerprint
}
/** Facts that `report/` asked to have kept, with `remember` of the keeper. */
export function notesOf({ notes }: Pick<TokenState, 'notes'>): TokenState['notes'] {
  return notes
}

/** When the token goes stale or out of use next, on the boot clock; Infinity: it does not. */
export function nextExpiryMs(state: TokenState, now: Instant): number {
  const { token } = state
  if (token === null) return Infinity
  const moments = [token.expiresAtMs, usableUntilMs(state, now)]
  return Math.min(...moments.filter((moment) => moment > now.bootMs))
}

/** The facts whose change is an event. */
export function signatureOf(state: TokenState, now: Instant): string {
  const { generation = 0, expiresAtMs = 0 } = state.token ?? {}
  const { use, refusedBy } = state.service
  const isUsable = usableToken(state, now) !== null
  return JSON.stringify([phaseOf(state, now), generation, expiresAtMs, isUsable, refusedBy, use])
}
