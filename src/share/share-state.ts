// The state of this host in its fleet: the records that it knows, facts about the store, and the transitions at each event; and
// records made from outcomes and back. Pure.
import { ENDLESS, NO_BOUNDS, retryPlan, type RetryPolicy } from '../token/backoff.ts'
import type { Cause, FetchOutcome, Grant, ServiceOutcome, TransientFailure } from '../token/outcome.ts'
import { jwtLifeMs, knownLife } from '../token/token.ts'
import { FENCE_AHEAD_MS } from './scripts.ts'
import type { SharedRecord, SharedToken } from './seal.ts'
import type { LeaseRequest, RecordHead, StoredRecord } from './store.ts'

/** A record that this host has opened or written. */
export interface KnownRecord {
  readonly head: RecordHead
  readonly record: SharedRecord
  /** When the asker had the answer, on this host's boot clock. */
  readonly obtainedAtMs: number
}

/** An answer without a head: the store does not have it, or not yet. */
export type Answer = Pick<KnownRecord, 'record' | 'obtainedAtMs'>

/** The circumstances of a step, and the facts about the keeper. */
export interface Moment {
  /** On the boot clock. */
  readonly nowMs: number
  readonly wallMs: number
  /** Life of a token that does not say its own, in ms. */
  readonly assumedLifeMs: number
  /** Until when the token that the keeper holds can be used, on the boot clock; null: it holds none. */
  readonly usableUntilMs: number | null
  /** The keeper has no usable token of this account. */
  readonly lacksToken: boolean
  /** The name of this host to the others. */
  readonly host: string
}

/** The time for which the store keeps a failure after the wait that it asks for. */
const FAILURE_KEPT_MS = 3_600_000
const REFUSAL_MS = 30 * 86_400_000
/** The longest wait that a record may ask for: `Retry-After` of an hour and a fifth of it. */
const MAX_WAIT_MS = 72 * 60_000
/** The longest wait that follows from failures alone: the cap of a host without a token is twice as long. */
const SOFT_WAIT_MS = 30_000

/** Reports whether the record holds for every host, because the service gave this answer. Any other failure is the asker's own. */
export function isForAll(record: SharedRecord): boolean {
  return record.kind !== 'transient' || ['rate-limited', 'server-error', 'rejected'].includes(record.reason)
}

function tokenIn(record: SharedRecord): SharedToken | null {
  return record.kind === 'ok' ? record : record.token
}

/** The token of a record, with its age now, if it is still good under this host's settings. */
function liveToken({ record, obtainedAtMs }: Answer, { assumedLifeMs, nowMs }: Moment): SharedToken | null {
  const token = tokenIn(record)
  if (token === null) return null
  const ageMs = token.ageMs + nowMs - obtainedAtMs
  const lifeMs = token.expirySource === 'assumed' ? Math.min(token.lifeMs, assumedLifeMs) : token.lifeMs
  return ageMs < lifeMs ? { ...token, ageMs } : null
}

/** The time in which no host asks because of this record, in ms. */
export function waitLeftMs({ head, obtainedAtMs }: KnownRecord, nowMs: number): number {
  return Math.max(0, Math.min(MAX_WAIT_MS, head.notBeforeMs - head.atMs) - (nowMs - obtainedAtMs))
}

/** The time that a record may still stay in a store, in ms. */
export function keptMs({ record, head, obtainedAtMs }: KnownRecord, nowMs: number): number {
  const lifeMs =
    record.kind === 'ok' ? record.lifeMs - record.ageMs : head.notBeforeMs - head.atMs + FAILURE_KEPT_MS
  return Math.ceil(lifeMs - (nowMs - obtainedAtMs))
}

/** The record as the outcome of an attempt that another host made; a failure without the token that it carries. */
export function outcomeOf(known: KnownRecord, { host, nowMs }: Pick<Moment, 'host' | 'nowMs'>): FetchOutcome {
  const { record, obtainedAtMs } = known
  const asker = { ...askerOf(record, host), known: String(known.head.fence) }
  if (record.kind === 'ok') return grantOf(record, { ...asker, ageMs: record.ageMs + nowMs - obtainedAtMs })
  const { detail } = record
  if (record.kind === 'permanent')
    return { kind: 'permanent', reason: record.reason, status: record.status, detail, ...asker }
  const { reason, status } = record
  const retryAfterMs = waitLeftMs(known, nowMs)
  return { kind: 'transient', reason, ...(status !== null && { status }), retryAfterMs, detail, ...asker }
}

/** The host that asked, if it was another one. This host may have asked before a restart. */
export function askerOf({ by }: SharedRecord, host: string): { askedBy?: string } {
  return by === host ? {} : { askedBy: by }
}

