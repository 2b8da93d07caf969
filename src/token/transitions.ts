// Transitions of the state, pure: from the facts and an event (an attempt, time, a client, an operator, other
// files) to the facts that follow. One way for every pair, whoever's it is.
import { onWallClockOf, type Instant } from '../lib/clock.ts'
import type { RejectVerdict } from '../protocol.ts'
import type { Cause, FetchOutcome, Grant } from './outcome.ts'
import { dueAtMs, floorAfter, MAX_PACE, retryAfter, type Plan } from './schedule.ts'
import { canMeet, lostAt, refusalOf, usableToken } from './selectors.ts'
import {
  BY_STOP,
  NO_RECORD,
  recordOf,
  withRecord,
  type InFlight,
  type PairRecord,
  type Policy,
  type Role,
  type Service,
  type Step,
  type TokenState,
  type Trouble,
} from './state.ts'
import { lifeFrom, tokenOf, type Token } from './token.ts'

const BOTH: readonly Role[] = ['newest', 'running']
/** A wall clock that moves by more against the boot clock has jumped. */
const JUMP_MS = 60_000
/** A changed ready-made assertion lifts a refusal at most once in this time. */
const LIFT_MS = 300_000

// ---- an attempt

/** The attempt of this plan begins; `assertion`: fingerprint of the ready-made one that it sends. */
export function afterBegin(state: TokenState, { pair, by }: Omit<Plan, 'atMs'>, assertion = ''): TokenState {
  const isOperators = by === 'operator'
  const cause = by === 'plan' ? causeOf(state, pair) : isOperators ? 'operator' : 'client'
  const inFlight = { pair, serviceId: state.service.id, cause, isOperators, assertion }
  return { ...state, inFlight, wish: isOperators ? [] : state.wish }
}

function causeOf(state: TokenState, pair: string): Cause {
  const { attempts, refusedWith } = recordOf(state, pair)
  if (refusedWith === BY_STOP) return 'start'
  if (attempts > 0) return 'retry'
  if (pair !== state.running) return 'reload'
  return state.token?.pair === pair ? 'refresh' : 'start'
}

/** A request goes out. This is saved first: it counts as failed, and a refusal stands, until there is an answer. */
export function afterRequest(state: TokenState, step: Step): TokenState {
  const { inFlight, clients, policy, liftAtMs } = state
  if (inFlight === null) return state
  const { pair, cause, isOperators, assertion } = inFlight
  const record = recordOf(state, pair)
  const { refusedWith, attempts } = record
  const isLifted = refusedWith !== null && refusedWith !== BY_STOP && !isOperators
  const { now } = step
  const asked = {
    ...state,
    liftAtMs: isLifted ? now.bootMs + LIFT_MS : liftAtMs,
    clients: cause === 'client' ? { ...clients, requestedAtMs: now.bootMs } : clients,
    requests: state.requests + 1,
    lastRequestAt: now,
  }
  const refused = refusedWith === BY_STOP ? { refusedWith: assertion, assertion } : {}
  return withRecord(asked, pair, { ...record, ...retryAfter(attempts + 1, policy, step), ...refused })
}

/** The attempt ends without an answer: it was given up. */
export function afterAbort(state: TokenState): TokenState {
  const { inFlight, wish } = state
  return inFlight === null ? state : { ...state, inFlight: null, wish: inFlight.isOperators ? BOTH : wish }
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
  const { inFlight, service, clocks, token: before, policy } = state
  if (inFlight?.serviceId !== service.id) return { state: afterAbort(state), outcome: null }
  const { bootMs } = step.now
  const dateMs = outcome.kind === 'postponed' ? undefined : outcome.serverDateMs
  const shown = dateMs === undefined ? state : { ...state, clocks: { ...clocks, serviceMs: dateMs - bootMs } }
  if (outcome.kind !== 'ok') return { state: afterNoToken(shown, inFlight, outcome, step), outcome }
  const { pair } = inFlight
  const token = tokenOf(outcome, { before, pair, maxAgeMs: policy.maxAgeMs }, step)
  if (token.expiresAtMs <= bootMs) {
    const detail = `The service gave ${token.isUnchanged ? 'the same token again, which has' : 'a token that has already'} expired`
    return afterAnswer(shown, { kind: 'transient', reason: 'malformed-answer', detail, status: 200 }, step)
  }
  // The files took the pair back meanwhile: its token is thrown away, and the attempt still counts.
  if (pair !== state.newest && pair !== state.running) return { state: afterAbort(shown), outcome: null }
  return { state: afterToken({ ...shown, inFlight: null }, token, step.now), outcome }
}

