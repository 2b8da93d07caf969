// The shared store of the model: one in memory, which can be lost, can hang, and which others may write to.
import { StoreError, type Store } from '../../src/share/store.ts'
import { createMemoryServer, type MemoryServer } from '../support/memory-store.ts'
import { deliver } from './clock.ts'
import { effect } from './process.ts'
import { disturb, PREFIX, type Life, type State } from './state.ts'

/** The store of this name as this process has it. */
export function openStore(state: State, life: () => Life, name: string): Store {
  const { clock, store } = state
  const { servers, copies, cutOff } = store
  const server = servers.get(name) ?? createMemoryServer(() => clock.now().wallMs + store.aheadMs)
  servers.set(name, server)
  const inner = server.connect(`host-${life().host.index}`, life().stop.signal)
  const through =
    <A, R>(command: (request: A) => Promise<R>) =>
    async (request: A): Promise<R> => {
      const process = life()
      const sleep = (ms: number): Promise<void> => process.clock.sleep(ms, new AbortController().signal)
      await effect(state, process)
      const isLost = store.state !== 'well' || cutOff.has(process.host.index)
      if (isLost) process.host.mayAskAlone = true
      if (store.state === 'lost' || cutOff.has(process.host.index)) throw new StoreError('lost', 'Lost')
      if (store.state === 'hung') {
        await sleep(1_000)
        throw new StoreError('lost', 'Too slow')
      }
      const takesMs = store.takesMs[process.host.index] ?? 0
      if (takesMs > 0) await sleep(takesMs)
      const result = await command(request)
      if (takesMs > 0) await sleep(takesMs)
      const { record, lease } = copies.get(server) ?? { record: null, lease: null }
      copies.set(server, { record: record ?? server.text('record'), lease: lease ?? keptLease(server) })
      await effect(state, process)
      return result
    }
  return {
    ...inner,
    poll: through(inner.poll.bind(inner)),
    acquire: through(inner.acquire.bind(inner)),
    write: through(inner.write.bind(inner)),
    listen: (call) =>
      inner.listen((what) => {
        const isPushed = store.isPushing && store.state === 'well' && !cutOff.has(life().host.index)
        if (what === 'connection' || isPushed) deliver(life(), () => call(what))
      }),
  }
}

/** The text that says why no host is to ask; null: there is none. */
export function keptLease(server: MemoryServer): string | null {
  const text = server.text('lease')
  return text !== null && text.includes(' ') ? text : null
}

export function isReachedByAll({ store, hosts }: State): boolean {
  return store.state === 'well' && store.cutOff.size === 0 && hosts.every(({ prefix }) => prefix === PREFIX)
}

/** A process that can write to the store and knows no secret. */
export function evil(state: State, what: string): void {
  disturb(state)
  for (const host of state.hosts) host.mayAskAlone = true
  const { servers, copies } = state.store
  for (const server of servers.values()) {
    const copy = copies.get(server)
    const hour = { keepMs: 3_600_000 }
    if (what === 'replay' && copy?.record) server.plant('record', { text: copy.record, ...hour })
    if (what === 'kept' && copy?.lease) server.plant('lease', { text: copy.lease, ...hour })
    if (what === 'lease') server.plant('lease', { text: 'e'.repeat(16), ...hour })
    if (what === 'garbage')
      server.plant('record', { text: `9007199254740000 ${'f'.repeat(16)} AAAA`, ...hour })
    server.message()
  }
}
