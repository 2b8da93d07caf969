// Transitions of the state: pure functions from the facts and an event (an attempt, time, an operator, other settings) to the
// facts that follow.
import { onWallClockOf, type Instant } from '../lib/clock.ts'
import { backoffMs, delayCapMs, retryWait } from './backoff.ts'
import type { Cause, FetchOutcome, Grant, PermanentFailure, Postponed, TransientFailure } from './outcome.ts'
import { assumedLifeMs, learnMaxAge } from './rejections.ts'
import {
  notBeforeMs,
  isAsking,
  nextExpiryMs,
  NOTHING_PENDING,
  usableToken,
  usableUntilMs,
  type Alert,
  type ServiceSettings,
  type Refusal,
  type Step,
  type TokenState,
} from './state.ts'
import {
  fingerprintOf,
  isSameService,
  knownLife,
  MIN_REFRESH_AFTER_MS,
  refreshAfterMs,
  type Token,
} from './token.ts'

/** An attempt begins. Whether it makes a request is up to the source. */
export function afterAttemptBegan(state: TokenState, cause: Cause, now: Instant): TokenState {
  return {
    ...state,
    inFlight: { since: now, cause, credentialsId: state.credentialsId },
    forcedCause: null,
    postponedUntilMs: null,
    requestPlannedAtMs: null,
    clientRequestAtMs: null,
  }
}

export function afterRequest(state: TokenState, cause: Cause, now: Instant): TokenState {
  return {
    ...state,
    lastClientRequestAtMs: cause === 'client' ? now.bootMs : state.lastClientRequestAtMs,
    requests: state.requests + 1,
    lastRequestAt: now,
  }
}

export function afterAttemptEnded(state: TokenState): TokenState {
  return { ...state, inFlight: null }
}

/** An attempt has this outcome. Returns the outcome that counts, too: a token that has expired is a failure. */
export function nextState<T extends FetchOutcome>(
  state: TokenState,
  outcome: T,
  step: Step,
): { state: TokenState; outcome: T | TransientFailure } {
  if (outcome.kind === 'postponed') return { state: afterPostponed(state, outcome, step), outcome }
  if (outcome.kind === 'permanent') return { state: afterRefusal(state, outcome, step), outcome }
  if (outcome.kind === 'transient') return { state: afterFailure(state, outcome, step), outcome }
  const fingerprint = fingerprintOf(outcome.accessToken)
  const learning = { ...state, learnedMaxAge: learnMaxAge(state, fingerprint, step.now) }
  const token = tokenOf(learning, { ...outcome, fingerprint }, step)
  if (token.expiresAtMs > step.now.bootMs) return { state: afterToken(learning, token, step), outcome }
  const isKnown = token.generation === state.generation
  const detail = isKnown
    ? 'The service gave the same token again, which has expired'
    : 'The service gave a token that has already expired'
  const failure = { kind: 'transient', reason: 'malformed-answer', detail, status: 200 } as const
  return { state: afterFailure(state, failure, step), outcome: failure }
}

/** The token of a grant, with or without life left. */
function tokenOf(
  state: TokenState,
  grant: Grant & { readonly fingerprint: string },
  { now, policy, random }: Step,
): Token {
  const known = knownLife(grant, now.wallMs)
  const expirySource = grant.expirySource ?? known?.expirySource ?? 'assumed'
  const assumedMs = assumedLifeMs(state, policy, now)
  // Of two assumed lives the shorter counts: the one that another host sent, or the one here.
  const givenMs = expirySource === 'assumed' ? Math.min(grant.lifeMs ?? Infinity, assumedMs) : grant.lifeMs
  const lifeMs = givenMs ?? known?.lifeMs ?? assumedMs
  const ageMs = grant.ageMs ?? 0
  const received = { bootMs: now.bootMs - ageMs, wallMs: now.wallMs - ageMs }
  const fresh: Token = {
    accessToken: grant.accessToken,
    fingerprint: grant.fingerprint,
    generation: state.generation + 1,
    baseUrl: state.baseUrl,
    credentialsId: state.credentialsId,
    received,
    lifeMs,
    expiresAtMs: received.bootMs + lifeMs,
    expirySource,
    refreshAtMs: received.bootMs + refreshAfterMs(lifeMs, random()),
    ...(grant.known !== undefined && { known: grant.known }),
  }
  return sameAgain(state.token, fresh, now) ?? fresh
}

/**
 * The same token given again keeps its number and its time of reception. The life of a JWT is not counted again from now,
 * any other life is. The refresh is planned again, from the life that is left. Null: it is another token.
 */
function sameAgain(before: Token | null, fresh: Token, now: Instant): Token | null {
  if (before?.fingerprint !== fresh.fingerprint) return null
  const { generation, received } = before
  if (fresh.expirySource !== 'jwt') return { ...fresh, generation, received }
  const expiresAtMs = Math.min(before.expiresAtMs, fresh.expiresAtMs)
  const share = (fresh.refreshAtMs - fresh.received.bootMs) / fresh.lifeMs
  const refreshAtMs = now.bootMs + Math.max(MIN_REFRESH_AFTER_MS, (expiresAtMs - now.bootMs) * share)
  return { ...fresh, generation, received, lifeMs: before.lifeMs, expiresAtMs, refreshAtMs }
}

