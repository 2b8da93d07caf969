// The daemon's place: of all that are started for the same sockets or the same directories, one lives.
import { realpathSync } from 'node:fs'
import { join } from 'node:path'
import type { Config } from '../config/config.ts'
import { exitStatus, UserError } from '../lib/error.ts'
import type { Log } from '../lib/log.ts'
import { refuseTaken, type InheritedSockets } from './listen.ts'
import { standAt, type Standing } from './standing.ts'

/** Nobody speaks on it. Whether its owner lives is asked of the kernel, so a crash leaves nothing that blocks a start. */
const LOCK = 'lock'

type Lock = Pick<Standing, 'look' | 'close'>

/**
 * From its return on we are the only daemon here, until what comes back is closed. To be called before anything is
 * asked or written. Throws UserError (69) where another daemon has the place.
 */
export async function takePlace(
  config: Pick<Config, 'ipc' | 'http' | 'runtimeDirectory' | 'stateDirectory'>,
  inherited: InheritedSockets,
): Promise<Lock> {
  const { ipc, http, runtimeDirectory, stateDirectory } = config
  if (inherited.ipc.length === 0) await refuseTaken(ipc)
  if (inherited.http.length === 0 && http !== null) await refuseTaken(http)
  const first = await lock(runtimeDirectory, 'runtimeDirectory')
  if (realpathSync(runtimeDirectory) === realpathSync(stateDirectory)) return first
  const second = await lock(stateDirectory, 'stateDirectory').catch((error: unknown) => {
    if (error instanceof UserError && error.status === exitStatus.configuration)
      return withoutLock(stateDirectory, error)
    first.close()
    throw error
  })
  return {
    async look(log) {
      await Promise.all([first.look(log), second.look(log)])
    },
    close() {
      second.close()
      first.close()
    },
  }
}

function lock(directory: string, setting: 'runtimeDirectory' | 'stateDirectory'): Promise<Standing> {
  const place = { path: join(directory, LOCK), setting, mode: 0o600, gid: null }
  return standAt(place, { onConnection: (socket) => socket.destroy(), onFault: () => undefined })
}

/** Memory is worth less than tokens: where its directory takes no socket (full, read-only) we live all the same, and say so. */
function withoutLock(directory: string, { message }: UserError): Lock {
  let isTold = false
  return {
    look(log: Log) {
      if (!isTold) {
        log('warning', 'Nothing keeps a second daemon out of the state directory', {
          event: 'state-unlocked',
          path: directory,
          error: message,
        })
      }
      isTold = true
      return Promise.resolve()
    },
    close: () => undefined,
  }
}
