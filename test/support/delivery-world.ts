// Both servers of the daemon on real sockets, with a keeper and a service that answers as the test says.
import { join } from 'node:path'
import { onTestFinished, vi } from 'vitest'
import type { SocketConfig } from '../../src/config/config.ts'
import { remedyOf } from './remedies.ts'
import { createHttpServer } from '../../src/delivery/http/server.ts'
import { createIpcServer } from '../../src/delivery/ipc/server.ts'
import { createPeers } from '../../src/delivery/peers.ts'
import { createMemory } from '../../src/delivery/memory.ts'
import type { Metrics } from '../../src/delivery/http/routes.ts'
import type { ConnectionServer } from '../../src/delivery/connections.ts'
import type { TestAlert } from '../../src/delivery/operations.ts'
import { createReplies } from '../../src/delivery/replies.ts'
import type { StatusSources } from '../../src/delivery/status.ts'
import { createDeliveryContext } from '../../src/delivery/servers.ts'
import { createSystemClock } from '../../src/lib/clock.ts'
import { loadLibc, type Libc } from '../../src/lib/libc.ts'
import { createKeeper, type Keeper } from '../../src/token/keeper.ts'
import type { ReloadResult, TokenUse } from '../../src/protocol.ts'
import type { FetchOutcome } from '../../src/token/outcome.ts'
import { currentAlert } from '../../src/token/current-alert.ts'
import { initialState } from '../../src/token/state.ts'
import { connectRaw, type RawClient } from './ipc-client.ts'
import { createRecords } from './records.ts'
import { tempDirectory } from './temp-directory.ts'
import { expectUntil } from './until.ts'

export type DeliveryWorld = Awaited<ReturnType<typeof startDelivery>>

const limits = {
  mode: 0o600,
  gid: null,
  allow: { uids: [], gids: [] },
  maxConnections: 4096,
  maxConnectionsPerUser: 1024,
  maxRequestsPerSecond: null,
} as const

/** Makes all clients those of one ordinary user. */
export const asStranger = (): Libc => ({ ...loadLibc(), peerOf: () => ({ pid: 7, uid: 4_001, gid: 4_001 }) })

/** An answer of the service that is given when the test says so, also before it is asked for. */
export function lateAnswer(): { answer: () => Promise<FetchOutcome>; grant: () => void } {
  const { promise, resolve } = Promise.withResolvers<FetchOutcome>()
  return { answer: () => promise, grant: () => resolve({ kind: 'ok', accessToken: 'late' }) }
}

/** Timers of the sweeps are played; everything else is real. Returns what makes time pass for them, in ms. */
export function playSweeps(): (ms: number) => void {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
  onTestFinished(() => void vi.useRealTimers())
  return (ms) => void vi.advanceTimersByTime(ms)
}

export function statusSourcesOf(
  keeper: Pick<Keeper, 'state' | 'now'>,
  clients: StatusSources['clients'] = () => ({ ipc: { connections: 0, subscribers: 0 }, http: null }),
): StatusSources {
  return {
    examineConfiguration: async () => undefined,
    share: () => null,
    files: () => [],
    alert: () => {
      const alert = currentAlert(keeper.state(), keeper.now(), null)
      return alert && { ...alert, remedy: remedyOf(alert.reason), contact: null }
    },
    clients,
    daemon: () => ({
      version: '1.0.0',
      pid: process.pid,
      startedAt: '',
      configFile: '',
      host: 'test',
      configuration: { state: 'current', problem: null },
      stateProblem: null,
    }),
  }
}

export async function startDelivery(
  options: {
    socket?: Partial<SocketConfig>
    loadLibc?: () => Libc
    testAlert?: TestAlert
    /** Of all connections, in bytes. */
    fullBytes?: number
    metrics?: Metrics
    monotonicMs?: () => number
    answer?: () => FetchOutcome | Promise<FetchOutcome>
    tokenOf?: (count: number) => string
    /** How the API wants the token; as the standard one does. */
    use?: TokenUse
  } = {},
) {
  const directory = await tempDirectory()
  const { log, records } = createRecords()
  const tokenOf = options.tokenOf ?? ((count: number) => `token-${count}`)
  let asked = 0
  let issued = 0
  const grant = (): FetchOutcome => ({ kind: 'ok', accessToken: tokenOf((issued += 1)) })
  let next = options.answer ?? grant
  const clock = createSystemClock()
  const { use } = options
  const service = { baseUrl: 'https://service.test', credentialsId: 'first', ...(use && { use }) }
  const keeper = createKeeper(initialState(service, clock.now()), {
    settings: {
      ...service,
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
      policy: { maxAgeMs: 900_000, initialDelayMs: 1_000, maxDelayMs: 300_000 },
    },
    clock,
    random: Math.random,
    saveState: () => Promise.resolve(),
  })
  const socket = (change: Partial<SocketConfig> = {}): SocketConfig => ({
    path: join(directory, 'ipc.sock'),
    ...limits,
    ...options.socket,
    ...change,
  })
  const { monotonicMs } = options
  const replies = createReplies({
    keeper,
    ...(monotonicMs && { monotonicMs }),
    remedyOf,
    sources: statusSourcesOf(keeper, () => ({ ipc: ipc.counts(), http: http.counts() })),
  })
  const testAlert = options.testAlert ?? (() => ({ value: { outcome: 'refused' } }))
  const peers = createPeers({ loadLibc: options.loadLibc ?? loadLibc })
  const context = createDeliveryContext({
    replies,
    log,
    clock,
    peers,
    testAlert,
    reload: () => ({ value: RELOADED }),
    memory: createMemory(options),
  })
  const ipc = createIpcServer({ ...context, socket: socket(), inherited: null })
  const httpPath = join(directory, 'http.sock')
  const metrics = options.metrics ?? (() => ({ contentType: 'text/plain; version=0.0.4', body: 'up 1\n' }))
  const http = createHttpServer({
    ...context,
    metrics,
    socket: socket({ path: httpPath }),
    inherited: null,
  })

  const stopping = new AbortController()
  await Promise.all([ipc.open(), http.open()])
  const keeping = keeper.run(stopping.signal)
  async function stop(): Promise<void> {
    stopping.abort()
    await Promise.allSettled([ipc.close(), http.close(), keeping])
  }
  onTestFinished(stop)
  return {
    keeper,
    ipc,
    http,
    ipcPath: socket().path,
    httpPath,
    directory,
    records,
    audit: context.audit,
    memory: context.memory,
    limited: context.limited,
    socket,
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

const RELOADED = { outcome: 'ok', problems: [], needsRestart: [], pair: null } satisfies ReloadResult

/** The server uses these settings from now on. */
export async function reconfigure(server: ConnectionServer, socket: SocketConfig): Promise<void> {
  const use = await server.prepare(socket)
  use()
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
