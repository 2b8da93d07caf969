// The daemon's own directories: made at the start, and again where they were removed.
import { cureOf } from './account.ts'
import { exitStatus, UserError } from './error.ts'
import type { Log } from './log.ts'
import { prepareDirectory, runtimeDirectoryMode, STATE_DIRECTORY_MODE } from './paths.ts'
import { DiskStalledError, onFileSystem } from './disk-queue.ts'

export interface Directories {
  /**
   * Makes those that are not there. Throws UserError with the remedy: 78, or 75 where the disk of the runtime directory
   * does not answer. The state directory may be one that does not. The instance lock refuses one that is not safe.
   */
  prepare(): Promise<void>
  /** The same again, and whether they are safe. Never fails, and waits for no disk: a problem is logged, once. */
  tick(log: Log): Promise<void>
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
    return onFileSystem(path, async () => prepareDirectory(path, { mode, uid })).catch((error: unknown) => {
      const cure = cureOf(path, process.env)
      if (!(error instanceof UserError) || cure === undefined) throw error
      throw new UserError(`The directory ${path} cannot be used: ${cure}.`, error.status, { cause: error })
    })
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

  return {
    async prepare() {
      for (const [path, mode] of modes) {
        await prepareOne(path, mode).catch((error: unknown) => {
          if (!(error instanceof DiskStalledError)) throw error
          if (path !== runtimeDirectory) return
          const message = `The directory ${path} cannot be used: ${error.message}, or set another directory.`
          throw new UserError(message, exitStatus.tryAgain, { cause: error })
        })
      }
    },
    async tick(log) {
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
