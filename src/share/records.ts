// The newest record that this host knows: opened, checked, and aged on the store's clock.
import type { FetchOutcome } from '../token/outcome.ts'
import type { Seal, SharedRecord, SharedToken } from './seal.ts'
import type { BoxHead, StoredBox } from './store.ts'

export interface KnownRecord {
  readonly head: BoxHead
  readonly box: string
  readonly record: SharedRecord
  /** Its age at `receivedAtMs`. */
  readonly ageMs: number
  /** On this host's boot clock. */
  readonly receivedAtMs: number
}

/** `newer`: it is the newest now. `known`: it is not newer. `over`: it is of no use any more. */
export type Reception = 'newer' | 'known' | 'over' | 'unreadable'

export interface Records {
  newest(): KnownRecord | null
  /** Fence of the newest record that was ever known. */
  floor(): number
  /** Fence of the record in the store that is of no use; 0: none. */
  ignored(): number
  ignore(fence: number): void
  receive(stored: StoredBox): Reception
  /** Takes over a record of this host's own. */
  add(known: KnownRecord): void
  /** The token of the newest record, if it is still good. */
  token(): SharedToken | null
  /** Time that the newest record may still stay in a store, in ms. */
  lifeLeftMs(): number
  /** The store's clock as this host counts it on; null: never read. */
  storeNowMs(): number | null
  /** Notes the store's clock. */
  setClock(storeNowMs: number): void
}

/** A fence so far ahead of the store's clock was planted: after 2^53 there would be none. */
const FENCE_AHEAD_MS = 86_400_000
/** A failure is kept for so long after the wait that it asks for. */
export const FAILURE_KEPT_MS = 3_600_000
/** The longest wait that a record may ask for: `Retry-After` of an hour and a fifth of it. */
export const MAX_WAIT_MS = 72 * 60_000

export function isFencePossible(fence: number, storeNowMs: number): boolean {
  return Number.isSafeInteger(fence) && fence <= storeNowMs + FENCE_AHEAD_MS
}

/** Fences that this host knew before it was restarted: `seen` of what it holds, `floor` of the newest. */
export function createRecords({
  seal,
  seen,
  floor: floorBefore,
  bootMs,
}: {
  seal: Seal
  seen: number
  floor: number
  bootMs: () => number
}): Records {
  let newest: KnownRecord | null = null
  let floor = Math.max(seen, floorBefore)
  let ignored = 0
  /** The lead of the store's clock over this host's boot clock. */
  let aheadMs: number | null = null

  function storeNowMs(): number | null {
    return aheadMs === null ? null : bootMs() + aheadMs
  }

  function ignore(fence: number, reception: Reception): Reception {
    ignored = fence
    return reception
  }

  return {
    newest: () => newest,
    floor: () => floor,
    ignored: () => ignored,
    ignore(fence) {
      ignored = fence
    },
    receive(stored) {
      const { fence, atMs, notBeforeMs, box, nowMs } = stored
      if (fence <= (newest?.head.fence ?? seen)) return 'known'
      const head = { fence, atMs, notBeforeMs }
      const record = isFencePossible(fence, nowMs) ? seal.open(box, head) : null
      if (record === null || isOnlyOneHosts(record)) return ignore(fence, 'unreadable')
      if (fence < floor) return ignore(fence, 'over')
      // A push may have been under way for long, as to a host that was paused.
      const ageMs = Math.max(0, Math.max(nowMs, storeNowMs() ?? 0) - atMs)
      const known = { head, box, record, ageMs, receivedAtMs: bootMs() }
      if (record.kind === 'ok' && tokenAgeMs(known, record, bootMs()) >= record.lifeMs)
        return ignore(fence, 'over')
      newest = known
      floor = fence
      return 'newer'
    },
    add(known) {
      newest = known
      floor = Math.max(floor, known.head.fence)
    },
    token() {
      const token = newest && tokenIn(newest.record)
      if (newest === null || token === null) return null
      const ageMs = tokenAgeMs(newest, token, bootMs())
      return ageMs < token.lifeMs ? { ...token, ageMs } : null
    },
    lifeLeftMs() {
      if (newest === null) return 0
      const { record, head } = newest
      const lifeMs =
        record.kind === 'ok' ? record.lifeMs - record.ageMs : head.notBeforeMs - head.atMs + FAILURE_KEPT_MS
      return lifeMs - recordAgeMs(newest, bootMs())
    },
    storeNowMs,
    setClock(nowMs) {
      aheadMs = nowMs - bootMs()
    },
  }
}

/** Failures to reach the service are the asker's own; they are never a record of the fleet. */
function isOnlyOneHosts(record: SharedRecord): boolean {
  return record.kind === 'transient' && !isShared(record.reason)
}

/** Reports whether the service itself said so: then it holds for every host. */
export function isShared(reason: string): boolean {
  return reason === 'rate-limited' || reason === 'server-error' || reason === 'rejected'
}

function tokenIn(record: SharedRecord): SharedToken | null {
  return record.kind === 'ok' ? record : record.token
}

export function recordAgeMs({ ageMs, receivedAtMs }: KnownRecord, bootMs: number): number {
  return ageMs + bootMs - receivedAtMs
}
function tokenAgeMs(known: KnownRecord, token: SharedToken, bootMs: number): number {
  return token.ageMs + recordAgeMs(known, bootMs)
}

/** The record as the outcome of an attempt that another host made. */
export function outcomeOf(
  known: KnownRecord,
  { host, bootMs }: { host: string; bootMs: number },
): FetchOutcome {
  const { record, head } = known
  const by = askerOf(record, host)
  if (record.kind === 'ok') return grantOf(record, { ...by, ageMs: tokenAgeMs(known, record, bootMs) })
  const { detail, status } = record
  if (record.kind === 'permanent')
    return { kind: 'permanent', reason: record.reason, detail, status: record.status, ...by }
  const waitMs = head.notBeforeMs - head.atMs - recordAgeMs(known, bootMs)
  return {
    kind: 'transient',
    reason: record.reason,
    detail,
    ...(status !== null && { status }),
    retryAfterMs: Math.min(MAX_WAIT_MS, Math.max(0, waitMs)),
    ...by,
  }
}

/** Before a restart this host may have asked itself. */
export function askerOf({ by }: SharedRecord, host: string): { by?: string } {
  return by === host ? {} : { by }
}

export function grantOf(token: SharedToken, given: { by?: string; ageMs: number }): FetchOutcome {
  const { accessToken, lifeMs, expirySource } = token
  return { kind: 'ok', accessToken, lifeMs, expirySource, ...given }
}
