// The line: everything between the configuration and the readers, built in the order in which a token travels.
import { hostname } from 'node:os'
import type { Writable } from 'node:stream'
import type { Config, SocketConfig } from './config/config.ts'
import { createFrontFile } from './delivery/front-file.ts'
import { createHoldings } from './delivery/holdings.ts'
import { createIpcServer } from './delivery/ipc-server.ts'
import type { InheritedSockets } from './delivery/listen.ts'
import { createPeers, isOpen } from './delivery/peer.ts'
import type { takePlace } from './delivery/place.ts'
import { createReplies, type Replies } from './delivery/replies.ts'
import type { DeliveryServer } from './delivery/server.ts'
import { createTokenFiles, type TokenFiles } from './delivery/token-files.ts'
import { createSystemClock } from './lib/clock.ts'
import type { Directories } from './lib/directories.ts'
import { createLatch, type Latch } from './lib/latch.ts'
import { loadLibc, type Libc } from './lib/libc.ts'
import { createReplaceable, type Replaceable } from './lib/replaceable.ts'
import { runTogether, type Part } from './lib/run-together.ts'
import { version } from './lib/version.ts'
import { createLog, type OpenLog } from './report/log.ts'
import { createMetrics, type Metrics, type MetricsSample } from './report/metrics.ts'
import { createSystemdNotifier, type SystemdNotifier } from './report/systemd.ts'
import { createFetchToken } from './source/fetch-token.ts'
import { createKeeper, type Asking, type Keeper } from './token/keeper.ts'
import { createMemory, type Memory } from './token/memory.ts'
import { heldToken } from './token/state.ts'

/** Where the daemon stands, and nobody else. */
export interface Place {
  readonly inherited: InheritedSockets
  readonly place: Awaited<ReturnType<typeof takePlace>>
  readonly directories: Directories
}
/** Everything between the configuration and the readers, in the order in which a token travels. */
export interface Line extends Place {
  config: Config
  readonly env: NodeJS.ProcessEnv
  readonly logging: OpenLog
  readonly memory: Memory
  readonly askingWith: (config: Config) => Asking
  readonly keeper: Keeper
  files: TokenFiles
  readonly filesPart: Replaceable
  readonly replies: Replies
  readonly doors: Pick<Parameters<typeof createIpcServer>[0], 'peers' | 'holdings' | 'log' | 'replies'>
  readonly ipc: DeliveryServer
  http: DeliveryServer | null
  readonly httpPart: Replaceable
  readonly metrics: Metrics
  readonly systemd: SystemdNotifier
  /** Opens when `ipc.sock` listens. */
  readonly answering: Latch
  /** Opens when every socket listens. */
  readonly listening: Latch
  /** How this host is named in alerts and in the status. */
  host: string
}

