// A fleet on one fake clock: real keepers, a store in memory, and a service that answers as the test says.
import { Secret } from '../../src/lib/secret.ts'
import { createSeal } from '../../src/share/seal.ts'
import { createSession, type SessionOptions } from '../../src/share/session.ts'
import { createKeeper, type Keeper } from '../../src/token/keeper.ts'
import type { Cause, FetchOutcome, FetchToken, ServiceOutcome } from '../../src/token/outcome.ts'
import { initialState, usableToken, type TokenState } from '../../src/token/state.ts'
import type { Clock } from '../../src/lib/clock.ts'
import { createFakeClock } from './fake-clock.ts'
import { jwtOf } from './jwt.ts'
import { createMemoryServer, delayed } from './memory-store.ts'
import { createRandom } from './random.ts'

await import('p-retry')

export type Host = ReturnType<ShareWorld['host']>
interface HostOptions extends Partial<
  Pick<SessionOptions, 'host'> & Pick<SessionOptions['share'], 'asks' | 'whenAlone' | 'cluster'>
> {
  /** The lead of its own clocks over those of the others. */
  readonly clockAheadMs?: number
  readonly state?: TokenState
  /** The way to the store and the way back take so long, each. */
  readonly latencyMs?: number
  /** It proves itself with something of its own, such as a client certificate. */
  readonly hasOwnProof?: boolean
  /** Its account is the one in use, with another certificate, and is only tried. */
  readonly isCertificateTrial?: boolean
  readonly notReady?: NonNullable<FetchToken['notReady']>
}
/** A request as the service sees it. */
export interface Asked {
  readonly host: string
  readonly cause: Cause
  readonly atMs: number
}
export type ShareWorld = ReturnType<typeof createShareWorld>

const BASE_URL = 'https://service.test'
const SHARE = {
  timeoutMs: 1_000,
  user: null,
  prefix: 'kyc-tokend',
  database: 0,
  cluster: false,
} as const
const POLICY = { maxAgeMs: 900_000, initialDelayMs: 1_000, maxDelayMs: 300_000 }

export function createShareWorld({ lifeSeconds = 3_600, seed = 1 } = {}) {
  const clock = createFakeClock()
  let storeAheadMs = 0
  const server = createMemoryServer(() => clock.now().wallMs + storeAheadMs)
  const random = createRandom(seed)
  const asked: Asked[] = []
  const stops: (() => Promise<void>)[] = []
  const seal = createSeal({
    baseUrl: BASE_URL,
    description: null,
    credentials: { apiKey: new Secret('key'), apiSecret: new Secret('the secret of the account') },
    key: null,
  })
  let issued = 0
  const token = (): ServiceOutcome => {
    const iat = Math.floor(clock.now().wallMs / 1000)
    issued += 1
    return {
      kind: 'ok',
      accessToken: jwtOf({ iat, exp: iat + lifeSeconds }, issued),
      serverDateMs: iat * 1000,
    }
  }
  let respond: (host: string) => ServiceOutcome | Promise<ServiceOutcome> = token

  /** Starts a host. */
  function host(options: HostOptions = {}) {
    const { host: name = `host-${stops.length + 1}`, clockAheadMs = 0 } = options
    const own: Clock = {
      now() {
        const { bootMs, wallMs } = clock.now()
        return { bootMs: bootMs + 7 * clockAheadMs, wallMs: wallMs + clockAheadMs }
      },
      awakeMs: () => clock.awakeMs(),
      schedule: (ms, call) => clock.schedule(ms, call),
      sleep: (ms, signal) => clock.sleep(ms, signal),
    }
    const events: { level: string; event: string; [field: string]: unknown }[] = []
    const life = new AbortController()
    const credentialsId = 'first'
    const state = options.state ?? initialState({ baseUrl: BASE_URL, credentialsId }, own.now())
    let isDead = false
    let isBorn = false
    const ask = async (
      ...[signal, { cause, beforeRequest }]: Parameters<FetchToken>
    ): Promise<FetchOutcome> => {
      await beforeRequest()
      const cancelled: FetchOutcome = { kind: 'transient', reason: 'network', detail: 'Cancelled' }
      if (signal.aborted) return cancelled
      asked.push({ host: name, cause, atMs: clock.now().bootMs })
      const answer = await respond(name)
      return isDead ? new Promise(() => undefined) : answer
    }
    const fetchToken: FetchToken = Object.assign(ask, options.notReady && { notReady: options.notReady })
    const share = createSession({
      store: delayed(server.connect(name), { clock, latencyMs: options.latencyMs ?? 0, signal: life.signal }),
      seal,
      clock: own,
      random,
      log: (level, _sentence, fields) => void events.push({ level, ...fields }),
      host: name,
      hostId: `${stops.length}`.padStart(16, '0'),
      hasOwnProof: () => options.hasOwnProof ?? false,
      isCertificateTrial: () => options.isCertificateTrial ?? false,
      credentialsId: 'first',
      share: {
        ...SHARE,
        cluster: options.cluster ?? false,
        asks: options.asks ?? true,
        whenAlone: options.whenAlone ?? 'fetch',
      },
      service: () => ({ fetchToken, requestTimeoutMs: 15_000 }),
      keeper: {
        offer: (outcome) => keeper.offer(outcome),
        // A session reads it when it is made, before there is a keeper.
        state: () => (isBorn ? keeper.state() : state),
        policy: () => POLICY,
        isUsing: () => options.isCertificateTrial !== true,
      },
    })
    const keeper: Keeper = createKeeper(state, {
      settings: { fetchToken: share.fetchToken, policy: POLICY, baseUrl: BASE_URL, credentialsId },
      clock: own,
      random,
      saveState: () => Promise.resolve(),
    })
    isBorn = true
    const running = Promise.all([share.run(life.signal), keeper.run(life.signal)])
    const result = {
      name,
      keeper,
      share,
      /** The events that it logged. */
      events,
      /** The token that it hands out; null: none. */
      token: () => usableToken(keeper.state(), own.now())?.accessToken ?? null,
      /** Ends it, as if killed: what it does from now on has no effect. */
      kill() {
        isDead = true
        life.abort()
      },
      stop: async () => {
        life.abort()
        if (!isDead) await running
      },
    }
    stops.push(result.stop)
    return result
  }

  return {
    clock,
    server,
    asked,
    host,
    hosts: (count: number, options?: HostOptions) => Array.from({ length: count }, () => host(options)),
    /** The store's clock is set. */
    jumpStore(ms: number) {
      storeAheadMs += ms
    },
    /** Sets the answers of the service from now on. */
    answer(next: (host: string) => ServiceOutcome | Promise<ServiceOutcome>) {
      respond = next
    },
    token,
    /** A promise to be settled by the test: how an answer is held back. */
    gate() {
      const { promise: passed, resolve: open } = Promise.withResolvers<void>()
      return { passed, open }
    },
    async stop() {
      await Promise.all(stops.map((stop) => stop()))
    },
  }
}

/** The tokens that are in use in a fleet. */
export function tokensOf(hosts: readonly Host[]): (string | null)[] {
  return [...new Set(hosts.map((host) => host.token()))]
}

/** The records of this event that a host logged. */
export function eventsOf({ events }: Host, event: string): Host['events'] {
  return events.filter((one) => one.event === event)
}

/** An operator's act on this host. */
export async function refresh({ keeper }: Host): Promise<FetchOutcome | undefined> {
  return (await keeper.refresh(new AbortController().signal))?.outcome
}

/** A client of this host reports its token as refused. */
export function reject({ keeper }: Host): void {
  keeper.reject(keeper.state().token?.fingerprint ?? '')
}
