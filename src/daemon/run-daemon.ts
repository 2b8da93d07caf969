// The daemon's life: load the configuration, see that no other daemon runs, build this one, run it, close it.
import type { Writable } from 'node:stream'
import type { LoadOptions } from '../config/load.ts'
import { assertUnixSockets, refuse } from '../delivery/listen.ts'
import { FileError } from '../files/file-error.ts'
import { readEntries } from '../host/ids.ts'
import { takeInheritedSockets, type InheritedSockets } from '../host/inherited-sockets.ts'
import { programName } from '../host/paths.ts'
import { asUserError } from '../host/place.ts'
import { createSystemClock } from '../lib/clock.ts'
import { errorCode, exitStatus, UserError } from '../lib/error.ts'
import { logFault } from '../lib/internal-fault.ts'
import { loadLibc } from '../lib/libc.ts'
import { raceAbort } from '../lib/tasks.ts'
import { createFetchToken } from '../source/fetch-token.ts'
import { createDaemon, type Daemon, type Load } from './daemon.ts'
import type { DaemonSignals } from './daemon-signals.ts'
import { takeDirectories } from './directories.ts'

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
    const { ipc, http, metrics } = inherited
    const fds = [...ipc, ...http, ...metrics]
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
  // Errors name users and groups: from here on no disk is read for them.
  await Promise.all([readEntries('user'), readEntries('group')])
  assertUnixSockets(inherited)
  const { loadConfig } = await import('../config/load.ts')
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

/** Returns the function that reads the configuration again. It throws only UserError: no file ends us. */
export function createLoad(options: LoadOptions): Load {
  return async (running) => {
    const { loadConfig } = await import('../config/load.ts')
    try {
      return await loadConfig({ ...options, running })
    } catch (error) {
      if (error instanceof UserError) throw error
      if (error instanceof FileError) throw asUserError(error, options.env)
      // Its message is left out, because it could quote the file.
      const why = errorCode(error) ?? 'an internal fault'
      const message = `The configuration cannot be read (${why}): try \`${programName()} check\`, or restart`
      throw new UserError(message, exitStatus.configuration, { cause: error })
    }
  }
}