function grantOf(token: SharedToken, given: { askedBy?: string; known: string; ageMs: number }): Grant {
  const { accessToken, lifeMs, expirySource } = token
  return { kind: 'ok', accessToken, lifeMs, expirySource, ...given }
}

/** An outcome of this host as a record for the others. `waitMs`: the time for which no host asks the service. */
export function recordOf(
  outcome: ServiceOutcome,
  { newest, retry: policy }: { newest: KnownRecord | null; retry: RetryPolicy },
  moment: Moment,
): { record: SharedRecord; waitMs: number } {
  const { host: by, wallMs, assumedLifeMs } = moment
  const token = newest && liveToken(newest, moment)
  if (outcome.kind === 'permanent') {
    const { kind, reason, detail, status } = outcome
    return { record: { kind, by, reason, detail, status, token }, waitMs: REFUSAL_MS }
  }
  if (outcome.kind === 'ok') {
    const { accessToken } = outcome
    const assumed = { lifeMs: assumedLifeMs, expirySource: 'assumed' as const }
    const life = knownLife(outcome, wallMs) ?? assumed
    if (life.lifeMs > 0) return { record: { kind: 'ok', by, accessToken, ...life, ageMs: 0 }, waitMs: 0 }
  }
  const expired = { reason: 'malformed-answer', detail: 'The token has already expired' } as const
  const failure: Omit<TransientFailure, 'kind'> = outcome.kind === 'transient' ? outcome : expired
  const { reason, detail, status = null } = failure
  const attempts = newest?.record.kind === 'transient' ? newest.record.attempts + 1 : 1
  const shortest = retryPlan(failure, {
    nowMs: 0,
    attempts,
    policy,
    drawn: 0,
    left: ENDLESS,
    bounds: NO_BOUNDS,
  })
  const minWaitMs = Math.max(shortest.bounds.askedMs, shortest.bounds.paceMs)
  // Each host waits as long as it would by itself; the first whose time has come asks for all.
  const waitMs = Math.ceil(Math.max(minWaitMs, Math.min(SOFT_WAIT_MS, shortest.retryAtMs)))
  return { record: { kind: 'transient', by, reason, detail, status, attempts, token }, waitMs }
}

/** The way a record came: pushed over the channel, at a read of the store, or with the answer to a request for the lease. */
export type Route = 'push' | 'look' | 'take'

/** A wait that the store asks for: for another host's lease, the pause after a failure, or the pace of clients' reports. */
export type Hold = 'lease' | 'pause' | 'pace'

export interface ShareState {
  /** The newest record that this host knows. */
  readonly newest: KnownRecord | null
  readonly route: Route
  /** Fence of the newest record that this host has ever known. */
  readonly highestFence: number
  /** Fence of the newest record that the keeper has. */
  readonly adoptedFence: number
  /** Fence of a failure of which the keeper already has the token, but not the failure itself. */
  readonly adoptedTokenFence: number
  /** Fence of a record in the store that is of no use; 0: none. */
  readonly unusableFence: number
  /** An answer that this host got and the store may lack. Until it is compared with the store's record, none is delivered. */
  readonly own: Answer | null
  /** The lead of the store's clock over the boot clock; null: it was never read. */
  readonly storeAheadMs: number | null
  /** Hosts of the fleet, as last counted; null: never. */
  readonly hosts: number | null
  /** Each wait with its id in the store, and its latest end on the boot clock, counted from when this host first saw it. */
  readonly holds: Readonly<Record<Hold, { readonly id: string | number; readonly untilMs: number } | null>>
  /** When this host asks by itself; drawn once for each loss of the store, and again after each attempt. */
  readonly plan: { readonly atMs: number; readonly isUrgent: boolean } | null
}

/** The part of the state with which a session begins: that of a session or a process before it. */
export type ResumeState = Pick<ShareState, 'adoptedFence' | 'highestFence' | 'own' | 'hosts'>

export const NO_HOLDS = { lease: null, pause: null, pace: null }
/** If the store's clock is behind its own records by more than this, it was set back. */
const CLOCK_GRAIN_MS = 1_000

export function initialShareState(resumeState: ResumeState): ShareState {
  const unread = { newest: null, route: 'push', adoptedTokenFence: 0, storeAheadMs: null } as const
  return { ...resumeState, ...unread, unusableFence: 0, holds: NO_HOLDS, plan: null }
}

