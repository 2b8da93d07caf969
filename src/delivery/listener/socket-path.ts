// The path of a listening socket: its directory, what is there, and errors with their remedies.
import { closeSync, constants, fstatSync, lstatSync, openSync, type Stats } from 'node:fs'
import { connect } from 'node:net'
import { basename, dirname } from 'node:path'
import { getSystemErrorMessage } from 'node:util'
import { assertAnswers } from '../../lib/directories.ts'
import { directoryProblem } from '../../lib/directory-access.ts'
import { errorCode, exitStatus, UserError } from '../../lib/error.ts'
import { DiskStalledError } from '../../lib/disk-queue.ts'

/** `sun_path` without its NUL byte (unix(7)). */
const MAX_PATH_BYTES = 107

export interface SocketPath {
  readonly path: string
  /** The setting with which another can be chosen; `path` where left out. */
  readonly setting?: string
}
/** A path to listen at, and the access to it. */
export interface SocketAddress extends SocketPath {
  /** Permission bits. */
  readonly mode: number
  /** null: as the socket is created. */
  readonly gid: number | null
}

/** An open directory. Names in it are reached through its descriptor, so nothing that happens to its path matters. */
export interface OpenDirectory {
  reach(name: string): string
  close(): void
}

const DIRECTORY_FLAGS = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW

/** Opens the directory of a socket. Throws UserError (78) where other users could exchange what is in it. */
export function openDirectoryOf(address: SocketPath): OpenDirectory {
  const directory = dirname(address.path)
  let fd: number
  try {
    fd = openSync(directory, DIRECTORY_FLAGS)
  } catch (error) {
    throw socketError(address, error)
  }
  const problem = directoryProblem(directory, fstatSync(fd), { uid: process.geteuid!(), use: 'sockets' })
  if (problem !== undefined) {
    closeSync(fd)
    throw new UserError(
      `No socket can be made at ${address.path}: ${problem}, or set another ${settingOf(address)}`,
      exitStatus.configuration,
    )
  }
  return {
    reach: (name) => `/proc/self/fd/${fd}/${name}`,
    close: () => {
      closeSync(fd)
    },
  }
}

/**
 * Throws UserError where a process answers at this path (69), something that is not a socket is in the way (78), or the
 * disk does not answer (75).
 */
export async function assertPathFree(address: SocketPath): Promise<void> {
  const { path } = address
  await assertAnswers(dirname(path)).catch((error: unknown) => {
    if (!(error instanceof DiskStalledError)) throw error
    throw new UserError(
      `No socket can be made at ${path}: ${error.message}, or set another ${settingOf(address)}`,
      exitStatus.tryAgain,
      { cause: error },
    )
  })
  const found = lstatAt(address)
  if (found === undefined) return
  if (!found.isSocket()) {
    throw new UserError(
      `${path} is in the way and is not a socket: remove it, or set another ${settingOf(address)}`,
      exitStatus.configuration,
    )
  }
  if ((await probe(path)) === 'answers') {
    throw new UserError(
      `A process answers at ${path}, presumably another kyc-tokend: stop it, or set another ${settingOf(address)}`,
      exitStatus.unavailable,
    )
  }
}

function lstatAt(address: SocketPath): Stats | undefined {
  try {
    return lstatSync(address.path, { throwIfNoEntry: false })
  } catch (error) {
    throw socketError(address, error)
  }
}

/** Reports whether a process listens at a path. A socket that is neither certain to be dead nor gone counts as living. */
export function probe(path: string): Promise<'answers' | 'dead' | 'gone'> {
  return new Promise((resolve) => {
    const socket = withShortPath(path, (reached) => connect(reached))
    socket.once('connect', () => {
      socket.destroy()
      resolve('answers')
    })
    socket.once('error', (error) => {
      const code = errorCode(error)
      if (code === 'ECONNREFUSED') resolve('dead')
      else resolve(code === 'ENOENT' ? 'gone' : 'answers')
    })
  })
}

/**
 * Calls with the path, or, where that is longer than the address of a socket, with one through a descriptor of its
 * directory. That is good for the call alone: connect(2) happens in it.
 */
function withShortPath<T>(path: string, use: (reached: string) => T): T {
  if (Buffer.byteLength(path) <= MAX_PATH_BYTES) return use(path)
  const directory = openSync(dirname(path), constants.O_RDONLY | constants.O_DIRECTORY)
  try {
    return use(`/proc/self/fd/${directory}/${basename(path)}`)
  } finally {
    closeSync(directory)
  }
}

/** The system's error as UserError (78) with the remedy. */
export function socketError(address: SocketPath, cause: unknown): UserError {
  const code = errorCode(cause) ?? ''
  const { errno } = cause as NodeJS.ErrnoException
  const why = REASONS[code] ?? `${code}: ${getSystemErrorMessage(errno ?? 0)}`
  const remedy = REMEDIES[code] ?? 'make its directory writable for the user of the daemon'
  return new UserError(
    `No socket can be made at ${address.path} (${why}): ${remedy}, or set another ${settingOf(address)}`,
    exitStatus.configuration,
    { cause },
  )
}

export function settingOf({ setting = 'path' }: SocketPath): string {
  return `\`${setting}\``
}

const REASONS: Readonly<Record<string, string>> = {
  ENOENT: 'its directory is not there',
  ENOTDIR: 'its directory is a symbolic link or no directory',
}
const REMEDIES: Readonly<Record<string, string>> = {
  ENOENT: 'make it',
  ENOTDIR: 'name the directory itself',
  EROFS: 'add its directory to `ReadWritePaths=` in a drop-in of the unit, with a `-` before it',
  ENOSPC: 'free space on its file system',
  EDQUOT: 'free space on its file system',
}
