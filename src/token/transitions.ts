// Transitions of the state, pure: from the facts and an event (an attempt, time, a client, an operator, other
// files) to the facts that follow. One way for every pair, whoever's it is.
import { onWallClockOf, type Instant } from '../lib/clock.ts'
import type { Cause, FetchOutcome, Grant, PermanentFailure, Postponed, TransientFailure } from './outcome.ts'
import { floorAfter, LIFT_MS, usableUntilMs, type Plan } from './schedule.ts'
import {
  NO_RECORD,
  recordOf,
  withRecord,
  type InFlight,
  type PairRecord,
  type Policy,
  type Refusal,
  type Role,
  type Service,
  type Step,
  type TokenState,
} from './state.ts'
import { lifeFrom, tokenOf, type Token } from './token.ts'

const BOTH: readonly Role[] = ['newest', 'running']
/** A wall clock that moves by more against the boot clock has jumped. */
const JUMP_MS = 60_000

// ---- an attempt

/** The attempt of this plan begins. It is up to the source whether it makes a request. */
export function afterBegin(state: TokenState, { pair, by }: Plan, now: Instant): TokenState {
  const isOperators = by === 'operator'
  const inFlight: InFlight = {
    pair,
    serviceId: state.service.id,
    cause: causeOf(state, { pair, by }),
    since: now,
    isSent: false,
    isOperators,
    rest: isOperators ? restOf(state, pair) : [],
  }
  return { ...state, inFlight, wish: isOperators ? [] : state.wish }
}

function causeOf(state: TokenState, { pair, by }: Omit<Plan, 'atMs'>): Cause {
  if (by !== 'plan') return by === 'operator' ? 'operator' : 'client'
  if (recordOf(state, pair).attempts > 0) return 'retry'
  if (pair !== state.running) return 'reload'
  return state.token?.pair === pair && state.startMayAsk !== pair ? 'refresh' : 'start'
}

/** An operator wants the running pair asked where the candidate gives no token. */
function restOf({ newest, running }: TokenState, pair: string): readonly Role[] {
  return pair === newest && newest !== running ? ['running'] : []
}

/** A request goes out. This is saved first: it counts as failed, and a refusal stands, until there is an answer. */
export function afterRequest(state: TokenState, { now, drawn }: Step): TokenState {
  const { inFlight, startMayAsk } = state
  if (inFlight === null) return state
  const { pair, cause, isOperators, isSent } = inFlight
  const record = recordOf(state, pair)
  const isLifted = record.refusedWith !== null && !isOperators && startMayAsk !== pair
  const counted = isSent ? record : tried(record, record.attempts + 1, { now, drawn })
  const { assertion, clients } = state
  return withRecord(
    {
      ...state,
      inFlight: { ...inFlight, isSent: true },
      startMayAsk: startMayAsk === pair ? null : startMayAsk,
      assertion: isLifted ? { ...assertion, liftAtMs: now.bootMs + LIFT_MS } : assertion,
      clients: cause === 'client' ? { ...clients, requestedMs: now.bootMs } : clients,
      requests: state.requests + 1,
      lastRequestAt: now,
    },
    pair,
    counted,
  )
}

type Draw = Pick<Step, 'now' | 'drawn'>

function tried(record: PairRecord, attempts: number, { now, drawn }: Draw): PairRecord {
  return { ...record, attempts, failedAtMs: now.bootMs, drawn, unasked: null }
}

/** The attempt ends without an answer: it was given up. */
export function afterAbort(state: TokenState): TokenState {
  const { inFlight, wish } = state
  if (inFlight === null) return state
  return { ...state, inFlight: null, wish: inFlight.isOperators ? BOTH : wish }
}

/**
 * The attempt that is under way ends with this outcome. Returns the outcome that counts, too: a token that has
 * ended is a failure. Null: it does not count, because the service is another one, or the files no longer hold
 * the pair.
 */
