// The composition root: one loop asks the service, one variable holds the answer, everything else is told.
import { hostname } from 'node:os'
import { join } from 'node:path'
import type { Writable } from 'node:stream'
import type { Config, SocketConfig } from './config/config.ts'
import { createJudgedFile } from './config/judged.ts'
import { loadConfig } from './config/load.ts'
import { createFrontFile } from './delivery/front-file.ts'
import { createHoldings } from './delivery/holdings.ts'
import { createIpcServer } from './delivery/ipc-server.ts'
import { closeUnknownSockets, takeInheritedSockets, type InheritedSockets } from './delivery/listen.ts'
import { createPeers } from './delivery/peer.ts'
import { takePlace } from './delivery/place.ts'
import { createReplies, type Replies } from './delivery/replies.ts'
import type { DeliveryServer } from './delivery/server.ts'
import { createTokenFiles, removeTokenFiles, type TokenFiles } from './delivery/token-files.ts'
import { createSystemClock, sleep } from './lib/clock.ts'
import { createDirectories, type Directories } from './lib/directories.ts'
import { errorMessage, UserError } from './lib/error.ts'
import { createLatch, type Latch } from './lib/latch.ts'
import { loadLibc, type Libc } from './lib/libc.ts'
import type { Log } from './lib/log.ts'
import { runtimeDirectoryOf } from './lib/places.ts'
import { createReplaceable, idle, type Replaceable } from './lib/replaceable.ts'
import { runTogether, type Part, type Runnable } from './lib/run-together.ts'
import { version } from './lib/version.ts'
import { createAlerts } from './report/alerts.ts'
import { announceFaultyReload, announceReload, announceStart } from './report/announce.ts'
import { follow } from './report/follow.ts'
import { createLog, type OpenLog } from './report/log.ts'
import { createMetrics, type Metrics, type MetricsSample } from './report/metrics.ts'
import { createNarrator } from './report/narrator.ts'
import { createSystemdNotifier, type SystemdNotifier } from './report/systemd.ts'
import { createFetchToken } from './source/fetch-token.ts'
import { createKeeper, type Asking, type Keeper } from './token/keeper.ts'
import { createMemory, type Memory } from './token/memory.ts'
import { heldToken } from './token/state.ts'

/** What the daemon is told while it runs. */
export interface DaemonSignals {
  readonly stop: AbortSignal
  /** Calls the listener when the configuration is to be read anew; at once, if that was asked for before. */
  onReload(listener: () => void): void
  /** Calls the listener when the service is to be asked now; at once, if that was asked for before. */
  onRefresh(listener: () => void): void
}
export interface DaemonOptions {
  /** `--config`. */
  readonly configPath: string | undefined
  readonly env: NodeJS.ProcessEnv
  /** Where the log goes. */
  readonly stderr: Writable
  readonly signals: DaemonSignals
}

/**
 * Runs the daemon until `signals.stop` is aborted. Throws UserError: 78 for the configuration, 69 where another daemon
 * has its place.
 */
export async function runDaemon(options: DaemonOptions): Promise<void> {
  const { env, signals } = options
  const inherited = takeInheritedSockets(env, process.pid)
  closeUnknownSockets(inherited)
  const self = { env, uid: process.geteuid!() }
  const judged = createJudgedFile(join(runtimeDirectoryOf(self), 'judged'))
  const load: Load = async (running) =>
    loadConfig({ configPath: options.configPath, env, judged, ...running })
  const line = await begin(load, { ...options, inherited, uid: self.uid }).catch((error: unknown) =>
    endMisconfigured(error, { ...options, inherited }),
  )
  try {
    if (line.config.runtimeDirectory === runtimeDirectoryOf(self)) await judged.keep()
    signals.onReload(inTurn(async () => reload(line, load)))
    signals.onRefresh(() => void line.keeper.refresh(signals.stop))
    await runTogether(partsOf(line), signals.stop)
    // Not after a fault of ours: that is a crash, and the next start must not take it for somebody's will.
    await line.memory.end(line.keeper.state())
  } finally {
    line.place.close()
    await line.logging.close()
  }
}

/** Takes the daemon's place and builds the line. Throws UserError, and then the place is free again. */
async function begin(
  load: Load,
  options: DaemonOptions & Pick<Place, 'inherited'> & { uid: number },
): Promise<Line> {
  const config = await load()
  const directories = createDirectories({ ...config, uid: options.uid })
  directories.prepare()
  const place = await takePlace(config, options.inherited)
  try {
    return await buildLine(config, { ...options, place, directories })
  } catch (error) {
    place.close()
    throw error
  }
}

