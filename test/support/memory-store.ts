// The shared store in memory: what the three scripts do, in TypeScript. store.test.ts compares both.
import { StoreError, type Expiring, type Pair, type Store } from '../../src/share/store.ts'

export type MemoryServer = ReturnType<typeof createMemoryServer>
type Listener = Parameters<Store['listen']>[0]

export function createMemoryServer(nowMs: () => number) {
  const keys: Record<'record' | 'lease', { text: string; untilMs: number } | null> = {
    record: null,
    lease: null,
  }
  const listeners = new Map<Listener, string>()

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
          if (isChanged) tell('message')
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
    /** The connections of all hosts, or of this one, end. */
    disconnect: (host?: string) => tell('connection', host),
    flush() {
      keys.record = keys.lease = null
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
