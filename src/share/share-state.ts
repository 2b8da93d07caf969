// The knowledge of this host about its fleet, in one value: facts, and the transitions from one event to the next. Pure.
import type { Cause, FetchOutcome } from '../token/outcome.ts'
import { CLIENT_INTERVAL_MS } from '../token/rejections.ts'
import { jwtLifeMs } from '../token/token.ts'
import {
  askerOf,
  grantOf,
  isShared,
  keptMs,
  liveToken,
  outcomeOf,
  REFUSAL_MS,
  tokenAtMs,
  tokenIn,
  waitLeftMs,
  type KnownRecord,
} from './records.ts'
import { FENCE_AHEAD_MS } from './scripts.ts'
import type { SharedRecord } from './seal.ts'
import type { LeaseRequest, StoredRecord } from './store.ts'

/** The way on which a record came. */
export type Route = 'push' | 'look' | 'take'

/** An outcome of this host's own that the store may not have. */
export type OwnOutcome = Pick<KnownRecord, 'record' | 'obtainedAtMs'>

export interface ShareState {
  /** The newest record that this host knows. */
  readonly newest: KnownRecord | null
  readonly route: Route
  /** Fence of the newest record that was ever known. */
  readonly highestFence: number
  /** Fence of the newest record that the keeper has. */
  readonly adoptedFence: number
  /** Fence of a record whose token the keeper has, and not yet its failure. */
  readonly halfAdoptedFence: number
  /** Fence of a record in the store that is of no use; 0: none. */
  readonly unusableFence: number
  /** Until it is compared with the store, it is not known which of the two is newer, and no record is delivered. */
  readonly own: OwnOutcome | null
  /** The lead of the store's clock over the boot clock; null: it was never read. */
  readonly storeAheadMs: number | null
  /** Hosts of the fleet, as last counted; null: never. */
  readonly hosts: number | null
  /** The waits that the store asks for, and since when this host has seen each, on the boot clock. */
  readonly lease: { readonly holder: string; readonly sinceMs: number } | null
  readonly pause: { readonly fence: number; readonly sinceMs: number } | null
  readonly pacedSinceMs: number | null
  /** When this host asks by itself; drawn once for each loss of the store, and again after an attempt. */
  readonly plan: { readonly atMs: number; readonly isUrgent: boolean } | null
}

/** The knowledge of a process or a session before this one. */
export type Remembered = Pick<ShareState, 'adoptedFence' | 'highestFence' | 'own' | 'hosts'>

/** The circumstances of a step, and the facts about the keeper. */
export interface Moment {
  /** On the boot clock. */
  readonly nowMs: number
  readonly wallMs: number
  /** Life of a token that does not say its own, in ms. */
  readonly assumedLifeMs: number
  /** Until when the token that the keeper holds can be used, on the boot clock; null: it holds none. */
  readonly usableUntilMs: number | null
  /** The name of this host to the others. */
  readonly host: string
}

export const PAUSE_MS = 5_000
/** An operator's act on many hosts is one act; a refusal that is older than this was given before it. */
const SAME_ACT_MS = 30_000
/** A store that is behind its own records by so much was set back. */
const CLOCK_GRAIN_MS = 1_000

export function initialShareState({ adoptedFence, highestFence, own, hosts }: Remembered): ShareState {
  return {
    newest: null,
    route: 'push',
    highestFence: Math.max(adoptedFence, highestFence),
    adoptedFence,
    halfAdoptedFence: 0,
    unusableFence: 0,
    own,
    storeAheadMs: null,
    hosts,
    lease: null,
    pause: null,
    pacedSinceMs: null,
    plan: null,
  }
}

// ---- what comes from the store --------------------------------------------------------------------------------------------

/** `newer`: it is the newest now. `known`: it is not newer. `over`: it is of no use any more. */
export type Reception = 'newer' | 'known' | 'over' | 'unreadable'

/** A record has come. `open` decrypts it. */
export function afterRecord(
  state: ShareState,
  { stored, open, route }: { stored: StoredRecord; open: () => SharedRecord | null; route: Route },
  moment: Moment,
): { state: ShareState; reception: Reception } {
  const { fence } = stored
  if (fence <= (state.newest?.head.fence ?? state.adoptedFence)) return { state, reception: 'known' }
  const unusable = { ...state, unusableFence: fence }
  const isPossible = Number.isSafeInteger(fence) && fence <= stored.nowMs + FENCE_AHEAD_MS
  const record = isPossible ? open() : null
  // A failure to reach the service is the asker's own, and never a record of the fleet.
  if (record === null || (record.kind === 'transient' && !isShared(record.reason)))
    return { state: unusable, reception: 'unreadable' }
  const known = knownOf(state, stored, { record, moment })
  const isOver = record.kind === 'ok' && liveToken(known, moment) === null
  if (fence < state.highestFence || isOver) return { state: unusable, reception: 'over' }
  // Another host has asked: what it found in the store is over.
  const waits = { lease: null, pause: null, pacedSinceMs: null }
  return { state: { ...state, ...waits, newest: known, route, highestFence: fence }, reception: 'newer' }
}

