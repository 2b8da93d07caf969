// Transitions of the state, pure: from the facts and an event (an attempt, time, a person, other settings) to
// the facts that follow.
import { onWallClockOf, type Instant } from '../lib/clock.ts'
import { invariant } from '../lib/invariant.ts'
import { backoffMs, delayCapMs, retryPlan, type LifeLeft } from './backoff.ts'
import { endedEarlyAfter, paceAfterToken } from './client-requests.ts'
import type { Cause, FetchOutcome, Grant, PermanentFailure, Postponed, TransientFailure } from './outcome.ts'
import {
  isAsking,
  isPermanent,
  isRefusedPair,
  nextExpiryMs,
  NOTHING_PENDING,
  notBeforeMs,
  refusalOf,
  tokenlessAt,
  tokenlessFrom,
  usableToken,
  usableUntilMs,
  type Failure,
  type Objection,
  type Refusal,
  type ServiceSettings,
  type Step,
  type TokenState,
} from './state.ts'
import { fingerprintOf, isSameService, knownLife, lifeFrom, sameAgain, type Token } from './token.ts'

// ---- an attempt

/** An attempt begins. Whether it makes a request is up to the source. */
export function afterAttemptBegan(state: TokenState, cause: Cause, now: Instant): TokenState {
  invariant(state.inFlight === null, 'one-request-at-a-time', { cause })
  const isRefusedTo = refusalOf(state) !== null && (cause === 'client' || cause === 'refresh')
  invariant(!isRefusedTo, 'a-refusal-ends-by-a-person', { cause })
  return { ...state, inFlight: { since: now, cause, credentialsId: state.credentialsId }, next: null }
}

export function afterRequest(state: TokenState, cause: Cause, now: Instant): TokenState {
  return {
    ...state,
    pace: cause === 'client' ? { ...state.pace, requestedMs: now.bootMs } : state.pace,
    requests: state.requests + 1,
    lastRequestAt: now,
  }
}

export function afterAttemptEnded(state: TokenState): TokenState {
  return state.inFlight === null ? state : { ...state, inFlight: null }
}

/**
 * The attempt that is under way, or one of another host, ends with this outcome. Returns the outcome that
 * counts, too: a token that has expired is a failure.
 */
export function nextState<T extends FetchOutcome>(
  state: TokenState,
  outcome: T,
  step: Step,
): { state: TokenState; outcome: T | TransientFailure } {
  if (outcome.kind === 'postponed') return { state: afterPostponed(state, outcome, step), outcome }
  const ended = { ...state, inFlight: null, answers: state.answers + 1 }
  if (outcome.kind === 'permanent') return { state: afterRefusal(ended, outcome, step), outcome }
  if (outcome.kind === 'transient') return { state: afterFailure(ended, outcome, step), outcome }
  const token = tokenOf(state, outcome, step)
  if (token.expiresAtMs > step.now.bootMs) return { state: afterToken(ended, token, step), outcome }
  const isSame = token.generation === state.generation
  const detail = isSame
    ? 'The service gave the same token again, which has expired'
    : 'The service gave a token that has already expired'
  const failure = { kind: 'transient', reason: 'malformed-answer', detail, status: 200 } as const
  return { state: afterFailure(ended, failure, step), outcome: failure }
}

/** The token of a grant, with or without life left. */
function tokenOf(state: TokenState, grant: Grant, { now, policy, drawn }: Step): Token {
  const { lifeMs, expirySource } = lifeOf(grant, now, policy.maxAgeMs)
  const ageMs = grant.ageMs ?? 0
  const received = { bootMs: now.bootMs - ageMs, wallMs: now.wallMs - ageMs }
  const fresh: Token = {
    accessToken: grant.accessToken,
    fingerprint: fingerprintOf(grant.accessToken),
    generation: state.generation + 1,
    baseUrl: state.baseUrl,
    credentialsId: state.credentialsId,
    received,
    ...lifeFrom(received.bootMs, lifeMs, drawn),
    expirySource,
    answer: state.answers + 1,
    isOfClients: state.inFlight?.cause === 'client',
    isSameUntilEnd: false,
    known: grant.known ?? null,
  }
  const before = state.token
  return before?.fingerprint === fresh.fingerprint ? sameAgain(before, fresh, { now, drawn }) : fresh
}

function lifeOf(grant: Grant, now: Instant, maxAgeMs: number): Pick<Token, 'lifeMs' | 'expirySource'> {
  const known = knownLife(grant, now.wallMs) ?? { lifeMs: Infinity, expirySource: 'assumed' }
  const { lifeMs, expirySource } = { ...known, ...grant }
  // Of two assumed lives the shorter counts: the one that another host sent, or the one here.
  return { lifeMs: expirySource === 'assumed' ? Math.min(lifeMs, maxAgeMs) : lifeMs, expirySource }
}

