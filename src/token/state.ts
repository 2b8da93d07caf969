// The program's one variable: what happened. What it means (ready, stale, expired, due) is a function of it and the time.
import type { Instant } from '../lib/clock.ts'
import type { Phase, RejectVerdict } from '../protocol.ts'
import { backoffMs, delayCapMs, retryWait, type RetryPolicy } from './backoff.ts'
import type {
  FetchOutcome,
  Grant,
  PermanentFailure,
  PermanentReason,
  TransientFailure,
  TransientReason,
} from './outcome.ts'
import { fingerprintOf, jwtLifeMs, refreshAfterMs, type Token } from './token.ts'

/** The failure that stands: the last one, and since when and how often in a row. */
export interface Failure {
  readonly reason: TransientReason
  readonly detail: string
  readonly status: number | null
  readonly since: Instant
  readonly attempts: number
  /** When the next attempt is, on the boot clock. */
  readonly retryAtMs: number
  /** What the wait may not be shortened below when the last token goes, on the boot clock. */
  readonly notBeforeMs: number
}
export interface Refusal {
  readonly reason: PermanentReason
  readonly detail: string
  readonly status: number
  readonly since: Instant
}
/** What an operator must know of: stands from the first such failure until a success or other credentials. */
export interface Alert {
  readonly reason: PermanentReason | 'rejected'
  readonly detail: string
  readonly since: Instant
}
/** Who made us ask. */
export type Cause = 'start' | 'refresh' | 'retry' | 'client' | 'operator' | 'reload'

interface Facts {
  readonly baseUrl: string
  /** Of the last token that was obtained; 0: none yet. */
  readonly generation: number
  readonly alert: Alert | null
  /** The request that is under way. */
  readonly asking: { readonly since: Instant; readonly cause: Cause } | null
  /** An attempt that waits for nothing. */
  readonly askNow: 'operator' | 'reload' | 'start' | null
  /** When a client's wish (a report, a longer life) is to be followed, on the boot clock. */
  readonly clientAskAtMs: number | null
  /** When a client's wish last made us ask, on the boot clock. */
  readonly clientAskedAtMs: number | null
  /** The current token was reported as refused, at this age. */
  readonly report: { readonly fingerprint: string; readonly ageMs: number } | null
  /** Fingerprint of a reported token that the service gave again. */
  readonly unchanged: string | null
  /** The age that was learned from such reports, for tokens that do not say their life. */
  readonly learned: { readonly maxAgeMs: number; readonly atMs: number } | null
  readonly requests: number
  readonly lastRequestAt: Instant | null
  readonly lastSuccessAt: Instant | null
}
export type TokenState = Facts &
  (
    | { readonly kind: 'waiting'; readonly failure: Failure | null }
    | { readonly kind: 'held'; readonly token: Token; readonly failure: Failure | null }
    | { readonly kind: 'refused'; readonly token: Token | null; readonly refusal: Refusal }
  )

export interface Policy extends RetryPolicy {
  /** Life assumed for a token that does not say its own, in ms. */
  readonly maxAgeMs: number
}
/** What a step is taken with: the moment, the settings and chance. */
export interface Step {
  readonly now: Instant
  readonly policy: Policy
  /** From [0, 1). */
  readonly random: () => number
}

/** Between two requests that clients caused. */
const CLIENT_PACE_MS = 30_000
const LEARNED = { forMs: 24 * 3_600_000, share: 4 / 5, atLeastMs: 60_000, fromAgeMs: 60_000 }

export function initialState(baseUrl: string): TokenState {
  return {
    kind: 'waiting',
    failure: null,
    baseUrl,
    generation: 0,
    alert: null,
    asking: null,
    askNow: null,
    clientAskAtMs: null,
    clientAskedAtMs: null,
    report: null,
    unchanged: null,
    learned: null,
    requests: 0,
    lastRequestAt: null,
    lastSuccessAt: null,
  }
}

// ---- judgements -----------------------------------------------------------------------------------------------------

/** The token that is held, usable or not. */
export function heldToken(state: TokenState): Token | null {
  return state.kind === 'waiting' ? null : state.token
}
/** The failure that stands, if any. */
export function failureOf(state: TokenState): Failure | null {
  return state.kind === 'refused' ? null : state.failure
}

/**
 * Until when a token may be handed out, on the boot clock: to its known expiry; past a merely assumed age up to
 * twice that age.
 */
export function usableUntilMs(token: Token): number {
  return token.expirySource === 'jwt' ? token.expiresAtMs : token.expiresAtMs + token.lifeMs
}
/** The token to hand out now, if there is one. */
export function usableToken(state: TokenState, now: Instant): Token | null {
  const token = heldToken(state)
  return token !== null && now.bootMs < usableUntilMs(token) ? token : null
}
/** Past the life that was assumed for it. */
export function isStale(token: Token, now: Instant): boolean {
  return now.bootMs >= token.expiresAtMs
}

