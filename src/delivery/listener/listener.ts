// A listening Unix socket: bound if no process answers at its path, and bound again if it is removed; or one
// that was inherited.
import { once } from 'node:events'
import { closeSync, constants, type Stats } from 'node:fs'
import type { Server } from 'node:net'
import { basename, dirname, join } from 'node:path'
import { setImmediate as nextRound, setTimeout as sleep } from 'node:timers/promises'
import { serviceEnvironment, unitNames } from '../../host/account.ts'
import { isSameInode, lstatIfAny, onFile, removeInode, throughDirectory } from '../../files/atomic-file.ts'
import { FileError } from '../../files/file-error.ts'
import { monotonicMs } from '../../lib/clock.ts'
import { HOUR_MS } from '../../lib/duration.ts'
import { errorCode, errorMessage, exitStatus, fallbackOnSystemError, UserError } from '../../lib/error.ts'
import { fs } from '../../files/fs.ts'
import { STOP_WAIT_MS } from '../../files/in-directory.ts'
import { loadLibc } from '../../lib/libc.ts'
import { createProblemLog, type Log } from '../../lib/log.ts'
import { nameOf } from '../../host/ids.ts'
import type { InheritedSockets } from '../../host/inherited-sockets.ts'
import { raceAbort } from '../../lib/tasks.ts'
import { acceptedInATurn } from '../limits.ts'
import { assertPathFree, assertReplaceable, inTurnAt, settingOf, type SocketAddress } from './socket-path.ts'

/** Connects that wait while the daemon is busy; Node's own 511 refuses a burst of 1,000. */
export const BACKLOG = 4096
/** Time in which a process that has bound a socket listens at it, in ms. */
const SETTLE_MS = 50
/** open(2): a descriptor of the file itself, whatever it is, for nothing but naming it. */
const O_PATH = 0o10000000
/** The longest time for which the backlog is accepted at the end, in ms. */
const ACCEPT_ALL_MS = 3_000

interface ListenerOptions {
  /** Makes a server that does not listen yet: one for each descriptor of each socket. */
  readonly createServer: () => Server
  /** For the log. */
  readonly transport: string
  readonly log: Log
}

export interface Listener {
  /** Opens the socket again if it was removed. Never fails: a problem is logged, once. */
  tick(): Promise<void>
  /** Gives the socket another mode and group. Throws UserError; then nothing changes. */
  setAccess(next: SocketAddress): Promise<void>
  /**
   * Accepts no more, and removes the socket; connections stay. Never fails, and waits for a disk for 1 s at
   * most.
   */
  close(): Promise<void>
}

/** A socket that this process has made. */
interface Bound {
  readonly address: SocketAddress
  readonly servers: readonly Server[]
  /** Of the socket at the path. */
  readonly stats: Stats
}

/** Listens at a path, or on the sockets that were handed over. Throws UserError as these do. */
export async function listen(
  { socket, inherited }: { socket: SocketAddress; inherited: readonly number[] | null },
  options: ListenerOptions,
): Promise<Listener> {
  return inherited === null ? openListener(socket, options) : adoptListeners(inherited, options)
}

/**
 * Throws UserError: 69 if a process answers at the path, 78 if no socket can be made there, 75 if the disk
 * hangs.
 */
