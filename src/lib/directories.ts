// The daemon's own directories: made at the start, and again where they were removed.
import { exitStatus, fallbackOnSystemError, UserError } from './error.ts'
import { fs } from './fs.ts'
import type { Log } from './log.ts'
import { isUsableForCertain, prepareDirectory, runtimeDirectoryMode, STATE_DIRECTORY_MODE } from './paths.ts'
import { DiskStalledError, isQuick, onFileSystem } from './serial.ts'

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

  /** Why the directory cannot be used; null where it can. */
  async function problemOf(path: string, mode: number): Promise<string | null> {
    try {
      await onFileSystem(path, async () => prepareDirectory(path, { mode, uid }))
      return null
    } catch (error) {
      if (!(error instanceof UserError || error instanceof DiskStalledError)) throw error
      return error.message
    }
  }

  async function prepareOne(path: string, mode: number): Promise<void> {
    try {
      await onFileSystem(path, async () => prepareDirectory(path, { mode, uid }))
      await assertAnswers(path)
    } catch (error) {
      if (!(error instanceof DiskStalledError)) throw error
      if (path !== runtimeDirectory) return
      throw new UserError(
        `The directory ${path} cannot be used: ${error.message}, or set another directory.`,
        exitStatus.tryAgain,
        { cause: error },
      )
    }
  }

  return {
    async prepare() {
      for (const [path, mode] of modes) await prepareOne(path, mode)
    },
    async repair(log) {
      const doubtful = [...modes].filter(([path]) => problems.has(path) || !isUsableForCertain(path, uid))
      const repairs = doubtful.map(async ([path, mode]) => {
        const error = await problemOf(path, mode)
        if (error !== null && error !== problems.get(path))
          log('error', 'A directory cannot be kept', { event: 'directory-error', path, error })
        if (error === null) problems.delete(path)
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
  if (isQuick(directory)) return
  const now = new Date()
  // Any answer of the disk will do, also an error.
  await onFileSystem(directory, async () =>
    fs.lutimes(directory, now, now).catch(fallbackOnSystemError(undefined)),
  )
}
