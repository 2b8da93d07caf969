// The shared store in memory: what the three scripts do, in TypeScript. store.test.ts compares both.
import type { Clock } from '../../src/lib/clock.ts'
import { StoreError, type Expiring, type Pair, type Store } from '../../src/share/store.ts'

export type MemoryServer = ReturnType<typeof createMemoryServer>
type Listener = Parameters<Store['listen']>[0]

export function createMemoryServer(nowMs: () => number) {
  const keys: Record<'record' | 'lease', { text: string; untilMs: number } | null> = {
    record: null,
    lease: null,
  }
  const failures = new Map<string | undefined, StoreError>()
  const listeners = new Map<Listener, string>()
  let isPushing = true

  const leftMs = (key: keyof typeof keys): number => (keys[key]?.untilMs ?? nowMs()) - nowMs()
  function get(key: keyof typeof keys, drop: string | null): string | null {
    const text = keys[key]?.text ?? ''
    if (leftMs(key) <= 0 || text.length > 65_536 || text === drop) keys[key] = null
    return keys[key]?.text ?? null
  }
  function set(key: keyof typeof keys, { text, keepMs }: Expiring): void {
    keys[key] = { text, untilMs: nowMs() + keepMs }
  }
  function tell(what: Parameters<Listener>[0], host?: string): void {
    for (const [listener, name] of listeners) if (host === undefined || name === host) listener(what)
  }

  /** A host's connection to it. `life`: that of the process, which may end without closing it. */
  function connect(host: string, life?: AbortSignal): Store {
    let listener: Listener | null = null
    let isClosed = false
    /** As over a network: the answer comes later, and what goes wrong is a rejection. */
    async function step(drop: string | null, work: (record: string | null, lease: string | null) => void) {
      await Promise.resolve()
      if (isClosed) throw new StoreError('lost', 'Connection is closed.')
      const failure = failures.get(undefined) ?? failures.get(host)
      if (failure !== undefined) throw failure
      server.onStep()
      work(get('record', drop), get('lease', drop))
      const { record, lease } = keys
      return {
        nowMs: nowMs(),
        record: record?.text ?? null,
        lease: lease?.text ?? null,
        leaseLeftMs: leftMs('lease'),
        hosts: listeners.size,
      }
    }
    return {
      server: 'memory',
      poll: ({ drop }) => step(drop, () => undefined),
      acquire: ({ known, id, leaseMs, drop }) =>
        step(drop, (record, lease) => {
          const isNewer = record !== null && isLargerText(record, textOf(known))
          if (!isNewer && (lease === null || lease === id)) set('lease', { text: id, keepMs: leaseMs })
        }),
      write: ({ id, record, kept, drop }) =>
        step(drop, (former, lease) => {
          const isWritten = record !== null && isLargerText(record.text, former ?? '')
          if (isWritten) set('record', record)
          const isFree = lease === null || lease === id
          if (isFree) keys.lease = null
          if (isFree && kept !== null) set('lease', kept)
          const isChanged = isWritten || (isFree && (lease !== null || kept !== null))
          if (isChanged && isPushing) tell('message')
        }),
      listen(call) {
        listener = call
        listeners.set(call, host)
        life?.addEventListener('abort', () => listeners.delete(call))
        call('connection')
      },
      close() {
        isClosed = true
        if (listener !== null) listeners.delete(listener)
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
      if (error !== null) tell('connection', host)
    },
    flush() {
      keys.record = keys.lease = null
    },
    /** Delivers messages at once (default), or not at all. */
    push(isOn: boolean) {
      isPushing = isOn
    },
    text: (key: keyof typeof keys): string | null => get(key, null),
    leftMs,
    plant: set,
    remove(key: keyof typeof keys) {
      keys[key] = null
    },
    /** Number of connections that listen. */
    listeners: () => listeners.size,
    message: () => tell('message'),
  }
  return server
}

/** The same store, from far away: each command and its answer take so long. */
export function delayed(
  store: Store,
  { clock, latencyMs, signal }: { clock: Pick<Clock, 'sleep'>; latencyMs: number; signal: AbortSignal },
): Store {
  if (latencyMs === 0) return store
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
    poll: slowly((request) => store.poll(request)),
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
