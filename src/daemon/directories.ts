// The daemon's own directories: made at the start, and again if they were removed.
import { DIRECTORY_FLAGS } from '../files/atomic-file.ts'
import { asFileError, FileError } from '../files/file-error.ts'
import { absentRemedy, asUserError, fileRemedy } from '../host/file-remedy.ts'
import { exitStatus, UserError } from '../lib/error.ts'
import { fs } from '../files/fs.ts'
import { inDirectory } from '../files/in-directory.ts'
import { placeOf, remedy, rendered, type Remedy } from '../host/place-commands.ts'

export function createDirectories(paths: { runtimeDirectory: string; stateDirectory: string }) {
  const { runtimeDirectory, stateDirectory } = paths
  // In root's runtime directory the modes of the files in it decide who has access.
  const runtimeMode = process.geteuid!() === 0 ? 0o755 : 0o700
  const makeState = async (): Promise<void> => make(stateDirectory, 0o700)
  const makeRuntime = async (): Promise<void> => make(runtimeDirectory, runtimeMode)
  return {
    /**
     * Makes those that do not exist; one that exists is left as it is, and what uses it refuses an unsafe
     * one. Throws UserError with the remedy: 78, or 75 if the disk of the runtime directory does not answer;
     * if the state directory's does not, the daemon starts.
     */
    async prepare(): Promise<void> {
      await makeState().catch((error: unknown) => {
        if (!(error instanceof UserError) || error.status !== exitStatus.tryAgain) throw error
      })
      await makeRuntime()
    },
    /** Makes them again if they were removed. Never fails: its users report one that is not there. */
    async tick(): Promise<void> {
      for (const result of await Promise.allSettled([makeState(), makeRuntime()]))
        if (result.status === 'rejected' && !(result.reason instanceof UserError)) throw result.reason
    },
  }
}

/** Makes the directory if there is none, with this mode whatever the umask. Throws UserError. */
async function make(path: string, mode: number): Promise<void> {
  try {
    await inDirectory(path, async () => {
      const made = await fs.mkdir(path, { recursive: true, mode })
      if (made !== undefined) await setMode(path, mode)
    })
  } catch (thrown) {
    const error = asFileError(path, thrown, path)
    if (!(error instanceof FileError)) throw error
    const why = rendered(whyNot(error))
    throw asUserError(error, `The directory ${path} cannot be used: ${why}, or set another directory.`)
  }
}

async function setMode(path: string, mode: number): Promise<void> {
  const directory = await fs.open(path, DIRECTORY_FLAGS)
  try {
    await fs.fchmod(directory, mode)
  } finally {
    await fs.close(directory)
  }
}

function whyNot(error: FileError): Remedy {
  const { path, code } = error
  if (code === 'EEXIST' || code === 'ENOTDIR')
    return remedy('it or a part of its path is no directory: remove that')
  const place = placeOf(process.env)
  // Where the directory above may not be written, somebody else has to make this one.
  return code === 'EACCES' || code === 'EPERM' ? absentRemedy(path, place) : fileRemedy(error, place)
}
