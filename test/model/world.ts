// The world of the model: hosts with the program's own keeper, trials, saved state and sharing, on one clock,
// with disks, service and store in memory. An act is a word: what happens next. `broken` are the rules of the
// contract that were broken so far.
import { usableToken } from '../../src/token/state.ts'
import { createAct } from './acts.ts'
import { calm } from './calm.ts'
import { nameOf } from './config.ts'
import { createHost, start } from './host.ts'
import { kill } from './process.ts'
import { createState, type Host, type WorldOptions } from './state.ts'
import { checkSaved } from './state-rules.ts'

await import('p-retry')
await import('../../src/share/fleet.ts')

export type World = Awaited<ReturnType<typeof createWorld>>

export async function createWorld(options: WorldOptions = {}) {
  const state = createState(options)
  const { hosts, tokens, broken, store, requests, nowMs } = state
  for (let index = 0; index < state.count; index += 1) hosts.push(createHost(state, index))
  const act = createAct(state)
  for (const host of hosts) await start(state, host)
  return {
    act,
    broken,
    hosts,
    tokens,
    calm: (isKnown = () => false) => calm(state, act, isKnown),
    checkSaved: () => hosts.forEach((host) => checkSaved(state, host)),
    servers: store.servers,
    store: () => ({
      isWell: store.state === 'well' && store.cutOff.size === 0 && store.isPushing,
      facts: [store.state, store.isPushing, store.aheadMs, ...store.cutOff],
      hasRecord: [...store.copies.values()].some(({ record }) => record !== null),
      hasLease: [...store.copies.values()].some(({ lease }) => lease !== null),
    }),
    asked: () => state.asked.length,
    askers: state.asked,
    /** Another host starts. */
    join: async (): Promise<Host> => {
      const host = createHost(state, hosts.length)
      hosts.push(host)
      await start(state, host)
      return host
    },
    /** The tokens that the hosts hand out. */
    served: () =>
      hosts.map(({ life }) => usableToken(life.parts.keeper.state(), life.clock.now())?.accessToken),
    nowMs,
    isAsking: (host: Host) => requests.some((one) => one.life === host.life),
    nameOf: (host: Host) => nameOf(host.life.config),
    end: () => hosts.forEach((host) => kill(state, host)),
  }
}
