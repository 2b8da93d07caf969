// A listening Unix socket: bound if no process answers at its path, bound again if it is removed, moved by a
// reload; or one that was inherited.
import { once } from 'node:events'
import { closeSync, constants, type Stats } from 'node:fs'
import { Server } from 'node:net'
import { dirname, join } from 'node:path'
import { setImmediate as nextRound, setTimeout as sleep } from 'node:timers/promises'
import { raceAbort } from '../../lib/tasks.ts'
import { accountOfEnvironment } from '../../lib/account.ts'
import { FileError, inDirectoryOf, lstatIfAny, onFile, removeOwn } from '../../lib/atomic-file.ts'
import { STOP_WAIT_MS } from '../../lib/in-directory.ts'
import { errorCode, errorMessage, exitStatus, fallbackOnSystemError, UserError } from '../../lib/error.ts'
import { fs } from '../../lib/fs.ts'
import { loadLibc } from '../../lib/libc.ts'
import { createProblemLog, type Log } from '../../lib/log.ts'
import { monotonicMs } from '../../lib/clock.ts'
import { nameOf } from '../../lib/posix-ids.ts'
import { remakeSockets } from '../../lib/remedy.ts'
import { isOpen } from '../peers.ts'
import {
  assertPathFree,
  assertReplaceable,
  createPathResource,
  inTurnAt,
  isSame,
  noSocketAt,
  settingOf,
  type SocketAddress,
} from './socket-path.ts'

/** Connects that wait while the daemon is busy; Node's own 511 refuses a burst of 1,000. */
const BACKLOG = 4096
/** open(2): a descriptor of the file itself, whatever it is, for nothing but naming it. */
const O_PATH = 0o10000000
/**
 * The socket has this name, in the directory of its path, until it has its mode; one that a crash left is
 * replaced.
 */
const NEW_SOCKET = '.kyc-tokend.new'
/** The longest time for which the backlog is accepted at the end, in ms. */
const ACCEPT_ALL_MS = 3_000
/** The wait for another daemon that binds in the same directory at the same moment. */
const BIND_TURN = { tries: 100, pollMs: 10 }

interface ListenerOptions {
  /** Makes a server that does not listen yet: one for each socket that is opened. */
  readonly createServer: () => Server
  /** A connection could not be accepted, because too many files are open, for example. */
  readonly onAcceptError: (error: Error) => void
  readonly log: Log
}

export interface Listener {
  /** Opens the socket again if it was removed. Never fails: a problem is logged, once. */
  tick(): Promise<void>
  /**
   * Listens elsewhere, or with another mode and group; connections stay. Throws UserError; then nothing
   * changes.
   */
  move(next: SocketAddress): Promise<void>
  /**
   * Accepts no more, and removes the socket; connections stay. Never fails, and waits for a disk for 1 s at
   * most.
   */
  close(): Promise<void>
}

interface Bound {
  readonly server: Server
  /** Of the socket at the path. */
  readonly stats: Stats
}

/** Listens at a path, or on the sockets that were handed over. Throws UserError as these do. */
export async function listen(
  { socket, inherited }: { socket: SocketAddress; inherited: readonly number[] | null },
  options: ListenerOptions,
): Promise<Listener> {
  return inherited === null ? openListener(socket, options) : adoptListeners(inherited, socket, options)
}

/**
 * Throws UserError: 69 if a process answers at the path, 78 if no socket can be made there, 75 if the disk
 * hangs.
 */
export async function openListener(first: SocketAddress, options: ListenerOptions): Promise<Listener> {
  const { log } = options
  const make = async (address: SocketAddress): Promise<Bound> => bind(address, options)
  const kept = createPathResource(first, await make(first), {
    make,
    release: remove,
    onProblem(error, path) {
      if (error !== null) log('error', 'A socket cannot be kept', { event: 'socket-error', path, error })
    },
    onRestored: (path) =>
      log('warning', 'Restored a socket that was removed', { event: 'socket-restored', path }),
  })
  return {
    tick: async () => kept.tick(),
    move: async (next) => kept.move(next, async ({ stats }) => adjust(stats, next)),
    close: async () => kept.close(),
  }
}

