// The daemon's own directories: made at the start, and again where they were removed.
import { exitStatus, fallbackOnSystemError, UserError } from './error.ts'
import { fs } from './fs.ts'
import type { Log } from './log.ts'
import { prepareDirectory, runtimeDirectoryMode, STATE_DIRECTORY_MODE } from './paths.ts'
import { DiskStalledError, onFileSystem } from './disk-queue.ts'

export interface Directories {
  /**
   * Makes those that are not there. Throws UserError with the remedy: 78, or 75 where the disk of the runtime directory
   * does not answer. The state directory may be one that does not.
   */
  prepare(): Promise<void>
  /** The same again. Never fails, and waits for no disk: a problem is logged, once. */
  repair(log: Log): Promise<void>
}

export function createDirectories(options: {
  runtimeDirectory: string
  stateDirectory: string
  uid: number
}): Directories {
  const { runtimeDirectory, stateDirectory, uid } = options
  const modes = new Map([
    [stateDirectory, STATE_DIRECTORY_MODE],
    [runtimeDirectory, runtimeDirectoryMode(uid)],
  ])
  const problems = new Map<string, string>()

  async function prepareOne(path: string, mode: number): Promise<string | undefined> {
    return onFileSystem(path, async () => prepareDirectory(path, { mode, uid }))
  }

  /** Why the directory cannot be used; undefined where it can. */
  async function problemOf(path: string, mode: number): Promise<string | undefined> {
    try {
      return await prepareOne(path, mode)
    } catch (error) {
      if (!(error instanceof UserError || error instanceof DiskStalledError)) throw error
      return error.message
    }
  }

  /** State is worth less than tokens: the daemon does without a directory that is not safe or does not answer. */
  async function prepareAtStart(path: string, mode: number): Promise<void> {
    const isNeeded = path === runtimeDirectory
    try {
      const problem = await prepareOne(path, mode)
      if (problem !== undefined && isNeeded) throw new UserError(problem, exitStatus.configuration)
      await assertAnswers(path)
    } catch (error) {
      if (!(error instanceof DiskStalledError)) throw error
      if (!isNeeded) return
      throw new UserError(
        `The directory ${path} cannot be used: ${error.message}, or set another directory.`,
        exitStatus.tryAgain,
        { cause: error },
      )
    }
  }

  return {
    async prepare() {
      for (const [path, mode] of modes) await prepareAtStart(path, mode)
    },
    async repair(log) {
      const repairs = [...modes].map(async ([path, mode]) => {
        const error = await problemOf(path, mode)
        if (error !== undefined && error !== problems.get(path))
          log('error', 'A directory cannot be kept', { event: 'directory-error', path, error })
        if (error === undefined) problems.delete(path)
        else problems.set(path, error)
      })
      await Promise.all(repairs)
    },
  }
}

/**
 * Throws DiskStalledError where names cannot be made in this directory at present, because its disk does not answer. To
 * be called before a call that waits for the disk on the main thread.
 */
export async function assertAnswers(directory: string): Promise<void> {
  const now = new Date()
  // Any answer of the disk will do, also an error.
  await onFileSystem(directory, async () =>
    fs.lutimes(directory, now, now).catch(fallbackOnSystemError(undefined)),
  )
}
