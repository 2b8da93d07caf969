// The path of a listening socket: whether a process answers there, and errors with their remedies.
import { closeSync, constants, openSync, type Stats } from 'node:fs'
import { connect } from 'node:net'
import { basename, dirname } from 'node:path'
import { lstatIfAny } from '../../lib/atomic-file.ts'
import { DiskStalledError, onFileSystem } from '../../lib/disk-queue.ts'
import { errorCode, exitStatus, fallbackOnSystemError, UserError } from '../../lib/error.ts'
import { asFileError, FileError } from '../../lib/file-error.ts'
import { MAX_SOCKET_PATH_BYTES } from '../../lib/paths.ts'

export interface SocketPath {
  readonly path: string
  /** The setting with which another can be chosen; `path` where left out. */
  readonly setting?: string
  /** The beginning of the sentence about what the system answers; where left out, that no socket can be made. */
  readonly failure?: string
}
/** A path to listen at, and the access to it. */
export interface SocketAddress extends SocketPath {
  /** Permission bits. */
  readonly mode: number
  /** null: as the socket is created. */
  readonly gid: number | null
}

/**
 * Does the work on the path in its turn on its file system. The system's errors become UserErrors with the remedy: 75 where
 * the disk does not answer, 78 for all others. `undo`: for work that ends after its caller was given the 75.
 */
export async function inTurnAt<T>(
  address: SocketPath,
  { work, undo }: { work: () => Promise<T>; undo?: (done: T) => Promise<unknown> },
): Promise<T> {
  const { path, failure = noSocketAt(path) } = address
  let isAwaited = true
  const turn = onFileSystem(dirname(path), async () => {
    const done = await work()
    if (!isAwaited) await undo?.(done)
    return done
  })
  return turn.catch((error: unknown) => {
    isAwaited = false
    const known = asFileError(path, error, failure)
    if (!(known instanceof FileError)) throw error
    const status = known.cause instanceof DiskStalledError ? exitStatus.tryAgain : exitStatus.configuration
    throw new UserError(`${known.message}, or set another ${settingOf(address)}`, status, { cause: error })
  })
}

/** Throws as inTurnAt does, and UserError as assertFree does. */
export async function assertPathFree(address: SocketPath): Promise<void> {
  await inTurnAt(address, { work: async () => assertFree(address) })
}

/**
 * Throws UserError where a process answers at this path (69) or something that is not a socket is in the way (78). To be
 * called in its turn on the file system.
 */
export async function assertFree(address: SocketPath): Promise<void> {
  const { path } = address
  const found = await lstatIfAny(path)
  if (found === null) return
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

/** Reports whether the file with these stats is still at the path. Throws as inTurnAt does. */
export async function isThere(address: SocketPath, stats: Stats): Promise<boolean> {
  const work = async (): Promise<boolean> => {
    const found = await lstatIfAny(address.path).catch(fallbackOnSystemError(null))
    return found !== null && isSame(found, stats)
  }
  return inTurnAt(address, { work })
}

export function isSame(one: Stats, other: Stats): boolean {
  return one.ino === other.ino && one.dev === other.dev
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
  if (Buffer.byteLength(path) <= MAX_SOCKET_PATH_BYTES) return use(path)
  const directory = openSync(dirname(path), constants.O_RDONLY | constants.O_DIRECTORY)
  try {
    return use(`/proc/self/fd/${directory}/${basename(path)}`)
  } finally {
    closeSync(directory)
  }
}

export function noSocketAt(path: string): string {
  return `No socket can be made at ${path}`
}

export function settingOf({ setting = 'path' }: SocketPath): string {
  return `\`${setting}\``
}
