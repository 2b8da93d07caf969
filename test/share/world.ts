// A fleet for stories: hosts with the room's own code on one fake clock, a store in memory, and a stand-in of the
// keeper that has attempts made when they are due.
import type { LogFields } from '../../src/lib/log.ts'
import type { SharedPair } from '../../src/share/fleet.ts'
import { createShare, type ShareOptions } from '../../src/share/share.ts'
import type { Cause, FetchOutcome } from '../../src/token/outcome.ts'
import { createFakeClock } from '../support/fake-clock.ts'
import { createMemoryServer } from '../support/memory-store.ts'
import { createRandom } from '../support/random.ts'

export type World = ReturnType<typeof createWorld>
export type Member = World['hosts'][number]

const FIRST_DELAY_MS = 1_000
const LAST_DELAY_MS = 60_000
const REJECTED_MS = 300_000

const settings = {
  servers: [{ path: '/memory' }],
  sentinel: null,
  cluster: false,
  tls: null,
  user: null,
  password: null,
  database: 0,
  prefix: 'kyc-tokend',
  key: null,
  timeoutMs: 1_000,
  asks: true,
  whenAlone: 'fetch',
} as const satisfies SharedPair['share']

export interface WorldOptions {
  readonly hosts?: number
  readonly lifeMs?: number
  readonly hasOwnProof?: boolean
  /** Of one host. */
  readonly share?: (host: number) => Partial<SharedPair['share']>
}