function knownOf(
  state: ShareState,
  stored: StoredRecord,
  { record, moment }: { record: SharedRecord; moment: Moment },
): KnownRecord {
  const { fence, atMs, notBeforeMs, nowMs } = stored
  // A push may have been under way for long, as to a host that was paused.
  const storeNowMs = Math.max(nowMs, storeClockMs(state, moment.nowMs) ?? 0)
  const ageMs = Math.max(
    0,
    storeNowMs - atMs,
    missedMs(record, { isSetBack: nowMs + CLOCK_GRAIN_MS < atMs, moment }),
  )
  return { head: { fence, atMs, notBeforeMs }, record, obtainedAtMs: moment.nowMs - ageMs }
}

/** A store whose clock was set back does not know the age of its records: a JWT is not used past its own `exp`. */
function missedMs(
  record: SharedRecord,
  { isSetBack, moment: { wallMs } }: { isSetBack: boolean; moment: Moment },
): number {
  if (!isSetBack || record.kind !== 'ok') return 0
  const leftMs = jwtLifeMs(record.accessToken, { serverDateMs: wallMs, wallMs })
  return leftMs === undefined ? 0 : record.lifeMs - record.ageMs - leftMs
}

/** The store's clock as this host counts it on; null: it was never read. */
export function storeClockMs({ storeAheadMs }: ShareState, nowMs: number): number | null {
  return storeAheadMs === null ? null : nowMs + storeAheadMs
}

/**
 * The store's clock and record are known: an own outcome that is newer than the record becomes a record, and counts for
 * all from the moment of its answer on. Of equal age, the one that has a fence wins.
 */
export function afterSync(before: ShareState, storeNowMs: number, moment: Moment): ShareState {
  const { nowMs } = moment
  const state = before.highestFence > storeNowMs + FENCE_AHEAD_MS ? afterSetBack(before) : before
  const synced = { ...state, storeAheadMs: storeNowMs - nowMs, own: null }
  const { own, newest } = state
  if (own === null) return synced
  const atMs = Math.floor(storeNowMs - (nowMs - own.obtainedAtMs))
  const rivalMs = newest === null ? -Infinity : rivalAtMs(newest, own)
  const isOver = own.record.kind === 'ok' && liveToken(own, moment) === null
  if (isOver || own.obtainedAtMs <= rivalMs) return synced
  if (own.record.kind === 'ok' && newest !== null && hasSameToken(newest.record, own.record)) return synced
  const head = {
    fence: Math.max(atMs, state.highestFence + 1),
    atMs,
    notBeforeMs: own.record.kind === 'ok' ? failureBound(newest) : atMs + REFUSAL_MS,
  }
  return afterOwnRecord(synced, { ...own, head })
}

/** The store's clock was set back by days: all fences begin again, and what this host holds is compared by its age. */
function afterSetBack(state: ShareState): ShareState {
  const own = state.own ?? state.newest
  return { ...state, newest: null, highestFence: 0, adoptedFence: 0, halfAdoptedFence: 0, own }
}

