// Single-instance lock: of all daemons that are started for the same sockets or the same directories, one lives.
import { join } from 'node:path'
import type { Config } from '../../config/config.ts'
import { exitStatus, UserError } from '../../lib/error.ts'
import { fs } from '../../lib/fs.ts'
import { createProblemLog } from '../../lib/log-once.ts'
import type { Log } from '../../lib/log.ts'
import { DiskStalledError, onFileSystem } from '../../lib/disk-queue.ts'
import { isSocketActivated, type InheritedSockets } from '../../lib/socket-activation.ts'
import { openListener, type Listener } from './listener.ts'
import { assertPathFree } from './socket-path.ts'

/** A socket that says nothing. The kernel knows whether its owner lives, so a crash leaves nothing that blocks a start. */
const LOCK = 'lock'

export type InstanceLock = Pick<Listener, 'repair' | 'close'>

/**
 * From its return on this is the only daemon here, until the lock is closed. To be called before anything is asked or
 * written. Throws UserError: 69 where another daemon runs, else as bindElected does.
 */
export async function acquireInstanceLock(
  config: Pick<Config, 'ipc' | 'http' | 'runtimeDirectory' | 'stateDirectory'>,
  inherited: InheritedSockets,
): Promise<InstanceLock> {
  const { ipc, http, runtimeDirectory, stateDirectory } = config
  if (!isSocketActivated(inherited)) {
    await assertPathFree(ipc)
    if (http !== null) await assertPathFree(http)
  }
  const first = await lock(runtimeDirectory, 'runtimeDirectory')
  if ((await realPathOf(runtimeDirectory)) === (await realPathOf(stateDirectory))) return first
  const second = await lockState(stateDirectory).catch(async (error: unknown) => {
    await first.close()
    throw error
  })
  return {
    async repair(log) {
      await Promise.all([first.repair(log), second.repair(log)])
    },
    async close() {
      await Promise.all([first.close(), second.close()])
    },
  }
}

function lock(directory: string, setting: 'runtimeDirectory' | 'stateDirectory'): Promise<Listener> {
  const address = { path: join(directory, LOCK), setting, mode: 0o600, gid: null }
  return openListener(address, { onConnection: (socket) => socket.destroy(), onFault: () => undefined })
}

/** The path itself where the disk does not answer. */
function realPathOf(directory: string): Promise<string> {
  return onFileSystem(directory, async () => fs.realpath(directory)).catch((error: unknown) => {
    if (!(error instanceof DiskStalledError)) throw error
    return directory
  })
}

/**
 * State is worth less than tokens: where its directory takes no lock (full, read-only, on a disk that does not answer)
 * the daemon runs, warns, and tries again. Throws UserError (69) where another daemon has the lock.
 */
async function lockState(directory: string): Promise<InstanceLock> {
  let log: Log = () => undefined
  let isClosed = false
  let opening: Promise<void> | null = null
  const problem = createProblemLog((error) => {
    if (error === null)
      log('notice', 'The state directory is locked again', { event: 'state-locked', path: directory })
    else
      log('warning', 'Nothing keeps a second daemon out of the state directory', {
        event: 'state-unlocked',
        path: directory,
        error,
      })
  })
  let held = await lock(directory, 'stateDirectory').catch((error: unknown) => {
    if (!(error instanceof UserError) || error.status === exitStatus.unavailable) throw error
    return null
  })

  async function open(): Promise<void> {
    try {
      held = await lock(directory, 'stateDirectory')
      problem.set(null)
    } catch (error) {
      if (!(error instanceof UserError)) throw error
      problem.set(error.message)
    }
    opening = null
    if (isClosed) await held?.close()
  }

  return {
    repair(nextLog) {
      log = nextLog
      if (held !== null) return held.repair(log)
      opening ??= open()
      return opening
    },
    async close() {
      isClosed = true
      await held?.close()
    },
  }
}