export function phaseOf(state: TokenState, now: Instant): Phase {
  if (state.kind === 'refused') return 'refused'
  const token = usableToken(state, now)
  if (token !== null) return state.failure !== null || isStale(token, now) ? 'degraded' : 'ready'
  return state.kind === 'held' ? 'expired' : 'starting'
}

/** When the service is to be asked next, on the boot clock; -Infinity: at once; Infinity: not until somebody acts. */
export function dueAtMs(state: TokenState): number {
  if (state.askNow !== null) return -Infinity
  if (state.kind === 'refused') return Infinity
  if (state.failure !== null) return state.failure.retryAtMs
  if (state.kind === 'waiting') return -Infinity
  return Math.min(state.token.refreshAtMs, state.clientAskAtMs ?? Infinity)
}

/** The next moment at which the token goes stale or out of use, on the boot clock; Infinity: none. */
export function nextExpiryMs(state: TokenState, now: Instant): number {
  const token = heldToken(state)
  if (token === null) return Infinity
  const moments = [token.expiresAtMs, usableUntilMs(token)]
  return Math.min(...moments.filter((moment) => moment > now.bootMs))
}
/** The next moment at which something is due or a judgement changes, on the boot clock. */
export function nextMomentMs(state: TokenState, now: Instant): number {
  return Math.min(dueAtMs(state), nextExpiryMs(state, now))
}

/** Why the service would be asked now. */
export function causeOf(state: TokenState, now: Instant): Cause {
  if (state.askNow !== null) return state.askNow
  if (failureOf(state) !== null) return 'retry'
  const token = heldToken(state)
  if (token === null) return 'start'
  return token.refreshAtMs <= now.bootMs ? 'refresh' : 'client'
}

/** Whether an attempt has ended or none is needed: from here on the daemon is of use, or says why not. */
export function isSettled(state: TokenState, now: Instant): boolean {
  return state.kind === 'refused' || failureOf(state) !== null || usableToken(state, now) !== null
}

// ---- what happens to it ---------------------------------------------------------------------------------------------

/** A request goes out. */
export function afterAsked(state: TokenState, cause: Cause, now: Instant): TokenState {
  return {
    ...state,
    asking: { since: now, cause },
    askNow: null,
    clientAskAtMs: null,
    clientAskedAtMs: cause === 'client' ? now.bootMs : state.clientAskedAtMs,
    requests: state.requests + 1,
    lastRequestAt: now,
  }
}

/** The request that was under way is given up: other credentials are asked with instead. */
export function afterGivenUp(state: TokenState): TokenState {
  return { ...state, asking: null }
}

/** The answer is there. `state` is the one in which it was asked for; the outcome that counts comes back with it. */
export function nextState(
  state: TokenState,
  outcome: FetchOutcome,
  step: Step,
): { state: TokenState; outcome: FetchOutcome } {
  const answered: TokenState = { ...state, asking: null }
  if (outcome.kind === 'permanent') return { state: afterRefusal(answered, outcome, step), outcome }
  if (outcome.kind === 'transient') return { state: afterFailure(answered, outcome, step), outcome }
  const fingerprint = fingerprintOf(outcome.accessToken)
  const learning: TokenState = { ...answered, learned: learnedFrom(answered, fingerprint, step.now) }
  const token = tokenOf(learning, { ...outcome, fingerprint }, step)
  if (token !== null) return { state: afterToken(learning, token, step), outcome }
  const expired: TransientFailure = {
    kind: 'transient',
    reason: 'malformed-answer',
    detail: 'The service gave a token that has already expired',
    status: 200,
  }
  return { state: afterFailure(answered, expired, step), outcome: expired }
}

/** What the state becomes if the request that is about to go out is never answered: what a crash must remember. */
export function presumedFailed(state: TokenState, step: Step): TokenState {
  if (state.kind === 'refused') return state
  const detail = 'The attempt did not end: kyc-tokend itself ended first'
  return afterFailure(state, { reason: 'network', detail }, step)
}

function afterToken(state: TokenState, token: Token, { now }: Step): TokenState {
  return {
    ...factsOf(state),
    kind: 'held',
    token,
    failure: null,
    generation: token.generation,
    alert: null,
    report: null,
    unchanged: state.report?.fingerprint === token.fingerprint ? token.fingerprint : null,
    lastSuccessAt: now,
  }
}

