// The shared store in memory: the rules of the scripts in TypeScript, for tests and simulations that need no Redis.
import {
  StoreError,
  type Lease,
  type LeaseRequest,
  type Put,
  type SealedRecord,
  type Store,
  type StoredRecord,
  type StoreListener,
} from '../../src/share/store.ts'

interface Held extends SealedRecord {
  readonly untilMs: number
}

export type MemoryServer = ReturnType<typeof createMemoryServer>

const PACE_MS = 30_000
const FOR_LONG_MS = 3_650 * 86_400_000
const FENCE_AHEAD_MS = 86_400_000

export function createMemoryServer(nowMs: () => number) {
  let record: (Held & { hosts: number }) | null = null
  let pause: Held | null = null
  let lease: { owner: string; untilMs: number } | null = null
  let given = 0
  let paceUntilMs = 0
  let failure: StoreError | null = null
  const failures = new Map<string, StoreError | null>()
  const interruptions = new Map<string, { error: StoreError; isDone: boolean }>()
  let isPushing = true
  const listeners = new Set<StoreListener>()

  function expire(owner: string): void {
    const now = nowMs()
    const error = failure ?? failures.get(owner) ?? null
    if (error !== null) throw error
    if (record !== null && record.untilMs <= now) record = null
    if (pause !== null && pause.untilMs <= now) pause = null
    if (lease !== null && lease.untilMs <= now) lease = null
  }
  function stored(held: Held | null): StoredRecord | null {
    if (held === null) return null
    const { fence, atMs, notBeforeMs, sealed } = held
    return { fence, atMs, notBeforeMs, sealed, nowMs: nowMs() }
  }
  const possible = (fence: number): number => (fence <= nowMs() + FENCE_AHEAD_MS ? fence : 0)
  const fenceOf = (held: Held | null): number => possible(held?.fence ?? 0)

  function acquireLease(owner: string, request: LeaseRequest): Lease {
    expire(owner)
    const now = nowMs()
    const { cause, adoptedFence, highestFence, ignored } = request
    const fence = fenceOf(record)
    const counting = fence > 0 && fence !== ignored.record ? record : null
    if (counting !== null && fence > adoptedFence && cause !== 'operator') {
      return { verdict: 'newer', record: stored(counting) as StoredRecord }
    }
    if (lease !== null && lease.owner !== owner && lease.owner !== ignored.lease)
      return { verdict: 'taken', waitMs: lease.untilMs - now, holder: lease.owner }
    if (cause !== 'operator') {
      if (counting !== null && counting.notBeforeMs > now)
        return { verdict: 'held', record: stored(counting) as StoredRecord }
      if (pause !== null && pause.fence > 0 && pause.fence !== ignored.pause)
        return { verdict: 'paused', waitMs: pause.untilMs - now, record: stored(pause) as StoredRecord }
      if (cause === 'client' && !ignored.pace && paceUntilMs > now)
        return { verdict: 'paced', waitMs: paceUntilMs - now }
    }
    given = Math.max(Math.floor(now), possible(given) + 1, highestFence + 1, fence + 1)
    lease = { owner, untilMs: now + request.leaseMs }
    return { verdict: 'yours', fence: given, nowMs: now }
  }

  /** A host's connection to it. */
  function connect(owner: string): Store {
    let isClosed = false
    /** As over a network: the answer comes later, and what goes wrong is a rejection. */
    async function attempt<T>(work: () => T): Promise<T> {
      await Promise.resolve()
      if (isClosed) throw new StoreError('lost', 'Connection is closed.')
      return work()
    }
    return {
      server: 'memory',
      acquireLease: (request) => attempt(() => acquireLease(owner, request)),
      put: ({ isClientPaced, ttlMs, ...head }) =>
        attempt((): Put => {
          expire(owner)
          const interruption = interruptions.get(owner)
          interruptions.delete(owner)
          if (interruption?.isDone === false) throw interruption.error
          if (possible(given) > head.fence || fenceOf(record) >= head.fence)
            return { verdict: 'stale', record: stored(record) }
          record = { ...head, untilMs: nowMs() + ttlMs, hosts: listeners.size }
          given = head.fence
          if (lease?.owner === owner) lease = null
          if (isClientPaced) paceUntilMs = nowMs() + PACE_MS
          if (isPushing) for (const listener of listeners) listener.onRecord(stored(record) as StoredRecord)
          if (interruption !== undefined) throw interruption.error
          return { verdict: 'stored', hosts: listeners.size }
        }),
      release: (by) =>
        attempt(() => {
          expire(owner)
          if (lease?.owner !== owner) return
          lease = null
          if (by !== null) pause = { ...by, untilMs: nowMs() + by.pauseMs }
          if (isPushing) for (const listener of listeners) listener.onReleased()
        }),
      restore: ({ ttlMs, ...head }) =>
        attempt(() => {
          expire(owner)
          if (fenceOf(record) >= head.fence) return
          record = { ...head, untilMs: nowMs() + ttlMs, hosts: 0 }
          given = Math.max(possible(given), head.fence)
        }),
      read: ({ known, highestFence }) =>
        attempt(() => {
          expire(owner)
          const fence = fenceOf(record)
          const isPlanted = (record !== null && fence === 0) || possible(given) < given
          given = Math.max(possible(given), highestFence)
          return {
            nowMs: nowMs(),
            fence,
            isPlanted,
            record: fence > known ? stored(record) : null,
            hosts: record?.hosts ?? 0,
          }
        }),
      watch: (listener, signal) =>
        new Promise((resolve) => {
          listeners.add(listener)
          const end = (): void => {
            // As over a network: the connection is closed a moment later.
            setImmediate(() => {
              listeners.delete(listener)
              resolve()
            })
          }
          if (signal.aborted) return end()
          signal.addEventListener('abort', end)
          listener.onSubscribed()
        }),
      close() {
        isClosed = true
      },
    }
  }

  return {
    connect,
    /** Every operation fails like this from now on, or those of this host; null: none does. */
    fail(error: StoreError | null, owner?: string) {
      if (owner === undefined) failure = error
      else failures.set(owner, error)
    },
    /** The next write of this host is done or is not, and fails like this. */
    interruptPut: (owner: string, how: { error: StoreError; isDone: boolean }) =>
      void interruptions.set(owner, how),
    flush() {
      record = null
      pause = null
      lease = null
      given = 0
      paceUntilMs = 0
    },
    /** Delivers pushes at once (default), or not at all. */
    push(isOn: boolean) {
      isPushing = isOn
    },
    record: (): Held | null => record,
    pause: () => pause,
    /** Number of connections that listen. */
    listeners: () => listeners.size,
    plant(planted: Omit<Held, 'untilMs'>) {
      record = { ...planted, untilMs: nowMs() + FOR_LONG_MS, hosts: 0 }
    },
    /** Lets the owner of a lease lose it. */
    endLease() {
      lease = null
    },
    /** A process with the right to write sets these for ten years. */
    plantHold(hold: { lease?: string; pause?: SealedRecord; isPaced?: boolean }) {
      const untilMs = nowMs() + FOR_LONG_MS
      if (hold.lease !== undefined) lease = { owner: hold.lease, untilMs }
      if (hold.pause !== undefined) pause = { ...hold.pause, untilMs }
      if (hold.isPaced === true) paceUntilMs = untilMs
    },
  }
}
