// A listening Unix socket: opened again where it was removed, moved where the configuration says so, or inherited.
import { once } from 'node:events'
import { lstatSync, type Stats } from 'node:fs'
import { createServer } from 'node:net'
import { basename } from 'node:path'
import { raceAbort } from '../../lib/abort.ts'
import { lstatIfAny, onFile, removeOwn } from '../../lib/atomic-file.ts'
import { errorCode, errorMessage, exitStatus, fallbackOnSystemError, UserError } from '../../lib/error.ts'
import { FileError } from '../../lib/file-error.ts'
import { createProblemLog } from '../../lib/log-once.ts'
import type { Log } from '../../lib/log.ts'
import { STOP_WAIT_MS } from '../../lib/disk-queue.ts'
import { BACKLOG, bindElected, setAccess, type Elected, type ListenerEvents } from './election.ts'
import { openDirectoryOf, socketError, type SocketAddress } from './socket-path.ts'

export interface Listener {
  /** Opens the socket again where it was removed. Never fails: a problem is logged, once. */
  repair(log: Log): Promise<void>
  /** Listens elsewhere, or with another mode and group; connections live on. Throws UserError, and all stays as it was. */
  move(next: SocketAddress): Promise<void>
  /** Accepts no more, and removes the socket. Connections live on. Never fails, and waits for no disk. */
  close(): Promise<void>
}

/** Listens at a path; throws as bindElected does. */
export async function openListener(first: SocketAddress, events: ListenerEvents): Promise<Listener> {
  let address = first
  let bound = await bindElected(address, events)
  let isClosed = false
  let last = Promise.resolve()
  let log: Log = () => undefined
  const problem = createProblemLog((error) => {
    const { path } = address
    if (error !== null) log('error', 'A socket cannot be kept', { event: 'socket-error', path, error })
  })

  /** One step at a time: each begins when the one before has ended. */
  function inTurn(step: () => Promise<void>): Promise<void> {
    const done = last.then(step)
    last = done.catch(() => undefined)
    return done
  }

  async function rebind(next: SocketAddress): Promise<void> {
    const former = { bound, address }
    const rebound = await bindElected(next, events)
    if (isClosed) return remove(rebound, next)
    bound = rebound
    address = next
    await remove(former.bound, former.address)
  }

  async function restore(): Promise<void> {
    try {
      if (isClosed || (await isThere(bound, address))) return
      await rebind(address)
      problem.set(null)
      log('warning', 'Restored a socket that was removed', { event: 'socket-restored', path: address.path })
    } catch (error) {
      if (!(error instanceof UserError || error instanceof FileError) && errorCode(error) === undefined)
        throw error
      problem.set(errorMessage(error))
    }
  }

  return {
    repair(nextLog) {
      log = nextLog
      return inTurn(restore)
    },
    move: (next) =>
      inTurn(async () => {
        if (next.path === address.path && (await isThere(bound, address))) adjust(bound, next)
        else await rebind(next)
        address = next
      }),
    async close() {
      isClosed = true
      await remove(bound, address)
    },
  }
}

/** Listens on sockets that were handed over: their mode, owner and end belong to their unit. Throws UserError. */
export async function adoptListeners(fds: readonly number[], events: ListenerEvents): Promise<Listener> {
  const servers = await Promise.all(fds.map(async (fd) => listenOn(fd, events)))
  return {
    repair: () => Promise.resolve(),
    move: () => Promise.resolve(),
    close() {
      for (const server of servers) server.close()
      return Promise.resolve()
    },
  }
}

async function listenOn(fd: number, events: ListenerEvents): Promise<Elected['server']> {
  const server = createServer({ allowHalfOpen: true }, events.onConnection)
  // As `listen({ fd, backlog })` it would get Node's own backlog.
  server.listen({ fd }, BACKLOG)
  await once(server, 'listening').catch((cause: unknown) => {
    const message = `The socket handed over as descriptor ${fd} cannot be used (${errorMessage(cause)}): check the .socket unit`
    throw new UserError(message, exitStatus.configuration, { cause })
  })
  events.onServer?.(server)
  return server.on('error', events.onFault)
}

/** Reports whether the socket at the path is still the one that was bound. Throws FileError where the disk does not answer. */
async function isThere({ stats }: Elected, { path }: SocketAddress): Promise<boolean> {
  return isSame(await onFile(path, async () => lstatIfAny(path).catch(fallbackOnSystemError(null))), stats)
}

function isSame(found: Stats | null | undefined, stats: Stats): boolean {
  return found?.ino === stats.ino && found.dev === stats.dev
}

function ignoreFileError(error: unknown): void {
  if (!(error instanceof FileError)) throw error
}

/** Another mode and group for the socket that is there. Throws UserError. */
function adjust({ stats }: Elected, address: SocketAddress): void {
  const directory = openDirectoryOf(address)
  try {
    const reached = directory.reach(basename(address.path))
    if (lstatSync(reached, { throwIfNoEntry: false })?.ino === stats.ino) setAccess(reached, address)
  } catch (error) {
    throw error instanceof UserError ? error : socketError(address, error)
  } finally {
    directory.close()
  }
}

/** Closes the server, and removes the socket if it is still the one that was bound. */
async function remove({ server, stats }: Elected, address: SocketAddress): Promise<void> {
  server.close()
  // A dead socket does no harm: the next daemon replaces it.
  const removal = onFile(address.path, async () => removeOwn(address.path, stats)).catch(ignoreFileError)
  await raceAbort(removal, AbortSignal.timeout(STOP_WAIT_MS))
}
