// The daemon's life: loads the configuration, takes its directories, so that no other daemon runs there, builds this
// one, runs it and closes it.
import type { Stats } from 'node:fs'
import { mkdir, open, type FileHandle } from 'node:fs/promises'
import type { Writable } from 'node:stream'
import type { Config } from '../config/config.ts'
import { loadConfig, type LoadOptions } from '../config/load.ts'
import { assertUnixSockets, refuse } from '../delivery/listen.ts'
import { FileError } from '../files/file-error.ts'
import { DIRECTORY_FLAGS } from '../files/replace-file.ts'
import { takeInheritedSockets, type InheritedSockets } from '../host/system.ts'
import { programName } from '../host/paths.ts'
import { asUserError } from '../host/remedy.ts'
import { createSystemClock } from '../lib/clock.ts'
import { errorCode, exitStatus, UserError, withSystemFallback } from '../lib/error.ts'
import { logFault } from '../lib/log.ts'
import { loadLibc } from '../lib/libc.ts'
import { raceAbort } from '../lib/tasks.ts'
import { createFetchToken } from '../source/fetch-token.ts'
import { createDaemon, type Daemon, type Load } from './daemon.ts'
import type { DaemonSignals } from './daemon-signals.ts'

/** Long enough for clients that wait; short, because an operator who started the daemon waits for the error. */
const REFUSING_MS = 2_000

interface DaemonOptions {
  /** `--config`. */
  readonly configPath: string | undefined
  readonly env: NodeJS.ProcessEnv
  /** Receives the log. */
  readonly stderr: Writable
  readonly signals: DaemonSignals
}

/**
 * Runs the daemon until `signals.stop` is aborted. Throws UserError: 78 for the configuration and the directories, 69
 * if another daemon runs with the same ones.
 */
export async function runDaemon(options: DaemonOptions): Promise<void> {
  const { env, signals } = options
  // No core dump holds a secret, and no other process of our user reads our memory.
  loadLibc().forbidDumps()
  const inherited = takeInheritedSockets(env, process.pid)
  const building = build(options, inherited)
  // A disk that does not answer must not keep the process from its end.
  await raceAbort(building, signals.stop).catch(async (error: unknown) => {
    // A connection that waits at a socket of systemd would have this daemon started again and again.
    const isFaulty = error instanceof UserError && error.status === exitStatus.configuration
    const fds = Object.values(inherited).flat()
    const refusing = AbortSignal.any([signals.stop, AbortSignal.timeout(REFUSING_MS)])
    if (isFaulty && fds.length > 0) await refuse(fds, refusing)
    throw error
  })
  if (signals.stop.aborted) return
  const daemon = await building
  const onFault = (error: unknown): void => {
    if (!(error instanceof UserError)) logFault(daemon.log, error)
  }
  // `main` ends the process for it, once the log has it.
  process.on('uncaughtExceptionMonitor', onFault)
  try {
    await daemon.run(signals)
  } catch (error) {
    onFault(error)
    throw error
  } finally {
    process.off('uncaughtExceptionMonitor', onFault)
    await daemon.close()
  }
}

/** Throws UserError. */
async function build(
  { configPath, env, stderr, signals }: DaemonOptions,
  inherited: InheritedSockets,
): Promise<Daemon> {
  assertUnixSockets(inherited)
  const config = await loadConfig({ configPath, env })
  await takeDirectories(config)
  return createDaemon(config, {
    env,
    stderr,
    inherited,
    load: createLoad({ configPath, env }),
    clock: createSystemClock(),
    random: Math.random,
    stop: signals.stop,
    createFetchToken,
    sendDatagram: (path, text) => loadLibc().sendDatagram(path, text),
  })
}

type Directories = Pick<Config, 'runtimeDirectory' | 'stateDirectory'>

/** They are kept until the process ends: a handle that is collected is closed. */
const locked: FileHandle[] = []

/**
 * Makes the directories that do not exist, and locks both until the process ends: the kernel releases a lock with
 * it, so that a crash leaves nothing that blocks a start. Call it before anything is requested, bound or written.
 * Throws UserError: 69 if another daemon has one of them; 78 also for a runtime directory of another user than root
 * and the daemon's, and for one in which others can write: they could put a socket of theirs there.
 */
export async function takeDirectories({ runtimeDirectory, stateDirectory }: Directories): Promise<void> {
  // In root's runtime directory the modes of the files in it decide who has access.
  const mode = process.geteuid!() === 0 ? 0o755 : 0o700
  await take('runtimeDirectory', runtimeDirectory, mode)
  if (stateDirectory !== runtimeDirectory) await take('stateDirectory', stateDirectory, 0o700)
}

async function take(setting: keyof Directories, path: string, mode: number): Promise<void> {
  try {
    const made = await mkdir(path, { recursive: true, mode })
    const directory = await open(path, DIRECTORY_FLAGS)
    locked.push(directory)
    // The umask has taken bits from the mode.
    if (made !== undefined) await directory.chmod(mode)
    if (setting === 'runtimeDirectory') refuseForeign(path, await directory.stat())
    // A file system without such locks, as some of networks are, keeps no other daemon out.
    if (withSystemFallback(true, () => loadLibc().lock(directory.fd))) return
    const message = `Another kyc-tokend runs with ${path}: stop it, or set another \`${setting}\``
    throw new UserError(message, exitStatus.unavailable)
  } catch (error) {
    throw asUserError(path, error, path)
  }
}

function refuseForeign(path: string, { uid, mode }: Stats): void {
  const isOfOther = uid !== 0 && uid !== process.geteuid!()
  if (isOfOther || (mode & 0o022) !== 0)
    throw new FileError({ path, directory: path, kind: 'unsafe-directory' })
}

/** Returns the function that reads the configuration again. It throws only UserError: no file ends us. */
export function createLoad(options: LoadOptions): Load {
  return async (inForce) => {
    try {
      return await loadConfig({ ...options, inForce })
    } catch (error) {
      if (error instanceof UserError) throw error
      // Its message is left out, because it could quote the file.
      const why = errorCode(error) ?? 'an internal fault'
      const message = `The configuration cannot be read (${why}): try \`${programName()} check\`, or restart`
      throw new UserError(message, exitStatus.configuration, { cause: error })
    }
  }
}
