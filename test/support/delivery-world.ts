// The servers of the daemon on real sockets, with a keeper and a service that answers as the test says.
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import type { SocketConfig } from '../../src/config/config.ts'
import type { Requests } from '../../src/delivery/operations.ts'
import { createReadPeer } from '../../src/delivery/guard.ts'
import { createReplies, type StatusSources } from '../../src/delivery/replies.ts'
import type { Metrics } from '../../src/delivery/routes.ts'
import { createServers } from '../../src/delivery/servers.ts'
import { createSystemClock, monotonicMs } from '../../src/lib/clock.ts'
import { loadLibc, type Libc } from '../../src/lib/libc.ts'
import { createKeeper, type Keeper } from '../../src/token/keeper.ts'
import { STANDARD_USE, type ReloadResult, type TokenUse } from '../../src/protocol.ts'
import type { FetchOutcome } from '../../src/token/outcome.ts'
import { refusalOf } from '../../src/token/selectors.ts'
import { connectRaw, type RawClient } from './ipc-client.ts'
import { firstState, serviceFacts } from './facts.ts'
import { createRecords } from './records.ts'
import { remedyOf } from './remedies.ts'
import { tempDirectory } from './temp-directory.ts'
import { expectUntil } from './until.ts'

export type DeliveryWorld = Awaited<ReturnType<typeof startDelivery>>

const limits: SocketConfig = {
  mode: 0o600,
  group: null,
  allow: { users: [], groups: [] },
  maxConnections: 4096,
  maxConnectionsPerUser: 1024,
  maxRequestsPerSecond: null,
}
const TICK_MS = 15_000
const RELOADED = { outcome: 'ok', problems: [], needsRestart: [], pair: null } satisfies ReloadResult

/** Makes all clients those of one ordinary user. */
export const asStranger = (): Libc => ({ ...loadLibc(), peerOf: () => ({ uid: 4_001, gid: 4_001 }) })

/** An answer of the service that is given when the test says so, also before it is asked for. */
export function lateAnswer(): { answer: () => Promise<FetchOutcome>; grant: () => void } {
  const { promise, resolve } = Promise.withResolvers<FetchOutcome>()
  return { answer: () => promise, grant: () => resolve({ kind: 'ok', accessToken: 'late' }) }
}

export function statusSourcesOf(
  keeper: Pick<Keeper, 'state' | 'now'>,
  clients: StatusSources['clients'] = { ipc: { connections: 0, subscribers: 0 }, http: null },
): StatusSources {
  const reason = refusalOf(keeper.state())
  return {
    share: null,
    files: [],
    alert: reason && { reason, since: '', remedy: remedyOf(reason), contact: null },
    clients,
    daemon: {
      version: '1.0.0',
      pid: process.pid,
      startedAt: '',
      configFile: '',
      host: 'test',
      configuration: { state: 'current', problem: null },
      credentials: null,
      stateProblem: null,
      pathProblems: [],
    },
  }
}

export async function startDelivery(
  options: {
    socket?: Partial<SocketConfig>
    libc?: () => Libc
    testAlert?: Requests['testAlert']
    metrics?: Metrics
    isAlive?: () => boolean
    answer?: () => FetchOutcome | Promise<FetchOutcome>
    tokenOf?: (count: number) => string
    /** How the API wants the token; as the standard one does. */
    use?: TokenUse
    directory?: string
  } = {},
) {
  const directory = options.directory ?? (await tempDirectory())
  const { log, records } = createRecords()
  const tokenOf = options.tokenOf ?? ((count: number) => `token-${count}`)
  let asked = 0
  let issued = 0
  const grant = (): FetchOutcome => ({ kind: 'ok', accessToken: tokenOf((issued += 1)) })
  let next = options.answer ?? grant
  const clock = createSystemClock()
  const { use = STANDARD_USE } = options
  const service = { ...serviceFacts(), use }
  const keeper = createKeeper(firstState(clock.now(), { service }), {
    sourceOf: (id) => ({
      id,
      fetchToken: async (signal, { beforeRequest }) => {
        await beforeRequest()
        asked += 1
        const gaveUp = new Promise<FetchOutcome>((resolve) => {
          signal.addEventListener('abort', () =>
            resolve({ kind: 'transient', reason: 'network', detail: 'given up' }),
          )
        })
        return Promise.race([next(), gaveUp])
      },
    }),
    clock,
    random: Math.random,
    save: () => Promise.resolve(),
  })
  Object.assign(keeper, { isAlive: options.isAlive ?? keeper.isAlive })
  const replies = createReplies({
    keeper,
    refresh: keeper.refresh,
    remedyOf,
    sources: async () => statusSourcesOf(keeper, servers.clients()),
  })
  let passedMs = 0
  const paths = { ipc: join(directory, 'ipc.sock'), http: join(directory, 'http.sock') }
  const socket = { ...limits, ...options.socket }
  const servers = createServers(
    { ipc: socket, http: socket },
    {
      paths,
      inherited: { ipc: [], http: [], metrics: [] },
      replies,
      requests: {
        testAlert: options.testAlert ?? (() => ({ outcome: 'refused' })),
        reload: async () => RELOADED,
      },
      metrics: options.metrics ?? (() => 'up 1\n'),
      log,
      remedyOf,
      monotonicMs: () => monotonicMs() + passedMs,
      readPeer: createReadPeer({ libc: options.libc?.() ?? loadLibc() }),
    },
  )

  const stopping = new AbortController()
  const serving = new AbortController()
  const listening = Promise.withResolvers<void>()
  const running = servers.run(serving.signal, { onListening: listening.resolve })
  running.catch(listening.reject)
  await listening.promise
  const keeping = keeper.run(stopping.signal)
  async function stop(): Promise<void> {
    serving.abort()
    stopping.abort()
    await Promise.allSettled([running, keeping])
  }
  onTestFinished(stop)
  return {
    keeper,
    servers,
    ipc: { counts: () => servers.counts().ipc },
    http: { counts: () => servers.counts().http! },
    ipcPath: paths.ipc,
    httpPath: paths.http,
    directory,
    records,
    /** Both sockets have these settings from now on, and the others of the start. */
    reconfigure(change: Partial<SocketConfig>): void {
      const changed = { ...socket, ...change }
      servers.prepare({ ipc: changed, http: changed })()
    },
    /** Time passes for the limits, with its ticks, in steps of 15 s. */
    pass(ms: number): void {
      for (const untilMs = passedMs + ms; passedMs < untilMs; servers.maintain()) passedMs += TICK_MS
    },
    /** Sets the answers of the service from now on. */
    answer: (to: typeof next): void => {
      next = to
    },
    /** Another token, obtained at once. */
    rotate: async (): Promise<void> => {
      next = grant
      // Else it would be given the outcome of the attempt that is under way, and another would follow.
      await expectUntil('the end of the attempt', () => keeper.state().inFlight === null)
      await keeper.refresh(stopping.signal)
    },
    /** Requests to the service so far. */
    asked: () => asked,
    stop,
  }
}

/** The same, with a token. */
export async function startWithToken(options?: Parameters<typeof startDelivery>[0]): Promise<DeliveryWorld> {
  const world = await startDelivery(options)
  await world.rotate()
  return world
}

/** The same, and a connection to its `ipc.sock`. */
export async function startWithClient(): Promise<{ world: DeliveryWorld; client: RawClient }> {
  const world = await startWithToken()
  return { world, client: await connectRaw(world.ipcPath) }
}
