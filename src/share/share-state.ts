// The knowledge of this host about its fleet, in one value: facts, and the transitions from one event to the next. Pure.
import type { Cause, FetchOutcome } from '../token/outcome.ts'
import { jwtLifeMs } from '../token/token.ts'
import {
  askerOf,
  grantOf,
  isForAll,
  keptMs,
  liveToken,
  outcomeOf,
  REFUSAL_MS,
  tokenIn,
  waitLeftMs,
  type Answer,
  type KnownRecord,
  type Moment,
} from './records.ts'
import { FENCE_AHEAD_MS } from './scripts.ts'
import type { SharedRecord } from './seal.ts'
import type { LeaseRequest, StoredRecord } from './store.ts'

/** The way on which a record came. */
export type Route = 'push' | 'look' | 'take'

/** A wait that the store asks for: another host's lease, the pause after a failure, the pace of clients' reports. */
export type Hold = 'lease' | 'pause' | 'pace'

export interface ShareState {
  /** The newest record that this host knows. */
  readonly newest: KnownRecord | null
  readonly route: Route
  /** Fence of the newest record that was ever known. */
  readonly highestFence: number
  /** Fence of the newest record that the keeper has. */
  readonly adoptedFence: number
  /** Fence of a record whose token the keeper has, and not yet its failure. */
  readonly adoptedTokenFence: number
  /** Fence of a record in the store that is of no use; 0: none. */
  readonly unusableFence: number
  /** Until it is compared with the store, it is not known which of the two is newer, and no record is delivered. */
  readonly own: Answer | null
  /** The lead of the store's clock over the boot clock; null: it was never read. */
  readonly storeAheadMs: number | null
  /** Hosts of the fleet, as last counted; null: never. */
  readonly hosts: number | null
  /** Each wait by its name in the store, and its end on the boot clock, counted from when this host first saw it. */
  readonly holds: Readonly<Record<Hold, { readonly id: string | number; readonly untilMs: number } | null>>
  /** When this host asks by itself; drawn once for each loss of the store, and again after an attempt. */
  readonly plan: { readonly atMs: number; readonly isUrgent: boolean } | null
}

/** The knowledge of a process or a session before this one. */
export type Remembered = Pick<ShareState, 'adoptedFence' | 'highestFence' | 'own' | 'hosts'>

export const NO_HOLDS = { lease: null, pause: null, pace: null }
/** An operator's act on many hosts is one act; a refusal that is older than this was given before it. */
const SAME_ACT_MS = 30_000
/** A store that is behind its own records by so much was set back. */
const CLOCK_GRAIN_MS = 1_000

export function initialShareState(remembered: Remembered): ShareState {
  return {
    ...remembered,
    newest: null,
    route: 'push',
    adoptedTokenFence: 0,
    unusableFence: 0,
    storeAheadMs: null,
    holds: NO_HOLDS,
    plan: null,
  }
}

// ---- what comes from the store --------------------------------------------------------------------------------------------

/** A record has come, and may be the newest now. */
export function afterRecord(
  state: ShareState,
  { stored, decrypt, route }: { stored: StoredRecord; decrypt: () => SharedRecord | null; route: Route },
  moment: Moment,
): { state: ShareState; isReadable: boolean } {
  const { fence } = stored
  if (fence <= (state.newest?.head.fence ?? state.adoptedFence)) return { state, isReadable: true }
  const unusable = { ...state, unusableFence: fence }
  const isPossible = Number.isSafeInteger(fence) && fence <= stored.nowMs + FENCE_AHEAD_MS
  const record = isPossible ? decrypt() : null
  // A failure to reach the service is the asker's own, and never a record of the fleet.
  if (record === null || !isForAll(record)) return { state: unusable, isReadable: false }
  const known = knownOf(state, stored, { record, moment })
  const isOver = record.kind === 'ok' && liveToken(known, moment) === null
  if (fence < state.highestFence || isOver) return { state: unusable, isReadable: true }
  // Another host has asked: what it found in the store is over.
  const newer = { ...state, holds: NO_HOLDS, newest: known, route, highestFence: fence }
  return { state: newer, isReadable: true }
}

