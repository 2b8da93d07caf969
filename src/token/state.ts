// The program's one variable: the facts. Their meaning (ready, stale, expired, due) is a function of them and the time.
import type { Instant } from '../lib/clock.ts'
import type { Advice } from '../lib/remedy.ts'
import type { Phase } from '../protocol.ts'
import type { RetryPolicy } from './backoff.ts'
import {
  remedies,
  type Cause,
  type PermanentReason,
  type PostponedReason,
  type Reason,
  type TransientReason,
} from './outcome.ts'
import type { Token } from './token.ts'

interface Trouble<R> {
  readonly reason: R
  readonly detail: string
  readonly since: Instant
  /** The host of the fleet that made the request, and notifies people; null: this one. */
  readonly askedBy: string | null
}
/** The last failure, since when there are failures, and how many in a row. */
export interface Failure extends Trouble<TransientReason> {
  readonly status: number | null
  readonly attempts: number
  /** Time of the next attempt, on the boot clock. */
  readonly retryAtMs: number
}
export interface Refusal extends Trouble<PermanentReason> {
  readonly status: number
  /** Of the answer, see PermanentFailure. */
  readonly known?: string
}
/** Why attempts are put off, if there may be no token for long. */
type Postponement = Trouble<PostponedReason>
/** A condition that an operator must know of; it lasts from the first such failure until a success or other credentials. */
export type Alert = Trouble<PermanentReason | 'rejected'>

export interface TokenState {
  readonly baseUrl: string
  /**
   * Keyed fingerprint of `baseUrl` and the credentials. If the service is not the standard one, the keyed fingerprint of its
   * description and a colon come before it.
   */
  readonly credentialsId: string
  /** Statuses by which the API says that a token is refused: for clients, who ask it. */
  readonly refusedBy: readonly number[]
  /** The last token that was obtained, usable or not. */
  readonly token: Token | null
  /** The last attempt failed and is retried; then there is no refusal. */
  readonly failure: Failure | null
  /** The last attempt was refused; then there is no failure. */
  readonly refusal: Refusal | null
  readonly alert: Alert | null
  /**
   * By credentials, the moment before which no request is to be made with them, on the boot clock (`Retry-After`, the
   * pace of `rejected`). Kept for former credentials, too, which may come back.
   */
  readonly notBefore: Readonly<Record<string, number>>
  /** Number of the last token that was obtained; 0: none yet. */
  readonly generation: number
  /** Since when there has been no token: the first start, or the loss of the last token. */
  readonly tokenlessSince: Instant
  /** The attempt that is under way; with other credentials than the state's it is a trial. */
  readonly inFlight: {
    readonly since: Instant
    readonly cause: Cause
    readonly credentialsId: string
  } | null
  /** The cause of an attempt that waits for nothing but `notBefore`; an operator's does not wait for that either. */
  readonly forcedCause: 'operator' | 'reload' | 'start' | null
  /** The attempt is put off until then, on the boot clock. */
  readonly postponedUntilMs: number | null
  /** The request itself is planned for then, on the boot clock. */
  readonly requestPlannedAtMs: number | null
  readonly postponement: Postponement | null
  /** Time at which a client's wish (a rejection, a longer life) is to be followed, on the boot clock. */
  readonly clientRequestAtMs: number | null
  /** Time of the last request that a client caused, on the boot clock. */
  readonly lastClientRequestAtMs: number | null
  /** The current token was reported as refused, at this age. */
  readonly rejection: { readonly fingerprint: string; readonly ageMs: number } | null
  /** Fingerprint of a reported token that the service gave again. */
  readonly unchanged: string | null
  /** The age that was learned from such reports, for tokens that do not say their life. */
  readonly learnedMaxAge: { readonly maxAgeMs: number; readonly atMs: number } | null
  /** Requests of this process. */
  readonly requests: number
  readonly lastRequestAt: Instant | null
  readonly lastSuccessAt: Instant | null
}

/** The facts about the fleet that are saved for a restart. */
export interface SavedFleet {
  /** The fence of the record that the keeper holds; 0: the store may lack what the keeper holds. */
  readonly fence: number
  /** 0: not known. */
  readonly hosts: number
}

