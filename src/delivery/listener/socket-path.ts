// The path of a socket or a lock: whether a process answers there, what is made there and kept, and errors with their remedies.
import type { Stats } from 'node:fs'
import { connect } from 'node:net'
import { dirname } from 'node:path'
import { asFileError, FileError, lstatIfAny } from '../../lib/atomic-file.ts'
import { DiskStalledError, onFileSystem } from '../../lib/disk-queue.ts'
import { errorCode, exitStatus, fallbackOnSystemError, UserError } from '../../lib/error.ts'
import { createProblemLog } from '../../lib/log.ts'

interface SocketPath {
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

/**
 * Throws UserError where a process answers at this path (69) or something that is not a socket is in the way (78). To be
 * called in its turn on the file system. `reached`: another way to the path.
 */
export async function assertPathFree(address: SocketPath, reached = address.path): Promise<void> {
  const { path } = address
  const found = await lstatIfAny(reached)
  if (found === null) return
  if (!found.isSocket()) {
    throw new UserError(
      `${path} is in the way and is not a socket: remove it, or set another ${settingOf(address)}`,
      exitStatus.configuration,
    )
  }
  if (await isAnswering(reached)) {
    throw new UserError(
      `A process answers at ${path}, presumably another kyc-tokend: stop it, or set another ${settingOf(address)}`,
      exitStatus.unavailable,
    )
  }
}

/**
 * Keeps what this process has made at a path: makes it again where it was removed. `firstResource` is null where it could not be
 * made yet. `release` never fails. `onProblem`: one more, another one, or none any more (null).
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
    /** Makes it again where it is no longer there. Never fails: a problem is logged, once. */
    tick: () => inTurn(restore),
    /** Changes it where it is, or makes it elsewhere. Throws as these do, and all stays as it was. */
    move: (next: Address, change: (resource: Resource) => Promise<unknown>) =>
      inTurn(async () => {
        if (resource !== null && next.path === address.path && (await isThere())) await change(resource)
        else await replace(next)
        address = next
      }),
    /** Also what is being made. Never fails. */
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

/** Reports whether a process listens at a path. A socket that is neither certain to be dead nor gone counts as living. */
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
