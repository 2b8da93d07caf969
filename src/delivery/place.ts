// The daemon's place: of all that are started for the same sockets and the same directory, one lives.
import { join } from 'node:path'
import type { Config } from '../config/config.ts'
import { refuseTaken, type InheritedSockets } from './listen.ts'
import { standAt, type Standing } from './standing.ts'

/** Nobody speaks on it. Whether its owner lives is asked of the kernel, so a crash leaves nothing that blocks a start. */
const LOCK = 'lock'

/**
 * From its return on we are the only daemon here, until what comes back is closed. To be called before anything is
 * asked or written. Throws UserError (69) where another daemon has the place.
 */
export async function takePlace(
  { ipc, http, runtimeDirectory }: Pick<Config, 'ipc' | 'http' | 'runtimeDirectory'>,
  inherited: InheritedSockets,
): Promise<Pick<Standing, 'look' | 'close'>> {
  if (inherited.ipc === null) await refuseTaken(ipc.path)
  if (inherited.http === null && http !== null) await refuseTaken(http.path)
  const lock = { path: join(runtimeDirectory, LOCK), mode: 0o600, gid: null }
  return standAt(lock, { onConnection: (socket) => socket.destroy(), onFault: () => undefined })
}