export interface Policy extends RetryPolicy {
  /** Life assumed for a token that does not say its own, in ms. */
  readonly maxAgeMs: number
}
/** The circumstances of a step: the moment, the settings and chance. */
export interface Step {
  readonly now: Instant
  readonly policy: Policy
  /** From [0, 1). */
  readonly random: () => number
}

/** The service, and the credentials for it, that the facts of the state are about. */
export interface ServiceSettings {
  readonly baseUrl: string
  readonly credentialsId: string
  readonly refusedBy?: readonly number[]
}

/** The facts that are over once there is a token, or other credentials. */
export const NOTHING_PENDING = {
  failure: null,
  refusal: null,
  alert: null,
  postponedUntilMs: null,
  requestPlannedAtMs: null,
  postponement: null,
  clientRequestAtMs: null,
  rejection: null,
  unchanged: null,
} as const satisfies Partial<TokenState>

export function initialState(
  { baseUrl, credentialsId, refusedBy = [401] }: ServiceSettings,
  now: Instant,
): TokenState {
  return {
    baseUrl,
    credentialsId,
    refusedBy,
    ...NOTHING_PENDING,
    token: null,
    notBefore: {},
    generation: 0,
    tokenlessSince: now,
    inFlight: null,
    forcedCause: null,
    lastClientRequestAtMs: null,
    learnedMaxAge: null,
    requests: 0,
    lastRequestAt: null,
    lastSuccessAt: null,
  }
}

/** A token may be handed out until then, on the boot clock: its known expiry, or the end of twice an assumed life. */
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
export function tokenlessFrom({ token, tokenlessSince }: TokenState): Instant {
  if (token === null) return tokenlessSince
  const bootMs = usableUntilMs(token)
  return { bootMs, wallMs: token.received.wallMs + bootMs - token.received.bootMs }
}

export function phaseOf(state: TokenState, now: Instant): Phase {
  if (state.refusal !== null) return 'refused'
  const token = usableToken(state, now)
  if (token !== null) return state.failure !== null || isStale(token, now) ? 'degraded' : 'ready'
  return state.token !== null ? 'expired' : 'starting'
}

/** Reports whether the token that is held was obtained with other credentials than the present ones. */
export function isOthersToken({ token, credentialsId }: TokenState): boolean {
  return token !== null && token.credentialsId !== credentialsId
}

/** Reports whether an attempt with the running credentials is under way. */
export function isAsking({ inFlight, credentialsId }: TokenState): boolean {
  return inFlight?.credentialsId === credentialsId
}

/** The moment before which no request is to be made with these credentials, on the boot clock; -Infinity: there is none. */
export function notBeforeMs(state: TokenState, credentialsId = state.credentialsId): number {
  return state.notBefore[credentialsId] ?? -Infinity
}

/** The reason for the next attempt, and its time on the boot clock if nothing else holds it back. */
export function plannedAttempt(state: TokenState): { cause: Cause; atMs: number } {
  const { forcedCause, refusal, failure, token, clientRequestAtMs } = state
  if (forcedCause !== null) return { cause: forcedCause, atMs: -Infinity }
  if (refusal !== null) return { cause: 'retry', atMs: state.postponedUntilMs ?? Infinity }
  if (failure !== null) return { cause: 'retry', atMs: failure.retryAtMs }
  if (token === null || isOthersToken(state)) return { cause: 'start', atMs: -Infinity }
  if (clientRequestAtMs !== null && clientRequestAtMs < token.refreshAtMs)
    return { cause: 'client', atMs: clientRequestAtMs }
  return { cause: 'refresh', atMs: token.refreshAtMs }
}

/** Time of the next attempt, on the boot clock; -Infinity: at once; Infinity: not until an operator acts. */
export function dueAtMs(state: TokenState): number {
  const { forcedCause, postponedUntilMs } = state
  if (forcedCause === 'operator') return -Infinity
  const postponedMs = forcedCause === null ? postponedUntilMs : null
  return Math.max(plannedAttempt(state).atMs, postponedMs ?? -Infinity, notBeforeMs(state))
}

