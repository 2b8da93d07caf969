// Single-instance lock: of all daemons that are started for the same sockets or the same directories, one lives.
import { realpathSync } from 'node:fs'
import { join } from 'node:path'
import type { Config } from '../../config/config.ts'
import { exitStatus, UserError } from '../../lib/error.ts'
import type { Log } from '../../lib/log.ts'
import { isSocketActivated, type InheritedSockets } from '../../lib/socket-activation.ts'
import { openListener, type Listener } from './listener.ts'
import { assertPathFree } from './socket-path.ts'

/** A socket that says nothing. The kernel knows whether its owner lives, so a crash leaves nothing that blocks a start. */
const LOCK = 'lock'

export type InstanceLock = Pick<Listener, 'repair' | 'close'>

/**
 * From its return on this is the only daemon here, until the lock is closed. To be called before anything is asked or
 * written. Throws UserError (69) where another daemon runs.
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
  if (realpathSync(runtimeDirectory) === realpathSync(stateDirectory)) return first
  const second = await lock(stateDirectory, 'stateDirectory').catch(async (error: unknown) => {
    if (error instanceof UserError && error.status === exitStatus.configuration)
      return withoutLock(stateDirectory, error)
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

/** State is worth less than tokens: without a lock in its directory (full, read-only) the daemon runs, and warns. */
function withoutLock(directory: string, { message }: UserError): InstanceLock {
  let isLogged = false
  return {
    repair(log: Log) {
      if (!isLogged) {
        log('warning', 'Nothing keeps a second daemon out of the state directory', {
          event: 'state-unlocked',
          path: directory,
          error: message,
        })
      }
      isLogged = true
      return Promise.resolve()
    },
    close: () => Promise.resolve(),
  }
}
