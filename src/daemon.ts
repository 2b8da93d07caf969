// The composition root: one loop asks the service, one variable holds the answer, everything else is told.
import { join } from 'node:path'
import type { Writable } from 'node:stream'
import { createJudgedFile } from './config/judged.ts'
import { loadConfig } from './config/load.ts'
import { closeUnknownSockets, takeInheritedSockets, type InheritedSockets } from './delivery/listen.ts'
import { takePlace } from './delivery/place.ts'
import { createSystemClock, sleep } from './lib/clock.ts'
import { createDirectories } from './lib/directories.ts'
import { errorMessage, UserError } from './lib/error.ts'
import { loadLibc } from './lib/libc.ts'
import type { Log } from './lib/log.ts'
import { runtimeDirectoryOf } from './lib/places.ts'
import { idle } from './lib/replaceable.ts'
import { runTogether, type Part, type Runnable } from './lib/run-together.ts'
import { createThrift } from './lib/thrift.ts'
import { buildLine, type Line } from './line.ts'
import { inTurn, reload, type Load } from './reload.ts'
import { createAlerts } from './report/alerts.ts'
import { announceStart } from './report/announce.ts'
import { follow } from './report/follow.ts'
import { createLog } from './report/log.ts'
import { createNarrator } from './report/narrator.ts'

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
    signals.onReload(inTurn(async () => reload(line, load, signals.stop)))
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
  options: DaemonOptions & { inherited: InheritedSockets; uid: number },
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
    (signal) => stayThrifty(line, signal),
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

/** What work has taken of memory is given back when it is over. */
async function stayThrifty({ keeper, listening }: Line, signal: AbortSignal): Promise<void> {
  const thrift = createThrift({ clock: { now: () => keeper.now(), sleep } })
  await listening.reached(signal)
  await follow(keeper, signal, ({ type }) => type === 'looked' && void thrift.look(signal))
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
