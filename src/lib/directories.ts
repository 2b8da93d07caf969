// The daemon's own directories: made at the start, and again if they were removed.
import type { Stats } from 'node:fs'
import { DIRECTORY_FLAGS } from './atomic-file.ts'
import { directoryProblem } from './directory-access.ts'
import { DiskError, inDirectory } from './in-directory.ts'
import { errorCode, errorMessage, exitStatus, fallbackOnSystemError, UserError } from './error.ts'
import { fs } from './fs.ts'
import { createProblemLog, type Log } from './log.ts'
import { placeOf, rendered } from './remedy.ts'
import { writeRemedy } from './access-remedy.ts'

interface Directory {
  readonly path: string
  /** The mode if the directory is made, whatever the umask. */
  readonly mode: number
}

export function createDirectories(paths: { runtimeDirectory: string; stateDirectory: string }) {
  const { runtimeDirectory, stateDirectory } = paths
  let log: Log = () => undefined
  // In root's runtime directory the modes of the files in it decide who has access.
  const runtimeMode = process.geteuid!() === 0 ? 0o755 : 0o700
  const directories = [
    { path: stateDirectory, mode: 0o700 },
    { path: runtimeDirectory, mode: runtimeMode },
  ].map((directory) => {
    const { path } = directory
    const problem = createProblemLog((error) => {
      if (error !== null)
        log('error', 'A directory cannot be kept', { event: 'directory-error', path, error })
    })
    return { ...directory, problem }
  })

  async function check(directory: (typeof directories)[number]): Promise<void> {
    const error = await prepareDirectory(directory).catch(errorMessage)
    directory.problem.set(error ?? null)
  }

  return {
    /**
     * Makes those that do not exist. Throws UserError with the remedy: 78, or 75 if the disk of the runtime directory does
     * not answer; if the state directory's does not, the daemon starts. The instance lock refuses an unsafe directory.
     */
    async prepare(): Promise<void> {
      for (const directory of directories) {
        const { path } = directory
        await prepareDirectory(directory).catch((error: unknown) => {
          if (!(error instanceof DiskError)) throw error
          if (path !== runtimeDirectory) return
          const message = `The directory ${path} cannot be used: ${error.message}, or set another directory.`
          throw new UserError(message, exitStatus.tryAgain, { cause: error })
        })
      }
    },
    /** Makes them again, and checks that they are safe. Never fails: a problem is logged, once. */
    async tick(nextLog: Log): Promise<void> {
      log = nextLog
      await Promise.all(directories.map(check))
    },
  }
}

/**
 * Makes the directory if there is none; one that exists is left as it is. Returns why it must not be used, with the
 * remedy: it is a link, another user owns it, or every user can write in it. Throws UserError (78) if it cannot be made,
 * and DiskError.
 */
async function prepareDirectory(directory: Directory): Promise<string | undefined> {
  const { path } = directory
  try {
    const stats = await inDirectory(path, async () => {
      const found = await fs.lstat(path).catch(fallbackOnSystemError(null))
      return found ?? makeDirectory(directory)
    })
    if (stats.isSymbolicLink())
      return `The directory ${path} is a symbolic link, which another could replace: name the directory itself.`
    if (!stats.isDirectory()) throw Object.assign(new Error('a file is in the way'), { code: 'ENOTDIR' })
    // The mount of a sandbox keeps a removed directory reachable, but no file can be made in it.
    if (stats.nlink === 0) throw Object.assign(new Error('it was removed'), { code: 'ENOENT' })
    const problem = directoryProblem(path, stats, { uid: process.geteuid!(), use: 'sockets' })
    return problem && `The directory ${path} is not safe: ${problem}.`
  } catch (cause) {
    if (cause instanceof DiskError) throw cause
    const message = `The directory ${path} cannot be used: ${whyNot(path, cause)}, or set another directory.`
    throw new UserError(message, exitStatus.configuration, { cause })
  }
}

async function makeDirectory({ path, mode }: Directory): Promise<Stats> {
  await fs.mkdir(path, { recursive: true, mode })
  const directory = await fs.open(path, DIRECTORY_FLAGS)
  try {
    await fs.fchmod(directory, mode)
    return await fs.fstat(directory)
  } finally {
    await fs.close(directory)
  }
}

function whyNot(path: string, error: unknown): string {
  const code = errorCode(error)
  if (code === 'EEXIST' || code === 'ENOTDIR') return 'it or a part of its path is no directory: remove that'
  const place = placeOf(process.env)
  // That the directory above may not be written means the same as that this one is not there.
  const isDenied = code === 'EACCES' || code === 'EPERM'
  return rendered(writeRemedy(path, isDenied ? Object.assign(new Error(), { code: 'ENOENT' }) : error, place))
}
