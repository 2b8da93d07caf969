// The servers of the daemon on real sockets, with a keeper on a fake clock and a service that answers as the
// test says.
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import { createFakeTokenClient } from '../../src/client/testing.ts'
import type { SocketConfig } from '../../src/config/config.ts'
import { createReadPeer } from '../../src/delivery/guard.ts'
import type { Requests } from '../../src/delivery/operations.ts'
import { createReplies } from '../../src/delivery/replies.ts'
import { createServers } from '../../src/delivery/servers.ts'
import { loadLibc, type Libc } from '../../src/lib/libc.ts'
import type { FetchOutcome } from '../../src/token/outcome.ts'
import { failures } from './failures.ts'
import { connectRaw, type RawClient } from './ipc-client.ts'
import { runningKeeper, type Answer, type KeeperOptions } from './keeper-world.ts'
import { createRecords } from './records.ts'
import { remedyOf } from './remedies.ts'
import { tempDirectory } from './temp-directory.ts'

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

/** Makes all clients those of one ordinary user. */
export const asStranger = (): Libc => ({ ...loadLibc(), peerOf: () => ({ uid: 4_001, gid: 4_001 }) })

/** An answer of the service that is given when the test says so, or the request is given up. */
export function lateAnswer(): { first: Answer; grant: () => void } {
  const { promise, resolve } = Promise.withResolvers<FetchOutcome>()
  const first: Answer = (signal) => {
    signal.addEventListener('abort', () => resolve(failures.network))
    return promise
  }
  return { first, grant: () => resolve({ kind: 'ok', accessToken: 'late' }) }
}

/** With `token-1`, unless the service answers otherwise. */
export async function startDelivery(
  options: KeeperOptions & {
    socket?: Partial<SocketConfig>
    libc?: () => Libc
    testAlert?: Requests['testAlert']
    directory?: string
  } = {},
) {
  const directory = options.directory ?? (await tempDirectory())
  const { log, records, of } = createRecords()
  const opaque = { tokenOf: (number: number) => `token-${number}` }
  const world = await runningKeeper({ ...(options.lifeSeconds === undefined && opaque), ...options })
  const { keeper } = world
  const { daemon } = await createFakeTokenClient().status()
  const replies = createReplies({
    keeper,
    refresh: keeper.refresh,
    remedyOf,
    sources: async () => {
      return { share: null, files: [], alert: null, clients: servers.clients(), daemon }
    },
  })
  let passedMs = 0
  const [ipcPath, httpPath] = [join(directory, 'ipc.sock'), join(directory, 'http.sock')]
  const socket = { ...limits, ...options.socket }
  const servers = createServers(
    { ipc: socket, http: socket },
    {
      paths: { ipc: ipcPath, http: httpPath },
      inherited: { ipc: [], http: [], metrics: [] },
      replies,
      requests: {
        testAlert: options.testAlert ?? (() => ({ outcome: 'refused' })),
        reload: async () => ({ outcome: 'ok', problems: [], needsRestart: [], pair: null }),
      },
      metrics: () => 'up 1\n',
      log,
      remedyOf,
      monotonicMs: () => passedMs,
      readPeer: createReadPeer({ libc: options.libc?.() ?? loadLibc() }),
    },
  )

  const serving = new AbortController()
  const listening = Promise.withResolvers<void>()
  const running = servers.run(serving.signal, { onListening: listening.resolve })
  async function stop(): Promise<void> {
    serving.abort()
    await Promise.allSettled([running])
  }
  onTestFinished(stop)
  running.catch(listening.reject)
  await listening.promise
  return {
    ...world,
    replies,
    servers,
    ipc: { counts: () => servers.counts().ipc },
    http: { counts: () => servers.counts().http! },
    ipcPath,
    httpPath,
    records,
    /** The records of one event. */
    of,
    /** Both sockets have these settings from now on, and the others of the start. */
    reconfigure(change: Partial<SocketConfig>, http = change): void {
      servers.prepare({ ipc: { ...socket, ...change }, http: { ...socket, ...http } })()
    },
    /** Time passes for the limits, with its ticks, in steps of 15 s; none for the token. */
    pass(ms: number): void {
      for (const untilMs = passedMs + ms; passedMs < untilMs; servers.maintain()) passedMs += TICK_MS
    },
    /** Another token, obtained at once. */
    rotate: async (): Promise<void> => {
      world.answer(world.token)
      await keeper.refresh(new AbortController().signal)
    },
    stop,
  }
}

/** The same, and a connection to its `ipc.sock`. */
export async function startWithClient(
  options?: Parameters<typeof startDelivery>[0],
): Promise<{ world: DeliveryWorld; client: RawClient }> {
  const world = await startDelivery(options)
  return { world, client: await connectRaw(world.ipcPath) }
}
