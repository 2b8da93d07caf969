// The listening sockets: those of systemd as they are; of the daemon's own the path, the mode and the group.
// The daemon has locked the runtime directory before.
import { once } from 'node:events'
import { chmodSync, chownSync, lstatSync, rmSync, type Stats } from 'node:fs'
import { connect, createServer, type Server } from 'node:net'
import type { SocketConfig } from '../config/config.ts'
import { asFileError, FileError } from '../files/file-error.ts'
import type { InheritedSockets } from '../host/inherited-sockets.ts'
import type { RemedyOf } from '../host/remedy.ts'
import { sleep } from '../lib/clock.ts'
import { errorCode, errorMessage, exitStatus, UserError, withSystemFallback } from '../lib/error.ts'
import { loadLibc } from '../lib/libc.ts'
import type { Log } from '../lib/log.ts'
import { BACKLOG } from './limits.ts'

type Access = Pick<SocketConfig, 'mode' | 'gid' | 'allow'>
export interface Listener {
  /** Gives a socket of the daemon's own this mode and group from now on. Throws UserError (78). */
  setAccess(next: Access): void
  /** Sets back a socket of the daemon's own that is opened wider than its setting. To be called every 15 s. */
  tick(): void
  /** Paths of sockets that are opened too wide: of systemd's, those to which everybody may connect. */
  tooWide(): string[]
}

const OTHERS_CONNECT = 0o002
const PERMISSIONS = 0o777
/** Long enough for clients that wait; short, because an operator who started the daemon waits for the error. */
const REFUSING_MS = 2_000

/** Uses sockets that systemd handed over. Throws UserError (78). */
export async function adopt(
  fds: readonly number[],
  { access: first, addServer }: { access: Access; addServer: () => Server },
): Promise<Listener> {
  let access = first
  const isOpenToAll = (path: string): boolean => {
    const { uids, gids } = access.allow
    return uids.length + gids.length === 0 && ((statOf(path)?.mode ?? 0) & OTHERS_CONNECT) !== 0
  }
  for (const fd of fds) {
    // With `listen({ fd, backlog })` the socket would get Node's own backlog.
    const server = addServer().listen({ fd }, BACKLOG)
    await once(server, 'listening').catch((cause: unknown) => {
      const why = `cannot be used (${errorMessage(cause)}): check the .socket unit`
      const message = `The socket handed over as descriptor ${fd} ${why}`
      throw new UserError(message, exitStatus.configuration, { cause })
    })
    server.on('error', () => undefined)
  }
  const paths = fds.map((fd) => loadLibc().socketPath(fd)).filter((path) => path !== '')
  return {
    setAccess(next) {
      access = next
    },
    tick: () => undefined,
    tooWide: () => paths.filter(isOpenToAll),
  }
}

/** Opens a socket of the daemon's own. Throws UserError: 69 where a process answers at the path, else 78. */
export async function openOwn(
  path: string,
  {
    access: first,
    addServer,
    remedyOf,
    log,
  }: { access: Access; addServer: () => Server; remedyOf: RemedyOf; log: Log },
): Promise<Listener> {
  let access = first
  const asUserError = (thrown: unknown): unknown => {
    const error = asFileError(path, thrown)
    if (!(error instanceof FileError)) return error
    const message = remedyOf({ kind: 'file', error, use: 'socket' })
    return new UserError(message, exitStatus.configuration, { cause: error })
  }
  const made = await listenAt(path, addServer()).catch((error: unknown) => {
    throw asUserError(error)
  })

  /** The socket as it is; null: somebody has removed or replaced it. */
  const own = (): Stats | null => {
    const stats = statOf(path)
    return stats?.ino === made.ino && stats.dev === made.dev ? stats : null
  }

  /** The group first: the mode must not open the socket to another one. */
  function apply(next: Access): void {
    const stats = own()
    if (stats === null) return
    const gid = next.gid ?? made.gid
    if (stats.gid !== gid) chownSync(path, stats.uid, gid)
    chmodSync(path, next.mode)
  }

  const listener: Listener = {
    setAccess(next) {
      try {
        apply(next)
      } catch (error) {
        throw asUserError(error)
      }
      access = next
    },
    tick() {
      if (listener.tooWide().length === 0) return
      // One that cannot be set back is shown by `tooWide`.
      withSystemFallback(undefined, () => apply(access))
      if (listener.tooWide().length > 0) return
      const sentence = 'Set a socket back that somebody had opened wider than its setting'
      log('warning', sentence, { event: 'socket-restored', path })
    },
    tooWide() {
      const stats = own()
      if (stats === null) return []
      const isWide = (stats.mode & PERMISSIONS & ~access.mode) !== 0
      return isWide || stats.gid !== (access.gid ?? made.gid) ? [path] : []
    },
  }
  listener.setAccess(first)
  return listener
}

/** Listens at the path, where only this user may connect at first. */
async function listenAt(path: string, server: Server): Promise<Stats> {
  await assertReplaceable(path)
  rmSync(path, { force: true })
  const umask = process.umask(0o177)
  try {
    server.listen({ path, backlog: BACKLOG })
  } finally {
    process.umask(umask)
  }
  await once(server, 'listening')
  server.on('error', () => undefined)
  return lstatSync(path)
}

/** Throws UserError: 69 if a process answers at the path, 78 if something that is no socket is there. */
async function assertReplaceable(path: string): Promise<void> {
  const stats = statOf(path)
  if (stats !== null && !stats.isSocket())
    throw new UserError(`${path} is in the way and is no socket: remove it`, exitStatus.configuration)
  if (stats === null || !(await isAnswering(path))) return
  const message = `A process answers at ${path}, presumably another kyc-tokend: stop it`
  throw new UserError(message, exitStatus.unavailable)
}

/** A socket that is neither certain to be dead nor gone counts as living. */
function isAnswering(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path, () => {
      socket.destroy()
      resolve(true)
    })
    socket.once('error', (error) => resolve(!['ECONNREFUSED', 'ENOENT'].includes(errorCode(error) ?? '')))
  })
}

function statOf(path: string): Stats | null {
  return withSystemFallback(null, () => lstatSync(path))
}

/**
 * Throws UserError (78) if a socket handed over as `ipc` or `http` is no Unix socket with a path: over TCP or
 * an abstract name the token would go to everybody who can connect.
 */
export function assertUnixSockets(inherited: Pick<InheritedSockets, 'ipc' | 'http'>): void {
  for (const name of ['ipc', 'http'] as const) {
    if (inherited[name].every((fd) => loadLibc().socketPath(fd) !== '')) continue
    const message =
      `The socket that systemd hands over as \`${name}\` is no Unix socket with a path, so that everybody ` +
      `who can connect to it would get the token: write \`ListenStream=\` in its unit with a path that ends ` +
      `with ${name}.sock, then restart that unit`
    throw new UserError(message, exitStatus.configuration)
  }
}

/**
 * Closes each connection to these sockets of systemd at once, for 2 s or until the signal is aborted: a client
 * that waits would have systemd start the daemon again and again.
 */
export async function refuse(fds: readonly number[], signal: AbortSignal): Promise<void> {
  const servers = fds.map((fd) =>
    createServer((socket) => socket.destroy())
      .on('error', () => undefined)
      .listen({ fd }, BACKLOG),
  )
  await sleep(REFUSING_MS, signal)
  for (const server of servers) server.close()
}
