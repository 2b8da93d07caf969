// The shared store in memory: what the three scripts do, in TypeScript. store.test.ts compares both.
import type { Clock } from '../../src/lib/clock.ts'
import { StoreError, type Pair, type Store, type StoreListener } from '../../src/share/store.ts'

interface Held {
  readonly text: string
  readonly untilMs: number
}
export type MemoryServer = ReturnType<typeof createMemoryServer>

const MAX_LEASE_MS = 73 * 60_000

export function createMemoryServer(nowMs: () => number) {
  const keys: { record: Held | null; lease: Held | null } = { record: null, lease: null }
  const failures = new Map<string | undefined, StoreError>()
  const listeners = new Map<StoreListener, string>()
  let isPushing = true

  function get(key: keyof typeof keys, drop: string | null): string | null {
    const held = keys[key]
    const leftMs = (held?.untilMs ?? 0) - nowMs()
    const isOdd = key === 'lease' && leftMs > MAX_LEASE_MS
    if (held === null || leftMs <= 0 || isOdd || held.text === drop || held.text.length > 65_536)
      keys[key] = null
    return keys[key]?.text ?? null
  }
  function set(key: keyof typeof keys, { text, keepMs }: { text: string; keepMs: number }): void {
    keys[key] = { text, untilMs: nowMs() + keepMs }
  }
  function tell(what: keyof StoreListener, host?: string): void {
    for (const [listener, name] of listeners) if (host === undefined || name === host) listener[what]()
  }

  /** A host's connection to it. */
  function connect(host: string): Store {
    let isClosed = false
    /** As over a network: the answer comes later, and what goes wrong is a rejection. */
    async function step<T>(
      drop: string | null,
      work: (record: string | null, lease: string | null) => T,
    ): Promise<T> {
      await Promise.resolve()
      if (isClosed) throw new StoreError('lost', 'Connection is closed.')
      const failure = failures.get(undefined) ?? failures.get(host)
      if (failure !== undefined) throw failure
      server.onStep()
      return work(get('record', drop), get('lease', drop))
    }
    return {
      server: 'memory',
      contact: Promise.resolve(),
      look: ({ known, drop }) =>
        step(drop, (record) => {
          const isKnown = record?.startsWith(`${known.fence} ${known.id} `) ?? false
          return { nowMs: nowMs(), hosts: listeners.size, isKnown, record: isKnown ? null : record }
        }),
      acquire: ({ known, id, leaseMs, drop }) =>
        step(drop, (record, lease) => {
          if (record !== null && isLargerText(record, textOf(known)))
            return { verdict: 'newer', nowMs: nowMs(), record }
          const leftMs = (keys.lease?.untilMs ?? 0) - nowMs()
          if (lease !== null && lease !== id) return { verdict: 'taken', nowMs: nowMs(), lease, leftMs }
          set('lease', { text: id, keepMs: leaseMs })
          return { verdict: 'yours', nowMs: nowMs() }
        }),
      write: ({ id, record, kept, drop }) =>
        step(drop, (former, lease) => {
          const isWritten = record !== null && isLargerText(record.text, former ?? '')
          if (isWritten) set('record', record)
          const isFree = lease === null || lease === id
          if (isFree) keys.lease = null
          if (isFree && kept !== null) set('lease', kept)
          const isChanged = isWritten || (isFree && (lease !== null || kept !== null))
          if (isChanged && isPushing) tell('onMessage')
          return { nowMs: nowMs(), record: keys.record?.text ?? null }
        }),
      watch: (listener, signal) =>
        new Promise((resolve) => {
          listeners.set(listener, host)
          const end = (): void => {
            listeners.delete(listener)
            resolve()
          }
          if (signal.aborted) return end()
          signal.addEventListener('abort', end)
          listener.onConnection()
        }),
      close() {
        isClosed = true
      },
    }
  }

  const server = {
    connect,
    /** Called at each step. */
    onStep: (): unknown => undefined,
    /** Every operation fails like this from now on, or those of this host; null: none does. */
    fail(error: StoreError | null, host?: string) {
      if (error === null) failures.delete(host)
      else failures.set(host, error)
      // Connections are made again at moments of their own: the next look finds the store.
      if (error !== null) tell('onConnection', host)
    },
    flush() {
      keys.record = keys.lease = null
    },
    /** Delivers messages at once (default), or not at all. */
    push(isOn: boolean) {
      isPushing = isOn
    },
    text: (key: keyof typeof keys): string | null => get(key, null),
    leftMs: (key: keyof typeof keys): number => (keys[key]?.untilMs ?? 0) - nowMs(),
    plant: (key: keyof typeof keys, held: { text: string; keepMs: number }) => set(key, held),
    remove(key: keyof typeof keys) {
      keys[key] = null
    },
    /** Number of connections that listen. */
    listeners: () => listeners.size,
    message: () => tell('onMessage'),
  }
  return server
}

/** The same store, from far away: each command and its answer take so long. */
export function delayed(store: Store, clock: Pick<Clock, 'sleep'>, latencyMs: number): Store {
  if (latencyMs === 0) return store
  const { signal } = new AbortController()
  const slowly =
    <A, T>(command: (request: A) => Promise<T>) =>
    async (request: A): Promise<T> => {
      await clock.sleep(latencyMs, signal)
      const answer = await command(request)
      await clock.sleep(latencyMs, signal)
      return answer
    }
  return {
    ...store,
    look: slowly((request) => store.look(request)),
    acquire: slowly((request) => store.acquire(request)),
    write: slowly((request) => store.write(request)),
  }
}

const textOf = ({ fence, id }: Pair): string => `${fence} ${id}`

/** Compares as numbers, not as texts. */
function isLargerText(one: string, other: string): boolean {
  const [numbers, others] = [numbersOf(one), numbersOf(other)]
  const index = numbers.findIndex((number, at) => number !== others[at])
  return index >= 0 && numbers[index]! > others[index]!
}
function numbersOf(text: string): readonly number[] {
  const [, fence = '0', high = '0', low = '0'] = /^(\d{1,16}) ([\da-f]{8})([\da-f]{8})/i.exec(text) ?? []
  return [Number(fence), Number.parseInt(high, 16), Number.parseInt(low, 16)]
}
