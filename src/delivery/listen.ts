// The listening sockets: those of systemd as they are; of the daemon's own the path, the mode and the group.
// The daemon has locked the runtime directory before.
import { once } from 'node:events'
import { chmodSync, chownSync, lstatSync, rmSync, type Stats } from 'node:fs'
import { connect, createServer, type Server } from 'node:net'
import type { SocketConfig } from '../config/next/config.ts'
import { asFileError, FileError } from '../files/file-error.ts'
import type { InheritedSockets } from '../host/inherited-sockets.ts'
import type { RemedyOf } from '../host/remedy.ts'
import { sleep } from '../lib/clock.ts'
import { errorCode, errorMessage, exitStatus, UserError, withSystemFallback } from '../lib/error.ts'
import { loadLibc } from '../lib/libc.ts'
import type { Log } from '../lib/log.ts'
import { BACKLOG } from './limits.ts'

type Access = Pick<SocketConfig, 'mode' | 'gid'>

export interface Listener {
  /** Gives a socket of the daemon's own this mode and group from now on. Throws UserError (78). */
  setAccess(next: Access): void
  /** Sets back the mode and group of a socket of the daemon's own. To be called every 15 s. */
  tick(): void
  /** Sockets that are opened too wide, each a sentence with its remedy. `isOpen`: `allow` is empty. */
  problems(isOpen: boolean): string[]
  /** Nobody finds a socket of the daemon's own any more: no name is left of it. */
  hide(): void
}

/** Others than the socket's owner, and its group, who may connect. */
const OTHERS_CONNECT = 0o002
const PERMISSIONS = 0o777
/** Long enough for the clients that wait; short, so that an operator who started the daemon soon sees the error. */
const CLOSING_MS = 2_000

/** Uses sockets that systemd handed over. Throws UserError (78). */
export async function adopt(
  fds: readonly number[],
  { addServer, remedyOf }: { addServer: () => Server; remedyOf: RemedyOf },
): Promise<Listener> {
  for (const fd of fds) {
    const server = addServer()
    // With `listen({ fd, backlog })` the socket would get Node's own backlog.
    server.listen({ fd }, BACKLOG)
    await once(server, 'listening').catch((cause: unknown) => {
      const why = `cannot be used (${errorMessage(cause)}): check the .socket unit`
      const message = `The socket handed over as descriptor ${fd} ${why}`
      throw new UserError(message, exitStatus.configuration, { cause })
    })
    server.on('error', () => undefined)
  }
  const paths = fds.map((fd) => loadLibc().socketPath(fd)).filter((path) => path !== '')
  return {
    setAccess: () => undefined,
    tick: () => undefined,
    problems: (isOpen) =>
      paths
        .filter((path) => isOpen && ((statOf(path)?.mode ?? 0) & OTHERS_CONNECT) !== 0)
        .map((path) => remedyOf({ kind: 'open-socket', path })),
    hide: () => undefined,
  }
}

/** Opens a socket of the daemon's own. Throws UserError: 69 where a process answers at the path, else 78. */
export async function openOwn(
  { path, ...first }: Access & { readonly path: string },
  { addServer, remedyOf, log }: { addServer: () => Server; remedyOf: RemedyOf; log: Log },
): Promise<Listener> {
  let access: Access = first
  let problem: string | null = null
  const asUserError = (thrown: unknown): unknown => {
    const error = asFileError(path, thrown)
    if (!(error instanceof FileError)) return error
    const message = remedyOf({ kind: 'file', error, use: 'socket' })
    return new UserError(message, exitStatus.configuration, { cause: error })
  }
  const attempt = <T>(work: () => T): T => {
    try {
      return work()
    } catch (error) {
      throw asUserError(error)
    }
  }
  await assertReplaceable(path)
  attempt(() => rmSync(path, { force: true }))
  const server = addServer()
  const umask = process.umask(0o177)
  try {
    server.listen({ path, backlog: BACKLOG })
  } finally {
    process.umask(umask)
  }
  await once(server, 'listening').catch((error: unknown) => {
    throw asUserError(error)
  })
  server.on('error', () => undefined)
  const made = attempt(() => {
    const stats = lstatSync(path)
    setAccess(path, stats, access)
    return stats
  })

  /** As it is at the path; null: somebody has removed or replaced it. */
  const own = (): Stats | null => {
    const stats = statOf(path)
    return stats?.ino === made.ino && stats.dev === made.dev ? stats : null
  }

  return {
    setAccess(next) {
      attempt(() => {
        const stats = own()
        if (stats !== null) setAccess(path, stats, next)
      })
      access = next
    },
    tick() {
      const stats = own()
      const isWide = stats !== null && (stats.mode & PERMISSIONS & ~access.mode) !== 0
      const hasOtherGroup = stats !== null && stats.gid !== (access.gid ?? made.gid)
      problem = null
      if (stats === null || (!isWide && !hasOtherGroup)) return
      const mode = `0${(stats.mode & PERMISSIONS).toString(8)}`
      try {
        setAccess(path, stats, { ...access, gid: access.gid ?? made.gid })
        const sentence = 'Set a socket back that somebody had opened wider than its setting'
        log('warning', sentence, { event: 'socket-restored', path, mode })
      } catch (error) {
        problem = (asUserError(error) as Error).message
      }
    },
    problems: () => (problem === null ? [] : [problem]),
    hide: () => withSystemFallback(undefined, () => own() && rmSync(path, { force: true })),
  }
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

/** Closes each connection to these sockets of systemd at once. Returns the function that ends it. */
export function refuseAll(fds: readonly number[]): () => void {
  const servers = fds.map((fd) =>
    createServer((socket) => socket.destroy())
      .on('error', () => undefined)
      .listen({ fd }, BACKLOG),
  )
  return () => {
    for (const server of servers) server.close()
  }
}

/** The same for 2 s, or until the signal is aborted: clients that wait must not start the daemon again and again. */
export async function refuseForAMoment(fds: readonly number[], signal: AbortSignal): Promise<void> {
  const end = refuseAll(fds)
  await sleep(CLOSING_MS, signal)
  end()
}

function statOf(path: string): Stats | null {
  return withSystemFallback(null, () => lstatSync(path))
}

/** The group first: the mode must not open the socket to another one. */
function setAccess(path: string, stats: Stats, { mode, gid }: Access): void {
  if (gid !== null && stats.gid !== gid) chownSync(path, stats.uid, gid)
  chmodSync(path, mode)
}

/** Throws UserError: 69 if a process answers at the path, 78 if something that is no socket is there. */
async function assertReplaceable(path: string): Promise<void> {
  const stats = statOf(path)
  if (stats === null) return
  if (!stats.isSocket())
    throw new UserError(`${path} is in the way and is no socket: remove it`, exitStatus.configuration)
  if (!(await isAnswering(path))) return
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