/** Throws UserError where the settings cannot work. */
export async function buildLine(
  config: Config,
  { env, stderr, inherited, place, directories }: { env: NodeJS.ProcessEnv; stderr: Writable } & Place,
): Promise<Line> {
  const clock = createSystemClock()
  const startedAt = new Date(clock.now().wallMs).toISOString()
  let built: Line | null = null
  const secrets = (): string[] => secretsOf(built ?? { config })
  const logging = createLog({ ...config.log, stream: stderr, env, clock, secrets })
  const { log } = logging

  const memory = await createMemory({ ...config, clock, log })
  const askingWith = (settings: Config): Asking => ({
    fetchToken: createFetchToken({ ...settings, env, clock, secrets }),
    policy: { ...settings.retry, ...settings.refresh },
    baseUrl: settings.baseUrl,
    subject: memory.subjectOf(settings.baseUrl, settings.credentials),
  })
  const asking = askingWith(config)
  const initial = await memory.recall(asking)
  const { remember } = memory
  const keeper = createKeeper(initial, { asking, clock, random: Math.random, remember })

  const files = createTokenFiles({ files: config.tokenFiles, keeper, log })
  const replies = createReplies({
    keeper,
    parts: {
      files: () => line.files.status(),
      clients: () => ({ ipc: clientsOf(line.ipc), http: line.http && clientsOf(line.http) }),
      daemon: () => ({ version, pid: process.pid, startedAt, configFile: line.config.file, host: line.host }),
    },
  })
  const doors = { peers: createPeers({ log }), holdings: createHoldings(), log, replies }
  const line: Line = {
    config,
    env,
    inherited,
    place,
    directories,
    logging,
    memory,
    askingWith,
    keeper,
    files,
    filesPart: createReplaceable((signal) => deliverFiles(line, signal)),
    replies,
    doors,
    ipc: createIpcServer({ ...doors, socket: config.ipc, inherited: inherited.ipc }),
    http: null,
    httpPart: createReplaceable(firstHttpPart(config, () => line)),
    metrics: createMetrics({ keeper, sample: () => sampleOf(line, startedAt) }),
    systemd: createSystemdNotifier({ env, pid: process.pid, keeper, log, sendDatagram: datagramsFor(env) }),
    answering: createLatch(1),
    listening: createLatch(config.http === null ? 1 : 2),
    host: hostname(),
  }
  // Now, while it is not too late to say so to who waits: the sockets could not be served.
  for (const socket of [config.ipc, config.http]) if (socket !== null) await doors.peers.require(socket.allow)
  built = line
  return line
}

/** Keeps the token files and the shell's until the signal is aborted. */
export async function deliverFiles(
  { files, config, keeper, logging }: Line,
  signal: AbortSignal,
): Promise<void> {
  const front = createFrontFile({
    ...config,
    files: config.tokenFiles,
    isOpen: isOpen(config.ipc.allow),
    keeper,
    log: logging.log,
  })
  await runTogether([files, front], signal)
}

function firstHttpPart({ http: socket }: Config, line: () => Line): Part | null {
  if (socket === null) return null
  return async (signal) => {
    // Setting HTTP up takes time, and most clients are on the other socket.
    await line().answering.reached(signal)
    await serveHttp(line(), { socket, signal, onListening: () => line().listening.count() })
  }
}

/** Serves HTTP until the signal is aborted. Throws UserError. */
export async function serveHttp(
  line: Line,
  options: { socket: SocketConfig; signal: AbortSignal; onListening: () => void },
): Promise<void> {
  const { createHttpServer } = await import('./delivery/http-server.ts')
  const metrics = async (): ReturnType<Metrics['render']> => line.metrics.render()
  const inherited = line.inherited.http
  line.http = createHttpServer({ ...line.doors, socket: options.socket, inherited, metrics })
  try {
    await line.http.run(options.signal, options)
  } finally {
    line.http = null
  }
}

/** What no log line and no detail may hold. */
function secretsOf({ config, keeper }: Pick<Line, 'config'> & Partial<Line>): string[] {
  const { apiKey, apiSecret } = config.credentials
  const token = keeper === undefined ? null : heldToken(keeper.state())
  return [apiKey.reveal(), apiSecret.reveal(), ...(token === null ? [] : [token.accessToken])]
}

function clientsOf(server: DeliveryServer): { connections: number; subscribers: number } {
  const { connections, subscribers } = server.counts()
  return { connections, subscribers }
}

function sampleOf(line: Line, startedAt: string): MetricsSample {
  const { ipc, http, files, logging } = line
  return {
    version,
    startedAtMs: Date.parse(startedAt),
    residentBytes: process.memoryUsage.rss(),
    servers: { ipc: ipc.counts(), http: http?.counts() ?? null },
    files: files.counts(),
    logRecordsLost: logging.lost(),
  }
}

/** How systemd is told; libc is loaded only where there is a systemd to tell. */
function datagramsFor(env: NodeJS.ProcessEnv): Libc['sendDatagram'] | null {
  if (env['NOTIFY_SOCKET'] === undefined) return null
  const libc = loadLibc()
  return 'error' in libc ? null : (path, text) => libc.sendDatagram(path, text)
}