function afterFailure(state: TokenState, failed: Omit<TransientFailure, 'kind'>, step: Step): TokenState {
  const { now, policy, random } = step
  const before = failureOf(state)
  const token = heldToken(state)
  const attempts = (before?.attempts ?? 0) + 1
  const holdsToken = usableToken(state, now) !== null
  const { waitMs, floorMs } = retryWait(failed, { attempts, policy, holdsToken, random })
  const failure: Failure = {
    reason: failed.reason,
    detail: failed.detail,
    status: failed.status ?? null,
    since: before?.since ?? now,
    attempts,
    retryAtMs: now.bootMs + waitMs,
    notBeforeMs: now.bootMs + floorMs,
  }
  const alert =
    failed.reason === 'rejected' ? alertFor(state, failed.reason, failed.detail, now) : state.alert
  const facts = { ...factsOf(state), alert }
  return token === null ? { ...facts, kind: 'waiting', failure } : { ...facts, kind: 'held', token, failure }
}

function afterRefusal(state: TokenState, refused: PermanentFailure, { now }: Step): TokenState {
  const alert = alertFor(state, refused.reason, refused.detail, now)
  const { reason, detail, status } = refused
  const refusal: Refusal = { reason, detail, status, since: alert.since }
  return { ...factsOf(state), kind: 'refused', token: heldToken(state), refusal, alert, report: null }
}

function alertFor(state: TokenState, reason: Alert['reason'], detail: string, now: Instant): Alert {
  return { reason, detail, since: state.alert?.reason === reason ? state.alert.since : now }
}

/** Time has passed. The last usable token may be gone: a wait longer than the cap that now holds is drawn anew. */
export function afterLook(state: TokenState, { now, policy, random }: Step): TokenState {
  if (state.kind === 'refused' || state.failure === null || usableToken(state, now) !== null) return state
  const { failure } = state
  const capMs = delayCapMs(policy, false)
  if (failure.retryAtMs <= Math.max(now.bootMs + capMs, failure.notBeforeMs)) return state
  const drawnMs = now.bootMs + backoffMs(failure.attempts, policy.initialDelayMs, capMs, random())
  return { ...state, failure: { ...failure, retryAtMs: Math.max(drawnMs, failure.notBeforeMs) } }
}

/** A client needs a token that lives so long. More than the life that was last obtained wakes nobody. */
export function afterNeed(state: TokenState, minValidMs: number, now: Instant): TokenState {
  if (state.kind !== 'held' || state.asking !== null) return state
  const { token } = state
  if (minValidMs > token.lifeMs || token.expiresAtMs - now.bootMs >= minValidMs) return state
  const askAtMs = clientAskAtMs(state)
  return askAtMs === state.clientAskAtMs ? state : { ...state, clientAskAtMs: askAtMs }
}

export interface Verdict {
  readonly verdict: RejectVerdict
  readonly retryAfterMs?: number
}

/** A client reports the token with this fingerprint as refused by the service. */
export function afterReport(
  state: TokenState,
  fingerprint: string,
  now: Instant,
): { state: TokenState; verdict: Verdict } {
  const token = usableToken(state, now)
  if (token !== null && token.fingerprint !== fingerprint) return { state, verdict: { verdict: 'replaced' } }
  if (state.kind === 'refused') return { state, verdict: { verdict: 'refused' } }
  if (token === null) return { state, verdict: { verdict: 'refreshing' } }
  if (state.report !== null) return judgeReport(state, token, now)
  const report = { fingerprint, ageMs: now.bootMs - token.received.bootMs }
  return judgeReport({ ...state, report }, token, now)
}

function judgeReport(state: TokenState, token: Token, now: Instant): { state: TokenState; verdict: Verdict } {
  if (state.asking !== null || (failureOf(state) === null && token.refreshAtMs <= now.bootMs)) {
    return { state, verdict: { verdict: 'refreshing' } }
  }
  const failure = failureOf(state)
  if (failure !== null) return { state, verdict: held(failure.retryAtMs, now) }
  const askAtMs = clientAskAtMs(state)
  if (askAtMs > now.bootMs && state.unchanged === token.fingerprint) {
    return { state, verdict: { verdict: 'unchanged', retryAfterMs: askAtMs - now.bootMs } }
  }
  return {
    state: askAtMs === state.clientAskAtMs ? state : { ...state, clientAskAtMs: askAtMs },
    verdict: askAtMs > now.bootMs ? held(askAtMs, now) : { verdict: 'refreshing' },
  }
}

function held(untilMs: number, now: Instant): Verdict {
  return { verdict: 'held', retryAfterMs: Math.max(0, untilMs - now.bootMs) }
}

/** When a client's wish is followed: at once, but for the pace. */
function clientAskAtMs({ clientAskedAtMs }: TokenState): number {
  return (clientAskedAtMs ?? -Infinity) + CLIENT_PACE_MS
}