/**
 * Listens on sockets that were handed over: their mode, owner and end belong to their unit. Throws UserError.
 */
export async function adoptListeners(
  fds: readonly number[],
  { allow }: Pick<SocketAddress, 'allow'>,
  options: ListenerOptions,
): Promise<Listener> {
  let isForAll = isOpen(allow)
  const servers = await Promise.all(fds.map(async (fd) => listenOn(fd, options)))
  const paths = fds.map((fd) => loadLibc().socketPath(fd)).filter((path) => path !== '')
  const looks = paths.map((path) => createSocketWatch(path, options.log))
  const tick = async (): Promise<void> => {
    await Promise.all(looks.map(async (look) => look(isForAll)))
  }
  void tick()
  return {
    tick,
    move(next) {
      isForAll = isOpen(next.allow)
      return Promise.resolve()
    },
    close() {
      for (const server of servers) closeListening(server)
      return Promise.resolve()
    },
  }
}

/**
 * Returns the function that logs once that a socket of systemd was removed, and once that everybody may
 * connect to it.
 */
function createSocketWatch(path: string, log: Log): (isForAll: boolean) => Promise<void> {
  const removed = createProblemLog((remedy) => {
    const sentence = 'A socket of systemd was removed: no client finds it'
    if (remedy !== null) log('error', sentence, { event: 'socket-removed', path, remedy })
  })
  const open = createProblemLog((remedy) => {
    const sentence = 'Every user of this host may connect to a socket of systemd and take the token'
    if (remedy !== null) log('warning', sentence, { event: 'socket-open', path, remedy })
  })
  return async (isForAll) => {
    const found = await onFile(path, async () => lstatIfAny(path)).catch(() => undefined)
    if (found === undefined) return
    removed.set(found === null ? remakeSockets(accountOfEnvironment(process.env)).join(' && ') : null)
    open.set(found !== null && isForAll && (found.mode & WRITABLE_BY_OTHERS) !== 0 ? NARROWER : null)
  }
}
/** Who may write in a socket may connect to it (unix(7)). */
const WRITABLE_BY_OTHERS = 0o002
const NARROWER = 'Set SocketMode=0660 and SocketGroup=kyc-token in its unit, or list its users in `allow`'

/**
 * Accepts no more. `http.Server.close()` would end connections whose requests have arrived and are not read
 * yet.
 */
function closeListening(server: Server): void {
  Server.prototype.close.call(server)
}

async function listenOn(fd: number, { createServer, onAcceptError }: ListenerOptions): Promise<Server> {
  const server = createServer()
  // With `listen({ fd, backlog })` the socket would get Node's own backlog.
  server.listen({ fd }, BACKLOG)
  await once(server, 'listening').catch((cause: unknown) => {
    const message = `The socket handed over as descriptor ${fd} cannot be used (${errorMessage(cause)}): check the .socket unit`
    throw new UserError(message, exitStatus.configuration, { cause })
  })
  return server.on('error', onAcceptError)
}

/**
 * Binds under another name in the directory, sets mode and group, and renames the socket to the path, where
 * none or a dead one is. The directory is locked meanwhile, so that no other daemon replaces the same dead
 * socket.
 */
async function bind(address: SocketAddress, options: ListenerOptions): Promise<Bound> {
  const failure = noSocketAt(address.path)
  const work = async (): Promise<Bound> => {
    // That a daemon answers is reported first, even if its directory is not safe.
    await assertPathFree(address)
    return inDirectoryOf(address.path, { use: 'sockets', failure }, async (reached, directory) => {
      await lockForBinding(directory)
      await assertPathFree(address)
      const created = join(dirname(reached), NEW_SOCKET)
      await assertReplaceable(address, created)
      await fs.unlink(created).catch(ignoreAbsence)
      const fd = await listenPrivately(created, directory)
      try {
        const stats = await setAccess(created, address)
        await fs.rename(created, reached)
        return { server: await listenOn(fd, options), stats }
      } catch (error) {
        closeSync(fd)
        await fs.unlink(created).catch(ignoreAbsence)
        throw error
      }
    })
  }
  return inTurnAt(address, {
    work,
    async undo({ server, stats }) {
      closeListening(server)
      await removeOwn(address.path, stats)
    },
  })
}

