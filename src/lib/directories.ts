// The daemon's own directories: made at the start, and again where they were removed.
import { constants } from 'node:fs'
import { cureOf } from './account.ts'
import { directoryProblem } from './directory-access.ts'
import { DiskStalledError, onFileSystem } from './disk-queue.ts'
import { errorCode, errorMessage, exitStatus, fallbackOnSystemError, UserError } from './error.ts'
import { fs } from './fs.ts'
import { createProblemLog, type Log } from './log.ts'

export interface Directories {
  /**
   * Makes those that are not there. Throws UserError with the remedy: 78, or 75 where the disk of the runtime directory
   * does not answer. The state directory may be one that does not. The instance lock refuses one that is not safe.
   */
  prepare(): Promise<void>
  /** The same again, and whether they are safe. Never fails, and waits for no disk: a problem is logged, once. */
  tick(log: Log): Promise<void>
}

export function createDirectories({
  runtimeDirectory,
  stateDirectory,
  uid,
}: {
  runtimeDirectory: string
  stateDirectory: string
  uid: number
}): Directories {
  let log: Log = () => undefined
  const directoryAt = (path: string, mode: number) => {
    const problem = createProblemLog((error) => {
      if (error !== null)
        log('error', 'A directory cannot be kept', { event: 'directory-error', path, error })
    })
    return { path, mode, problem }
  }
  // The modes of what is in root's runtime directory decide.
  const directories = [
    directoryAt(stateDirectory, 0o700),
    directoryAt(runtimeDirectory, uid === 0 ? 0o755 : 0o700),
  ]

  /** Why the directory must not be used; undefined where it may. */
  async function prepareOne({ path, mode }: { path: string; mode: number }): Promise<string | undefined> {
    return onFileSystem(path, async () => prepareDirectory(path, { mode, uid })).catch((error: unknown) => {
      const cure = cureOf(path, process.env)
      if (!(error instanceof UserError) || cure === undefined) throw error
      throw new UserError(`The directory ${path} cannot be used: ${cure}.`, error.status, { cause: error })
    })
  }

  return {
    async prepare() {
      for (const directory of directories) {
        const { path } = directory
        await prepareOne(directory).catch((error: unknown) => {
          if (!(error instanceof DiskStalledError)) throw error
          if (path !== runtimeDirectory) return
          const message = `The directory ${path} cannot be used: ${error.message}, or set another directory.`
          throw new UserError(message, exitStatus.tryAgain, { cause: error })
        })
      }
    },
    async tick(nextLog) {
      log = nextLog
      const ticks = directories.map(async (directory) => {
        const error = await prepareOne(directory).catch((thrown: unknown) => {
          if (thrown instanceof UserError || thrown instanceof DiskStalledError) return thrown.message
          throw thrown
        })
        directory.problem.set(error ?? null)
      })
      await Promise.all(ticks)
    },
  }
}

/** Of the directory itself, whatever a link says. */
const DIRECTORY_FLAGS = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW

/**
 * Makes the directory with this mode, whatever the umask; one that exists is left as it is. Returns why it must not be
 * used, with the remedy: it is a link, another user owns it, or every user can write in it. Throws UserError (78) where it
 * cannot be made.
 */
export async function prepareDirectory(
  path: string,
  { mode, uid }: { mode: number; uid: number },
): Promise<string | undefined> {
  try {
    // mkdir of a directory that exists would wait for a frozen disk.
    const isMade = (await fs.lstat(path).catch(fallbackOnSystemError(null))) === null
    if (isMade) await fs.mkdir(path, { recursive: true, mode })
    const directory = await fs.open(path, DIRECTORY_FLAGS)
    try {
      const stats = await fs.fstat(directory)
      if (isMade && (stats.mode & 0o7777) !== mode) await fs.fchmod(directory, mode)
      // As a mount of a sandbox it outlives its name: no file can be made in it.
      if (stats.nlink === 0) throw Object.assign(new Error('it was removed'), { code: 'ENOENT' })
      const problem = directoryProblem(path, stats, { uid, use: 'sockets' })
      return problem && `The directory ${path} is not safe: ${problem}.`
    } finally {
      await fs.close(directory)
    }
  } catch (error) {
    const isLink = (await fs.lstat(path).catch(fallbackOnSystemError(null)))?.isSymbolicLink()
    if (isLink === true)
      return `The directory ${path} is a symbolic link, which another could replace: name the directory itself.`
    throw new UserError(cannotMake(path, error), exitStatus.configuration, { cause: error })
  }
}

function cannotMake(path: string, error: unknown): string {
  const code = errorCode(error)
  if (code === 'EEXIST' || code === 'ENOTDIR')
    return `${path} cannot be a directory, because it or a part of its path is something else: remove that, or set another directory.`
  if (code === 'EROFS')
    return `The directory ${path} cannot be made, because the file system there is read-only: under systemd name it in a ReadWritePaths= drop-in, or set another directory.`
  if (code === 'EACCES' || code === 'EPERM')
    return `The directory ${path} may not be made: make it as root and give it to the daemon's user (install -d -m 0700 -o USER ${path}), or set another directory.`
  return `The directory ${path} cannot be made (${errorMessage(error)}): set another directory.`
}
