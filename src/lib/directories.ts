// The daemon's own directories: made at the start, and again where they were removed.
import { errorMessage, UserError } from './error.ts'
import { createProblemLog, type ProblemLog } from './log-once.ts'
import type { Log } from './log.ts'
import { prepareDirectory, runtimeDirectoryMode, STATE_DIRECTORY_MODE } from './paths.ts'
import { DiskStalledError, onFileSystem } from './serial.ts'

export interface Directories {
  /** Makes those that are not there. Throws UserError (78) with the remedy. */
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

  return {
    async prepare() {
      for (const [path, mode] of modes) await prepareDirectory(path, { mode, uid })
    },
    async repair(nextLog) {
      log = nextLog
      await Promise.all([...modes].map(async ([path, mode]) => repairOne(path, mode)))
    },
  }
}
