// The daemon's own directories: one that is missing is made, and one that is there stays as it is.
import { constants, type Stats } from 'node:fs'
import { asFileError, FileError } from '../files/file-error.ts'
import { fs } from '../files/fs.ts'
import { asUserError, fileRemedy } from '../host/file-remedy.ts'
import { placeOf, rendered } from '../host/place-commands.ts'

const DIRECTORY_FLAGS = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW
/** Of a mode: a group or all users may write. */
const WRITE_FOR_OTHERS = 0o022

/**
 * Makes the directories that do not exist. Throws UserError (78), also for a runtime directory of another user than
 * root and the daemon's, and for one in which others can write: they could put a socket of theirs there.
 */
export async function prepareDirectories(paths: {
  runtimeDirectory: string
  stateDirectory: string
}): Promise<void> {
  // In root's runtime directory the modes of the files in it decide who has access.
  await prepare(paths.runtimeDirectory, { mode: process.geteuid!() === 0 ? 0o755 : 0o700, isRuntime: true })
  await prepare(paths.stateDirectory, { mode: 0o700 })
}

async function prepare(
  path: string,
  { mode, isRuntime = false }: { mode: number; isRuntime?: boolean },
): Promise<void> {
  try {
    const made = await fs.mkdir(path, { recursive: true, mode })
    const directory = await fs.open(path, DIRECTORY_FLAGS)
    try {
      // Whatever the umask.
      if (made !== undefined) await fs.fchmod(directory, mode)
      if (isRuntime) refuseForeign(path, await fs.fstat(directory))
    } finally {
      await fs.close(directory)
    }
  } catch (thrown) {
    const error = asFileError(path, thrown, path)
    if (!(error instanceof FileError)) throw error
    const why = rendered(fileRemedy(error, placeOf(process.env)))
    throw asUserError(error, `The directory ${path} cannot be used: ${why}.`)
  }
}

function refuseForeign(path: string, { uid, gid, mode }: Stats): void {
  const unsafe = (writers: FileError['writers']): FileError =>
    new FileError({ path, directory: path, kind: 'unsafe-directory', writers })
  if (uid !== 0 && uid !== process.geteuid!()) throw unsafe({ kind: 'user', id: uid })
  if ((mode & WRITE_FOR_OTHERS) !== 0) throw unsafe((mode & 0o002) === 0 ? { kind: 'group', id: gid } : 'all')
}