export function afterAnswer(
  state: TokenState,
  outcome: FetchOutcome,
  step: Step,
): { state: TokenState; outcome: FetchOutcome | null } {
  const { inFlight, service, wish } = state
  if (inFlight === null || inFlight.serviceId !== service.id)
    return { state: afterAbort(state), outcome: null }
  const { pair } = inFlight
  const shown = withServiceClock(state, outcome, step.now)
  const ended = { ...shown, inFlight: null, wish: wish.length > 0 ? wish : inFlight.rest }
  const record = recordOf(state, pair)
  if (outcome.kind === 'postponed')
    return { state: afterPostponed(ended, inFlight, { outcome, step }), outcome }
  if (outcome.kind === 'permanent') return { state: afterRefusal(ended, pair, { outcome, step }), outcome }
  if (outcome.kind === 'transient')
    return { state: afterFailure(ended, inFlight, { outcome, step }), outcome }
  const token = tokenOfGrant(state, outcome, step)
  if (token.expiresAtMs <= step.now.bootMs) {
    const isSame = token.generation === state.generation
    const detail = isSame
      ? 'The service gave the same token again, which has expired'
      : 'The service gave a token that has already expired'
    const failure = { kind: 'transient', reason: 'malformed-answer', detail, status: 200 } as const
    return { state: afterFailure(ended, inFlight, { outcome: failure, step }), outcome: failure }
  }
  if (pair === state.newest || pair === state.running)
    return { state: afterToken({ ...ended, wish }, token, step), outcome }
  // The files took the pair back meanwhile. Its attempt still counts.
  const known = { ...record, refusedWith: null, floorMs: 0, failure: null, refusal: null }
  return { state: withRecord({ ...afterAbort(state), clocks: shown.clocks }, pair, known), outcome: null }
}

function withServiceClock(state: TokenState, outcome: FetchOutcome, { bootMs }: Instant): TokenState {
  if (outcome.kind === 'postponed' || outcome.serverDateMs === undefined) return state
  return { ...state, clocks: { ...state.clocks, serviceMs: outcome.serverDateMs - bootMs } }
}

function tokenOfGrant(state: TokenState, grant: Grant, { now, drawn }: Step): Token {
  const { generation, service, running, policy, clients, inFlight } = state
  return tokenOf(grant, state.token, {
    generation,
    baseUrl: service.baseUrl,
    pair: inFlight?.pair ?? running,
    maxAgeMs: policy.maxAgeMs,
    isOfClients: clients.areWaiting,
    now,
    drawn,
  })
}

function afterToken(state: TokenState, token: Token, { now }: Step): TokenState {
  const { token: before, clients } = state
  const isReplaced = before !== null && before.fingerprint !== token.fingerprint
  const isReported = isReplaced && (before.isReported || before.isUnchanged)
  const next = {
    ...state,
    running: token.pair,
    token,
    generation: token.generation,
    reportedFingerprint: isReported ? before.fingerprint : state.reportedFingerprint,
    clients: { ...clients, areWaiting: false },
    tokenless: { ...state.tokenless, forMs: 0 },
    lastSuccessAt: now,
  }
  return withRecord(next, token.pair, NO_RECORD)
}

function afterRefusal(
  state: TokenState,
  pair: string,
  { outcome, step }: { outcome: PermanentFailure; step: Step },
): TokenState {
  const { assertion, clients, startMayAsk } = state
  const record = recordOf(state, pair)
  return withRecord(
    {
      ...state,
      clients: pair === state.running ? { ...clients, areWaiting: false } : clients,
      startMayAsk: startMayAsk === pair ? null : startMayAsk,
    },
    pair,
    {
      ...NO_RECORD,
      floorMs: record.floorMs,
      refusedWith: assertion.content,
      refusal: refusalAfter(record, outcome, step.now),
    },
  )
}

/** One with the same reason as the one that stands keeps its start and its host. */
function refusalAfter(
  { refusal }: PairRecord,
  outcome: Pick<PermanentFailure, 'detail' | 'askedBy'> & { reason: Refusal['reason']; status?: number },
  now: Instant,
): Refusal {
  const { reason, detail, status = null, askedBy = null } = outcome
  const { since, askedBy: host } = refusal?.reason === reason ? refusal : { since: now, askedBy }
  return { reason, detail, status, since, askedBy: host }
}