/** A record has come. It becomes the newest if its fence is higher; after a restart, also if this host had adopted it before. */
export function afterRecord(
  state: ShareState,
  given: { stored: StoredRecord; open: (stored: StoredRecord) => SharedRecord | null; route: Route },
  moment: Moment,
): ShareState {
  const { stored, route } = given
  const { fence } = stored
  const isKnown = state.newest === null ? fence < state.adoptedFence : fence <= state.newest.head.fence
  if (isKnown) return state
  const unusable = { ...state, unusableFence: fence }
  const record = given.open(stored)
  // A failure to reach the service is the asker's own, and never a record of the fleet.
  if (record === null || !isForAll(record) || fence < state.highestFence) return unusable
  const known = knownOf(state, stored, { record, moment })
  if (record.kind === 'ok' && liveToken(known, moment) === null) return unusable
  // Another host has asked, so the waits in the store are over.
  return { ...state, holds: NO_HOLDS, newest: known, route, highestFence: fence }
}

function knownOf(
  state: ShareState,
  stored: StoredRecord,
  { record, moment }: { record: SharedRecord; moment: Moment },
): KnownRecord {
  const { fence, atMs, notBeforeMs, nowMs } = stored
  // A push may have been under way for long, for example if this host was paused.
  let ageMs = Math.max(0, nowMs - atMs, (storeClockMs(state, moment.nowMs) ?? 0) - atMs)
  // A store whose clock was set back does not know the age of its records: a JWT is not used past its own `exp`.
  const token = tokenIn(record)
  if (nowMs + CLOCK_GRAIN_MS < atMs && token !== null) {
    const { wallMs } = moment
    const leftMs = jwtLifeMs(token.accessToken, { serverDateMs: wallMs, wallMs }) ?? Infinity
    ageMs = Math.max(ageMs, token.lifeMs - token.ageMs - leftMs)
  }
  return { head: { fence, atMs, notBeforeMs }, record, obtainedAtMs: moment.nowMs - ageMs }
}

/** The store's clock, as this host has counted it since the last read; null: it was never read. */
export function storeClockMs({ storeAheadMs }: ShareState, nowMs: number): number | null {
  return storeAheadMs === null ? null : nowMs + storeAheadMs
}

/**
 * The store's clock was read, by a request that was sent at `sentAtMs`. If the clock was set back, the ages of its records are
 * wrong: then the record that the keeper has becomes `own`, and is written again. If it was set back by days, the fences begin
 * again, too.
 */
export function afterClockRead(
  state: ShareState,
  storeNowMs: number,
  { sentAtMs, nowMs }: { sentAtMs: number; nowMs: number },
): ShareState {
  const { newest, adoptedFence, highestFence } = state
  const read = { ...state, storeAheadMs: storeNowMs - nowMs }
  const isSetBackByDays = highestFence > storeNowMs + FENCE_AHEAD_MS
  const isSetBack = (storeClockMs(state, sentAtMs) ?? 0) > storeNowMs + CLOCK_GRAIN_MS
  const isSettled = newest?.head.fence === adoptedFence && newest.record.kind !== 'transient'
  const own = state.own ?? (isSettled ? newest : null)
  if (isSetBackByDays)
    return { ...read, own, newest: null, highestFence: 0, adoptedFence: 0, adoptedTokenFence: 0 }
  return isSetBack && isSettled ? { ...read, own, newest: null } : read
}

/**
 * The store's clock and record are known now. If `own` is newer than the record, it becomes the newest record, dated by the
 * moment of its answer; otherwise it is dropped. Of two answers of equal age the store's record wins.
 */
export function afterSync(state: ShareState, storeNowMs: number, moment: Moment): ShareState {
  const { own, newest, highestFence } = state
  const synced = { ...state, own: null }
  if (own === null || (newest !== null && isDisplaced(own, newest))) return synced
  const isToken = own.record.kind === 'ok'
  if (isToken && liveToken(own, moment) === null) return synced
  const atMs = Math.floor(storeNowMs - (moment.nowMs - own.obtainedAtMs))
  // The wait that the service asked for outlives the token that replaces its record.
  const formerMs = newest?.record.kind === 'transient' ? newest.head.notBeforeMs : 0
  const notBeforeMs = isToken ? formerMs : atMs + REFUSAL_MS
  const fence = Math.max(atMs, highestFence + 1)
  return afterOwnRecord(synced, { ...own, head: { fence, atMs, notBeforeMs } })
}

/**
 * Reports whether the newest record makes `own` obsolete: it is not older, or has the same token. A failure makes an own token
 * obsolete only by the token that it carries.
 */
function isDisplaced({ record, obtainedAtMs }: Answer, newest: KnownRecord): boolean {
  const token = tokenIn(newest.record)
  if (record.kind === 'ok' && token?.accessToken === record.accessToken) return true
  if (record.kind !== 'ok' || newest.record.kind !== 'transient') return obtainedAtMs <= newest.obtainedAtMs
  return token !== null && obtainedAtMs <= newest.obtainedAtMs - token.ageMs
}

