// A fleet for stories: hosts with the program's own keeper and room on one fake clock, a store in memory, and a
// service that answers as the test says.
import type { SharedPair } from '../../src/share/fleet.ts'
import { createShare } from '../../src/share/share.ts'
import { createKeeper } from '../../src/token/keeper.ts'
import type { FetchOutcome, FetchToken } from '../../src/token/outcome.ts'
import { phaseOf, usableToken } from '../../src/token/selectors.ts'
import { initialState, recordOf, type TokenState } from '../../src/token/state.ts'
import { afterStart } from '../../src/token/transitions.ts'
import { POLICY, serviceFacts } from '../support/facts.ts'
import { createFakeClock } from '../support/fake-clock.ts'
import { createMemoryServer } from '../support/memory-store.ts'
import { createRandom } from '../support/random.ts'
import { createRecords } from '../support/records.ts'
import { settingsOf } from '../support/redis.ts'

// The keeper imports it later, and loading takes real time.
await import('p-retry')

export type World = ReturnType<typeof createWorld>

export interface WorldOptions {
  readonly hosts?: number
  readonly lifeMs?: number
  readonly hasOwnProof?: boolean
  /** Settings of one host. */
  readonly share?: (host: number) => Partial<SharedPair['share']>
}

export function createWorld(options: WorldOptions = {}) {
  const { hosts: count = 3, lifeMs = 240_000, hasOwnProof = false, share = () => ({}) } = options
  const clock = createFakeClock({ turns: 4 })
  const random = createRandom(1)
  const records = createRecords()
  const stop = new AbortController()
  const files = { service: serviceFacts(), policy: POLICY, pair: 'pair' }
  const world = {
    /** How far the store's clock is ahead. */
    aheadMs: 0,
    /** What the service does, by host. */
    service: (_host: number): FetchOutcome | 'token' => 'token',
    requestMs: 50,
    requests: [] as { host: number; atMs: number }[],
  }
  const server = createMemoryServer(() => clock.now().wallMs + world.aheadMs)

  /** Starts a process on the host; `former`: the state that the one before it has saved. */
  function start(index: number, former: TokenState | null = null) {
    const own = new AbortController()
    const signal = AbortSignal.any([stop.signal, own.signal])
    const now = clock.now()
    const read = { ...files, isOrderly: false }
    const first = afterStart(former ?? initialState(files, now), read, { now, drawn: random() })
    const fetchToken: FetchToken = async (requestSignal, { beforeRequest, onSent }) => {
      await beforeRequest()
      const number = world.requests.push({ host: index, atMs: clock.now().bootMs })
      onSent?.()
      const answer = world.service(index)
      await clock.sleep(world.requestMs, requestSignal)
      if (requestSignal.aborted) return { kind: 'transient', reason: 'network', detail: 'given up' }
      return answer === 'token'
        ? { kind: 'ok', accessToken: `token-${number}`, answerLifeMs: lifeMs }
        : answer
    }
    const shared: SharedPair = {
      share: settingsOf({ address: { path: '/memory' } }, { timeoutMs: 1_000, ...share(index) }),
      pairId: files.pair,
      text: 'account',
      hasOwnProof,
      requestTimeoutMs: 15_000,
      maxAgeMs: POLICY.maxAgeMs,
      fetchToken,
    }
    const keeper = createKeeper(first, {
      clock,
      random,
      save: () => Promise.resolve(),
      sourceOf: () => ({ id: files.pair, fetchToken: (...attempt) => room.attempt(shared, ...attempt) }),
    })
    const held = () => usableToken(keeper.state(), clock.now())
    const room = createShare({
      clock,
      random,
      log: records.log,
      keeper: { held, offer: (outcome) => keeper.offer(outcome) },
      open: (_, { onReady }) => Promise.resolve(server.connect(index, onReady)),
    })
    room.use(shared)
    void room.run(signal)
    void keeper.run(signal)
    return {
      room,
      state: keeper.state,
      token: (): string | null => held()?.accessToken ?? null,
      phase: () => phaseOf(keeper.state(), clock.now()),
      /** What is known of the pair: its last failure, and until when it is not asked. */
      record: () => recordOf(keeper.state(), files.pair),
      /** An operator asks; the outcome of that. */
      operator: async () => (await keeper.refresh(signal))?.outcome,
      /** A client reports the token in use as refused. */
      report: () => keeper.reject(held()!.fingerprint).verdict,
      /** The first attempt with another secret. */
      candidate: () => {
        const attempt = { cause: 'reload', beforeRequest: () => Promise.resolve() } as const
        return room.attempt({ ...shared, pairId: 'candidate', text: 'another secret' }, signal, attempt)
      },
      kill: (): void => own.abort(),
    }
  }

  const hosts = Array.from({ length: count }, (_, index) => start(index))
  return Object.assign(world, {
    server,
    hosts,
    records,
    nowMs: () => clock.now().bootMs,
    /** Another host comes. */
    join: () => hosts[hosts.push(start(hosts.length)) - 1]!,
    /** The process of the host is killed, and another one begins with what it has saved, or with this. */
    restart(index: number, former: TokenState | null = hosts[index]!.state()): void {
      hosts[index]!.kill()
      hosts[index] = start(index, former)
    },
    pass: (seconds: number) => clock.advance(seconds * 1_000),
    /** An operator asks this host; 3 s pass. */
    async operator(index: number) {
      const asked = hosts[index]!.operator()
      await clock.advance(3_000)
      return asked
    },
    /** The tokens in use; null: a host has none. */
    tokens: () => [...new Set(hosts.map((host) => host.token()))],
    end: () => stop.abort(),
  })
}
