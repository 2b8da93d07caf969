// The daemon's life: load the configuration, see that no other daemon runs, build this one, run it, close it.
import type { Writable } from 'node:stream'
import type { LoadOptions } from '../config/load.ts'
import { createDaemon, type Daemon, type Load } from './daemon.ts'
import { acquireInstanceLock } from './instance-lock.ts'
import { assertUnixSockets, refuse } from '../delivery/listen.ts'
import { raceAbort } from '../lib/tasks.ts'
import { createSystemClock } from '../lib/clock.ts'
import type { DaemonSignals } from './daemon-signals.ts'
import { prepareDirectories } from './directories.ts'
import { errorCode, exitStatus, UserError } from '../lib/error.ts'
import { logFault } from '../lib/internal-fault.ts'
import { BrokenInvariant, reportInvariants } from '../lib/invariant.ts'
import { loadLibc } from '../lib/libc.ts'
import { readEntries } from '../host/ids.ts'
import { FileError } from '../files/file-error.ts'
import { asUserError, fileRemedy } from '../host/file-remedy.ts'
import { programName } from '../host/paths.ts'
import { placeOf, rendered } from '../host/place-commands.ts'
import { takeInheritedSockets, type InheritedSockets } from '../host/inherited-sockets.ts'
import { createFetchToken } from '../source/fetch-token.ts'

interface DaemonOptions {
  /** `--config`. */
  readonly configPath: string | undefined
  readonly env: NodeJS.ProcessEnv
  /** Receives the log. */
  readonly stderr: Writable
  readonly signals: DaemonSignals
}

/**
 * Runs the daemon until `signals.stop` is aborted. Throws UserError: 78 for the configuration, 69 if another
 * daemon runs for the same sockets or directories.
 */
export async function runDaemon(options: DaemonOptions): Promise<void> {
  const { env, signals } = options
  // No core dump holds a secret, and no other process of our user reads our memory.
  loadLibc().forbidDumps()
  const inherited = takeInheritedSockets(env, process.pid)
  const daemon = await start(options, inherited).catch(async (error: unknown) => {
    if (error === signals.stop.reason) return null
    await endWaitingClients(error, options, inherited)
    throw error
  })
  if (daemon === null) return
  const onFault = (error: unknown): void => {
    if (!(error instanceof UserError)) logFault(daemon.log, error)
  }
  // `main` ends the process for it, once the log has it.
  process.on('uncaughtExceptionMonitor', onFault)
  reportInvariants((rule, facts) => logFault(daemon.log, new BrokenInvariant(rule, facts)))
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

/** Loads the configuration, takes the lock, builds the daemon. Throws UserError, or the reason of a stop. */
async function start(
  { configPath, env, stderr, signals }: DaemonOptions,
  inherited: InheritedSockets,
): Promise<Daemon> {
  const { stop } = signals
  /** A disk that does not answer must not keep the process from its end. */
  async function unlessStopped<T>(work: Promise<T>): Promise<T> {
    await raceAbort(work, stop)
    stop.throwIfAborted()
    return work
  }
  // Errors name users and groups: from here on no disk is read for them.
  await unlessStopped(Promise.all([readEntries('user'), readEntries('group')]))
  assertUnixSockets(inherited)
  const { loadConfig } = await import('../config/load.ts')
  const config = await unlessStopped(loadConfig({ configPath, env }))
  await unlessStopped(prepareDirectories(config))
  const { unlocked } = await unlessStopped(acquireInstanceLock(config))
  const clock = createSystemClock()
  const daemon = await createDaemon(config, {
    env,
    stderr,
    inherited,
    load: createLoad({ configPath, env }),
    clock,
    random: Math.random,
    stop,
    createFetchToken,
    sendDatagram: (path, text) => loadLibc().sendDatagram(path, text),
  })
  if (unlocked !== null)
    daemon.log('warning', 'Nothing keeps a second daemon out of the state directory', {
      event: 'state-unlocked',
      path: config.stateDirectory,
      error: unlocked,
    })
  return daemon
}

/** Returns the function that reads the configuration again. It throws only UserError: no file ends us. */
export function createLoad(options: LoadOptions): Load {
  return async (running) => {
    const { loadConfig } = await import('../config/load.ts')
    try {
      return await loadConfig({ ...options, ...running })
    } catch (error) {
      if (error instanceof UserError) throw error
      if (error instanceof FileError)
        throw asUserError(error, rendered(fileRemedy(error, placeOf(options.env))))
      // Its message is left out, because it could quote the file.
      const why = errorCode(error) ?? 'an internal fault'
      const message = `The configuration cannot be read (${why}): try \`${programName()} check\`, or restart`
      throw new UserError(message, exitStatus.configuration, { cause: error })
    }
  }
}

/**
 * Closes the connections that wait at sockets of systemd before a daemon with a faulty configuration ends: a
 * connection that waits would have systemd start it again and again.
 */
async function endWaitingClients(
  error: unknown,
  { signals }: DaemonOptions,
  inherited: InheritedSockets,
): Promise<void> {
  const fds = [...inherited.ipc, ...inherited.http, ...inherited.metrics]
  if (fds.length === 0 || !(error instanceof UserError) || error.status !== exitStatus.configuration) return
  await refuse(fds, signals.stop)
}