function knownOf(
  state: ShareState,
  stored: StoredRecord,
  { record, moment }: { record: SharedRecord; moment: Moment },
): KnownRecord {
  const { fence, atMs, notBeforeMs, nowMs } = stored
  // A push may have been under way for long, as to a host that was paused.
  let ageMs = Math.max(0, nowMs - atMs, (storeClockMs(state, moment.nowMs) ?? 0) - atMs)
  // A store whose clock was set back does not know the age of its records: a JWT is not used past its own `exp`.
  if (nowMs + CLOCK_GRAIN_MS < atMs && record.kind === 'ok') {
    const { wallMs } = moment
    const leftMs = jwtLifeMs(record.accessToken, { serverDateMs: wallMs, wallMs }) ?? Infinity
    ageMs = Math.max(ageMs, record.lifeMs - record.ageMs - leftMs)
  }
  return { head: { fence, atMs, notBeforeMs }, record, obtainedAtMs: moment.nowMs - ageMs }
}

/** The store's clock as this host counts it on; null: it was never read. */
export function storeClockMs({ storeAheadMs }: ShareState, nowMs: number): number | null {
  return storeAheadMs === null ? null : nowMs + storeAheadMs
}

/**
 * The store's clock was read, which was asked at `sentAtMs`. If it was set back, the ages of its records are wrong: this host
 * writes the one that it goes by again. If it was set back by days, all fences begin again, too.
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
 * The store's clock and record are known: an own outcome that is newer than the record becomes a record, and counts for
 * all from the moment of its answer on. Of equal age, the one that has a fence wins.
 */
export function afterSync(state: ShareState, moment: Moment): ShareState {
  const { own, newest, highestFence } = state
  const { nowMs } = moment
  const synced = { ...state, own: null }
  const storeNowMs = storeClockMs(state, nowMs)
  if (own === null || storeNowMs === null || (newest !== null && isDisplaced(own, newest))) return synced
  const isToken = own.record.kind === 'ok'
  if (isToken && liveToken(own, moment) === null) return synced
  const atMs = Math.floor(storeNowMs - (nowMs - own.obtainedAtMs))
  // The wait that the service asked for outlives the token that replaces its record.
  const boundMs = newest?.record.kind === 'transient' ? newest.head.notBeforeMs : 0
  const notBeforeMs = isToken ? boundMs : atMs + REFUSAL_MS
  const fence = Math.max(atMs, highestFence + 1)
  return afterOwnRecord(synced, { ...own, head: { fence, atMs, notBeforeMs } })
}

/** A failure displaces no newer token, and a token no newer refusal. */
function isDisplaced({ record, obtainedAtMs }: Answer, newest: KnownRecord): boolean {
  const token = tokenIn(newest.record)
  if (record.kind === 'ok' && token?.accessToken === record.accessToken) return true
  if (record.kind !== 'ok' || newest.record.kind !== 'transient') return obtainedAtMs <= newest.obtainedAtMs
  return token !== null && obtainedAtMs <= newest.obtainedAtMs - token.ageMs
}

/** A record of this host's own: the keeper has it. A later one of another host may have come meanwhile. */
export function afterOwnRecord(state: ShareState, known: KnownRecord): ShareState {
  const { fence } = known.head
  if (fence < state.highestFence) return { ...state, own: null }
  return { ...state, own: null, newest: known, highestFence: fence, adoptedFence: fence }
}

/** The record to put back into a store that has an older one or none, and for how long; null: the store is up to date. */
export function recordToRestore(
  { newest }: ShareState,
  storedFence: number,
  nowMs: number,
): { known: KnownRecord; ttlMs: number } | null {
  if (newest === null || storedFence >= newest.head.fence) return null
  const ttlMs = keptMs(newest, nowMs)
  return ttlMs > 0 ? { known: newest, ttlMs } : null
}

// ---- what the keeper gets -------------------------------------------------------------------------------------------------

/**
 * The outcome that the keeper does not have yet, and the state if it takes it; `adopted`: it has all of this record then.
 * Of a failure with a token, a keeper without one gets that first.
 */
