// The program's one variable: facts. What they mean (ready, expired, due) follows from them and the time.
import type { Instant } from '../lib/clock.ts'
import {
  permanentReasons,
  STANDARD_USE,
  type PermanentReason,
  type Phase,
  type PostponedReason,
  type Reason,
  type TokenUse,
  type TransientReason,
} from '../protocol.ts'
import type { RetryPolicy } from './backoff.ts'
import type { Cause } from './outcome.ts'
import type { Token } from './token.ts'

interface Trouble<R> {
  readonly reason: R
  readonly detail: string
  readonly since: Instant
}
/** Trouble that concerns all hosts of a fleet. */
interface SharedTrouble<R> extends Trouble<R> {
  /** The host that made the request, and notifies people; null: this one. */
  readonly askedBy: string | null
}
/** The last failure, since when there are failures, and how many in a row. */
export interface Failure extends Trouble<TransientReason> {
  readonly status: number | null
  readonly attempts: number
  /** Time of the next attempt, on the boot clock. */
  readonly retryAtMs: number
}
/** The service says that something is wrong with the account or the request: an operator must know of it. */
export interface Objection extends SharedTrouble<PermanentReason | 'rejected'> {
  readonly status: number | null
  /** The words of `service.refusals` that named it; null: it is no refusal, or an older version saved it. */
  readonly says: string | null
  /** The text by which `share/` knows this answer again; null: it is not shared. */
  readonly known: string | null
  /** A renewed assertion has had the service asked once more, which it does for no refusal twice. */
  readonly isAskedAgain?: boolean | undefined
}
/** Why a candidate has given no token: its last answer of any kind. */
interface CandidateFailure extends Omit<Failure, 'reason'>, Omit<Objection, 'reason'> {
  readonly reason: Reason
}
/** Another pair, which comes into use by giving a token. */
export interface Candidate {
  readonly credentialsId: string
  /** When it became the candidate. */
  readonly since: Instant
  /** A refusal is final until somebody acts; all else is repeated. */
  readonly failure: CandidateFailure | null
  /** As the one of the state. */
  readonly next: TokenState['next']
}
/** An objection that is final: the service is not asked again until an operator acts. */
export type Refusal = Objection & { readonly reason: PermanentReason }

export interface TokenState {
  readonly baseUrl: string
  /**
   * Keyed fingerprint of `baseUrl` and the credentials; before it, and a colon, that of the service's
   * description if it is not the standard one.
   */
  readonly credentialsId: string
  /** How the API wants the token: for clients, who ask it. */
  readonly use: TokenUse
  /** Statuses by which the API says that a token is refused: likewise. */
  readonly refusedBy: readonly number[]
  /** The last token that was obtained, usable or not. */
  readonly token: Token | null
  /** Number of that token, or of the last one that was dropped; 0: none yet. */
  readonly generation: number
  /** Counts answers: what a token's answer has ended is older than the token. */
  readonly answers: number
  readonly tokenless: Tokenless
  /** The last attempt failed, and is retried. */
  readonly failure: Failure | null
  /** The last answer of weight (token, refusal, `rejected`), if it was no token. No other failure ends it. */
  readonly objection: Objection | null
  /** Before this moment of the boot clock only an operator asks; by credentials, also former ones. */
  readonly notBefore: Readonly<Record<string, number>>
  /** Null: there is no other pair than the running one. */
  readonly candidate: Candidate | null
  /** The attempt that is under way, with the running credentials or those of the candidate. */
  readonly inFlight: { readonly since: Instant; readonly cause: Cause; readonly credentialsId: string } | null
  /**
   * An attempt that somebody asked for, or that was put off, and its time on the boot clock: it comes instead
   * of the planned one. An operator's waits for nothing, any other for `notBefore`.
   */
  readonly next: { readonly cause: Cause; readonly atMs: number } | null
  /** Why attempts are put off, if there may be no token for long. */
  readonly postponement: SharedTrouble<PostponedReason> | null
  /** The token was reported as refused, at this age; `isUnchanged`: and then given again by the service. */
  readonly rejection: { readonly ageMs: number; readonly isUnchanged: boolean } | null
  /** The last token that was replaced after clients had reported it; null: none was. */
  readonly refusedFingerprint: string | null
  readonly pace: ClientPace
  /** Ages at which clients reported tokens whose assumed life was longer, the newest last; at most 10. */
  readonly endedEarlyMs: readonly number[]
  /** The end of the credentials, and how near to it, that was logged last; null: none was. Of `report/`. */
  readonly loggedEnd: string | null
  /** Requests of this process. */
  readonly requests: number
  readonly lastRequestAt: Instant | null
  /** Null: this service has given no token yet. */
  readonly lastSuccessAt: Instant | null
}

