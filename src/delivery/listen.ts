// The listening sockets: those of systemd as they are; of the daemon's own the path, the mode and the group.
// The daemon has locked the runtime directory before.
import { once } from 'node:events'
import { chmodSync, chownSync, lstatSync, rmSync, type Stats } from 'node:fs'
import { connect, createServer, type Server } from 'node:net'
import type { SocketConfig } from '../config/config.ts'
import type { InheritedSockets } from '../host/system.ts'
import { asUserError } from '../host/remedy.ts'
import { errorCode, exitStatus, UserError, withSystemFallback } from '../lib/error.ts'
import { loadLibc } from '../lib/libc.ts'
import type { Log } from '../lib/log.ts'
import { untilAborted } from '../lib/tasks.ts'
import { BACKLOG } from './limits.ts'

type Access = Pick<SocketConfig, 'mode' | 'group' | 'allow'>
export type Listener = Awaited<ReturnType<typeof listen>>

/** Permission bits of a socket, and the one by which everybody may connect. */
const PERMISSIONS = 0o777
const OTHERS_CONNECT = 0o002

/** Uses sockets that systemd handed over, or opens one of the daemon's own. Throws UserError (78). */
export async function listen(options: {
  /** Those of systemd; null: the daemon opens its own at the path. */
  readonly fds: readonly number[] | null
  readonly path: string
  /** The settings in force. */
  readonly access: () => Access
  readonly addServer: () => Server
  readonly log: Log
}) {
  const { fds, path: ownPath, access, addServer, log } = options
  const paths = fds?.map((fd) => loadLibc().socketPath(fd)) ?? [ownPath]

  /** The group first: the mode must not open the socket to another one. A socket that somebody removed stays away. */
  function apply({ mode, group }: Access): void {
    if (fds !== null || modeOf(ownPath) === null) return
    chownSync(ownPath, -1, group ?? process.getegid!())
    chmodSync(ownPath, mode)
  }

  /** Paths of sockets that are opened too wide: of systemd's, those to which everybody may connect. */
  function tooWide(): string[] {
    const { mode, allow } = access()
    const isLimited = allow.users.length + allow.groups.length > 0
    const excess = fds === null ? PERMISSIONS & ~mode : isLimited ? 0 : OTHERS_CONNECT
    return paths.filter((path) => ((modeOf(path) ?? 0) & excess) !== 0)
  }

  /** Gives a socket of the daemon's own this mode and group. Throws UserError (78). */
  function setAccess(next: Access): void {
    try {
      apply(next)
    } catch (error) {
      throw asUserError(ownPath, error)
    }
  }

  try {
    if (fds === null) await openAt(ownPath, addServer())
    // With `listen({ fd, backlog })` the socket would get Node's own backlog.
    for (const fd of fds ?? []) await once(addServer().listen({ fd }, BACKLOG), 'listening')
  } catch (error) {
    throw asUserError(ownPath, error)
  }
  setAccess(access())
  return {
    setAccess,
    tooWide,
    /** Sets back a socket of the daemon's own that is opened wider than its setting. To be called every 15 s. */
    maintain(): void {
      if (fds !== null || tooWide().length === 0) return
      // One that cannot be set back is shown by `tooWide`.
      withSystemFallback(undefined, () => apply(access()))
      if (tooWide().length > 0) return
      const sentence = 'Set a socket back that somebody had opened wider than its setting'
      log('warning', sentence, { event: 'socket-restored', path: ownPath })
    },
  }
}

/** Listens at the path, where only this user may connect at first. */
async function openAt(path: string, server: Server): Promise<void> {
  await makeWay(path)
  const umask = process.umask(0o177)
  try {
    server.listen({ path, backlog: BACKLOG })
  } finally {
    process.umask(umask)
  }
  await once(server, 'listening')
}

/** Removes a dead socket. Throws UserError (78) if something else is there. */
async function makeWay(path: string): Promise<void> {
  const stats = statOf(path)
  if (stats === null) return
  if (!stats.isSocket() || (await isAnswering(path))) {
    const message = `${path} is in the way: remove it, or stop the process that answers there`
    throw new UserError(message, exitStatus.configuration)
  }
  rmSync(path, { force: true })
}

/** A socket that is neither certain to be dead nor gone counts as living. */
async function isAnswering(path: string): Promise<boolean> {
  const socket = connect(path)
  try {
    await once(socket, 'connect')
    return true
  } catch (error) {
    return !['ECONNREFUSED', 'ENOENT'].includes(errorCode(error) ?? '')
  } finally {
    socket.destroy()
  }
}

function statOf(path: string): Stats | null {
  return withSystemFallback(null, () => lstatSync(path))
}

/** The permission bits of a socket; null: there is none. */
function modeOf(path: string): number | null {
  const stats = statOf(path)
  return stats?.isSocket() === true ? stats.mode & PERMISSIONS : null
}

/**
 * Throws UserError (78) if a socket handed over as `ipc` or `http` is no Unix socket with a path: over TCP or
 * an abstract name the token would go to everybody who can connect.
 */
export function assertUnixSockets(inherited: Pick<InheritedSockets, 'ipc' | 'http'>): void {
  for (const name of ['ipc', 'http'] as const) {
    if (inherited[name].every((fd) => loadLibc().socketPath(fd) !== '')) continue
    const message =
      `The socket \`${name}\` of systemd is no Unix socket: write \`ListenStream=\` in its unit with a path that ` +
      `ends with ${name}.sock, and restart that unit`
    throw new UserError(message, exitStatus.configuration)
  }
}

/** Closes each connection to these sockets of systemd at once, until the signal is aborted. */
export async function refuse(fds: readonly number[], signal: AbortSignal): Promise<void> {
  const servers = fds.map((fd) =>
    createServer((socket) => socket.destroy())
      .on('error', () => undefined)
      .listen({ fd }, BACKLOG),
  )
  await untilAborted(signal)
  for (const server of servers) server.close()
}