/** Time of the next request, on the boot clock, as it is planned now. */
export function nextRequestMs(state: TokenState): number {
  return Math.max(dueAtMs(state), state.requestPlannedAtMs ?? -Infinity)
}

/** The next moment at which the token goes stale or out of use, on the boot clock; Infinity: none. */
export function nextExpiryMs({ token }: TokenState, now: Instant): number {
  if (token === null) return Infinity
  const moments = [token.expiresAtMs, usableUntilMs(token)]
  return Math.min(...moments.filter((moment) => moment > now.bootMs))
}

/** The next moment at which an attempt is due or the meaning of the facts changes, on the boot clock. */
export function nextMomentMs(state: TokenState, now: Instant): number {
  return Math.min(dueAtMs(state), nextExpiryMs(state, now))
}

/** Reports whether an attempt has ended or none is needed: the daemon serves a token, or can say why it does not. */
export function isSettled(state: TokenState, now: Instant): boolean {
  const isOver = state.refusal !== null || state.failure !== null || state.postponedUntilMs !== null
  return isOver || usableToken(state, now) !== null
}

/** The facts whose change is an event. */
export function signatureOf(state: TokenState, now: Instant): string {
  const { token } = state
  const isUsable = usableToken(state, now) !== null
  return `${phaseOf(state, now)} ${token?.generation ?? 0} ${token?.expiresAtMs ?? 0} ${String(isUsable)} ${state.refusedBy.join()}`
}

/** The condition that an operator must know of now. */
export interface CurrentAlert {
  readonly reason: Alert['reason'] | 'no-token'
  readonly detail: string
  readonly since: Instant
  readonly remedy: Advice
  /** Since when there has been no usable token, once that is longer than `alerts.noTokenAfter`. */
  readonly noTokenSince: Instant | null
  /** The failure behind `no-token`, if an attempt has failed. */
  readonly failure: Reason | PostponedReason | null
  /** The host of the fleet that asked the service, if that was another one. */
  readonly askedBy: string | null
}

/** A host of a fleet that waits for its own time to ask puts it off by no more at once. */
const MOMENT_MS = 15_000

const NOTHING_FAILED: Pick<CurrentAlert, 'detail' | 'remedy'> = {
  detail: 'There has been no usable token, and no attempt has failed',
  remedy: {
    text: 'See what kyc-tokend waits for, and whether its configuration has a fault',
    steps: ['status', 'check'],
  },
}

/**
 * A refusal and `rejected` outrank `no-token`, which is not raised while an attempt is due or under way, or put off for a
 * moment: after a start or a suspend that attempt may bring a token.
 * `noTokenAfterMs`: null for never.
 */
export function currentAlert(
  state: TokenState,
  now: Instant,
  noTokenAfterMs: number | null,
  { isRaised = false } = {},
): CurrentAlert | null {
  const since = noTokenSince(state, now)
  const isLong = since !== null && noTokenAfterMs !== null && now.bootMs - since.bootMs >= noTokenAfterMs
  const { alert } = state
  if (alert !== null) {
    const remedy = remedies[alert.reason]
    return { ...alert, remedy, noTokenSince: isLong ? since : null, failure: null }
  }
  const isPutOff = state.postponedUntilMs !== null && state.postponement === null
  const isAwaited = dueAtMs(state) <= now.bootMs + (isPutOff ? MOMENT_MS : 0)
  return isLong && (isRaised || !isAwaited) ? noTokenAlert(state, since, noTokenAfterMs) : null
}

function noTokenAlert(state: TokenState, since: Instant, afterMs: number): CurrentAlert {
  // The last attempt of the fleet: its host notifies people.
  const failure = state.postponement ?? state.failure
  return {
    reason: 'no-token',
    ...(failure === null ? NOTHING_FAILED : { detail: failure.detail, remedy: remedies[failure.reason] }),
    since: { bootMs: since.bootMs + afterMs, wallMs: since.wallMs + afterMs },
    noTokenSince: since,
    failure: failure?.reason ?? null,
    askedBy: failure?.askedBy ?? null,
  }
}
