// What the facts of the state mean now: the one way in which other rooms read them. Pure.
import type { Instant } from '../lib/clock.ts'
import type { PostponedReason, Reason, TokenUse } from '../protocol.ts'
import { dueAtMs, isAsking, isRefusedPair, refusalOf, trialDueAtMs, type TokenState } from './state.ts'

export {
  dueAtMs,
  hasHadToken,
  isSettled,
  isStale,
  noTokenSince,
  phaseOf,
  refusalOf,
  usableToken,
  usableUntilMs,
  type TokenState,
} from './state.ts'

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

/** Null: the last attempt gave a token, or there was none yet. */
export function failureOf(state: TokenState): FailureView | null {
  const { failure, postponement } = state
  const refusal = refusalOf(state)
  if (refusal !== null) return { ...refusal, attempts: 1, retryAtMs: dueAtMs(state) }
  if (failure !== null) return { ...failure, askedBy: null, retryAtMs: dueAtMs(state) }
  return postponement && { ...postponement, status: null, attempts: 0, retryAtMs: dueAtMs(state) }
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
  /** On the boot clock, not before now; while it is asked, the start of that. Infinity: not by itself. */
  readonly nextAttemptAtMs: number
  /** The service said no to the pair itself: it is not asked again by itself. */
  readonly isRefused: boolean
}

/** Null: the files hold the running pair. */
export function candidateOf(state: TokenState, now: Instant): CandidateView | null {
  const { candidate, inFlight } = state
  if (candidate === null) return null
  const { credentialsId: id, since, failure } = candidate
  return {
    id,
    since,
    reason: failure?.reason ?? null,
    detail: failure?.detail ?? null,
    status: failure?.status ?? null,
    attempts: failure?.attempts ?? 0,
    nextAttemptAtMs:
      inFlight?.credentialsId === id ? inFlight.since.bootMs : Math.max(trialDueAtMs(state), now.bootMs),
    isRefused: isRefusedPair(candidate),
  }
}

/**
 * The next attempt with the running pair, on the boot clock, not before now; while it is asked, the start of
 * that. Infinity: not until somebody acts.
 */
export function nextAttemptAtMs(state: TokenState, now: Instant): number {
  if (state.inFlight !== null && isAsking(state)) return state.inFlight.since.bootMs
  return Math.max(dueAtMs(state), now.bootMs)
}

/** Reports whether an attempt is under way, or one with the running pair is due by this moment of the boot clock. */
export function isAnswerAhead(state: TokenState, byMs: number): boolean {
  return state.inFlight !== null || dueAtMs(state) <= byMs
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
  const { baseUrl, use, refusedBy, requests, lastRequestAt, lastSuccessAt } = state
  return { baseUrl, use, refusedBy, requests, lastRequestAt, lastSuccessAt }
}

/** Reports whether clients reported this token, and the service has given another one since. */
export function isReplacedByReport(state: TokenState, fingerprint: string): boolean {
  return state.refusedFingerprint === fingerprint
}

/** Reports whether clients reported the present token, and the service has not given it again since. */
export function isReported({ rejection }: TokenState): boolean {
  return rejection !== null && !rejection.isUnchanged
}