export async function openListener(first: SocketAddress, options: ListenerOptions): Promise<Listener> {
  const { log } = options
  let bound = await bind(first, options)
  let isClosed = false
  let last: Promise<unknown> = Promise.resolve()
  const problem = createProblemLog((error) => {
    const { path } = bound.address
    if (error !== null) log('error', 'A socket cannot be kept', { event: 'socket-error', path, error })
  })

  /** One step at a time: each begins when the one before has ended. */
  function inTurn(step: () => Promise<void>): Promise<void> {
    const done = last.then(step)
    last = done.catch(() => undefined)
    return done
  }

  function isThere(): Promise<boolean> {
    const { address, stats } = bound
    return inTurnAt(address, async () => {
      const found = await lstatIfAny(address.path).catch(fallbackOnSystemError(null))
      return found !== null && isSameInode(found, stats)
    })
  }

  async function replace(): Promise<void> {
    const replacement = await bind(bound.address, options)
    if (isClosed) return remove(replacement)
    const former = bound
    bound = replacement
    await remove(former)
  }

  async function restore(): Promise<void> {
    try {
      if (!isClosed && !(await isThere())) {
        await replace()
        const { path } = bound.address
        log('warning', 'Restored a socket that was removed', { event: 'socket-restored', path })
      }
      problem.set(null)
    } catch (error) {
      if (!(error instanceof UserError)) throw error
      problem.set(error.message)
    }
  }

  return {
    tick: () => inTurn(restore),
    setAccess: ({ mode, gid }) =>
      inTurn(async () => {
        const next = { ...bound.address, mode, gid }
        // One that was removed is bound with them at the next tick.
        if (await isThere())
          await inTurnAt(next, () =>
            throughDirectory(next.path, 'sockets', (reached) => setAccess(reached, next, bound.stats)),
          )
        bound = { ...bound, address: next }
      }),
    close() {
      isClosed = true
      return remove(bound)
    },
  }
}

/**
 * Listens on sockets that were handed over: their mode, owner and end belong to their unit. Throws UserError.
 */
export async function adoptListeners(fds: readonly number[], options: ListenerOptions): Promise<Listener> {
  const servers = (await Promise.all(fds.map(async (fd) => listenOn(fd, options)))).flat()
  return {
    tick: () => Promise.resolve(),
    setAccess: () => Promise.resolve(),
    close() {
      closeAll(servers)
      return Promise.resolve()
    },
  }
}

/**
 * Throws UserError (78), with the line of the unit to change, if a socket handed over as `ipc` or `http` is
 * not a Unix socket with a path: over TCP or an abstract name the token would go to everybody who can
 * connect.
 */
export function assertUnixSockets(inherited: InheritedSockets, account: string | undefined): void {
  const { unit, httpUnit } = unitNames(account)
  for (const name of ['ipc', 'http'] as const) {
    if (inherited[name].every((fd) => loadLibc().socketPath(fd) !== '')) continue
    const socketUnit = `${name === 'ipc' ? unit : httpUnit}.socket`
    const path = join(serviceEnvironment(account).RUNTIME_DIRECTORY, `${name}.sock`)
    const message =
      `The socket that systemd hands over as \`${name}\` is no Unix socket with a path, so that everybody ` +
      `who can connect to it would get the token: write \`ListenStream=${path}\` in its unit ` +
      `(\`sudo systemctl edit --full ${socketUnit}\`), then \`sudo systemctl restart ${socketUnit} ${unit}\``
    throw new UserError(message, exitStatus.configuration)
  }
}

async function listenOn(fd: number, { createServer, transport, log }: ListenerOptions): Promise<Server[]> {
  const onAcceptError = createAcceptErrorLog(transport, log)
  const others = Array.from({ length: acceptedInATurn() - 1 }, () => loadLibc().duplicate(fd))
  return Promise.all(
    [fd, ...others].map(async (each) => {
      const server = createServer()
      // With `listen({ fd, backlog })` the socket would get Node's own backlog.
      server.listen({ fd: each }, BACKLOG)
      await once(server, 'listening').catch((cause: unknown) => {
        const problem = `cannot be used (${errorMessage(cause)}): check the .socket unit`
        const message = `The socket handed over as descriptor ${fd} ${problem}`
        throw new UserError(message, exitStatus.configuration, { cause })
      })
      return server.on('error', onAcceptError)
    }),
  )
}

/** Logs one record an hour at most, because clients could cause them over and over. */
function createAcceptErrorLog(transport: string, log: Log): (error: Error) => void {
  let loggedAtMs = -Infinity
  return ({ message: detail }) => {
    const nowMs = monotonicMs()
    if (nowMs - loggedAtMs < HOUR_MS) return
    loggedAtMs = nowMs
    log('error', 'A connection could not be accepted', { event: 'connection-fault', transport, detail })
  }
}

/** Accepts no more. */
function closeAll(servers: readonly Server[]): void {
  for (const server of servers) server.close()
}

/**
 * Binds under another name in the directory, sets mode and group, and renames the socket to the path, where
 * none or a dead one is.
 */
