// The shared store in memory: the rules of the scripts in TypeScript, for tests and simulations that need no Redis.
import type { Cause } from '../../src/token/outcome.ts'
import type {
  StoreError,
  BoxHead,
  Put,
  Store,
  StoredBox,
  StoreListener,
  Taken,
} from '../../src/share/store.ts'

interface Held extends BoxHead {
  readonly box: string
  readonly untilMs: number
}

export interface MemoryServer {
  /** A host's connection to it. */
  connect(owner: string): Store
  /** Every operation fails like this from now on, or those of this host; null: none does. */
  fail(error: StoreError | null, owner?: string): void
  /** The next write of this host is done or is not, and fails like this. */
  interruptPut(owner: string, how: { readonly error: StoreError; readonly isDone: boolean }): void
  flush(): void
  /** Delivers pushes at once (default), or not at all. */
  push(isOn: boolean): void
  /** The stored record. */
  record(): Held | null
  plant(record: Omit<Held, 'untilMs'>): void
  /** Lets the owner of a lease lose it. */
  endLease(): void
  readonly counts: { takes: number; looks: number; puts: number; restores: number }
}

const PACE_MS = 30_000
const FOR_LONG_MS = 30 * 86_400_000

export function createMemoryServer(nowMs: () => number): MemoryServer {
  let record: (Held & { hosts: number }) | null = null
  let pause: Held | null = null
  let lease: { owner: string; untilMs: number } | null = null
  let given = 0
  let paceUntilMs = 0
  let failure: StoreError | null = null
  const failures = new Map<string, StoreError | null>()
  const interruptions = new Map<string, { readonly error: StoreError; readonly isDone: boolean }>()
  let isPushing = true
  const listeners = new Set<StoreListener>()
  const counts = { takes: 0, looks: 0, puts: 0, restores: 0 }

  function expire(owner: string): void {
    const now = nowMs()
    const error = failure ?? failures.get(owner) ?? null
    if (error !== null) throw error
    if (record !== null && record.untilMs <= now) record = null
    if (pause !== null && pause.untilMs <= now) pause = null
    if (lease !== null && lease.untilMs <= now) lease = null
  }
  function stored(held: Held | null): StoredBox | null {
    if (held === null) return null
    const { fence, atMs, notBeforeMs, box } = held
    return { fence, atMs, notBeforeMs, box, nowMs: nowMs() }
  }

  function take(
    owner: string,
    request: { cause: Cause; leaseMs: number; seen: number; floor: number; ignored: number },
  ): Taken {
    counts.takes += 1
    expire(owner)
    const now = nowMs()
    const { cause, seen, floor, ignored } = request
    const counting = record !== null && record.fence !== ignored ? record : null
    if (counting !== null && counting.fence > seen && cause !== 'operator') {
      return { verdict: 'newer', record: stored(counting) as StoredBox }
    }
    if (lease !== null && lease.owner !== owner) return { verdict: 'taken', waitMs: lease.untilMs - now }
    if (cause !== 'operator') {
      const notBeforeMs = counting?.notBeforeMs ?? 0
      if (notBeforeMs > now) return { verdict: 'held', waitMs: notBeforeMs - now, record: stored(counting) }
      if (pause !== null) return { verdict: 'paused', waitMs: pause.untilMs - now, record: stored(pause) }
      if (cause === 'client' && paceUntilMs > now) return { verdict: 'paced', waitMs: paceUntilMs - now }
    }
    given = Math.max(Math.floor(now), given + 1, floor + 1, (record?.fence ?? 0) + 1)
    lease = { owner, untilMs: now + request.leaseMs }
    return { verdict: 'yours', fence: given, nowMs: now }
  }

  function connect(owner: string): Store {
    return {
      server: 'memory',
      take: (request) => attempt(() => take(owner, request)),
      put: ({ isClientPaced, ttlMs, ...head }) =>
        attempt((): Put => {
          counts.puts += 1
          expire(owner)
          const interruption = interruptions.get(owner)
          interruptions.delete(owner)
          if (interruption?.isDone === false) throw interruption.error
          if (given > head.fence || (record?.fence ?? 0) >= head.fence)
            return { verdict: 'stale', record: stored(record) }
          record = { ...head, untilMs: nowMs() + ttlMs, hosts: listeners.size }
          given = head.fence
          if (lease?.owner === owner) lease = null
          if (isClientPaced) paceUntilMs = nowMs() + PACE_MS
          if (isPushing) for (const listener of listeners) listener.onRecord(stored(record) as StoredBox)
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
          counts.restores += 1
          expire(owner)
          if ((record?.fence ?? 0) >= head.fence) return
          record = { ...head, untilMs: nowMs() + ttlMs, hosts: 0 }
          given = Math.max(given, head.fence)
        }),
      look: (known) =>
        attempt(() => {
          counts.looks += 1
          expire(owner)
          given = Math.max(given, known)
          const fence = record?.fence ?? 0
          return {
            nowMs: nowMs(),
            fence,
            given,
            record: fence > known ? stored(record) : null,
            hosts: record?.hosts ?? 0,
          }
        }),
      watch: (listener, signal) =>
        new Promise((resolve) => {
          listeners.add(listener)
          const end = (): void => {
            listeners.delete(listener)
            resolve()
          }
          if (signal.aborted) return end()
          signal.addEventListener('abort', end)
          listener.onSubscribed()
        }),
      forget: () =>
        attempt(() => {
          expire(owner)
          record = null
        }),
      close: () => undefined,
    }
  }

  return {
    connect,
    fail(error, owner) {
      if (owner === undefined) failure = error
      else failures.set(owner, error)
    },
    interruptPut(owner, how) {
      interruptions.set(owner, how)
    },
    flush() {
      record = null
      pause = null
      lease = null
      given = 0
      paceUntilMs = 0
    },
    push(isOn) {
      isPushing = isOn
    },
    record: () => record,
    plant(planted) {
      record = { ...planted, untilMs: nowMs() + FOR_LONG_MS, hosts: 0 }
    },
    endLease() {
      lease = null
    },
    counts,
  }
}

/** As over a network: the answer comes later, and what goes wrong is a rejection. */
async function attempt<T>(work: () => T): Promise<T> {
  await Promise.resolve()
  return work()
}