function afterFailure(
  state: TokenState,
  { pair, isSent }: Pick<InFlight, 'pair' | 'isSent'>,
  { outcome, step }: { outcome: TransientFailure; step: Step },
): TokenState {
  const { now, drawn } = step
  const record = recordOf(state, pair)
  const { reason, detail, status = null, askedBy = null } = outcome
  const again = tried(record, isSent ? record.attempts : record.attempts + 1, step)
  const { attempts, failedAtMs, drawn: drawnBefore } = record
  const unasked = record.unasked ?? { attempts, failedAtMs, drawn: drawnBefore }
  return withRecord(state, pair, {
    ...again,
    floorMs: Math.max(record.floorMs, floorAfter(outcome, now.bootMs, drawn)),
    // A file that was read is no request: a refusal stands, and the tries before it stand again.
    refusedWith: isSent ? null : record.refusedWith,
    unasked: !isSent && reason === 'assertion' ? unasked : null,
    postponed: isSent ? null : record.postponed,
    failure: { reason, detail, status, askedBy, since: record.failure?.since ?? now },
    refusal: reason === 'rejected' ? refusalAfter(record, { ...outcome, reason }, now) : record.refusal,
  })
}

function afterPostponed(
  state: TokenState,
  { pair, cause, isOperators }: InFlight,
  { outcome, step: { now } }: { outcome: Postponed; step: Step },
): TokenState {
  const { retryAfterMs, reason = null, detail = '', askedBy = null } = outcome
  const record = recordOf(state, pair)
  const since = record.postponed?.reason === reason ? record.postponed.since : now
  const postponed = { reason, detail, askedBy, since, untilMs: now.bootMs + retryAfterMs }
  // An operator who came while the attempt of a plan was under way wants one of their own.
  const wish = isOperators && cause !== 'operator' ? BOTH : state.wish
  return withRecord({ ...state, wish }, pair, { ...record, postponed })
}

/** Another host of the fleet got this outcome with the running pair, while this one asks nothing. */
export function afterOffer(
  state: TokenState,
  outcome: FetchOutcome,
  step: Step,
): ReturnType<typeof afterAnswer> {
  const { running: pair, service, wish } = state
  const facts = { pair, serviceId: service.id, cause: 'fleet', since: step.now } as const
  const inFlight = { ...facts, isSent: true, isOperators: false, rest: [] }
  const answered = afterAnswer({ ...state, inFlight }, outcome, step)
  return { ...answered, state: { ...answered.state, wish } }
}

// ---- time

/**
 * Time has passed: the clocks are compared, and the time without a token is counted. `awakeMs`: by CLOCK_MONOTONIC,
 * since the former tick.
 */
export function afterTick(state: TokenState, { now }: Pick<Step, 'now'>, awakeMs: number): TokenState {
  return countTokenless(withWallClock(state, now), now, awakeMs)
}

/** A jump of the wall clock makes one refresh due: the machine may have stood still, and life with it. */
function withWallClock(state: TokenState, now: Instant): TokenState {
  const wallMs = now.wallMs - now.bootMs
  const { clocks, token } = state
  if (wallMs === clocks.wallMs) return state
  const next = { ...state, clocks: { ...clocks, wallMs } }
  if (token === null) return next
  const hasJumped = Math.abs(wallMs - clocks.wallMs) > JUMP_MS
  const refreshAtMs = hasJumped ? Math.min(token.refreshAtMs, now.bootMs) : token.refreshAtMs
  return { ...next, token: { ...token, received: onWallClockOf(now, token.received), refreshAtMs } }
}

/** No more is added than the time since the loss: the token may have been lost at any moment since the last tick. */
function countTokenless(state: TokenState, now: Instant, awakeMs: number): TokenState {
  const { tokenless } = state
  const since = lostAt(state, now)
  const addedMs = Math.max(0, Math.min(awakeMs, now.bootMs - since.bootMs))
  return addedMs === 0 ? state : { ...state, tokenless: { since, forMs: tokenless.forMs + addedMs } }
}

/** When the last usable token was lost, or will be. */
export function lostAt(state: TokenState, now: Instant): Instant {
  const { token, tokenless } = state
  if (token === null) return tokenless.since
  const bootMs = usableUntilMs(state, now)
  return { bootMs, wallMs: token.received.wallMs + bootMs - token.received.bootMs }
}

// ---- operators, clients, the ready-made assertion

/**
 * An operator asks: the candidate first, and the running pair where that gives no token. One whose request is
 * under way with that pair shares it.
 */
