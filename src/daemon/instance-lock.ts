// Single-instance lock: of all daemons that are started for the same directories one lives.
import { constants, type Stats } from 'node:fs'
import { join } from 'node:path'
import type { Config } from '../config/config.ts'
import { isSameInode, throughDirectory } from '../files/atomic-file.ts'
import { asFileError, FileError } from '../files/file-error.ts'
import { fs } from '../files/fs.ts'
import { inDirectory } from '../files/in-directory.ts'
import { asUserError, fileRemedy } from '../host/file-remedy.ts'
import { OWN_FILES } from '../host/paths.ts'
import { placeOf, rendered } from '../host/place-commands.ts'
import { errorCode, exitStatus, UserError } from '../lib/error.ts'
import { loadLibc } from '../lib/libc.ts'

/**
 * It is locked by flock(2): the kernel releases it with the process, so a crash leaves nothing that blocks a
 * start.
 */
const { lock: LOCK_FILE } = OWN_FILES.runtimeDirectory
const LOCK_FLAGS = constants.O_CREAT | constants.O_NOFOLLOW | constants.O_NONBLOCK

/**
 * Once it returns, this is the only daemon here, until the process ends. Call it before anything is requested,
 * bound or written. Throws UserError: 69 if another daemon runs, 78 if the runtime directory is not safe or
 * cannot be written, 75 if its disk does not answer. `unlocked`: why the state directory could not be locked, if
 * not for a daemon: to serve tokens is worth more than the state. Null: it is locked.
 */
export async function acquireInstanceLock({
  runtimeDirectory,
  stateDirectory,
}: Pick<Config, 'runtimeDirectory' | 'stateDirectory'>): Promise<{ readonly unlocked: string | null }> {
  const held = await lock(runtimeDirectory, 'runtimeDirectory')
  try {
    await lock(stateDirectory, 'stateDirectory', held.stats)
    return { unlocked: null }
  } catch (error) {
    if (!(error instanceof UserError) || error.status === exitStatus.unavailable) throw error
    return { unlocked: error.message }
  }
}

/** Locks the directory. `held`: the lock that this process already has, perhaps of the same directory. */
async function lock(directory: string, setting: string, held?: Stats): Promise<{ fd: number; stats: Stats }> {
  const path = join(directory, LOCK_FILE)
  try {
    return await inDirectory(directory, () =>
      throughDirectory(path, 'sockets', async (reached) => {
        const { fd, stats, isLocked } = await openLocked(reached)
        if (isLocked || (held !== undefined && isSameInode(stats, held))) return { fd, stats }
        await fs.close(fd)
        const message = `Another kyc-tokend runs with ${directory}: stop it, or set another \`${setting}\``
        throw new UserError(message, exitStatus.unavailable)
      }),
    )
  } catch (thrown) {
    const error = asFileError(path, thrown)
    if (!(error instanceof FileError)) throw error
    const why = rendered(fileRemedy(error, placeOf(process.env)))
    const failure = `The directory ${directory} cannot be locked`
    throw asUserError(error, `${failure}: ${why}, or set another \`${setting}\``)
  }
}

/**
 * Opened for reading, because a file open for writing keeps its file system from being remounted read-only;
 * NFS needs writing.
 */
async function openLocked(
  path: string,
  access = constants.O_RDONLY,
): Promise<{ fd: number; stats: Stats; isLocked: boolean }> {
  const fd = await fs.open(path, LOCK_FLAGS | access, 0o600)
  try {
    return { fd, stats: await fs.fstat(fd), isLocked: loadLibc().lock(fd) }
  } catch (error) {
    await fs.close(fd)
    if (errorCode(error) !== 'EBADF' || access === constants.O_RDWR) throw error
    return openLocked(path, constants.O_RDWR)
  }
}