function afterPostponed(state: TokenState, postponed: Postponed, { now }: Step): TokenState {
  const { retryAfterMs, reason, detail = '', askedBy = null } = postponed
  const isSame = reason !== undefined && state.postponement?.reason === reason
  const since = isSame ? state.postponement.since : now
  return {
    ...state,
    inFlight: null,
    next: postponedPlan(state, { retryAfterMs, now }),
    postponement: reason === undefined ? null : { reason, detail, since, askedBy },
  }
}

/** The attempt comes again for the same cause; an operator's, who has been answered, as a retry. */
export function postponedPlan(
  { inFlight }: TokenState,
  { retryAfterMs, now }: { retryAfterMs: number; now: Instant },
): NonNullable<TokenState['next']> {
  const cause = inFlight?.cause ?? 'retry'
  return { cause: cause === 'operator' ? 'retry' : cause, atMs: now.bootMs + retryAfterMs }
}

/** The failure of a request that goes out now, if it is never answered. */
export const UNANSWERED: TransientFailure = {
  kind: 'transient',
  reason: 'network',
  detail: 'The attempt did not end: kyc-tokend itself ended first',
}

/** The state if the request that goes out now is never answered: saved, lest the process end meanwhile. */
export function assumeFailed(state: TokenState, step: Step): TokenState {
  return refusalOf(state) === null ? afterFailure(state, UNANSWERED, step) : state
}

function afterToken(state: TokenState, token: Token, { now, policy }: Step): TokenState {
  const { token: before, rejection, next } = state
  const isUnchanged = before?.fingerprint === token.fingerprint
  const isReplaced = before !== null && rejection !== null && !isUnchanged
  return {
    ...withNotBefore(state, { credentialsId: state.credentialsId, atMs: 0 }, now),
    ...NOTHING_PENDING,
    // A token of another host fulfils every wish but an operator's, who wants a request from now on.
    next: next?.cause === 'operator' ? next : null,
    token,
    tokenless: { ...state.tokenless, forMs: 0 },
    generation: token.generation,
    rejection: isUnchanged && rejection ? { ...rejection, isUnchanged } : null,
    refusedFingerprint: isReplaced ? before.fingerprint : state.refusedFingerprint,
    pace: paceAfterToken(state, now),
    endedEarlyMs: isReplaced ? endedEarlyAfter(state, policy.maxAgeMs) : state.endedEarlyMs,
    lastSuccessAt: now,
  }
}

function afterFailure(state: TokenState, failed: Omit<TransientFailure, 'kind'>, step: Step): TokenState {
  const { now } = step
  const { failure: before, credentialsId } = state
  const { reason, detail, status = null } = failed
  const attempts = attemptsAfter(reason, before)
  const plan = planAfterFailure(state, failed, { credentialsId, attempts, step })
  const { retryAtMs } = plan
  return {
    ...withNotBefore(state, { credentialsId, atMs: plan.notBeforeMs }, now),
    failure: { reason, detail, status, since: before?.since ?? now, attempts, retryAtMs },
    objection: reason === 'rejected' ? objectionOf(state, { ...failed, reason }, now) : state.objection,
    next: wishOf(state),
    postponement: null,
  }
}

/** A file that was read is no attempt: what follows begins where the last request left off. */
export function attemptsAfter(reason: string, before: { readonly attempts: number } | null): number {
  return reason === 'assertion' ? Math.max(1, before?.attempts ?? 0) : (before?.attempts ?? 0) + 1
}

/** The next attempt with these credentials after so many failures in a row, and the bound that stands then. */
export function planAfterFailure(
  state: TokenState,
  failed: Omit<TransientFailure, 'kind'>,
  { credentialsId, attempts, step }: { credentialsId: string; attempts: number; step: Step },
): ReturnType<typeof retryPlan> {
  const { now, policy, drawn } = step
  return retryPlan(failed, {
    nowMs: now.bootMs,
    attempts,
    policy: isAtEndOfSame(state, failed, now) ? sooner(policy) : policy,
    drawn,
    left: leftOfToken(state, now),
    notBeforeMs: notBeforeMs(state, credentialsId),
  })
}

/** The first delay after the end of a token that the service gave until then. */
const SAME_AGAIN_DELAY_MS = 200
const sooner = (policy: Step['policy']): Step['policy'] => ({
  ...policy,
  initialDelayMs: Math.min(SAME_AGAIN_DELAY_MS, policy.initialDelayMs),
})

/** The service gives its token until that ends, and a moment longer: the next one is there very soon. */
function isAtEndOfSame({ token }: TokenState, { reason }: { reason: string }, now: Instant): boolean {
  return token?.isSameUntilEnd === true && reason === 'malformed-answer' && token.expiresAtMs <= now.bootMs
}

