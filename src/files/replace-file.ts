// The one writer of a whole file: a reader sees the old file or the new one, whole, with its mode and owner from
// the first moment, also after a crash.
import { constants, type Stats } from 'node:fs'
import fs, { type FileHandle } from 'node:fs/promises'
import { basename, dirname } from 'node:path'
import { errorCode, fallbackOnSystemError } from '../lib/error.ts'
import { asFileError, FileError } from './file-error.ts'

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
export const DIRECTORY_FLAGS = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW
const READ_FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK | constants.O_NOCTTY
/** Of a mode: permissions, set-id bits and the sticky bit. */
const MODE_BITS = 0o7777
/** A file that is made in a directory with this bit belongs to the group of the directory. */
const SETGID = 0o2000
/** Of an fsync that the file system of a directory does not have. */
const WITHOUT_SYNC = new Set(['EINVAL', 'ENOSYS', 'ENOTSUP', 'EPERM'])

/** Writes the file durably under its name. Throws FileError; then the file is as it was. */
export async function replaceFile(path: string, file: WholeFile): Promise<void> {
  await inDirectoryOf(path, async (target) => {
    await statTarget(target)
    await writeAndRename(target, file)
    await syncDirectory(target)
  })
}

/** Removes the file durably, and what a crash left of replacing it. Throws FileError. */
export async function removeFile(path: string): Promise<void> {
  await inDirectoryOf(path, async (target) => {
    await statTarget(target)
    for (const each of [target.temporary, target.file]) await fs.unlink(each).catch(nullIfAbsent)
    await syncDirectory(target)
  })
}

/**
 * The file as it is; null: there is none. `text` is null where it is longer than asked for, or may not be read.
 * `hasAttributes`: it has those of the one that should be there. Throws FileError.
 */
export async function readWholeFile(
  path: string,
  wanted: WholeFile | null,
  maxBytes = Buffer.byteLength(wanted?.text ?? ''),
) {
  return inDirectoryOf(path, async (target) => {
    const stats = await statTarget(target)
    if (stats === null) return null
    const text = stats.size <= maxBytes ? await readText(target.file) : null
    return { text, stats, hasAttributes: wanted === null || isAsWanted(stats, wanted.attributes, target) }
  })
}

/** Null: it may not be read, or another program has removed or exchanged it meanwhile. */
async function readText(path: string): Promise<string | null> {
  await using file = await fs.open(path, READ_FLAGS).catch(fallbackOnSystemError(null))
  if (file === null || !(await file.stat()).isFile()) return null
  return await file.readFile('utf8')
}

/** A path in a directory that is open, and so stays the same whatever happens to its name. */
interface Target {
  readonly path: string
  readonly directory: FileHandle
  /** The group of a file that is created in it. */
  readonly gid: number
  /** The file by its open directory, and the name under which it is written: one writer leaves one in a crash. */
  readonly file: string
  readonly temporary: string
}

/**
 * Opens the directory itself, and refuses one in which others can exchange what this user makes. A group may
 * write there: whoever made the directory gave it to that group. Throws FileError.
 */
async function inDirectoryOf<T>(path: string, work: (target: Target) => Promise<T>): Promise<T> {
  try {
    await using directory = await fs.open(dirname(path), DIRECTORY_FLAGS)
    const { mode, uid, gid } = await directory.stat()
    // The owner of a directory exchanges all in it. Root gives files away, and so uses none of other owners.
    const isForeign = process.geteuid!() === 0 && uid !== 0
    if ((mode & 0o002) !== 0 || isForeign) throw new FileError({ path, kind: 'unsafe-directory' })
    const groupOfNew = (mode & SETGID) === 0 ? process.getegid!() : gid
    const [at, name] = [`/proc/self/fd/${directory.fd}`, basename(path)]
    return await work({
      path,
      directory,
      gid: groupOfNew,
      file: `${at}/${name}`,
      temporary: `${at}/.${name}.kyc`,
    })
  } catch (error) {
    throw asFileError(path, error)
  }
}

/** The file that has the path; null: nothing has it. Throws FileError for what is never replaced. */
async function statTarget({ path, file }: Target): Promise<Stats | null> {
  const stats = await fs.lstat(file).catch(nullIfAbsent)
  if (stats?.isFile() === false) throw new FileError({ path, kind: 'odd-target' })
  return stats
}

/** Writes and syncs the file under its temporary name, and renames it. After an error nothing of it is left. */
async function writeAndRename(target: Target, { text, attributes }: WholeFile): Promise<void> {
  await fs.unlink(target.temporary).catch(nullIfAbsent)
  // Private until it has its owner: another user who opened it before would see what is written later.
  const file = await fs.open(target.temporary, CREATE_FLAGS, 0o600)
  try {
    const { mode, uid, gid } = wantedOf(attributes, target)
    const created = await file.stat()
    // The owner first: chown takes set-id bits away, and the mode must not open the file to another group.
    if (created.uid !== uid || created.gid !== gid) await file.chown(uid, gid)
    await file.chmod(mode)
    if (!isAsWanted(await file.stat(), attributes, target))
      throw new FileError({ path: target.path, kind: 'attributes' })
    await file.writeFile(text)
    await file.sync()
    await fs.rename(target.temporary, target.file)
  } catch (error) {
    // The first error is the cause: after it the file system may have become read-only.
    await Promise.allSettled([file.close(), fs.unlink(target.temporary)])
    throw error
  }
  await file.close()
}

function wantedOf({ mode, uid, gid }: FileAttributes, target: Target) {
  return { mode, uid: uid ?? process.geteuid!(), gid: gid ?? target.gid }
}

function isAsWanted(stats: Stats, attributes: FileAttributes, target: Target): boolean {
  const { mode, uid, gid } = wantedOf(attributes, target)
  return (stats.mode & MODE_BITS) === mode && stats.uid === uid && stats.gid === gid
}

function nullIfAbsent(error: unknown): null {
  if (errorCode(error) !== 'ENOENT') throw error
  return null
}

/** Not every file system can do it. */
async function syncDirectory({ directory }: Target): Promise<void> {
  await directory.sync().catch((error: unknown) => {
    if (!WITHOUT_SYNC.has(errorCode(error) ?? '')) throw error
  })
}