/** This host has written a record, which the keeper has. A later record of another host may have come meanwhile. */
export function afterOwnRecord(state: ShareState, known: KnownRecord): ShareState {
  const { fence } = known.head
  if (fence < state.highestFence) return { ...state, own: null }
  return { ...state, own: null, newest: known, highestFence: fence, adoptedFence: fence }
}

/**
 * The next outcome for the keeper out of the newest record, and the state once the keeper has taken it; null: it lacks nothing.
 * A keeper without a token first gets the token that a failure carries, then the failure. `adopted`: the record, if the keeper
 * then has all of it.
 */
export function nextDelivery(
  state: ShareState,
  moment: Moment,
): { outcome: FetchOutcome; state: ShareState; adopted: KnownRecord | null } | null {
  const { newest, own } = state
  if (newest === null || own !== null || newest.head.fence <= state.adoptedFence) return null
  const { fence } = newest.head
  const { host, lacksToken } = moment
  // The store can be used: the time that was planned for being alone counts no more.
  const known = { ...state, plan: null }
  const token = newest.record.kind === 'ok' ? null : liveToken(newest, moment)
  if (token !== null && lacksToken && state.adoptedTokenFence !== fence) {
    const asker = { ...askerOf(newest.record, host), known: '0' }
    const outcome = grantOf(token, { ...asker, ageMs: token.ageMs })
    return { outcome, state: { ...known, adoptedTokenFence: fence }, adopted: null }
  }
  return { outcome: outcomeOf(newest, moment), state: { ...known, adoptedFence: fence }, adopted: newest }
}

export function leaseRequest(
  { adoptedFence, highestFence, unusableFence: record, holds }: ShareState,
  { cause, leaseMs, nowMs }: { cause: Cause; leaseMs: number; nowMs: number },
): LeaseRequest {
  const isOver = (hold: Hold): boolean => (holds[hold]?.untilMs ?? Infinity) <= nowMs
  const ignored = {
    record,
    lease: isOver('lease') ? String(holds.lease?.id) : '',
    pause: isOver('pause') ? Number(holds.pause?.id) : 0,
    pace: isOver('pace'),
  }
  return { cause, leaseMs, adoptedFence, highestFence, ignored }
}

/** The store asks for a wait, which lasts `capMs` at most from when this host first saw it. `waitMs` 0: it is over, and ignored. */
export function afterHold(
  state: ShareState,
  { hold, id, waitMs, capMs }: { hold: Hold; id: string | number; waitMs: number; capMs: number },
  nowMs: number,
): { state: ShareState; waitMs: number } {
  const before = state.holds[hold]
  const seen = before?.id === id ? before : { id, untilMs: nowMs + capMs }
  const leftMs = Math.max(0, Math.min(waitMs, seen.untilMs - nowMs))
  return { state: { ...state, holds: { ...state.holds, [hold]: seen } }, waitMs: leftMs }
}

/** The share of the remaining life over which hosts spread their requests; the rest is for the request and its repetition. */
const SHARE_OF_LIFE = 0.8
const PER_HOST_MS = 100
const SPREAD = { atLeastMs: 1_000, atMostMs: 300_000, unknownMs: 10_000 }
/** A minute, less the time after which the store is tried again. */
const URGENT_MS = 45_000

/**
 * Plans when this host asks by itself. The plan is kept while the store is away, but an urgent one may come before it: the token
 * was reported as refused, or belongs to other credentials. `drawn` is from [0, 1); `spreadMs` is the time from now within
 * which this host asks.
 */
export function afterPlanned(
  state: ShareState,
  { isUrgent, drawn }: { isUrgent: boolean; drawn: number },
  { usableUntilMs, nowMs }: Pick<Moment, 'usableUntilMs' | 'nowMs'>,
): { state: ShareState; spreadMs: number; inMs: number } {
  const { hosts } = state
  const leftMs = SHARE_OF_LIFE * ((usableUntilMs ?? nowMs) - nowMs)
  let spreadMs = isUrgent ? Math.min(URGENT_MS, leftMs) : leftMs
  if (leftMs <= 0) spreadMs = SPREAD.unknownMs
  if (leftMs <= 0 && hosts !== null)
    spreadMs = Math.min(SPREAD.atMostMs, Math.max(SPREAD.atLeastMs, hosts * PER_HOST_MS))
  let { plan } = state
  if (plan === null || (isUrgent && !plan.isUrgent))
    plan = { atMs: Math.min(plan?.atMs ?? Infinity, nowMs + drawn * spreadMs), isUrgent }
  return { state: { ...state, plan }, spreadMs, inMs: plan.atMs - nowMs }
}