function afterPostponed(
  state: TokenState,
  { retryAfterMs, requestInMs = retryAfterMs, reason, ...more }: Postponed,
  { now }: Step,
): TokenState {
  const { detail = '', askedBy = null } = more
  const since = state.postponement?.reason === reason ? state.postponement?.since : undefined
  return {
    ...state,
    postponedUntilMs: now.bootMs + retryAfterMs,
    requestPlannedAtMs: now.bootMs + requestInMs,
    postponement: reason === undefined ? null : { reason, detail, askedBy, since: since ?? now },
  }
}

/** Reports whether other credentials would have had another outcome. */
export function isAboutCredentials(outcome: FetchOutcome): boolean {
  return outcome.kind === 'permanent' || (outcome.kind === 'transient' && outcome.reason === 'rejected')
}

/** Keeps a client's wish that was put off for later; the other causes follow from the state. */
export function withClientRequestAgain(state: TokenState): TokenState {
  return { ...state, clientRequestAtMs: state.clientRequestAtMs ?? state.postponedUntilMs }
}

/** The state if the request that is about to go out is never answered: it is saved, in case the process ends meanwhile. */
export function assumeFailed(state: TokenState, step: Step): TokenState {
  if (state.refusal !== null) return state
  const detail = 'The attempt did not end: kyc-tokend itself ended first'
  return afterFailure(state, { reason: 'network', detail }, step)
}

function afterToken(state: TokenState, token: Token, { now }: Step): TokenState {
  return {
    ...withNotBefore(state, { credentialsId: state.credentialsId, atMs: -Infinity }, now),
    ...NOTHING_PENDING,
    token,
    generation: token.generation,
    unchanged: state.rejection?.fingerprint === token.fingerprint ? token.fingerprint : null,
    lastSuccessAt: now,
  }
}

function afterFailure(state: TokenState, failed: Omit<TransientFailure, 'kind'>, step: Step): TokenState {
  const { now, policy, random } = step
  const { failure: before, credentialsId } = state
  const attempts = (before?.attempts ?? 0) + 1
  const leftMs = leftOfTokenMs(state, now)
  const drawn = retryWait(failed, { attempts, policy, leftMs, random })
  const lastMs = waitIntoLastTenthMs(state, drawn.waitMs, step)
  const waitMs = lastMs === null ? drawn.waitMs : Math.max(lastMs, drawn.boundMs)
  const minWaitMs = failed.reason === 'rejected' ? waitMs : drawn.minWaitMs
  const { reason, detail, status = null, askedBy = null } = failed
  const since = before?.since ?? now
  const retryAtMs = now.bootMs + waitMs
  // An operator's request that failed in another way does not shorten a wait that the service asked for.
  const atMs = Math.max(notBeforeMs(state), now.bootMs + minWaitMs)
  return {
    ...withNotBefore(state, { credentialsId, atMs }, now),
    failure: { reason, detail, status, since, attempts, retryAtMs, askedBy },
    refusal: null,
    postponement: null,
    alert: reason === 'rejected' ? alertFor(state, { ...failed, reason }, now) : state.alert,
  }
}

/** Time until the token that is held goes stale or out of use, in ms; 0: there is none. */
function leftOfTokenMs(state: TokenState, now: Instant): number {
  return usableToken(state, now) === null ? 0 : nextExpiryMs(state, now) - now.bootMs
}

const LAST_SHARE = 1 / 10

/** A wait that ends in the last tenth of the token's life, for a wait that would end after it; null: `waitMs` can stay. */
function waitIntoLastTenthMs(state: TokenState, waitMs: number, { now, random }: Step): number | null {
  const token = usableToken(state, now)
  if (token === null) return null
  const leftMs = usableUntilMs(token) - now.bootMs
  const lastMs = LAST_SHARE * token.lifeMs
  if (waitMs < leftMs || leftMs <= lastMs) return null
  const fromMs = Math.max(leftMs - lastMs, leftMs / 2)
  return fromMs + (leftMs - fromMs) * random()
}

function afterRefusal(state: TokenState, refused: PermanentFailure, { now }: Step): TokenState {
  const { reason, detail, status } = refused
  const alert = alertFor(state, refused, now)
  const { askedBy = null, known } = refused
  const refusal: Refusal = {
    reason,
    detail,
    status,
    since: alert.since,
    askedBy,
    ...(known !== undefined && { known }),
  }
  return {
    ...state,
    refusal,
    failure: null,
    alert,
    postponedUntilMs: null,
    postponement: null,
    rejection: null,
  }
}