// ---- the line -----------------------------------------------------------------------------------------------------------

/** Where the daemon stands, and nobody else. */
interface Place {
  readonly inherited: InheritedSockets
  readonly place: Awaited<ReturnType<typeof takePlace>>
  readonly directories: Directories
}
/** Everything between the configuration and the readers, in the order in which a token travels. */
interface Line extends Place {
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

async function buildLine(
  config: Config,
  { env, stderr, inherited, place, directories }: DaemonOptions & Place,
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
  built = line
  return line
}

function partsOf(line: Line): (Part | Runnable)[] {
  const { keeper, config, ipc, answering, listening } = line
  const { log } = line.logging
  const alerts = createAlerts({
    keeper,
    log,
    path: join(config.runtimeDirectory, 'alert.json'),
    remindAfterMs: () => line.config.alerts.remindAfterMs,
    host: () => line.host,
  })
  return [
    (signal) =>
      ipc.run(signal, { onListening: () => [answering, listening].forEach((latch) => latch.count()) }),
    line.httpPart,
    createNarrator({ keeper, log }),
    alerts,
    line.filesPart,
    line.systemd,
    (signal) => follow(keeper, signal, ({ type }) => type === 'looked' && line.doors.peers.tellTakers()),
    (signal) => stayInPlace(line, signal),
    (signal) => ask(line, signal),
    (signal) => settleIn(line, signal),
  ]
}

/** The loop. Nobody is asked before it is certain that this daemon has its sockets. */
async function ask({ listening, systemd, keeper }: Line, signal: AbortSignal): Promise<void> {
  await listening.reached(signal)
  if (!signal.aborted) systemd.ready()
  await keeper.run(signal)
}

async function deliverFiles({ files, config, keeper, logging }: Line, signal: AbortSignal): Promise<void> {
  const { uids, gids } = config.ipc.allow
  const isOpen = uids.length === 0 && gids.length === 0
  const front = createFrontFile({ ...config, files: config.tokenFiles, isOpen, keeper, log: logging.log })
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

async function serveHttp(
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

/** What somebody removes behind our back is made anew: the directories, the sockets, and what a restart must know. */
async function stayInPlace(line: Line, signal: AbortSignal): Promise<void> {
  const { directories, place, ipc, memory } = line
  const { log } = line.logging
  await follow(line.keeper, signal, ({ type }) => {
    if (type !== 'looked') return
    directories.look(log)
    void Promise.all([place.look(log), ipc.look(), line.http?.look(), memory.look()])
  })
}

/** Readers come first: what takes time and can wait is done this long after the start. */
const SETTLE_IN_AFTER_MS = 1_000

async function settleIn(line: Line, signal: AbortSignal): Promise<void> {
  const { log } = line.logging
  await line.listening.reached(signal)
  tellStart(line)
  await sleep(SETTLE_IN_AFTER_MS, signal)
  if (!signal.aborted) {
    forbidDumps(log)
    const { hostName } = await import('./report/host.ts')
    line.host = await hostName()
  }
  await idle(signal)
}

// ---- reload -------------------------------------------------------------------------------------------------------------

/** Reads the configuration; for a daemon that runs in another directory than is configured now, as if it were that one. */
type Load = (running?: { runtimeDirectory: string }) => Promise<Config>

/** Reads the configuration anew. A faulty one is reported, and the running one stays. */
async function reload(line: Line, load: Load): Promise<void> {
  const { runtimeDirectory, stateDirectory } = line.config
  line.systemd.reloading()
  try {
    const wanted = await load()
    // The daemon stands where it stands: only a restart moves it, as a whole.
    const next = wanted.runtimeDirectory === runtimeDirectory ? wanted : await load({ runtimeDirectory })
    const { http } = line.config
    // Once closed, a socket of systemd's could not be taken up again.
    const isHttpFixed = line.inherited.http.length > 0 && (wanted.http === null) !== (http === null)
    await apply({ ...next, stateDirectory, http: isHttpFixed ? http : next.http }, line)
    const needingRestart = [
      ...(wanted.runtimeDirectory === runtimeDirectory ? [] : ['runtimeDirectory']),
      ...(wanted.stateDirectory === stateDirectory ? [] : ['stateDirectory']),
      ...(isHttpFixed ? ['http'] : []),
    ]
    announceReload(wanted, line.logging.log, needingRestart)
  } catch (error) {
    if (!(error instanceof UserError)) throw error
    announceFaultyReload(error.message, line.logging.log)
  } finally {
    line.systemd.reloaded()
  }
}

/** What can fail comes first: a configuration is taken over as a whole or not at all. */
async function apply(next: Config, line: Line): Promise<void> {
  const { config: former, keeper, memory, logging } = line
  const asking = line.askingWith(next)
  await moveSockets(line, next)
  line.config = next
  logging.reconfigure(next.log)
  memory.changeSubject(asking.subject)
  keeper.reload(asking)
  line.files = createTokenFiles({ files: next.tokenFiles, keeper, log: logging.log })
  // The former part looks at its files once more when it ends: only then can those that are dropped be removed.
  await line.filesPart.replace((signal) => deliverFiles(line, signal))
  const kept = new Set(next.tokenFiles.map(({ path }) => path))
  const dropped = former.tokenFiles.filter(({ path }) => !kept.has(path))
  await removeTokenFiles(dropped, { now: () => keeper.now(), log: logging.log })
}

/** The sockets as the next configuration wants them, all of them or none. Throws UserError. */
async function moveSockets(line: Line, next: Pick<Config, 'ipc' | 'http'>): Promise<void> {
  const former = line.config.http
  await moveHttp(line, { from: former, to: next.http })
  try {
    await line.ipc.reconfigure(next.ipc)
  } catch (error) {
    await moveHttp(line, { from: next.http, to: former })
    throw error
  }
}

async function moveHttp(
  line: Line,
  { from, to }: { from: SocketConfig | null; to: SocketConfig | null },
): Promise<void> {
  if (to !== null && from !== null) await line.http?.reconfigure(to)
  else if (to !== null) await switchHttpOn(line, to)
  else if (from !== null) void line.httpPart.replace(null)
}

/** Resolves when it listens. Throws UserError; there is no HTTP then. */
function switchHttpOn(line: Line, socket: SocketConfig): Promise<void> {
  return new Promise((resolve, reject) => {
    void line.httpPart.replace(async (signal) => {
      try {
        await serveHttp(line, { socket, signal, onListening: resolve })
        resolve()
      } catch (error) {
        if (!(error instanceof UserError)) throw error
        reject(error)
        await idle(signal)
      }
    })
  })
}

/** Runs the work each time it is asked for, never twice at once; what is asked for meanwhile is done once more. */
function inTurn(work: () => Promise<void>): () => void {
  let last = Promise.resolve()
  let waiting = false
  return () => {
    if (waiting) return
    waiting = true
    last = last.then(() => {
      waiting = false
      return work()
    })
  }
}

// ---- small parts --------------------------------------------------------------------------------------------------------

/** Clients that wait at sockets of systemd's are told why there is no daemon, before it ends. */
async function endMisconfigured(
  error: unknown,
  { env, stderr, inherited, signals }: DaemonOptions & { inherited: InheritedSockets },
): Promise<never> {
  const isAwaited = inherited.ipc.length > 0 || inherited.http.length > 0
  if (!isAwaited || !(error instanceof UserError)) throw error
  const { tellMisconfigured } = await import('./delivery/misconfigured.ts')
  const logging = createLog({
    level: 'warning',
    format: 'auto',
    stream: stderr,
    env,
    clock: createSystemClock(),
    secrets: () => [],
  })
  const message =
    'kyc-tokend is misconfigured and not running: see `journalctl -u kyc-tokend` and `kyc-tokend check`'
  await tellMisconfigured(inherited, { message, log: logging.log, signal: signals.stop })
  await logging.close()
  throw error
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

function tellStart({ config, logging: { log }, inherited }: Line): void {
  const where = (fds: readonly number[], path: string): string =>
    fds.length === 0 ? path : "systemd's socket"
  announceStart(config, log, {
    ipc: where(inherited.ipc, config.ipc.path),
    http: config.http === null ? 'off' : where(inherited.http, config.http.path),
  })
  for (const { name } of inherited.unknown) {
    log('warning', 'A socket that was handed over has a name that is not ours', {
      event: 'socket-unknown',
      name,
      remedy: 'Give it FileDescriptorName=ipc or FileDescriptorName=http in its unit, or disable that',
    })
  }
  if (config.http === null && inherited.http.length > 0) {
    log('warning', 'A socket that was handed over is not used', {
      event: 'socket-unused',
      name: 'http',
      remedy: 'Disable kyc-tokend-http.socket, or take `"http": false` out of the configuration',
    })
  }
}

/** No core dump holds a secret, and no other process of our user reads our memory. */
function forbidDumps(log: Log): void {
  const libc = loadLibc()
  if ('error' in libc) return
  try {
    libc.forbidDumps()
  } catch (error) {
    log('warning', 'Core dumps cannot be forbidden', { event: 'dumps-allowed', error: errorMessage(error) })
  }
}