/** The time without a usable token, counted only while the host was awake. */
export interface Tokenless {
  /** The first start, or the loss of the last token; without meaning while a token is held. */
  readonly since: Instant
  /** How long there has been none, in ms, at this reading of CLOCK_MONOTONIC; 0: there is one. */
  readonly forMs: number
  /** -Infinity: the clock has not been read yet. */
  readonly readAtMs: number
}

/** The pace of the requests that clients cause. */
export interface ClientPace {
  /** Time of the last of them, on the boot clock; null: there was none. */
  readonly requestedMs: number | null
  /** How many tokens in a row that clients asked for were reported themselves. */
  readonly reported: number
}
export const NO_PACE: ClientPace = { requestedMs: null, reported: 0 }

export interface Policy extends RetryPolicy {
  /** Life assumed for a token that does not say its own, in ms. */
  readonly maxAgeMs: number
}
/** The circumstances of a step: the moment, the settings and chance. */
export interface Step {
  readonly now: Instant
  /** The reading of CLOCK_MONOTONIC. */
  readonly awakeMs: number
  readonly policy: Policy
  /** From [0, 1). */
  readonly drawn: number
}

/** The service, and the credentials for it, that the facts of the state are about. */
export interface ServiceSettings {
  readonly baseUrl: string
  readonly credentialsId: string
  readonly refusedBy?: readonly number[]
  readonly use?: TokenUse
}

/** The facts that are over once there is a token, or other credentials. */
export const NOTHING_PENDING = {
  failure: null,
  objection: null,
  next: null,
  postponement: null,
  rejection: null,
} as const satisfies Partial<TokenState>

export function initialState(
  { baseUrl, credentialsId, refusedBy = [401], use = STANDARD_USE }: ServiceSettings,
  now: Instant,
): TokenState {
  return {
    baseUrl,
    credentialsId,
    refusedBy,
    use,
    ...NOTHING_PENDING,
    token: null,
    generation: 0,
    answers: 0,
    tokenless: { since: now, forMs: 0, readAtMs: -Infinity },
    notBefore: {},
    candidate: null,
    inFlight: null,
    refusedFingerprint: null,
    pace: NO_PACE,
    endedEarlyMs: [],
    loggedEnd: null,
    requests: 0,
    lastRequestAt: null,
    lastSuccessAt: null,
  }
}

/** The objection, if it is a refusal and nothing has been asked since that failed in another way. */
export function refusalOf({ failure, objection }: TokenState): Refusal | null {
  return failure === null && objection !== null && isPermanent(objection) ? objection : null
}
export function isPermanent(objection: Objection): objection is Refusal {
  return objection.reason !== 'rejected'
}

/** Until then a token may be handed out, on the boot clock: its expiry, or twice the life assumed for it. */
export function usableUntilMs(token: Pick<Token, 'expirySource' | 'expiresAtMs' | 'lifeMs'>): number {
  return token.expirySource === 'assumed' ? token.expiresAtMs + token.lifeMs : token.expiresAtMs
}
/** The token to hand out now, if there is one. */
export function usableToken({ token }: TokenState, now: Instant): Token | null {
  return token !== null && now.bootMs < usableUntilMs(token) ? token : null
}
/** Past the life that was assumed for it. */
export function isStale(token: Token, now: Instant): boolean {
  return now.bootMs >= token.expiresAtMs
}
/** Since when there has been no usable token; null: there is one. Counted across restarts. */
export function noTokenSince(state: TokenState, now: Instant): Instant | null {
  return usableToken(state, now) === null ? tokenlessFrom(state) : null
}
/** The moment, past or to come, from which on there is no usable token unless another one is obtained. */
export function tokenlessFrom({ token, tokenless }: TokenState): Instant {
  if (token === null) return tokenless.since
  const bootMs = usableUntilMs(token)
  return { bootMs, wallMs: token.received.wallMs + bootMs - token.received.bootMs }
}

/**
 * The time without a usable token, at another moment of the same boot. The token may have been lost at any
 * moment since the last reading, so no more is added than the time since the loss.
 */
export function tokenlessAt(
  { forMs, readAtMs }: Omit<Tokenless, 'since'>,
  { from, now, awakeMs }: { from: Instant; now: Instant; awakeMs: number },
): Omit<Tokenless, 'since'> {
  const lostForMs = now.bootMs - from.bootMs
  if (lostForMs < 0) return { forMs: 0, readAtMs: awakeMs }
  const addedMs = Math.min(Math.max(0, awakeMs - readAtMs), lostForMs)
  return { forMs: forMs + addedMs, readAtMs: awakeMs }
}