export function createWorld(options: WorldOptions = {}) {
  const { hosts: count = 3, lifeMs = 240_000, hasOwnProof = false, share = () => ({}) } = options
  const clock = createFakeClock({ turns: 4 })
  const random = createRandom(1)
  const stop = new AbortController()
  const nowMs = (): number => clock.now().bootMs
  const world = {
    /** How far the store's clock is ahead. */
    aheadMs: 0,
    /** What the service does, by host. */
    service: (_host: number): FetchOutcome | 'token' => 'token',
    requestMs: 50,
    requests: [] as { host: number; cause: Cause; atMs: number }[],
  }
  const { requests } = world
  const server = createMemoryServer(() => clock.now().wallMs + world.aheadMs)

  /** A process of the host; `former`: what the one before it has saved. */
  function createLife(index: number, events: LogFields[], former: Pick<Facts, 'held' | 'isRefused'> | null) {
    const own = new AbortController()
    const signal = AbortSignal.any([stop.signal, own.signal])
    let waking = new AbortController()
    let wish = Promise.withResolvers<FetchOutcome>()
    const facts: Facts = {
      held: former?.held ?? null,
      isRefused: former?.isRefused ?? false,
      last: null,
      failures: 0,
      isAsking: false,
      due: { cause: 'start', atMs: former?.held?.refreshMs ?? nowMs() },
    }
    if (facts.isRefused) facts.due = { cause: 'retry', atMs: Infinity }
    const usable = (): Held | null => (facts.held && facts.held.expiresAtMs > nowMs() ? facts.held : null)
    const keeper: ShareOptions['keeper'] = {
      held() {
        return usable()
      },
      offer(outcome: FetchOutcome) {
        if (facts.isAsking) return false
        take(facts, outcome, 'fleet')
        return true
      },
    }
    const room = createShare({
      clock,
      random,
      log: (_level, _sentence, fields) => void events.push(fields),
      keeper,
      open: (_, { onReady }) => Promise.resolve(server.connect(index, onReady)),
    })
    const shared = (): SharedPair => ({
      share: { ...settings, ...share(index) },
      pairId: 'pair',
      text: 'account',
      hasOwnProof,
      requestTimeoutMs: 15_000,
      maxAgeMs: 900_000,
      async fetchToken(requestSignal, { cause, beforeRequest, onSent }) {
        await beforeRequest()
        requests.push({ host: index, cause, atMs: nowMs() })
        const accessToken = `token-${requests.length}`
        onSent?.()
        const said = world.service(index)
        await clock.sleep(world.requestMs, requestSignal)
        if (requestSignal.aborted) return { kind: 'transient', reason: 'network', detail: 'given up' }
        return said === 'token' ? { kind: 'ok', accessToken, answerLifeMs: lifeMs } : said
      },
    })

    async function run(): Promise<void> {
      room.use(shared())
      void room.run(signal)
      while (!signal.aborted) {
        waking = new AbortController()
        await clock.sleep(Math.ceil(facts.due.atMs - nowMs()), AbortSignal.any([signal, waking.signal]))
        if (signal.aborted || facts.due.atMs > nowMs()) continue
        const { due } = facts
        const { promise: _, resolve } = wish
        facts.isAsking = true
        const beforeRequest = (): Promise<void> => Promise.resolve()
        const outcome = await room.attempt(shared(), signal, { cause: due.cause, beforeRequest })
        facts.isAsking = false
        if (!signal.aborted) take(facts, outcome, due.cause)
        resolve(outcome)
      }
    }
    void run()
    return {
      facts,
      room,
      end: (): void => own.abort(),
      token: (): string | null => usable()?.accessToken ?? null,
      attempt(cause: Cause): Promise<FetchOutcome> {
        facts.due = { cause, atMs: nowMs() }
        wish = Promise.withResolvers()
        waking.abort()
        return wish.promise
      },
    }
  }

  /** The keeper's plan after an outcome. */
  function take(facts: Facts, outcome: FetchOutcome, cause: Cause): void {
    facts.last = outcome
    if (outcome.kind === 'postponed') {
      facts.due = { cause: cause === 'operator' ? 'retry' : cause, atMs: nowMs() + outcome.retryAfterMs }
    } else if (outcome.kind === 'permanent') {
      Object.assign(facts, { isRefused: true, due: { cause: 'retry', atMs: Infinity } })
    } else if (outcome.kind === 'transient') {
      const delayMs = Math.min(LAST_DELAY_MS, FIRST_DELAY_MS * 2 ** facts.failures++) * (0.5 + random() / 2)
      const waitMs = Math.max(outcome.retryAfterMs ?? 0, outcome.reason === 'rejected' ? REJECTED_MS : 0)
      facts.due = { cause: 'retry', atMs: nowMs() + Math.max(delayMs, waitMs) }
    } else {
      const { accessToken, ageMs = 0, answerLifeMs = 0, lifeMs: givenMs = answerLifeMs } = outcome
      const receivedAtMs = nowMs() - ageMs
      const refreshMs = receivedAtMs + givenMs * (0.6 + 0.066 * random())
      const life = { expirySource: 'response', expiresAtMs: receivedAtMs + givenMs, refreshMs } as const
      facts.held = { accessToken, pair: 'pair', receivedAtMs, ...life }
      Object.assign(facts, { isRefused: false, failures: 0, due: { cause: 'refresh', atMs: refreshMs } })
    }
  }

  function createMember(index: number) {
    const events: LogFields[] = []
    let life = createLife(index, events, null)
    return {
      events,
      token: () => life.token(),
      facts: () => life.facts,
      room: () => life.room,
      kill: () => life.end(),
      /** The process ends, and another one begins with what it has saved; `isNew`: with nothing. */
      restart({ isNew = false } = {}): void {
        life.end()
        life = createLife(index, events, isNew ? null : life.facts)
      },
      /** An attempt for this cause is due now. */
      attempt: (cause: Cause) => life.attempt(cause),
    }
  }

  const hosts = Array.from({ length: count }, (_, index) => createMember(index))
  return Object.assign(world, {
    server,
    hosts,
    join() {
      hosts.push(createMember(hosts.length))
      return hosts.at(-1)!
    },
    pass: (seconds: number) => clock.advance(seconds * 1_000),
    /** This host has an attempt for this cause; 3 s pass. */
    async act(index: number, cause: Cause): Promise<FetchOutcome> {
      const made = hosts[index]!.attempt(cause)
      await clock.advance(3_000)
      return made
    },
    /** The tokens in use; null: a host has none. */
    tokens: () => [...new Set(hosts.map((host) => host.token()))],
    eventsOf: (event: string) => hosts.flatMap(({ events }) => events.filter((one) => one.event === event)),
    end: () => stop.abort(),
  })
}

/** The token of the keeper. */
type Held = NonNullable<ReturnType<ShareOptions['keeper']['held']>> & { readonly refreshMs: number }
interface Facts {
  held: Held | null
  isRefused: boolean
  last: FetchOutcome | null
  failures: number
  isAsking: boolean
  due: { readonly cause: Cause; readonly atMs: number }
}
