// Transitions of the state, pure: from the facts and an event (an attempt, time, a client, an operator, other
// files) to the facts that follow. One way for every pair, whoever's it is.
import type { Instant } from '../lib/clock.ts'
import type { RejectVerdict } from '../protocol.ts'
import type { Cause, FetchOutcome, Grant } from './outcome.ts'
import {
  MAX_PACE,
  canMeet,
  dueAtMs,
  floorAfter,
  lostAt,
  refusalOf,
  retryAfter,
  usableToken,
  type Plan,
} from './selectors.ts'
import {
  NO_RECORD,
  recordOf,
  withRecord,
  type Files,
  type InFlight,
  type Step,
  type TokenState,
  type Trouble,
} from './state.ts'
import { lifeFrom, tokenOf, type Token } from './token.ts'

/** A wall clock that moves by less against the boot clock drifts, and the texts of instants stay the same. */
const DRIFT_MS = 2_000
/** A wall clock that moves by more against the boot clock has jumped. */
const JUMP_MS = 60_000
/** The time until the file of an assertion that is not good is read again. */
const READ_AGAIN_MS = 15_000
/** Another ready-made assertion lifts a refusal at most once in this time. */
const LIFT_MS = 300_000

// ---- an attempt

/** The attempt of this plan begins. */
export function afterBegin(state: TokenState, { pair, by }: Omit<Plan, 'atMs'>): TokenState {
  const isOperators = by === 'operator'
  const cause = by === 'plan' ? causeOf(state, pair) : by
  const inFlight = { pair, cause, isOperators, sentAtMs: null, assertion: '' }
  return { ...state, inFlight, wish: isOperators ? null : state.wish }
}

function causeOf(state: TokenState, pair: string): Cause {
  const { attempts, refusal } = recordOf(state, pair)
  if (refusal?.isLifted === true) return 'start'
  if (attempts > 0) return 'retry'
  if (pair !== state.running) return 'reload'
  return state.token?.pair === pair ? 'refresh' : 'start'
}

/**
 * A request goes out; `assertion`: fingerprint of the ready-made one in it. This is saved first: it counts as
 * failed, and a refusal stands, until there is an answer.
 */
export function afterRequest(state: TokenState, step: Step, assertion = ''): TokenState {
  const { inFlight, clients, policy } = state
  if (inFlight === null) return state
  const { pair, cause } = inFlight
  const record = recordOf(state, pair)
  const refusal = record.refusal && { ...record.refusal, isLifted: false }
  const { now } = step
  const asked = {
    ...state,
    inFlight: { ...inFlight, sentAtMs: now.bootMs, assertion },
    clients: cause === 'client' ? { ...clients, requestedAtMs: now.bootMs } : clients,
    requests: state.requests + 1,
    lastRequestAt: now,
  }
  return withRecord(asked, pair, { ...record, ...retryAfter(record.attempts + 1, policy, step), refusal })
}

/** The attempt ends without an answer that counts. An operator who waits for it has the service asked again. */
export function afterAbort(state: TokenState): TokenState {
  const { inFlight, wish } = state
  if (inFlight === null) return state
  return { ...state, inFlight: null, wish: inFlight.isOperators ? 'newest' : wish }
}

/**
 * The attempt that is under way ends with this outcome. Returns the outcome that counts, too: a token that has
 * ended is a failure. Null: it does not count, because the service is another one, the files no longer hold the
 * pair, or the token of another host has ended here.
 */
export function afterAnswer(
  state: TokenState,
  outcome: FetchOutcome,
  step: Step,
): { state: TokenState; outcome: FetchOutcome | null } {
  const { inFlight, clocks, token: before, policy } = state
  if (inFlight === null) return { state, outcome: null }
  const { bootMs } = step.now
  const dateMs = outcome.kind === 'postponed' ? undefined : outcome.serverDateMs
  const shown = dateMs === undefined ? state : { ...state, clocks: { ...clocks, serviceMs: dateMs - bootMs } }
  if (outcome.kind !== 'ok') return { state: afterNoToken(shown, inFlight, outcome, step), outcome }
  const { pair } = inFlight
  const token = tokenOf(outcome, { before, pair, maxAgeMs: policy.maxAgeMs }, step)
  const hasEnded = token.expiresAtMs <= bootMs
  if (hasEnded && outcome.askedBy === undefined) {
    const detail = `The service gave ${token.isUnchanged ? 'the same token again, which has' : 'a token that has already'} expired`
    return afterAnswer(shown, { kind: 'transient', reason: 'malformed-answer', detail, status: 200 }, step)
  }
  // Another host has a longer `maxAge`, or the files took the pair back: the token is thrown away, the attempt counts.
  if (hasEnded || (pair !== state.newest && pair !== state.running))
    return { state: afterAbort(shown), outcome: null }
  return { state: afterToken({ ...shown, inFlight: null }, token, step.now), outcome }
}

function afterToken(state: TokenState, token: Token, now: Instant): TokenState {
  const { clients, generation, tokenless } = state
  const next: TokenState = {
    ...state,
    running: token.pair,
    token,
    generation: generation + (token.isUnchanged ? 0 : 1),
    clients: { ...clients, want: 'nothing', areCause: clients.want !== 'nothing' },
    tokenless: { ...tokenless, forMs: 0 },
    lastSuccessAt: now,
  }
  return withRecord(next, token.pair, NO_RECORD)
}

type NoToken = Exclude<FetchOutcome, Grant>

