// The path of a socket or a lock: whether a process answers there, the resource that is made there and made
// again if it is removed, and errors with their remedies.
import type { Stats } from 'node:fs'
import { connect } from 'node:net'
import { basename, dirname, join } from 'node:path'
import type { SocketConfig } from '../../config/config.ts'
import { asFileError, FileError, lstatIfAny } from '../../lib/atomic-file.ts'
import { DiskError, inDirectory } from '../../lib/in-directory.ts'
import { errorCode, exitStatus, fallbackOnSystemError, UserError } from '../../lib/error.ts'
import { fs } from '../../lib/fs.ts'
import { createProblemLog } from '../../lib/log.ts'
import { nameOf } from '../../lib/posix-ids.ts'
import { shellWord } from '../../lib/remedy.ts'

interface SocketPath {
  readonly path: string
  /** The setting with which a person chooses another path; by default `path`. */
  readonly setting?: string
  /** The beginning of an error's sentence; by default, that no socket can be made. */
  readonly failure?: string
}
/** A path to listen at, and the access to it. */
export interface SocketAddress extends SocketPath {
  /** Permission bits. */
  readonly mode: number
  /** null: as the socket is created. */
  readonly gid: number | null
  readonly allow: SocketConfig['allow']
}

/**
 * Does the work on the path after all earlier work on its file system. The system's errors become UserErrors
 * with the remedy: 75 if the disk does not answer, 78 for all others. `undo`: for work that ends after its
 * caller was given the 75.
 */
export async function inTurnAt<T>(
  address: SocketPath,
  { work, undo }: { work: () => Promise<T>; undo?: (done: T) => Promise<unknown> },
): Promise<T> {
  const { path, failure = noSocketAt(path) } = address
  const turn = inDirectory(dirname(path), async (givenUp) => {
    const done = await work()
    if (givenUp.aborted) await undo?.(done)
    return done
  })
  return turn.catch((error: unknown) => {
    const known = asFileError(path, error, failure)
    if (!(known instanceof FileError)) throw error
    const status = known.cause instanceof DiskError ? exitStatus.tryAgain : exitStatus.configuration
    throw new UserError(`${known.message}, or set another ${settingOf(address)}`, status, { cause: error })
  })
}

/**
 * Resolves if the path can be taken: nothing exists there, or a socket at which no process answers. Throws
 * UserError: 69 if a process answers, 78 if something that is not a socket is in the way. Call it within the
 * work of inTurnAt. `reached`: the same path through the descriptor of its directory.
 */
export async function assertPathFree(address: SocketPath, reached = address.path): Promise<void> {
  const { path } = address
  const found = await lstatIfAny(reached)
  if (found === null) return
  if (!found.isSocket()) {
    const message = `${path} is in the way and is not a socket: remove it, or set another ${settingOf(address)}`
    throw new UserError(message, exitStatus.configuration)
  }
  if (await isAnswering(reached)) {
    const isOurs = found.uid === process.geteuid!()
    const sentence = isOurs
      ? `A process answers at ${path}, presumably another kyc-tokend: stop it`
      : `${path} is a socket of the user ${nameOf('user', found.uid)}: stop its process and remove it (\`sudo rm ${shellWord(path)}\`)`
    throw new UserError(`${sentence}, or set another ${settingOf(address)}`, exitStatus.unavailable)
  }
  await assertReplaceable(address, reached)
}

/**
 * In a sticky directory, such as /tmp, only root and its owner may replace a file (inode(7)). Throws
 * UserError (78), which says whose it is, if that is another user. Call it within the work of inTurnAt.
 */
