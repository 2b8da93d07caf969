// The daemon's own directories: one that is missing is made, one that is there stays as it is, and both are locked,
// so that of all daemons that are started for the same directory one lives.
import { constants, type Stats } from 'node:fs'
import { asFileError, FileError } from '../files/file-error.ts'
import { fs } from '../files/fs.ts'
import { asUserError } from '../host/place.ts'
import { exitStatus, fallbackOnSystemError, UserError } from '../lib/error.ts'
import { loadLibc } from '../lib/libc.ts'

type Setting = 'runtimeDirectory' | 'stateDirectory'

const DIRECTORY_FLAGS = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW
/** Of a mode: a group or all users may write. */
const WRITE_FOR_OTHERS = 0o022

/**
 * Makes the directories that do not exist, and locks both until the process ends: the kernel releases a lock with
 * it, so that a crash leaves nothing that blocks a start. Call it before anything is requested, bound or written.
 * Throws UserError: 69 if another daemon has one of them; 78 also for a runtime directory of another user than root
 * and the daemon's, and for one in which others can write: they could put a socket of theirs there.
 */
export async function takeDirectories(paths: Readonly<Record<Setting, string>>): Promise<void> {
  // In root's runtime directory the modes of the files in it decide who has access.
  const mode = process.geteuid!() === 0 ? 0o755 : 0o700
  const runtime = await take('runtimeDirectory', paths.runtimeDirectory, { mode, refuse: refuseForeign })
  await take('stateDirectory', paths.stateDirectory, { mode: 0o700, locked: runtime })
}

/** `locked`: the directory that this process has locked already, which this one may be. */
async function take(
  setting: Setting,
  path: string,
  { mode, refuse, locked }: { mode: number; refuse?: (path: string, stats: Stats) => void; locked?: Stats },
): Promise<Stats> {
  try {
    const made = await fs.mkdir(path, { recursive: true, mode })
    const fd = await fs.open(path, DIRECTORY_FLAGS)
    // Whatever the umask.
    if (made !== undefined) await fs.fchmod(fd, mode)
    const stats = await fs.fstat(fd)
    refuse?.(path, stats)
    const isLocked = stats.ino === locked?.ino && stats.dev === locked.dev
    if (isLocked || isLockedBy(fd)) return stats
    const message = `Another kyc-tokend runs with ${path}: stop it, or set another \`${setting}\``
    throw new UserError(message, exitStatus.unavailable)
  } catch (thrown) {
    const error = asFileError(path, thrown, path)
    if (!(error instanceof FileError)) throw error
    throw asUserError(error, process.env, `The directory ${path} cannot be used: `)
  }
}

/** False: another daemon has locked it. A file system without such locks, as some of networks are, keeps none out. */
function isLockedBy(fd: number): boolean {
  try {
    return loadLibc().lock(fd)
  } catch (error) {
    return fallbackOnSystemError(true)(error)
  }
}

function refuseForeign(path: string, { uid, gid, mode }: Stats): void {
  const unsafe = (writers: FileError['writers']): FileError =>
    new FileError({ path, directory: path, kind: 'unsafe-directory', writers })
  if (uid !== 0 && uid !== process.geteuid!()) throw unsafe({ kind: 'user', id: uid })
  if ((mode & WRITE_FOR_OTHERS) !== 0) throw unsafe((mode & 0o002) === 0 ? { kind: 'group', id: gid } : 'all')
}