export function afterOperator(state: TokenState): TokenState {
  const { inFlight, newest, running, service } = state
  const isOfUse =
    inFlight?.serviceId === service.id && (inFlight.pair === newest || inFlight.pair === running)
  if (!isOfUse || inFlight === null) return { ...state, wish: BOTH }
  const joined = { ...inFlight, isOperators: true, rest: restOf(state, inFlight.pair) }
  return { ...state, inFlight: joined, wish: inFlight.pair === newest ? [] : ['newest'] }
}

/**
 * The content of the ready-made assertion. `isGood`: it may be sent; then a pair that was not asked for the lack
 * of one goes on where it was.
 */
export function afterAssertion(state: TokenState, content: string | null): TokenState {
  const { assertion } = state
  if (content === null)
    return assertion.isGood ? { ...state, assertion: { ...assertion, isGood: false } } : state
  const restored = Object.entries(state.pairs).map(([pair, record]) => {
    const { unasked } = record
    return [pair, unasked === null ? record : { ...record, ...unasked, unasked: null }] as const
  })
  const isSame = assertion.isGood && assertion.content === content
  if (isSame && restored.every(([pair, record]) => record === state.pairs[pair])) return state
  return {
    ...state,
    assertion: { ...assertion, content, isGood: true },
    pairs: Object.fromEntries(restored),
  }
}

// ---- other files

/** What the files hold: the service, the settings and the newest pair. */
export interface Files {
  readonly service: Service
  readonly policy: Policy
  /** Fingerprint of the pair. */
  readonly pair: string
}

/** The files were read: at a reload, or because secret files have changed. */
export function afterFiles(state: TokenState, { service, policy, pair }: Files, step: Step): TokenState {
  const newestSince = pair === state.newest ? state.newestSince : step.now
  const read = { ...state, service, newest: pair, newestSince }
  if (service.id === state.service.id) return withPolicy(read, policy, step)
  // The pair in the files alone goes to another service, and nothing of the former one holds there.
  const lost = lostAt(state, step.now)
  return {
    ...read,
    policy,
    running: pair,
    pairs: {},
    token: null,
    startMayAsk: null,
    clients: { ...state.clients, areWaiting: false },
    clocks: { ...state.clocks, serviceMs: null },
    tokenless: { ...state.tokenless, since: lost.bootMs > step.now.bootMs ? step.now : lost },
    lastSuccessAt: null,
  }
}

/** Another `refresh.maxAge` counts for the token that is held, too: from the last answer that gave it. */
function withPolicy(state: TokenState, policy: Policy, { now, drawn }: Step): TokenState {
  const { token } = state
  const next = { ...state, policy }
  if (token?.expirySource !== 'assumed' || policy.maxAgeMs === state.policy.maxAgeMs) return next
  const plan = lifeFrom(token.expiresAtMs - token.lifeMs, policy.maxAgeMs, { nowMs: now.bootMs, drawn })
  return { ...next, token: { ...token, ...plan } }
}

/** A daemon starts with what a former one saved. `isOrderly`: that one was stopped, and did not crash. */
export function afterStart(
  saved: TokenState,
  { isOrderly, ...files }: Files & { readonly isOrderly: boolean },
  step: Step,
): TokenState {
  const cut = saved.inFlight?.isSent === true ? withCutShort(saved, saved.inFlight, step.now) : saved
  const read = afterFiles(cut, files, step)
  const isRefused = recordOf(read, files.pair).refusedWith !== null
  const pairs = Object.entries(read.pairs).map(([pair, record]) => [pair, { ...record, postponed: null }])
  return {
    ...read,
    running: files.pair,
    pairs: Object.fromEntries(pairs) as TokenState['pairs'],
    inFlight: null,
    wish: [],
    startMayAsk: isOrderly && isRefused ? files.pair : null,
    requests: 0,
  }
}

/** The former process ended while this request was under way. */
function withCutShort(state: TokenState, { pair }: InFlight, now: Instant): TokenState {
  const record = recordOf(state, pair)
  if (record.refusedWith !== null || record.failure !== null) return state
  const detail = 'The attempt did not end: kyc-tokend itself ended first'
  const facts = { reason: 'network', detail, status: null, askedBy: null } as const
  return withRecord(state, pair, { ...record, failure: { ...facts, since: now } })
}