/** What is left of the life of the token that is held; null: there is no usable one. */
function leftOfToken(state: TokenState, now: Instant): LifeLeft | null {
  const token = usableToken(state, now)
  if (token === null) return null
  return {
    freshMs: nextExpiryMs(state, now) - now.bootMs,
    usableMs: usableUntilMs(token) - now.bootMs,
    lifeMs: token.lifeMs,
  }
}

/** The wish of a person, which only an attempt fulfils. */
function wishOf({ next }: TokenState): TokenState['next'] {
  return next?.cause === 'operator' || next?.cause === 'reload' || next?.cause === 'start' ? next : null
}

function afterRefusal(state: TokenState, refused: PermanentFailure, { now }: Step): TokenState {
  return { ...state, ...NOTHING_PENDING, objection: objectionOf(state, refused, now), next: wishOf(state) }
}

/** One with the reason of the one that stands, or of the postponement, keeps its start and its host. */
function objectionOf(
  { objection, postponement }: TokenState,
  answer: Pick<PermanentFailure, 'detail' | 'says' | 'askedBy' | 'known'> & {
    readonly reason: Objection['reason']
    readonly status?: number
  },
  now: Instant,
): Objection {
  const { reason, detail, status = null, says = null, askedBy = null, known = null } = answer
  const raised = [objection, postponement].find((one) => one?.reason === reason)
  const { since, askedBy: raisedBy } = raised ?? { since: now, askedBy }
  const again = objection?.isAskedAgain === true && { isAskedAgain: true }
  return { reason, detail, status, says, since, askedBy: raisedBy, known, ...again }
}

// ---- time and operators

/**
 * Time has passed, or the settings have changed: a wait longer than the present cap is drawn again.
 * `tickedAwakeMs`: the reading of CLOCK_MONOTONIC at the former tick.
 */
export function afterTick(before: TokenState, step: Step, { tickedAwakeMs = -Infinity } = {}): TokenState {
  const { now, awakeMs } = step
  const state = withTokenless(onWallClock(before, now), { now, awakeMs, tickedAwakeMs })
  const { failure, candidate } = state
  const retried = failure && withinCap(failure, state.credentialsId, { state, step })
  if (candidate === null || candidate.failure === null || isRefusedPair(candidate))
    return retried === failure ? state : { ...state, failure: retried }
  const tried = withinCap(candidate.failure, candidate.credentialsId, { state, step })
  if (retried === failure && tried === candidate.failure) return state
  return { ...state, failure: retried, candidate: { ...candidate, failure: tried } }
}

/** The same failure if its wait is within the cap. */
function withinCap<F extends Pick<Failure, 'attempts' | 'retryAtMs'>>(
  failure: F,
  credentialsId: string,
  { state, step }: { state: TokenState; step: Step },
): F {
  const { now, policy, drawn } = step
  const capMs = delayCapMs(policy, leftOfToken(state, now))
  const earliestMs = notBeforeMs(state, credentialsId)
  if (failure.retryAtMs <= Math.max(now.bootMs + capMs, earliestMs)) return failure
  const drawnMs = now.bootMs + backoffMs(failure.attempts, { ...policy, maxDelayMs: capMs }, drawn)
  return { ...failure, retryAtMs: Math.max(drawnMs, earliestMs) }
}

/** The state with its time without a token counted up to this moment: the same state while a token is held. */
function withTokenless(
  state: TokenState,
  { now, awakeMs, tickedAwakeMs }: Pick<Step, 'now' | 'awakeMs'> & { tickedAwakeMs: number },
): TokenState {
  const { tokenless } = state
  const readAtMs = Math.max(tokenless.readAtMs, tickedAwakeMs)
  const counted = tokenlessAt({ ...tokenless, readAtMs }, { from: tokenlessFrom(state), now, awakeMs })
  if (counted.forMs === tokenless.forMs) return state
  return { ...state, tokenless: { ...tokenless, ...counted } }
}

/** The state with the instants of its token on the present wall clock, if that was set. */
function onWallClock(state: TokenState, now: Instant): TokenState {
  const { token } = state
  if (token === null) return state
  const received = onWallClockOf(now, token.received)
  return received === token.received ? state : { ...state, token: { ...token, received } }
}

/** An operator asks: only an attempt that is under way delays the request, and answers it. */
export function afterOperator(state: TokenState, now: Instant): TokenState {
  return isAsking(state) ? state : { ...state, next: { cause: 'operator', atMs: now.bootMs } }
}