/** The alert for a refusal or a rejection. One with the same reason keeps its start and the host that raised it. */
function alertFor(
  { alert }: TokenState,
  { reason, detail, askedBy = null }: { reason: Alert['reason']; detail: string; askedBy?: string | null },
  now: Instant,
): Alert {
  if (alert?.reason !== reason) return { reason, detail, since: now, askedBy }
  return { reason, detail, since: alert.since, askedBy: alert.askedBy }
}

/** Time has passed, or the settings have changed: a wait longer than the present cap is drawn again. */
export function afterTick(before: TokenState, { now, policy, random }: Step): TokenState {
  const state = onWallClock(before, now)
  const { failure } = state
  if (failure === null) return state
  const capMs = delayCapMs(policy, leftOfTokenMs(state, now))
  const earliestMs = notBeforeMs(state)
  if (failure.retryAtMs <= Math.max(now.bootMs + capMs, earliestMs)) return state
  const drawnMs = now.bootMs + backoffMs(failure.attempts, policy.initialDelayMs, capMs, random())
  return { ...state, failure: { ...failure, retryAtMs: Math.max(drawnMs, earliestMs) } }
}

/** The state with the instants of its token on the present wall clock, if that was set. */
function onWallClock(state: TokenState, now: Instant): TokenState {
  const { token } = state
  if (token === null) return state
  const received = onWallClockOf(now, token.received)
  return received === token.received ? state : { ...state, token: { ...token, received } }
}

/** An operator asks: only an attempt that is under way delays the request. The age learned from clients is forgotten. */
export function afterOperator(state: TokenState): TokenState {
  return {
    ...state,
    forcedCause: isAsking(state) ? state.forcedCause : 'operator',
    learnedMaxAge: null,
  }
}

// ---- other settings --------------------------------------------------------------------------------------------------

export function afterReload(
  state: TokenState,
  settings: ServiceSettings & { readonly refuses?: Refuses },
  step: Step,
): TokenState {
  const { refusedBy = state.refusedBy } = settings
  const replanned = withMaxAge({ ...state, learnedMaxAge: null, refusedBy }, step)
  const reloaded = afterRefusals(replanned, settings.refuses)
  if (settings.credentialsId === state.credentialsId) return reloaded
  return { ...withCredentials(reloaded, settings, step), forcedCause: 'reload' }
}

/** Reports whether the description of the service still names this refusal. */
export type Refuses = (refusal: Pick<Refusal, 'status' | 'reason' | 'detail'>) => boolean

/** A refusal that the description of the service no longer names is forgotten, and its alert with it. */
export function afterRefusals(state: TokenState, refuses: Refuses = () => true): TokenState {
  const isForgotten = state.refusal !== null && !refuses(state.refusal)
  return isForgotten ? { ...state, refusal: null, alert: null, forcedCause: null } : state
}

/** Other credentials, or another service: the facts about the former ones are dropped, except `notBefore`. */
export function withCredentials(
  state: TokenState,
  { baseUrl, credentialsId }: ServiceSettings,
  { now }: Step,
): TokenState {
  return {
    ...(isSameService({ baseUrl, credentialsId }, state) ? state : withoutToken(state, now)),
    baseUrl,
    credentialsId,
    ...NOTHING_PENDING,
  }
}

/** No request is to be made with these credentials before that moment. Moments that are past are forgotten. */
export function withNotBefore(
  state: TokenState,
  { credentialsId, atMs }: { credentialsId: string; atMs: number },
  now: Instant,
): TokenState {
  const bounds = Object.entries({ ...state.notBefore, [credentialsId]: atMs })
  return { ...state, notBefore: Object.fromEntries(bounds.filter(([, endMs]) => endMs > now.bootMs)) }
}

function withoutToken(state: TokenState, now: Instant): TokenState {
  if (state.token === null) return state
  const lostMs = Math.min(now.bootMs, usableUntilMs(state.token))
  return {
    ...state,
    token: null,
    tokenlessSince: { bootMs: lostMs, wallMs: now.wallMs - (now.bootMs - lostMs) },
  }
}

/** Another `refresh.maxAge` counts for the token that is held, too. */
function withMaxAge(state: TokenState, { now, policy, random }: Step): TokenState {
  const { token } = state
  const lifeMs = assumedLifeMs(state, policy, now)
  if (token?.expirySource !== 'assumed' || token.lifeMs === lifeMs) return state
  // An assumed life begins with the last answer that gave the token.
  const startMs = token.expiresAtMs - token.lifeMs
  const plan = {
    lifeMs,
    expiresAtMs: startMs + lifeMs,
    refreshAtMs: startMs + refreshAfterMs(lifeMs, random()),
  }
  return { ...state, token: { ...token, ...plan } }
}

/** A restart: a `refresh.maxAge` that was lowered meanwhile counts for the token that is held. */
export function afterStart(saved: TokenState, step: Step): TokenState {
  const state = onWallClock(saved, step.now)
  const isLowered = state.token !== null && assumedLifeMs(state, step.policy, step.now) < state.token.lifeMs
  return isLowered ? withMaxAge(state, step) : state
}
