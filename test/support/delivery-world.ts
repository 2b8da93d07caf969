// Both servers of the daemon on real sockets in a directory of their own, with a real keeper and a service that answers as the test says.
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import type { SocketConfig } from '../../src/config/config.ts'
import type { Patience } from '../../src/delivery/guest.ts'
import { createHoldings } from '../../src/delivery/holdings.ts'
import { createHttpServer } from '../../src/delivery/http-server.ts'
import { createIpcServer } from '../../src/delivery/ipc-server.ts'
import { createPeers } from '../../src/delivery/peer.ts'
import { createReplies } from '../../src/delivery/replies.ts'
import type { DeliveryServer } from '../../src/delivery/server.ts'
import { createSystemClock } from '../../src/lib/clock.ts'
import type { Libc, LibcMissing } from '../../src/lib/libc.ts'
import { createKeeper, type Keeper } from '../../src/token/keeper.ts'
import type { FetchOutcome } from '../../src/token/outcome.ts'
import { initialState } from '../../src/token/state.ts'
import { createRecords, type LogRecord } from './records.ts'
import { tempDirectory } from './temp-directory.ts'

export interface DeliveryWorld {
  readonly keeper: Keeper
  readonly ipc: DeliveryServer
  readonly http: DeliveryServer
  readonly ipcPath: string
  readonly httpPath: string
  readonly directory: string
  readonly records: LogRecord[]
  socket(change?: Partial<SocketConfig>): SocketConfig
  /** What the service answers from now on. */
  answer(next: () => FetchOutcome | Promise<FetchOutcome>): void
  /** Another token, obtained at once. */
  rotate(): Promise<void>
  /** How often the service was asked. */
  asked(): number
  stop(): Promise<void>
}

export const limits = {
  mode: 0o600,
  gid: null,
  allow: { uids: [], gids: [] },
  maxConnections: 4096,
  maxConnectionsPerUser: 1024,
  maxRequestsPerSecond: null,
} as const

export async function startDelivery(
  options: {
    socket?: Partial<SocketConfig>
    patience?: Partial<Patience>
    loadLibc?: () => Promise<Libc | LibcMissing>
    holdBytes?: number
    answer?: () => FetchOutcome | Promise<FetchOutcome>
    tokenOf?: (count: number) => string
    directory?: string
  } = {},
): Promise<DeliveryWorld> {
  const directory = options.directory ?? (await tempDirectory())
  const { log, records } = createRecords()
  const tokenOf = options.tokenOf ?? ((count: number) => `token-${count}`)
  let asked = 0
  let issued = 0
  const grant = (): FetchOutcome => ({ kind: 'ok', accessToken: tokenOf((issued += 1)) })
  let next = options.answer ?? grant
  const keeper = createKeeper(initialState('https://service.test'), {
    asking: {
      fetchToken: async (signal) => {
        asked += 1
        const gaveUp = new Promise<FetchOutcome>((resolve) => {
          signal.addEventListener('abort', () =>
            resolve({ kind: 'transient', reason: 'network', detail: 'given up' }),
          )
        })
        return Promise.race([next(), gaveUp])
      },
      policy: { maxAgeMs: 900_000, initialDelayMs: 1_000, maxDelayMs: 300_000 },
      baseUrl: 'https://service.test',
      subject: 'first',
    },
    clock: createSystemClock(),
    random: Math.random,
    remember: () => Promise.resolve(),
  })
  const socket = (change: Partial<SocketConfig> = {}): SocketConfig => ({
    path: join(directory, 'ipc.sock'),
    ...limits,
    ...options.socket,
    ...change,
  })
  const replies = createReplies({
    keeper,
    parts: {
      files: () => [],
      clients: () => ({ ipc: ipc.counts(), http: http.counts() }),
      daemon: () => ({ version: '1.0.0', pid: process.pid, startedAt: '', configFile: '', host: 'test' }),
    },
  })
  const peers = createPeers({ log, ...(options.loadLibc && { loadLibc: options.loadLibc }) })
  const holdings = createHoldings(options.holdBytes)
  const common = { replies, peers, holdings, log, patience: options.patience }
  const ipc = createIpcServer({ ...common, socket: socket() })
  const httpPath = join(directory, 'http.sock')
  const metrics = () => Promise.resolve({ contentType: 'text/plain; version=0.0.4', body: 'up 1\n' })
  const http = createHttpServer({ ...common, metrics, socket: socket({ path: httpPath }) })

  const stopping = new AbortController()
  const running: Promise<void>[] = []
  const listening = [ipc, http].map(
    (server) =>
      new Promise<void>((resolve, reject) => {
        running.push(server.run(stopping.signal, { onListening: resolve }))
        running.at(-1)?.catch(reject)
      }),
  )
  async function stop(): Promise<void> {
    stopping.abort()
    await Promise.allSettled(running)
  }
  onTestFinished(stop)
  await Promise.all(listening)
  running.push(keeper.run(stopping.signal))
  return {
    keeper,
    ipc,
    http,
    ipcPath: socket().path,
    httpPath,
    directory,
    records,
    socket,
    answer(to) {
      next = to
    },
    async rotate() {
      next = grant
      await keeper.refresh(stopping.signal)
    },
    asked: () => asked,
    stop,
  }
}