export function phaseOf(state: TokenState, now: Instant): Phase {
  if (refusalOf(state) !== null) return 'refused'
  const token = usableToken(state, now)
  if (token !== null) return state.failure !== null || isStale(token, now) ? 'degraded' : 'ready'
  return hasHadToken(state) ? 'expired' : 'starting'
}

/** Reports whether the service has ever given a token, which a restart may have dropped since. */
export function hasHadToken({ token, lastSuccessAt }: TokenState): boolean {
  return token !== null || lastSuccessAt !== null
}

/** Reports whether an attempt with the running credentials is under way. */
export function isAsking({ inFlight, credentialsId }: TokenState): boolean {
  return inFlight?.credentialsId === credentialsId
}

/** The moment before which only an operator asks with these credentials; 0: there is none. */
export function notBeforeMs(state: TokenState, credentialsId = state.credentialsId): number {
  return state.notBefore[credentialsId] ?? 0
}

/** The next attempt: why, and when, on the boot clock, if nothing holds it back; Infinity: never. */
export function plannedAttempt(state: TokenState): { cause: Cause; atMs: number } {
  const { next } = state
  const plan = planOf(state)
  // A client's wish can only bring the attempt forward.
  if (next === null || (next.cause === 'client' && plan.atMs <= next.atMs)) return plan
  return next
}

function planOf(state: TokenState): { cause: Cause; atMs: number } {
  const { failure, token, credentialsId } = state
  if (failure !== null) return { cause: 'retry', atMs: failure.retryAtMs }
  if (refusalOf(state) !== null) return { cause: 'retry', atMs: Infinity }
  if (token?.credentialsId === credentialsId) return { cause: 'refresh', atMs: token.refreshAtMs }
  // At once: the boot clock begins with 0.
  return { cause: 'start', atMs: 0 }
}

/** Time of the next attempt, on the boot clock; Infinity: not until an operator acts. */
export function dueAtMs(state: TokenState): number {
  const { cause, atMs } = plannedAttempt(state)
  return cause === 'operator' ? atMs : Math.max(atMs, notBeforeMs(state))
}

/** Reports whether the service said no to the pair itself: it is not repeated. */
export function isRefusedPair({ failure }: Pick<Candidate, 'failure'>): boolean {
  if (failure === null) return false
  return failure.reason === 'rejected' || permanentReasons.some((reason) => reason === failure.reason)
}

/** As `plannedAttempt`, with the candidate; null: there is none. */
export function plannedTrial({ candidate }: TokenState): { cause: Cause; atMs: number } | null {
  if (candidate === null || candidate.next !== null) return candidate && candidate.next
  const { failure } = candidate
  // At once: the boot clock begins with 0.
  if (failure === null) return { cause: 'reload', atMs: 0 }
  return { cause: 'retry', atMs: isRefusedPair(candidate) ? Infinity : failure.retryAtMs }
}

/** As `dueAtMs`, with the candidate; Infinity: there is none, or it was refused. */
export function trialDueAtMs(state: TokenState): number {
  const plan = plannedTrial(state)
  if (plan === null || state.candidate === null) return Infinity
  const { cause, atMs } = plan
  return cause === 'operator' ? atMs : Math.max(atMs, notBeforeMs(state, state.candidate.credentialsId))
}

/** When the token goes stale or out of use next, on the boot clock; Infinity: it does not. */
export function nextExpiryMs({ token }: TokenState, now: Instant): number {
  if (token === null) return Infinity
  const moments = [token.expiresAtMs, usableUntilMs(token)]
  return Math.min(...moments.filter((moment) => moment > now.bootMs))
}

/** When an attempt is due or the meaning of the facts changes next, on the boot clock. */
export function nextMomentMs(state: TokenState, now: Instant): number {
  return Math.min(dueAtMs(state), trialDueAtMs(state), nextExpiryMs(state, now))
}

/**
 * Reports whether there is a usable token, or no attempt under way or due. A failure of a former process that
 * crashed says nothing of the attempt that is due now.
 */
export function isSettled(state: TokenState, now: Instant): boolean {
  return usableToken(state, now) !== null || (state.inFlight === null && dueAtMs(state) > now.bootMs)
}

/** The facts whose change is an event. */
export function signatureOf(state: TokenState, now: Instant): string {
  const { token } = state
  const isUsable = usableToken(state, now) !== null
  const { generation = 0, expiresAtMs = 0 } = token ?? {}
  return JSON.stringify([phaseOf(state, now), generation, expiresAtMs, isUsable, state.refusedBy, state.use])
}
