// The daemon's own directories: made at the start, and made anew where somebody removes them.
import { UserError } from './error.ts'
import type { Log } from './log.ts'
import { prepareDirectory, runtimeDirectoryMode, STATE_DIRECTORY_MODE } from './places.ts'

export interface Directories {
  /** Makes what is not there. Throws UserError (78) with the remedy. */
  prepare(): void
  /** The same again; what speaks against it is told in the log, once. */
  look(log: Log): void
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

  function lookAt(path: string, mode: number, log: Log): void {
    try {
      prepareDirectory(path, { mode, uid })
      problems.delete(path)
    } catch (error) {
      if (!(error instanceof UserError)) throw error
      if (problems.get(path) !== error.message) {
        log('error', 'A directory cannot be kept', { event: 'directory-error', path, error: error.message })
      }
      problems.set(path, error.message)
    }
  }

  return {
    prepare() {
      for (const [path, mode] of modes) prepareDirectory(path, { mode, uid })
    },
    look(log) {
      for (const [path, mode] of modes) lookAt(path, mode, log)
    },
  }
}
