// Single-instance lock: of all daemons that are started for the same sockets or the same directories, one
// lives.
import { constants, type Stats } from 'node:fs'
import { dirname, join } from 'node:path'
import type { Config } from '../../config/config.ts'
import { inDirectoryOf, lstatIfAny } from '../../lib/atomic-file.ts'
import { errorCode, exitStatus, fallbackOnSystemError, UserError } from '../../lib/error.ts'
import { fs } from '../../lib/fs.ts'
import { loadLibc } from '../../lib/libc.ts'
import type { Log } from '../../lib/log.ts'
import { nameOf } from '../../lib/posix-ids.ts'
import { isSocketActivated, type InheritedSockets } from '../../lib/socket-activation.ts'
import { assertPathFree, assertReplaceable, createPathResource, inTurnAt, isSame } from './socket-path.ts'

/**
 * Locked by flock(2): the kernel releases it with the process, so a crash leaves nothing that blocks a start.
 */
const LOCK_FILE = 'instance.lock'
const LOCK_FLAGS = constants.O_CREAT | constants.O_NOFOLLOW | constants.O_NONBLOCK

interface Held {
  readonly fd: number
  readonly stats: Stats
}

/**
 * Once it returns, this is the only daemon here, until the process ends. Call it before anything is requested
 * or written. Throws UserError: 69 if another daemon runs, 78 if the runtime directory is not safe or cannot
 * be written, 75 if its disk does not answer. If the state directory cannot be locked for another reason than
 * a daemon, this one runs, warns, and tries again: to serve tokens is worth more than the state.
 */
export async function acquireInstanceLock(
  config: Pick<Config, 'ipc' | 'http' | 'runtimeDirectory' | 'stateDirectory'>,
  inherited: InheritedSockets,
) {
  const { ipc, http, runtimeDirectory, stateDirectory } = config
  if (!isSocketActivated(inherited)) {
    for (const socket of [ipc, http])
      if (socket !== null) await inTurnAt(socket, { work: async () => assertPathFree(socket) })
  }
  let log: Log = () => undefined
  function onProblem(error: string | null, file: string): void {
    const path = dirname(file)
    if (error === null) return log('notice', 'A directory is locked again', { event: 'state-locked', path })
    const sentence = 'Nothing keeps a second daemon out of a directory'
    log('warning', sentence, { event: 'state-unlocked', path, error })
  }
  const runtime = lockIn(runtimeDirectory, 'runtimeDirectory')
  const state = lockIn(stateDirectory, 'stateDirectory')
  const held = await lock(runtime)
  // Closing the file unlocks it.
  const release = async ({ fd }: Held): Promise<void> => fs.close(fd).catch(fallbackOnSystemError(undefined))
  const options = { make: lock, release, onProblem }
  const heldState = await lock(state, held).catch((error: unknown) => {
    if (!(error instanceof UserError) || error.status === exitStatus.unavailable) throw error
    return null
  })
  const locks = [createPathResource(runtime, held, options), createPathResource(state, heldState, options)]
  return {
    /**
     * Locks again if a lock file was removed or could not be locked. Never fails: a problem is logged, once.
     */
    async tick(nextLog: Log): Promise<void> {
      log = nextLog
      await Promise.all(locks.map(async (each) => each.tick()))
    },
  }
}

/**
 * Opens and locks the file. `other`: the lock that this process already has, perhaps of the same directory.
 */
async function lock(address: LockAddress, other?: Held): Promise<Held> {
  const { path, setting, failure } = address
  const directory = dirname(path)
  const work = async (): Promise<Held> =>
    inDirectoryOf(path, { use: 'sockets', failure }, async (reached) => {
      await assertReplaceable(address, reached)
      await removeOfGoneUser(reached)
      const held = await openLocked(reached)
      if (held.isLocked || (other !== undefined && isSame(held.stats, other.stats))) return held
      await fs.close(held.fd)
      const message = `Another kyc-tokend runs with ${directory}: stop it, or set another \`${setting}\``
      throw new UserError(message, exitStatus.unavailable)
    })
  return inTurnAt(address, { work, undo: async ({ fd }) => fs.close(fd) })
}

/**
 * A lock of a user who is gone, which nobody can hold and this user could not open, is removed; a new one is
 * made.
 */
async function removeOfGoneUser(path: string): Promise<void> {
  const found = await lstatIfAny(path)
  if (found === null || [0, process.geteuid!()].includes(found.uid)) return
  if (nameOf('user', found.uid) === String(found.uid)) await fs.unlink(path)
}

/**
 * Opened for reading, because a file open for writing keeps its file system from being remounted read-only;
 * NFS needs writing.
 */
async function openLocked(path: string, access = constants.O_RDONLY): Promise<Held & { isLocked: boolean }> {
  const fd = await fs.open(path, LOCK_FLAGS | access, 0o600)
  try {
    return { fd, stats: await fs.fstat(fd), isLocked: loadLibc().lock(fd) }
  } catch (error) {
    await fs.close(fd)
    if (errorCode(error) !== 'EBADF' || access === constants.O_RDWR) throw error
    return openLocked(path, constants.O_RDWR)
  }
}

function lockIn(directory: string, setting: string) {
  return { path: join(directory, LOCK_FILE), setting, failure: `The directory ${directory} cannot be locked` }
}
type LockAddress = ReturnType<typeof lockIn>