function afterToken(state: TokenState, token: Token, now: Instant): TokenState {
  const { clients, generation, tokenless } = state
  const next = {
    ...state,
    running: token.pair,
    token,
    generation: generation + (token.isUnchanged ? 0 : 1),
    clients: { ...clients, areWaiting: false, isCause: clients.areWaiting, haveReported: false },
    tokenless: { ...tokenless, forMs: 0 },
    lastSuccessAt: now,
  }
  return withRecord(next, token.pair, NO_RECORD)
}

type NoToken = Exclude<FetchOutcome, Grant>

function afterNoToken(state: TokenState, inFlight: InFlight, outcome: NoToken, step: Step): TokenState {
  const { pair, cause, isOperators, assertion } = inFlight
  const record = recordOf(state, pair)
  // Another host may have asked.
  const attempts = outcome.kind === 'permanent' ? Math.max(1, record.attempts) : record.attempts
  const failure = troubleOf({ ...outcome, attempts }, record.failure, step.now)
  // An operator wants the running pair asked where the candidate gives no token.
  const isNext = state.wish.length === 0 && isOperators && pair !== state.running
  const ended: TokenState = { ...state, inFlight: null, wish: isNext ? ['running'] : state.wish }
  // Nothing was answered to a pair that is refused.
  const last = record.refusedWith === null ? failure : record.failure
  if (outcome.kind === 'postponed') {
    const resumeAtMs = step.now.bootMs + outcome.retryAfterMs
    // An operator who came while the attempt of a plan was under way wants one of their own.
    const wish = isOperators && cause !== 'operator' ? BOTH : ended.wish
    return withRecord({ ...ended, wish }, pair, { ...record, resumeAtMs, failure: last })
  }
  // No request was made for the lack of a good assertion: until there is one, the pair is not due.
  if (outcome.reason === 'assertion' && outcome.status === undefined)
    return withRecord(ended, pair, { ...record, resumeAtMs: Infinity, failure: last })
  const isRefused = outcome.kind === 'permanent'
  return withRecord(ended, pair, {
    ...retryAfter(Math.max(1, attempts), state.policy, step),
    floorAtMs: isRefused ? record.floorAtMs : Math.max(record.floorAtMs, floorAfter(outcome, step)),
    resumeAtMs: 0,
    refusedWith: isRefused ? assertion : null,
    assertion,
    failure,
  })
}

/** Why there is no newer token, for people. `before`: that until now; they are of one row. */
function troubleOf(
  outcome: NoToken & { attempts: number },
  before: Trouble | null,
  now: Instant,
): Trouble | null {
  const { reason, detail = '', askedBy = null, attempts } = outcome
  if (reason === undefined) return before
  const status = 'status' in outcome ? (outcome.status ?? null) : null
  return { reason, detail, status, askedBy, since: before?.since ?? now, attempts }
}

// ---- time

/**
 * Time has passed: the clocks are compared, and the time without a token is counted. `awakeMs`: by CLOCK_MONOTONIC,
 * since the former tick.
 */