export function nextDelivery(
  state: ShareState,
  moment: Moment,
): { outcome: FetchOutcome; state: ShareState; adopted: KnownRecord | null } | null {
  const { newest, own } = state
  if (newest === null || own !== null || newest.head.fence <= state.adoptedFence) return null
  const { fence } = newest.head
  const { host, nowMs, usableUntilMs } = moment
  // The store can be used: the time that was planned for being alone counts no more.
  const known = { ...state, plan: null }
  const lacksToken = usableUntilMs === null || usableUntilMs <= nowMs
  const token = newest.record.kind === 'ok' ? null : liveToken(newest, moment)
  if (token !== null && lacksToken && state.adoptedTokenFence !== fence) {
    const outcome = grantOf(token, { ...askerOf(newest.record, host), ageMs: token.ageMs })
    return { outcome, state: { ...known, adoptedTokenFence: fence }, adopted: null }
  }
  return { outcome: outcomeOf(newest, moment), state: { ...known, adoptedFence: fence }, adopted: newest }
}

// ---- the lease, and the waits that the store asks for ---------------------------------------------------------------------

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

/** The store asks for a wait. It lasts `capMs` at most from when this host first saw it; 0: it counts as not there. */
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

/** `known`: the record that holds the fleet, and that this host goes by; null: it does not, and the record does not count. */
export function afterHeld(
  state: ShareState,
  { stored, record }: { stored: StoredRecord; record: SharedRecord | null },
  moment: Moment,
): { state: ShareState; known: KnownRecord | null; waitMs: number } {
  const unusable = { state: { ...state, unusableFence: stored.fence }, known: null, waitMs: 0 }
  if (record === null || stored.fence < state.adoptedFence) return unusable
  const isNewest = state.newest?.head.fence === stored.fence
  // After a restart this host goes by a record that it sees for the first time.
  const known = isNewest && state.newest !== null ? state.newest : knownOf(state, stored, { record, moment })
  const waitMs = waitLeftMs(known, moment.nowMs)
  if (waitMs <= 0 && record.kind !== 'permanent') return unusable
  return { state: isNewest ? state : { ...state, newest: known }, known, waitMs }
}

/**
 * Other credentials are an operator's act: a refusal that was given before it does not answer it, be it that this host knew
 * it (`knownBefore` is the newest fence that it knew) or that it is older than an act on many hosts takes.
 */
export function isBeforeAct(
  { head, record, obtainedAtMs }: KnownRecord,
  { cause, knownBefore, nowMs }: { cause: Cause; knownBefore: number; nowMs: number },
): boolean {
  if (cause !== 'reload' || record.kind !== 'permanent') return false
  return head.fence <= knownBefore || nowMs - obtainedAtMs > SAME_ACT_MS
}

// ---- the store is away: when this host asks by itself, spread, so that a fleet never stampedes -----------------------------

/** Of the life that is left: the rest is for the request itself and its repetition. */
const SHARE_OF_LIFE = 0.8
const PER_HOST_MS = 100
const SPREAD = { atLeastMs: 1_000, atMostMs: 300_000, unknownMs: 10_000 }
/** A minute, less the time after which the store is tried again. */
const URGENT_MS = 45_000

/** Within how many ms from now this host asks. `isUrgent`: the token was reported as refused, or belongs to other credentials. */
export function spreadMs(
  { hosts }: Pick<ShareState, 'hosts'>,
  isUrgent: boolean,
  { usableUntilMs, nowMs }: Pick<Moment, 'usableUntilMs' | 'nowMs'>,
): number {
  const leftMs = (usableUntilMs ?? nowMs) - nowMs
  if (leftMs > 0) return isUrgent ? Math.min(URGENT_MS, SHARE_OF_LIFE * leftMs) : SHARE_OF_LIFE * leftMs
  if (hosts === null) return SPREAD.unknownMs
  return Math.min(SPREAD.atMostMs, Math.max(SPREAD.atLeastMs, hosts * PER_HOST_MS))
}

/** The plan is kept while the store is away, but an urgent one may come before it. `drawn` is from [0, 1). */
export function afterPlanned(
  state: ShareState,
  { isUrgent, drawn }: { isUrgent: boolean; drawn: number },
  moment: Moment,
): { state: ShareState; spreadMs: number; inMs: number } {
  const { nowMs } = moment
  const withinMs = spreadMs(state, isUrgent, moment)
  let { plan } = state
  if (plan === null || (isUrgent && !plan.isUrgent))
    plan = { atMs: Math.min(plan?.atMs ?? Infinity, nowMs + drawn * withinMs), isUrgent }
  return { state: { ...state, plan }, spreadMs: withinMs, inMs: plan.atMs - nowMs }
}