/**
 * Locks the directory until it is closed. If another user holds the lock for 1 s, binding goes on without it:
 * it only matters to daemons that start at the same moment.
 */
async function lockForBinding(directory: number): Promise<void> {
  try {
    for (let tries = 0; tries < BIND_TURN.tries && !loadLibc().lock(directory); tries += 1)
      await sleep(BIND_TURN.pollMs)
  } catch (error) {
    // A file system without locks.
    fallbackOnSystemError(undefined)(error)
  }
}

/** Binds with the umask changed for that moment alone: only this user may connect at first. */
async function listenPrivately(path: string, directory: number): Promise<number> {
  const now = new Date()
  // Binding is synchronous, so a disk that stalls would block the process. It stalls in this write instead;
  // its result is of no interest.
  await fs.futimes(directory, now, now).catch(fallbackOnSystemError(undefined))
  const umask = process.umask(0o177)
  try {
    return loadLibc().listenAt(path, BACKLOG)
  } finally {
    process.umask(umask)
  }
}

/**
 * Sets group and mode through the socket's descriptor, so that no link is followed. `own`: it must be this
 * socket. Throws UserError.
 */
async function setAccess(path: string, address: SocketAddress, own?: Stats): Promise<Stats> {
  const { mode, gid } = address
  const fd = await fs.open(path, O_PATH | constants.O_NOFOLLOW)
  try {
    const stats = await fs.fstat(fd)
    if (!stats.isSocket() || (own !== undefined && !isSame(stats, own))) {
      const message = `${address.path} is no longer a socket of kyc-tokend: remove it, or set another ${settingOf(address)}`
      throw new UserError(message, exitStatus.configuration)
    }
    const itself = `/proc/self/fd/${fd}`
    if (gid !== null && stats.gid !== gid) await fs.chown(itself, stats.uid, gid)
    await fs.chmod(itself, mode)
    return stats
  } catch (error) {
    if (errorCode(error) !== 'EPERM') throw error
    const [group, user] = [nameOf('group', gid ?? -1), nameOf('user', process.geteuid!())]
    const message = `The socket ${address.path} cannot be given the group ${group}: make the user ${user} a member of it, or set another \`group\``
    throw new UserError(message, exitStatus.configuration, { cause: error })
  } finally {
    await fs.close(fd)
  }
}

/** Sets another mode and group of the existing socket. Throws UserError. */
async function adjust(stats: Stats, address: SocketAddress): Promise<void> {
  const failure = noSocketAt(address.path)
  const change = async (reached: string): Promise<Stats> => setAccess(reached, address, stats)
  await inTurnAt(address, {
    work: async () => inDirectoryOf(address.path, { use: 'sockets', failure }, change),
  })
}

function ignoreAbsence(error: unknown): void {
  if (errorCode(error) !== 'ENOENT') throw error
}

/**
 * Removes the socket if it is still the one that was bound, accepts the backlog, which would be reset
 * otherwise, and closes.
 */
async function remove({ server, stats }: Bound, { path }: SocketAddress): Promise<void> {
  // A dead socket does no harm: the next daemon replaces it.
  const removal = onFile(path, async () => removeOwn(path, stats)).catch((error: unknown) => {
    if (!(error instanceof FileError)) throw error
  })
  await raceAbort(removal, AbortSignal.timeout(STOP_WAIT_MS))
  // Node accepts one connection in a round of the event loop.
  let rounds = 0
  server.on('connection', () => (rounds = 0))
  const until = monotonicMs() + ACCEPT_ALL_MS
  for (; rounds < 3 && monotonicMs() < until; rounds += 1) await nextRound()
  closeListening(server)
}