export function afterTick(before: TokenState, now: Instant, awakeMs: number): TokenState {
  const state = withWallClock(before, now)
  const since = lostAt(state, now)
  // The token may have been lost at any moment since the last tick.
  const addedMs = Math.min(awakeMs, now.bootMs - since.bootMs)
  if (addedMs <= 0) return state
  return { ...state, tokenless: { since, forMs: state.tokenless.forMs + addedMs } }
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

// ---- operators, clients, the ready-made assertion

/**
 * An operator asks: the candidate first, and the running pair where that gives no token. One whose request is
 * under way with that pair shares it.
 */
export function afterOperator(state: TokenState): TokenState {
  const { inFlight, newest, running, service } = state
  const isNewest = inFlight?.pair === newest
  if (inFlight?.serviceId !== service.id || (!isNewest && inFlight.pair !== running))
    return { ...state, wish: BOTH }
  return { ...state, inFlight: { ...inFlight, isOperators: true }, wish: isNewest ? [] : ['newest'] }
}

/** A client needs a token with this life left, in ms. */
export function afterNeed(state: TokenState, minValidMs: number, now: Instant): TokenState {
  const token = usableToken(state, now)
  if (token === null || refusalOf(state) !== null || state.clients.areWaiting) return state
  if (token.expiresAtMs - now.bootMs >= minValidMs || !canMeet(token, minValidMs)) return state
  return { ...state, clients: { ...state.clients, areWaiting: true } }
}

/** A client reports the token with this fingerprint as refused by the service. */
export function afterReport(
  before: TokenState,
  fingerprint: string,
  now: Instant,
): { state: TokenState; verdict: RejectVerdict; retryAfterMs?: number } {
  const token = usableToken(before, now)
  if (token !== null && token.fingerprint !== fingerprint) return { state: before, verdict: 'replaced' }
  const isAsking = before.inFlight?.pair === before.running
  // An operator asks about a refused account: the answer may be another token.
  if (refusalOf(before) !== null) return { state: before, verdict: isAsking ? 'refreshing' : 'refused' }
  if (token === null) return { state: before, verdict: 'refreshing' }
  const state = withReport(before, token, now)
  const retryAfterMs = dueAtMs(state, now) - now.bootMs
  if (isAsking || retryAfterMs <= 0) return { state, verdict: 'refreshing' }
  return { state, verdict: token.isUnchanged ? 'unchanged' : 'held', retryAfterMs }
}

/** The first report of what an answer gave sets the pace; each wakes an attempt that was postponed. */
function withReport(state: TokenState, { givenAtMs, refreshAtMs }: Token, now: Instant): TokenState {
  const { clients, running } = state
  const { areWaiting, isCause, haveReported, pace } = clients
  if (haveReported && areWaiting) return state
  // A token that stayed unreported for half of the time to its refresh ends the row.
  const isCalm = now.bootMs >= (givenAtMs + refreshAtMs) / 2
  const inARow = isCalm ? 0 : Math.min(pace + (isCause ? 1 : 0), MAX_PACE)
  const reported = { ...clients, haveReported: true, areWaiting: true, pace: haveReported ? pace : inARow }
  const record = recordOf(state, running)
  const next = { ...state, clients: reported }
  return record.resumeAtMs === 0 ? next : withRecord(next, running, { ...record, resumeAtMs: 0 })
}

/** The ready-made assertion of this pair may be sent, with this content. */
export function afterAssertion(state: TokenState, pair: string, assertion: string): TokenState {
  const record = recordOf(state, pair)
  const { resumeAtMs, refusedWith } = record
  const isWaiting = resumeAtMs === Infinity
  if (!isWaiting && (refusedWith === null || record.assertion === assertion)) return state
  return withRecord(state, pair, { ...record, assertion, resumeAtMs: isWaiting ? 0 : resumeAtMs })
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
  const { now, drawn } = step
  const newestSince = pair === state.newest ? state.newestSince : now
  const read = { ...state, service, policy, newest: pair, newestSince }
  if (service.id === state.service.id) return { ...read, token: withMaxAge(state, policy.maxAgeMs, drawn) }
  // The pair in the files alone goes to another service, and nothing of the former one holds there.
  const lost = lostAt(state, now)
  return {
    ...read,
    running: pair,
    pairs: {},
    token: null,
    clients: { ...state.clients, areWaiting: false },
    clocks: { ...state.clocks, serviceMs: null },
    tokenless: { ...state.tokenless, since: lost.bootMs > now.bootMs ? now : lost },
    lastSuccessAt: null,
  }
}

/** Another `refresh.maxAge` counts for the token that is held, too: from the last answer that gave it. */
function withMaxAge({ token, policy }: TokenState, maxAgeMs: number, drawn: number): Token | null {
  if (token?.expirySource !== 'assumed' || maxAgeMs === policy.maxAgeMs) return token
  return { ...token, ...lifeFrom(token.expiresAtMs - token.lifeMs, maxAgeMs, drawn) }
}

/** A daemon starts with what a former one saved. `isOrderly`: that one was stopped, and did not crash. */
export function afterStart(
  saved: TokenState,
  { isOrderly, ...files }: Files & { readonly isOrderly: boolean },
  step: Step,
): TokenState {
  const read = afterFiles(saved, files, step)
  const detail = 'The attempt did not end: kyc-tokend itself ended first'
  const cut = { reason: 'network', detail, status: null, askedBy: null } as const
  const started = ([pair, record]: [string, PairRecord]): [string, PairRecord] => {
    const { attempts, failure, refusedWith } = record
    const isAskedOnce = isOrderly && pair === files.pair && refusedWith !== null
    const isCut = refusedWith === null && attempts > (failure?.attempts ?? 0)
    const since = failure?.since ?? step.now
    const known = { failure: isCut ? { ...cut, since, attempts } : failure, resumeAtMs: 0 }
    return [pair, { ...record, ...known, refusedWith: isAskedOnce ? BY_STOP : refusedWith }]
  }
  const pairs = Object.fromEntries(Object.entries(read.pairs).map(started))
  return { ...read, running: files.pair, pairs, inFlight: null, wish: [], requests: 0 }
}