/** A failure displaces no newer token, and a token no newer refusal. */
function rivalAtMs(rival: KnownRecord, { record }: OwnOutcome): number {
  return record.kind === 'ok' && rival.record.kind === 'transient' ? tokenAtMs(rival) : rival.obtainedAtMs
}
/** The wait that the service asked for outlives the token that replaces its record. */
function failureBound(rival: KnownRecord | null): number {
  return rival?.record.kind === 'transient' ? rival.head.notBeforeMs : 0
}
function hasSameToken(one: SharedRecord, other: SharedRecord): boolean {
  return tokenIn(one) !== null && tokenIn(one)?.accessToken === tokenIn(other)?.accessToken
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

export interface Delivery {
  readonly outcome: FetchOutcome
  /** The state if the keeper takes it. */
  readonly state: ShareState
  /** The keeper has all of this record then; null: its failure follows. */
  readonly adopted: KnownRecord | null
}

/** The outcome that the keeper does not have yet. Of a failure with a token, a keeper without one gets that first. */
export function nextDelivery(state: ShareState, moment: Moment): Delivery | null {
  const { newest, own } = state
  if (newest === null || own !== null || newest.head.fence <= state.adoptedFence) return null
  const { fence } = newest.head
  const { host, nowMs } = moment
  const lacksToken = moment.usableUntilMs === null || moment.usableUntilMs <= nowMs
  const token = newest.record.kind === 'ok' ? null : liveToken(newest, moment)
  if (token !== null && lacksToken && state.halfAdoptedFence !== fence) {
    const outcome = grantOf(token, { ...askerOf(newest.record, host), ageMs: token.ageMs })
    return { outcome, state: { ...state, halfAdoptedFence: fence }, adopted: null }
  }
  return {
    outcome: outcomeOf(newest, { host, nowMs }),
    state: { ...state, adoptedFence: fence },
    adopted: newest,
  }
}

// ---- the lease, and the waits that the store asks for ---------------------------------------------------------------------

export function leaseRequest(
  state: ShareState,
  { cause, leaseMs, leaseCapMs, nowMs }: { cause: Cause; leaseMs: number; leaseCapMs: number; nowMs: number },
): LeaseRequest {
  const { adoptedFence, highestFence, unusableFence, lease, pause, pacedSinceMs } = state
  const isOver = (sinceMs: number, capMs: number): boolean => nowMs - sinceMs >= capMs
  return {
    cause,
    leaseMs,
    adoptedFence,
    highestFence,
    ignored: {
      record: unusableFence,
      lease: lease !== null && isOver(lease.sinceMs, leaseCapMs) ? lease.holder : '',
      pause: pause !== null && isOver(pause.sinceMs, PAUSE_MS) ? pause.fence : 0,
      pace: pacedSinceMs !== null && isOver(pacedSinceMs, CLIENT_INTERVAL_MS),
    },
  }
}

/** This host asks: the waits were over, or what it writes replaces them. */
export function afterLease(state: ShareState): ShareState {
  return { ...state, lease: null, pause: null, pacedSinceMs: null }
}

/** A wait of at most `waitMs`, counted from when this host first saw it; 0: it counts as not there. */
export interface Wait {
  readonly state: ShareState
  readonly waitMs: number
}

export function afterTaken(
  state: ShareState,
  { holder, waitMs }: { holder: string; waitMs: number },
  { leaseCapMs, nowMs }: { leaseCapMs: number; nowMs: number },
): Wait {
  const lease = state.lease?.holder === holder ? state.lease : { holder, sinceMs: nowMs }
  return { state: { ...state, lease }, waitMs: restOf(waitMs, lease.sinceMs + leaseCapMs - nowMs) }
}

export function afterPaced(state: ShareState, waitMs: number, nowMs: number): Wait {
  const pacedSinceMs = state.pacedSinceMs ?? nowMs
  return {
    state: { ...state, pacedSinceMs },
    waitMs: restOf(waitMs, pacedSinceMs + CLIENT_INTERVAL_MS - nowMs),
  }
}

/** `isReadable`: the record that says why opens. The store's clock says, too, when it was written. */
export function afterPaused(
  state: ShareState,
  { waitMs, record, isReadable }: { waitMs: number; record: StoredRecord; isReadable: boolean },
  nowMs: number,
): Wait {
  const { fence, atMs, nowMs: storeNowMs } = record
  const sinceMs = state.pause?.fence === fence ? state.pause.sinceMs : nowMs
  const leftMs = isReadable ? restOf(waitMs, sinceMs + PAUSE_MS - nowMs, atMs + PAUSE_MS - storeNowMs) : 0
  return { state: { ...state, pause: { fence, sinceMs: leftMs > 0 ? sinceMs : -Infinity } }, waitMs: leftMs }
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

function restOf(...waitsMs: readonly number[]): number {
  return Math.max(0, Math.min(...waitsMs))
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

export interface Standalone {
  /** Until when the token that is held can be used, on the boot clock; null: it holds none. */
  readonly usableUntilMs: number | null
  /** Hosts of the fleet, as last counted; null: never. */
  readonly hosts: number | null
  /** The token was reported as refused, or belongs to other credentials. */
  readonly isUrgent: boolean
}

/** Of the life that is left: the rest is for the request itself and its repetition. */
const SHARE_OF_LIFE = 0.8
const PER_HOST_MS = 100
const SPREAD = { atLeastMs: 1_000, atMostMs: 300_000, unknownMs: 10_000 }
/** A minute, less the time after which the store is tried again. */
const URGENT_MS = 45_000

/** Within how many ms from now this host asks. */
export function spreadMs({ usableUntilMs, hosts, isUrgent }: Standalone, nowMs: number): number {
  const leftMs = (usableUntilMs ?? nowMs) - nowMs
  if (leftMs > 0) return isUrgent ? Math.min(URGENT_MS, SHARE_OF_LIFE * leftMs) : SHARE_OF_LIFE * leftMs
  if (hosts === null) return SPREAD.unknownMs
  return Math.min(SPREAD.atMostMs, Math.max(SPREAD.atLeastMs, hosts * PER_HOST_MS))
}

/** The plan is kept while the store is away, but an urgent one may come before it. `drawn` is from [0, 1). */
export function afterPlanned(
  state: ShareState,
  standalone: Standalone,
  { nowMs, drawn }: { nowMs: number; drawn: number },
): ShareState & { readonly plan: NonNullable<ShareState['plan']> } {
  const { plan } = state
  const { isUrgent } = standalone
  if (plan !== null && (plan.isUrgent || !isUrgent)) return { ...state, plan }
  const atMs = Math.min(plan?.atMs ?? Infinity, nowMs + drawn * spreadMs(standalone, nowMs))
  return { ...state, plan: { atMs, isUrgent } }
}
