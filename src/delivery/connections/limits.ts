// Limits that keep one client from harming the others: connections per user, memory, requests per second, and turns.
import type { SocketConfig } from '../../config/config.ts'
import type { Peer } from '../peer-credentials.ts'
import { monotonicMs } from '../../lib/monotonic.ts'

// ---- connections ----------------------------------------------------------------------------------------------------

/** Counts connections, in all and per user. Root and the daemon's own user are not counted: they can always get in. */
export interface ConnectionCounts {
  add(peer: Peer | null): void
  remove(peer: Peer | null): void
  /** Reports whether there are more connections than allowed, in all or of this peer's user. */
  isOver(peer: Peer | null, limits: Pick<SocketConfig, 'maxConnections' | 'maxConnectionsPerUser'>): boolean
}

/** All peers that cannot be known count as one user. */
const UNKNOWN_USER = -1

export function createConnectionCounts(): ConnectionCounts {
  const byUser = new Map<number, number>()
  let total = 0

  function change(peer: Peer | null, by: 1 | -1): void {
    if (peer?.isPrivileged) return
    const user = peer?.uid ?? UNKNOWN_USER
    const connections = (byUser.get(user) ?? 0) + by
    total += by
    if (connections === 0) byUser.delete(user)
    else byUser.set(user, connections)
  }

  return {
    add: (peer) => change(peer, 1),
    remove: (peer) => change(peer, -1),
    isOver(peer, { maxConnections, maxConnectionsPerUser }) {
      if (peer?.isPrivileged) return false
      return total > maxConnections || (byUser.get(peer?.uid ?? UNKNOWN_USER) ?? 0) > maxConnectionsPerUser
    },
  }
}

// ---- memory ---------------------------------------------------------------------------------------------------------

/** Answers to one client are made only while less than this is unsent, in bytes. */
export const MAX_UNSENT_BYTES = 256 * 1024
/** All clients of both sockets together hold at most so many bytes: beyond it the largest holder is dropped. */
const MAX_HELD_BYTES = 32 * 1024 * 1024

export interface Holder {
  /** Bytes it holds now. Written by the budget only. */
  held: number
  /** Called on the largest holder when all together hold too much. */
  onEvicted(): void
}
export interface MemoryBudget {
  /** The holder holds so many bytes now; 0 when it goes. */
  set(holder: Holder, bytes: number): void
  totalBytes(): number
}

export function createMemoryBudget(maxBytes = MAX_HELD_BYTES): MemoryBudget {
  const holders = new Set<Holder>()
  let total = 0

  function set(holder: Holder, bytes: number): void {
    total += bytes - holder.held
    holder.held = bytes
    if (bytes === 0) holders.delete(holder)
    else holders.add(holder)
    if (total > maxBytes) evictLargest()
  }

  function evictLargest(): void {
    let largest: Holder | null = null
    for (const holder of holders) if (holder.held > (largest?.held ?? 0)) largest = holder
    if (largest === null) return
    set(largest, 0)
    largest.onEvicted()
  }

  return { set, totalBytes: () => total }
}

// ---- requests per second --------------------------------------------------------------------------------------------

/** A token bucket that holds the requests of one second. */
export interface RequestRate {
  left: number
  refilledAtMs: number
}

/** Takes one request from the bucket. False: one too many. `perSecond` null: there is no limit. */
export function tryAcquire(rate: RequestRate, perSecond: number | null): boolean {
  if (perSecond === null) return true
  const nowMs = monotonicMs()
  const refill = ((nowMs - rate.refilledAtMs) / 1_000) * perSecond
  rate.left = Math.min(Math.max(1, perSecond), rate.left + refill)
  rate.refilledAtMs = nowMs
  if (rate.left < 1) return false
  rate.left -= 1
  return true
}

// ---- turns ----------------------------------------------------------------------------------------------------------

/** Requests of one connection that are answered in one go, before others have their turn. */
export const REQUESTS_PER_TURN = 8
/** Once per round of the event loop so much time goes to those who have sent more than that, in ms. */
const TURNS_MS = 5

export interface Turns {
  /** Calls the function when it is its turn, in the order in which they were added. */
  add(work: () => void): void
}

/**
 * Connections with more requests than fit in one turn are served in rotation, and the event loop goes round in
 * between: new clients are accepted and read from however much the others have sent.
 */
export function createTurns(): Turns {
  let waiting: (() => void)[] = []
  let isScheduled = false

  function run(): void {
    const until = monotonicMs() + TURNS_MS
    const ready = waiting
    let done = 0
    waiting = []
    while (done < ready.length && monotonicMs() < until) {
      ready[done]?.()
      done += 1
    }
    waiting = done < ready.length ? [...ready.slice(done), ...waiting] : waiting
    isScheduled = waiting.length > 0
    if (isScheduled) setImmediate(run)
  }

  return {
    add(work) {
      waiting.push(work)
      if (isScheduled) return
      isScheduled = true
      setImmediate(run)
    },
  }
}
