// The one writer of a whole file: a reader sees the old file or the new one, whole, with its mode and owner from
// the first moment, also after a crash.
import { constants, type Stats } from 'node:fs'
import { basename, dirname } from 'node:path'
import { errorCode, fallbackOnSystemError } from '../lib/error.ts'
import { asFileError, FileError } from './file-error.ts'
import { fs, MODE_BITS, SETGID } from './fs.ts'

export interface FileAttributes {
  /** Permission bits, whatever the umask. */
  readonly mode: number
  /** Numeric ids; null or left out: as the file is created. */
  readonly uid?: number | null
  readonly gid?: number | null
}

export interface WholeFile {
  readonly text: string
  readonly attributes: FileAttributes
}

/** `O_NOFOLLOW`: never a link. `O_NONBLOCK`: never waits for the other end of a FIFO. */
const CREATE_FLAGS = constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW | constants.O_WRONLY
const DIRECTORY_FLAGS = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW
const READ_FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK | constants.O_NOCTTY
/** Of an fsync that the file system of a directory does not have. */
const WITHOUT_SYNC = new Set(['EINVAL', 'ENOSYS', 'ENOTSUP', 'EPERM'])

/** A directory that is open, and so stays the same whatever happens to its name. */
interface Directory {
  readonly fd: number
  /** The group of a file that is created in it. */
  readonly gid: number
  /** The path of a name in it. */
  readonly at: (name: string) => string
}

/** Writes the file durably under its name. Throws FileError; then the file is as it was. */
export async function replaceFile(path: string, file: WholeFile): Promise<void> {
  await inDirectoryOf(path, async (directory) => {
    await statTarget(path, directory)
    await writeAndRename(path, { directory, ...file })
    await syncDirectory(directory.fd)
  })
}

/** Removes the file durably, and what a crash left of replacing it. Throws FileError. */
export async function removeFile(path: string): Promise<void> {
  await inDirectoryOf(path, async (directory) => {
    const stats = await statTarget(path, directory)
    const isLeftover = await unlinkIfAny(directory.at(temporaryOf(path)))
    if (stats !== null) await fs.unlink(directory.at(basename(path)))
    if (isLeftover || stats !== null) await syncDirectory(directory.fd)
  })
}

/** A file as it is. */
interface FileState {
  /** Null: it is longer than was asked for, or may not be read. */
  readonly text: string | null
  readonly stats: Stats
  /** Those of the file that it was compared with. */
  readonly hasAttributes: boolean
}

/** Compares the file with the one that should be there; null: there is none. Throws FileError. */
export async function readWholeFile(
  path: string,
  wanted: WholeFile | null,
  maxBytes = Buffer.byteLength(wanted?.text ?? ''),
): Promise<FileState | null> {
  return inDirectoryOf(path, async (directory) => {
    const stats = await statTarget(path, directory)
    if (stats === null) return null
    const text = stats.size <= maxBytes ? await readText(directory.at(basename(path))) : null
    const hasAttributes = wanted === null || isAsWanted(stats, wantedOf(wanted.attributes, directory))
    return { text, stats, hasAttributes }
  })
}

/** Null: it may not be read, or another program has removed or exchanged it meanwhile. */
async function readText(path: string): Promise<string | null> {
  const file = await fs.open(path, READ_FLAGS).catch(fallbackOnSystemError(null))
  if (file === null) return null
  try {
    return (await fs.fstat(file)).isFile() ? await fs.readFile(file, 'utf8') : null
  } finally {
    await fs.close(file)
  }
}

/**
 * Opens the directory itself, and refuses one in which others can exchange what this user makes. A group may
 * write there: whoever made the directory gave it to that group. Throws FileError.
 */
async function inDirectoryOf<T>(path: string, work: (directory: Directory) => Promise<T>): Promise<T> {
  try {
    const fd = await fs.open(dirname(path), DIRECTORY_FLAGS)
    try {
      const { mode, uid, gid } = await fs.fstat(fd)
      const me = process.geteuid!()
      // The owner of a directory exchanges all in it. Root gives files away, and so uses none of other owners.
      const isForeign = me === 0 && uid !== 0
      if ((mode & 0o002) !== 0 || isForeign) throw new FileError({ path, kind: 'unsafe-directory' })
      const groupOfNew = (mode & SETGID) === 0 ? process.getegid!() : gid
      return await work({ fd, gid: groupOfNew, at: (name) => `/proc/self/fd/${fd}/${name}` })
    } finally {
      await fs.close(fd)
    }
  } catch (error) {
    throw asFileError(path, error)
  }
}

/** The name under which the file is written. One writer has one at a time, so a crash leaves one. */
function temporaryOf(path: string): string {
  return `.${basename(path)}.kyc`
}

/** What has the path; null: nothing. Throws FileError for what is never replaced. */
async function statTarget(path: string, directory: Directory): Promise<Stats | null> {
  const stats = await fs.lstat(directory.at(basename(path))).catch((error: unknown) => {
    if (errorCode(error) === 'ENOENT') return null
    throw error
  })
  if (stats === null || stats.isFile()) return stats
  const code = stats.isSymbolicLink() ? 'ELOOP' : stats.isDirectory() ? 'EISDIR' : undefined
  throw new FileError({ path, kind: 'odd-target', code })
}

/** Writes and syncs the file under its temporary name, and renames it. After an error nothing of it is left. */
async function writeAndRename(
  path: string,
  { directory, text, attributes }: WholeFile & { directory: Directory },
): Promise<void> {
  const temporary = directory.at(temporaryOf(path))
  await unlinkIfAny(temporary)
  // Private until it has its owner: another user who opened it before would see what is written later.
  const file = await fs.open(temporary, CREATE_FLAGS, 0o600)
  try {
    const wanted = wantedOf(attributes, directory)
    const created = await fs.fstat(file)
    // The owner first: chown takes set-id bits away, and the mode must not open the file to another group.
    if (created.uid !== wanted.uid || created.gid !== wanted.gid)
      await fs.fchown(file, wanted.uid, wanted.gid)
    await fs.fchmod(file, wanted.mode)
    if (!isAsWanted(await fs.fstat(file), wanted)) throw new FileError({ path, kind: 'attributes' })
    await fs.writeFile(file, text)
    await fs.fsync(file)
    await fs.rename(temporary, directory.at(basename(path)))
  } catch (error) {
    // The first error is the cause: after it the file system may have become read-only.
    await fs.close(file).catch(() => undefined)
    await fs.unlink(temporary).catch(() => undefined)
    throw error
  }
  await fs.close(file)
}

function wantedOf({ mode, uid, gid }: FileAttributes, directory: Directory) {
  return { mode, uid: uid ?? process.geteuid!(), gid: gid ?? directory.gid }
}

function isAsWanted(stats: Stats, { mode, uid, gid }: ReturnType<typeof wantedOf>): boolean {
  return (stats.mode & MODE_BITS) === mode && stats.uid === uid && stats.gid === gid
}

async function unlinkIfAny(path: string): Promise<boolean> {
  try {
    await fs.unlink(path)
    return true
  } catch (error) {
    if (errorCode(error) !== 'ENOENT') throw error
    return false
  }
}

/** Not every file system can do it. */
async function syncDirectory(fd: number): Promise<void> {
  await fs.fsync(fd).catch((error: unknown) => {
    if (!WITHOUT_SYNC.has(errorCode(error) ?? '')) throw error
  })
}