/** Likewise with the candidate, if there is one: where it gives no token the running pair is asked. */
export function afterOperatorOfBoth(before: TokenState, now: Instant): TokenState {
  const state = afterOperator(before, now)
  const { candidate, inFlight } = state
  if (candidate === null || inFlight?.credentialsId === candidate.credentialsId) return state
  return { ...state, candidate: { ...candidate, next: { cause: 'operator', atMs: now.bootMs } } }
}

/** The least age of a refusal that a renewed assertion may end. */
const LEAST_AGE_MS = 300_000

/**
 * The ready-made assertion was renewed: the issuer's key may not have been known before. A refusal is asked
 * about once more, as if a secret file was written again; a second one stands.
 */
export function afterRenewal(state: TokenState, now: Instant): TokenState {
  const refusal = refusalOf(state)
  if (refusal === null || refusal.isAskedAgain === true) return state
  if (now.bootMs - refusal.since.bootMs < LEAST_AGE_MS) return state
  return {
    ...state,
    objection: { ...refusal, isAskedAgain: true },
    next: { cause: 'reload', atMs: now.bootMs },
  }
}

// ---- other settings

export function afterReload(
  state: TokenState,
  settings: ServiceSettings & { readonly isNamedRefusal?: IsNamedRefusal },
  step: Step,
): TokenState {
  const { refusedBy = state.refusedBy, use = state.use } = settings
  const replanned = withMaxAge({ ...state, endedEarlyMs: [], refusedBy, use }, step)
  const reloaded = withoutUnnamedRefusal(replanned, settings.isNamedRefusal)
  const next = { cause: 'reload', atMs: step.now.bootMs } as const
  if (settings.credentialsId !== state.credentialsId)
    return { ...withCredentials(reloaded, settings, step.now), next }
  const isOfFile = reloaded.failure !== null && FILE_FAILURES.has(reloaded.failure.reason)
  return isOfFile && reloaded.next?.cause !== 'operator' ? { ...reloaded, next } : reloaded
}

/** Failures that a file which is corrected may end: a ready-made assertion, an authority. */
const FILE_FAILURES: ReadonlySet<string> = new Set<TransientFailure['reason']>(['assertion', 'tls'])

/** Reports whether the description of the service still names this refusal. */
export type IsNamedRefusal = (refusal: Refusal) => boolean

/** A refusal that the description of the service no longer names is forgotten, and its alert with it. */
export function withoutUnnamedRefusal(state: TokenState, isNamed: IsNamedRefusal = () => true): TokenState {
  const { objection } = state
  if (objection === null || !isPermanent(objection) || isNamed(objection)) return state
  return { ...state, objection: null, next: null }
}

/** Other credentials, or another service: the facts about the former ones are dropped, except `notBefore`. */
export function withCredentials(
  state: TokenState,
  { baseUrl, credentialsId }: ServiceSettings,
  now: Instant,
): TokenState {
  const isSame = isSameService({ baseUrl, credentialsId }, state)
  const former = isSame ? state : { ...withoutToken(state, now), lastSuccessAt: null }
  return { ...former, baseUrl, credentialsId, candidate: null, ...NOTHING_PENDING }
}

/** Only an operator asks with these credentials before that moment. Bounds that are past are dropped. */
export function withNotBefore(
  state: TokenState,
  { credentialsId, atMs }: { credentialsId: string; atMs: number },
  now: Instant,
): TokenState {
  const all = Object.entries({ ...state.notBefore, [credentialsId]: atMs })
  return { ...state, notBefore: Object.fromEntries(all.filter(([, untilMs]) => untilMs > now.bootMs)) }
}

function withoutToken(state: TokenState, now: Instant): TokenState {
  if (state.token === null) return state
  const lostMs = Math.min(now.bootMs, usableUntilMs(state.token))
  const since = { bootMs: lostMs, wallMs: now.wallMs - (now.bootMs - lostMs) }
  return { ...state, token: null, tokenless: { ...state.tokenless, since } }
}

/** Another `refresh.maxAge` counts for the token that is held, too. */
function withMaxAge(state: TokenState, { policy, drawn }: Step): TokenState {
  const { token } = state
  const lifeMs = policy.maxAgeMs
  if (token?.expirySource !== 'assumed' || token.lifeMs === lifeMs) return state
  // An assumed life begins with the last answer that gave the token.
  const startMs = token.expiresAtMs - token.lifeMs
  return { ...state, token: { ...token, ...lifeFrom(startMs, lifeMs, drawn) } }
}

/** A restart: a `refresh.maxAge` that was lowered meanwhile counts for the token that is held. */
export function afterStart(saved: TokenState, step: Step): TokenState {
  const read = { ...saved, tokenless: { ...saved.tokenless, readAtMs: step.awakeMs } }
  const state = onWallClock(read, step.now)
  const isLowered = state.token !== null && step.policy.maxAgeMs < state.token.lifeMs
  return isLowered ? withMaxAge(state, step) : state
}
