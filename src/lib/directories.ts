// The daemon's own directories: made at the start, and again where they were removed.
import { lutimes } from 'node:fs/promises'
import { errorCode, errorMessage, exitStatus, UserError } from './error.ts'
import { createProblemLog, type ProblemLog } from './log-once.ts'
import type { Log } from './log.ts'
import { prepareDirectory, runtimeDirectoryMode, STATE_DIRECTORY_MODE } from './paths.ts'
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
  let log: Log = () => undefined
  const problems = new Map([...modes.keys()].map((path) => [path, createDirectoryProblemLog(path)]))

  function createDirectoryProblemLog(path: string): ProblemLog {
    return createProblemLog((error) => {
      if (error !== null)
        log('error', 'A directory cannot be kept', { event: 'directory-error', path, error })
    })
  }

  async function repairOne(path: string, mode: number): Promise<void> {
    try {
      await onFileSystem(path, async () => prepareDirectory(path, { mode, uid }))
      problems.get(path)?.set(null)
    } catch (error) {
      if (!(error instanceof UserError || error instanceof DiskStalledError)) throw error
      problems.get(path)?.set(errorMessage(error))
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
    async repair(nextLog) {
      log = nextLog
      await Promise.all([...modes].map(async ([path, mode]) => repairOne(path, mode)))
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
  await onFileSystem(directory, async () => lutimes(directory, now, now).catch(ignoreSystemError))
}

/** Any answer of the disk will do, also an error. */
function ignoreSystemError(error: unknown): void {
  if (errorCode(error) === undefined) throw error
}