function afterNoToken(state: TokenState, asked: InFlight, outcome: NoToken, step: Step): TokenState {
  const { pair, cause, isOperators, assertion } = asked
  const record = recordOf(state, pair)
  const failure = troubleOf(outcome, record.failure, step.now)
  // An operator wants the running pair asked where the candidate gives no token.
  const isNext = state.wish === null && isOperators && pair !== state.running
  const ended: TokenState = { ...state, inFlight: null, wish: isNext ? 'running' : state.wish }
  // There was no request: a file of an assertion is read again soon. Nothing was answered to a pair that is refused.
  if (outcome.kind === 'postponed' || (outcome.reason === 'assertion' && outcome.status === undefined)) {
    const resumeAtMs = step.now.bootMs + (outcome.retryAfterMs ?? READ_AGAIN_MS)
    // An operator who came while the attempt of a plan was under way wants one of their own.
    const wish = isOperators && cause !== 'operator' ? 'newest' : ended.wish
    const last = record.refusal === null ? failure : record.failure
    return withRecord({ ...ended, wish }, pair, { ...record, resumeAtMs, failure: last })
  }
  const isRefused = outcome.kind === 'permanent'
  return withRecord(ended, pair, {
    // Another host may have asked.
    ...retryAfter(Math.max(1, record.attempts), state.policy, step),
    floorAtMs: isRefused ? record.floorAtMs : Math.max(record.floorAtMs, floorAfter(outcome, step)),
    resumeAtMs: 0,
    refusal: isRefused ? { reason: outcome.reason, assertion, isLifted: false } : null,
    failure,
  })
}

/** Why there is no newer token, for people. `before`: that until now; they are of one row. */
function troubleOf(outcome: NoToken, before: Trouble | null, now: Instant): Trouble | null {
  const { reason, detail = '', askedBy = null } = outcome
  if (reason === undefined) return before
  const status = 'status' in outcome ? (outcome.status ?? null) : null
  return { reason, detail, status, askedBy, since: before?.since ?? now }
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
  const { clocks, token } = state
  const wallMs = now.wallMs - now.bootMs
  const movedMs = Math.abs(wallMs - clocks.wallMs)
  if (movedMs <= DRIFT_MS) return state
  const next = { ...state, clocks: { ...clocks, wallMs } }
  if (token === null || movedMs <= JUMP_MS) return next
  return { ...next, token: { ...token, refreshAtMs: Math.min(token.refreshAtMs, now.bootMs) } }
}

// ---- operators, clients, the ready-made assertion

/**
 * An operator asks: the candidate first, and the running pair where that gives no token. One whose request is
 * under way with that pair shares it.
 */
export function afterOperator(state: TokenState): TokenState {
  const { inFlight, newest } = state
  const wish = inFlight?.pair === newest ? null : 'newest'
  return { ...state, inFlight: inFlight && { ...inFlight, isOperators: true }, wish }
}

/** A client needs a token with this life left, in ms. */
export function afterNeed(state: TokenState, minValidMs: number, now: Instant): TokenState {
  const token = usableToken(state, now)
  if (token === null || refusalOf(state) !== null || state.clients.want !== 'nothing') return state
  if (token.expiresAtMs - now.bootMs >= minValidMs || !canMeet(token, minValidMs)) return state
  return { ...state, clients: { ...state.clients, want: 'more life' } }
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

/** The first report of what an answer gave sets the pace, and wakes an attempt that was postponed. */
function withReport(state: TokenState, { givenAtMs, refreshAtMs }: Token, now: Instant): TokenState {
  const { clients, running } = state
  if (clients.want === 'another') return state
  // A token that stayed unreported for half of the time to its refresh ends the row.
  const isCalm = now.bootMs >= (givenAtMs + refreshAtMs) / 2
  const pace = isCalm ? 0 : Math.min(clients.pace + (clients.areCause ? 1 : 0), MAX_PACE)
  const next: TokenState = { ...state, clients: { ...clients, want: 'another', pace } }
  return withRecord(next, running, { ...recordOf(state, running), resumeAtMs: 0 })
}

/** The ready-made assertion of this pair has this content: another one lifts a refusal. */
export function afterAssertion(state: TokenState, pair: string, assertion: string, now: Instant): TokenState {
  const { refusal, ...record } = recordOf(state, pair)
  if (refusal === null || refusal.isLifted || refusal.assertion === assertion) return state
  if (now.bootMs < state.liftAtMs) return state
  const lifted = { ...record, refusal: { ...refusal, isLifted: true } }
  return withRecord({ ...state, liftAtMs: now.bootMs + LIFT_MS }, pair, lifted)
}

// ---- other files

/** The files were read: at a reload, or because secret files have changed. */
export function afterFiles(state: TokenState, files: Files, { now, drawn }: Step): TokenState {
  const { service, policy, pair } = files
  const newestSince = pair === state.newest ? state.newestSince : now
  const read = { ...state, service, policy, newest: pair, newestSince }
  if (service.id === state.service.id) return { ...read, token: withMaxAge(state, policy.maxAgeMs, drawn) }
  // The pair in the files alone goes to another service, and nothing of the former one holds there.
  return {
    ...afterAbort(withoutToken(read, now)),
    running: pair,
    pairs: {},
    clocks: { ...state.clocks, serviceMs: null },
    lastSuccessAt: null,
  }
}

/** The token is lost at the latest now. */
export function withoutToken(state: TokenState, now: Instant): TokenState {
  const { clients, tokenless } = state
  return {
    ...state,
    token: null,
    clients: { ...clients, want: 'nothing' },
    tokenless: { ...tokenless, since: lostAt(state, now) },
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
  const { pair } = files
  const read = { ...afterFiles(saved, files, step), running: pair, inFlight: null, wish: null, requests: 0 }
  const { refusal, ...record } = recordOf(read, pair)
  if (!isOrderly || refusal === null) return read
  return withRecord(read, pair, { ...record, refusal: { ...refusal, isLifted: true } })
}
