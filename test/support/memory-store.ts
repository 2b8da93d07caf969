// The shared store in memory: what Redis does with the commands of a host. store.test.ts compares both.
import { setImmediate as turn } from 'node:timers/promises'
import { StoreError, type Store } from '../../src/share/store.ts'

/** `nowMs`: its clock. */
export function createMemoryServer(nowMs: () => number) {
  const keys = new Map<string, { text: string; untilMs: number }>()
  const ready = new Set<() => void>()
  const get = (key: string): string => {
    const held = keys.get(key)
    return held !== undefined && held.untilMs > nowMs() && !/[^\w+/=]/.test(held.text) ? held.text : ''
  }

  const server = {
    mode: 'well' as 'well' | 'lost' | 'read-only' | 'late' | 'denied',
    /** Called before each command of a host. */
    step: (_host: number): Promise<void> => Promise.resolve(),
    /** Called before a host has the reply. */
    replied: (_host: number): Promise<void> => Promise.resolve(),
    /** A connection of this host. */
    connect(host: number, onReady = () => {}): Store {
      ready.add(onReady)
      async function command<T>(what: string, work: () => T): Promise<T> {
        await server.step(host)
        if (server.mode === 'denied') throw new StoreError('NOPERM this user has no permissions')
        if (server.mode === 'lost') throw new StoreError('Connection is closed.')
        const isWrite = what !== 'read' && server.mode === 'read-only'
        if (isWrite) throw new StoreError("READONLY You can't write against a read only replica.")
        const reply = work()
        await server.replied(host)
        if (server.mode === 'late') throw new StoreError('no answer within share.timeout')
        return reply
      }
      return {
        read: ({ record, lease }) =>
          command('read', () => ({ nowMs: nowMs(), record: get(record), lease: get(lease) })),
        swap: (key, former, text, keepMs) =>
          command('swap', () => {
            if (get(key) !== former) return false
            if (text === '') keys.delete(key)
            else keys.set(key, { text, untilMs: nowMs() + keepMs })
            return true
          }),
        info: () => Promise.resolve('role:master'),
        close: () => undefined,
      }
    },
    /** The store is of use again: its hosts connect, one after the other. */
    async back(): Promise<void> {
      server.mode = 'well'
      for (const call of ready) await turn().then(call)
    },
    flush: () => keys.clear(),
    /** The text of the one account's record or lease. */
    text: (name: 'record' | 'lease'): string => get(server.key(name)),
    key: (name: 'record' | 'lease'): string => [...keys.keys()].find((key) => key.endsWith(name)) ?? name,
    plant: (key: string, text: string, keepMs: number): unknown =>
      keys.set(key, { text, untilMs: nowMs() + keepMs }),
    remove: (key: string): unknown => keys.delete(key),
  }
  return server
}