export async function assertReplaceable(address: SocketPath, reached: string): Promise<void> {
  const ownUid = process.geteuid!()
  const found = await lstatIfAny(reached)
  if (found === null || found.uid === ownUid || ownUid === 0) return
  // With the dot, a link to the directory is followed.
  const directory = await fs.lstat(`${dirname(reached)}/.`)
  if ((directory.mode & STICKY) === 0) return
  const file = join(dirname(address.path), basename(reached))
  const message =
    `${file} belongs to the user ${nameOf('user', found.uid)}, and its directory is sticky: ` +
    `remove it (\`sudo rm ${shellWord(file)}\`), or set another ${settingOf(address)}`
  throw new UserError(message, exitStatus.configuration)
}
const STICKY = 0o1000

/**
 * A resource that this process makes at a path, a listening socket or a lock, and makes again if it is
 * removed. `firstResource`: null if it could not be made yet. `release` must not fail. `onProblem` is called
 * with each new problem, and with null once there is none.
 */
export function createPathResource<Address extends SocketPath, Resource extends { readonly stats: Stats }>(
  first: Address,
  firstResource: Resource | null,
  {
    make,
    release,
    onProblem,
    onRestored,
  }: {
    readonly make: (address: Address) => Promise<Resource>
    readonly release: (resource: Resource, address: Address) => Promise<void>
    readonly onProblem: (problem: string | null, path: string) => void
    readonly onRestored?: (path: string) => void
  },
) {
  let [address, resource] = [first, firstResource]
  let isClosed = false
  let last: Promise<unknown> = Promise.resolve()
  const problem = createProblemLog((error) => onProblem(error, address.path))

  /** One step at a time: each begins when the one before has ended. */
  function inTurn<T>(step: () => Promise<T>): Promise<T> {
    const done = last.then(step)
    last = done.catch(() => undefined)
    return done
  }

  async function replace(next: Address): Promise<void> {
    const former = { resource, address }
    const other = await make(next)
    if (isClosed) return release(other, next)
    resource = other
    address = next
    if (former.resource !== null) await release(former.resource, former.address)
  }

  const isThere = async (): Promise<boolean> => resource !== null && (await isAt(address, resource.stats))

  async function restore(): Promise<void> {
    try {
      if (!isClosed && !(await isThere())) {
        await replace(address)
        onRestored?.(address.path)
      }
      problem.set(null)
    } catch (error) {
      if (!(error instanceof UserError)) throw error
      problem.set(error.message)
    }
  }

  return {
    /** Makes it again if it was removed. Never fails: `onProblem` gets the problem, once. */
    tick: () => inTurn(restore),
    /**
     * Changes the resource if it stays at its path, else makes it at the other one. Throws as these do; then
     * nothing changes.
     */
    move: (next: Address, change: (resource: Resource) => Promise<unknown>) =>
      inTurn(async () => {
        if (resource !== null && next.path === address.path && (await isThere())) await change(resource)
        else await replace(next)
        address = next
      }),
    /** Releases the resource, also one that is being made. Never fails. */
    async close(): Promise<void> {
      isClosed = true
      if (resource !== null) await release(resource, address)
    },
  }
}

/** Reports whether the file with these stats is still at the path. Throws as inTurnAt does. */
async function isAt(address: SocketPath, stats: Stats): Promise<boolean> {
  const work = async (): Promise<boolean> => {
    const found = await lstatIfAny(address.path).catch(fallbackOnSystemError(null))
    return found !== null && isSame(found, stats)
  }
  return inTurnAt(address, { work })
}

export function isSame(one: Stats, other: Stats): boolean {
  return one.ino === other.ino && one.dev === other.dev
}

/**
 * Reports whether a process listens at a path. A socket that is neither certain to be dead nor gone counts as
 * living.
 */
function isAnswering(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path, () => {
      socket.destroy()
      resolve(true)
    })
    socket.once('error', (error) => resolve(!['ECONNREFUSED', 'ENOENT'].includes(errorCode(error) ?? '')))
  })
}

export function noSocketAt(path: string): string {
  return `No socket can be made at ${path}`
}

export function settingOf({ setting = 'path' }: SocketPath): string {
  return `\`${setting}\``
}