/** An operator asks: nothing holds that back, and what clients taught is forgotten. */
export function afterOperator(state: TokenState): TokenState {
  return { ...state, askNow: state.asking === null ? 'operator' : state.askNow, learned: null }
}

/** The configuration was read anew. */
export function afterReload(
  state: TokenState,
  change: { baseUrl: string; isSubjectChanged: boolean },
  step: Step,
): TokenState {
  const reloaded: TokenState = { ...replanned(state, step), baseUrl: change.baseUrl, learned: null }
  if (!change.isSubjectChanged) return reloaded
  const token = change.baseUrl === state.baseUrl ? heldToken(reloaded) : null
  const facts = { ...factsOf(reloaded), alert: null, report: null, unchanged: null, clientAskAtMs: null }
  const asked = { ...facts, askNow: 'reload' as const, failure: null }
  return token === null ? { ...asked, kind: 'waiting' } : { ...asked, kind: 'held', token }
}

/** Another `refresh.maxAge` counts for the token that is held, too. */
function replanned(state: TokenState, { policy, random }: Step): TokenState {
  const token = heldToken(state)
  if (state.kind === 'waiting' || token?.expirySource !== 'assumed' || token.lifeMs === policy.maxAgeMs)
    return state
  const lifeMs = policy.maxAgeMs
  const { bootMs } = token.received
  const plan = {
    lifeMs,
    expiresAtMs: bootMs + lifeMs,
    refreshAtMs: bootMs + refreshAfterMs(lifeMs, random()),
  }
  return { ...state, token: { ...token, ...plan } }
}

function factsOf(state: TokenState): Facts {
  const {
    kind: _kind,
    failure: _failure,
    refusal: _refusal,
    token: _token,
    ...facts
  } = {
    failure: null,
    refusal: null,
    token: null,
    ...state,
  }
  return facts
}

// ---- a token out of an answer ---------------------------------------------------------------------------------------

/** The token that an answer holds, or null where it has no life left. */
function tokenOf(
  state: TokenState,
  grant: Grant & { readonly fingerprint: string },
  { now, policy, random }: Step,
): Token | null {
  const saidMs = jwtLifeMs(grant.accessToken, { serverDateMs: grant.serverDateMs, wallMs: now.wallMs })
  const lifeMs = saidMs ?? assumedLifeMs(state, policy, now)
  if (lifeMs <= 0) return null
  const fresh: Token = {
    accessToken: grant.accessToken,
    fingerprint: grant.fingerprint,
    generation: state.generation + 1,
    baseUrl: state.baseUrl,
    received: now,
    lifeMs,
    expiresAtMs: now.bootMs + lifeMs,
    expirySource: saidMs === undefined ? 'assumed' : 'jwt',
    refreshAtMs: now.bootMs + refreshAfterMs(lifeMs, random()),
  }
  return sameAgain(heldToken(state), fresh, now) ?? fresh
}

/**
 * The same token once more is the same token: it keeps its number and its birth, and a JWT does not live longer for
 * having been given twice. Only its refresh is planned anew, from the life that is left.
 */
function sameAgain(before: Token | null, fresh: Token, now: Instant): Token | null {
  if (before?.fingerprint !== fresh.fingerprint) return null
  const { generation, received } = before
  if (fresh.expirySource === 'assumed') return { ...fresh, generation, received }
  const expiresAtMs = Math.min(before.expiresAtMs, fresh.expiresAtMs)
  const share = (fresh.refreshAtMs - now.bootMs) / fresh.lifeMs
  const refreshAtMs = now.bootMs + Math.max(1_000, (expiresAtMs - now.bootMs) * share)
  return { ...fresh, generation, received, lifeMs: before.lifeMs, expiresAtMs, refreshAtMs }
}

function assumedLifeMs(state: TokenState, policy: Policy, now: Instant): number {
  const { learned } = state
  const isLearned = learned !== null && now.bootMs - learned.atMs < LEARNED.forMs
  return isLearned ? Math.min(policy.maxAgeMs, learned.maxAgeMs) : policy.maxAgeMs
}

/** A report teaches where the token it was about says no life of its own, and the service replaces it by another. */
function learnedFrom(state: TokenState, replacement: string, now: Instant): Facts['learned'] {
  const token = heldToken(state)
  const { report, learned } = state
  if (token?.expirySource !== 'assumed' || report === null) return learned
  if (report.ageMs <= LEARNED.fromAgeMs || replacement === token.fingerprint) return learned
  const maxAgeMs = Math.max(LEARNED.atLeastMs, Math.min(token.lifeMs, LEARNED.share * report.ageMs))
  return { maxAgeMs, atMs: now.bootMs }
}