async function bind(address: SocketAddress, options: ListenerOptions): Promise<Bound> {
  // All in one turn: of several sockets that are bound at one path, one lives.
  return inTurnAt(address, async (givenUp) => {
    // That a daemon answers is reported first, even if its directory is not safe.
    await assertPathFree(address)
    const bound = await throughDirectory(address.path, 'sockets', (reached) =>
      bindAt(reached, address, options),
    )
    if (givenUp.aborted) {
      closeAll(bound.servers)
      await removeInode(address.path, bound.stats)
    }
    return bound
  })
}

async function bindAt(reached: string, address: SocketAddress, options: ListenerOptions): Promise<Bound> {
  // Its name until it has its mode. Only one process can make it, so of several that start one goes on.
  const created = join(dirname(reached), `.${basename(reached)}.new`)
  const fd = await claim(created, address)
  try {
    await assertPathFree(address)
    const stats = await setAccess(created, address)
    await fs.rename(created, reached)
    return { address, servers: await listenOn(fd, options), stats }
  } catch (error) {
    closeSync(fd)
    await fs.unlink(created).catch(ignoreAbsence)
    throw error
  }
}

/** Listens at the new name. Throws UserError (69) if another process has just done so. */
async function claim(created: string, address: SocketAddress): Promise<number> {
  await assertReplaceable(address, created)
  try {
    return listenPrivately(created)
  } catch (error) {
    if (errorCode(error) !== 'EADDRINUSE') throw error
    // One that was made this moment does not listen yet; one that a crash left never will.
    await sleep(SETTLE_MS)
    await assertPathFree({ ...address, path: join(dirname(address.path), basename(created)) })
    await fs.unlink(created).catch(ignoreAbsence)
    return listenPrivately(created)
  }
}

/** Binds with the umask changed for that moment alone: only this user may connect at first. */
function listenPrivately(path: string): number {
  const umask = process.umask(0o177)
  try {
    return loadLibc().listenAt(path, BACKLOG)
  } finally {
    process.umask(umask)
  }
}

/**
 * Sets group and mode through the socket's descriptor, so that no link is followed. `expected`: it must be
 * this socket. Throws UserError.
 */
async function setAccess(reached: string, address: SocketAddress, expected?: Stats): Promise<Stats> {
  const { mode, gid } = address
  const fd = await fs.open(reached, O_PATH | constants.O_NOFOLLOW)
  try {
    const stats = await fs.fstat(fd)
    if (!stats.isSocket() || (expected !== undefined && !isSameInode(stats, expected))) {
      const remedy = `remove it, or set another ${settingOf(address)}`
      const message = `${address.path} is no longer a socket of kyc-tokend: ${remedy}`
      throw new UserError(message, exitStatus.configuration)
    }
    const itself = `/proc/self/fd/${fd}`
    if (gid !== null && stats.gid !== gid) await fs.chown(itself, stats.uid, gid)
    await fs.chmod(itself, mode)
    return stats
  } catch (error) {
    if (errorCode(error) !== 'EPERM') throw error
    const [group, user] = [nameOf('group', gid ?? -1), nameOf('user', process.geteuid!())]
    const remedy = `make the user ${user} a member of it, or set another \`group\``
    const message = `The socket ${address.path} cannot be given the group ${group}: ${remedy}`
    throw new UserError(message, exitStatus.configuration, { cause: error })
  } finally {
    await fs.close(fd)
  }
}

function ignoreAbsence(error: unknown): void {
  if (errorCode(error) !== 'ENOENT') throw error
}

/**
 * Removes the socket if it is still the one that was bound, accepts the backlog, which would be reset
 * otherwise, and closes.
 */
async function remove({ address: { path }, servers, stats }: Bound): Promise<void> {
  // A dead socket does no harm: the next daemon replaces it.
  const removal = onFile(path, async () => removeInode(path, stats)).catch((error: unknown) => {
    if (!(error instanceof FileError)) throw error
  })
  await raceAbort(removal, AbortSignal.timeout(STOP_WAIT_MS))
  let rounds = 0
  for (const server of servers) server.on('connection', () => (rounds = 0))
  const until = monotonicMs() + ACCEPT_ALL_MS
  for (; rounds < 3 && monotonicMs() < until; rounds += 1) await nextRound()
  closeAll(servers)
}
