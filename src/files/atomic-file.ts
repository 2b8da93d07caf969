// Replaces a file: a reader sees the old one or the new one, whole, with its mode and owner from the start.
import { constants, type Stats } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { randomHex } from '../lib/crypto.ts'
import { accessListOf, type AccessList } from '../lib/access-list.ts'
import { directoryAccess, isHeldBySticky, type DirectoryStats } from '../lib/directory-access.ts'
import { errorCode } from '../lib/error.ts'
import { fs, MODE_BITS } from './fs.ts'
import { asFileError, FileError } from './file-error.ts'
import { inDirectory } from './in-directory.ts'

export interface FileAttributes {
  /** Permission bits, whatever the umask. */
  readonly mode: number
  /** Numeric ids; null or left out: as the file is created. */
  readonly uid?: number | null
  readonly gid?: number | null
}

const CREATE_FLAGS = constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW | constants.O_WRONLY
/** Opens the directory itself, never what a link leads to. */
export const DIRECTORY_FLAGS = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW
/** Never follows a link, never waits for the other end of a FIFO. */
const READ_FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK | constants.O_NOCTTY

/**
 * Writes the file durably under its name, and gives its stats and the code of the error by which its
 * directory could not be synced; null: it was. Throws FileError; then the file is as it was.
 */
export async function replaceFile(
  path: string,
  content: string | Uint8Array,
  attributes: FileAttributes,
): Promise<{ stats: Stats; unsynced: string | null }> {
  return throughDirectory(path, 'files', async (reached, directory) => {
    await refuseTarget(path, { found: await lstatIfAny(reached), directory })
    const stats = await writeAndRename(reached, { path, content, attributes })
    return { stats, unsynced: await syncDirectory(directory) }
  })
}

/**
 * Removes a regular file durably, if there is one; anything else at the path stays. Gives the code
 * of the error by which its directory could not be synced; null: it was. Throws FileError.
 */
export async function removeFile(path: string): Promise<string | null> {
  return throughDirectory(path, 'files', async (reached, directory) => {
    const stats = await lstatIfAny(reached)
    if (stats === null) return null
    await refuseTarget(path, { found: stats, directory })
    await fs.unlink(reached)
    return syncDirectory(directory)
  })
}

/** Not every file system can do it. The file is there all the same. */
async function syncDirectory(directory: number): Promise<string | null> {
  try {
    await fs.fsync(directory)
    return null
  } catch (error) {
    const code = errorCode(error)
    if (code === undefined) throw error
    return code
  }
}

/**
 * Removes what a crash left of replacing the file. Gives what is unwise about its directory: a group can
 * exchange what is in it. Throws FileError.
 */
export async function clearLeftovers(path: string): Promise<FileError | undefined> {
  return throughDirectory(path, 'files', async (reached, directory) => {
    const names = await fs.readdir(dirname(reached))
    const stats = await fs.fstat(directory)
    const uid = process.geteuid!()
    const leftovers = names.filter((name) => isTemporaryOf(path, name))
    for (const name of leftovers) {
      const leftover = join(dirname(reached), name)
      const found = await lstatIfAny(leftover)
      if (found !== null && !isHeldBySticky(found, stats)) await fs.unlink(leftover)
    }
    if (leftovers.length > 0) await syncDirectory(directory)
    const list = directoryAccess(stats, uid).writers === 'group' ? await accessListOf(dirname(reached)) : null
    return unwiseDirectory(dirname(path), stats, { uid, list })
  })
}

type Inode = Pick<Stats, 'ino' | 'dev'>

export function isSameInode(one: Inode, other: Inode): boolean {
  return one.ino === other.ino && one.dev === other.dev
}

/** Removes what is at the path, of any kind, if it still has this inode. Throws FileError. */
export async function removeInode(path: string, inode: Inode): Promise<void> {
  await throughDirectory(path, 'files', async (reached) => {
    const stats = await lstatIfAny(reached)
    if (stats !== null && isSameInode(stats, inode)) await fs.unlink(reached)
  })
}

/** Attributes of the path itself, links not followed; null if nothing is there. Throws as lstat does. */
export async function lstatIfAny(path: string): Promise<Stats | null> {
  return fs.lstat(path).catch((error: unknown) => {
    if (errorCode(error) === 'ENOENT') return null
    throw error
  })
}

/**
 * The content of a regular file of at most `maxBytes`, and its stats; null for the content if it is longer or
 * is no regular file. Never follows a link. Throws as open does.
 */
export async function readSmallFile(
  path: string,
  maxBytes: number,
): Promise<{ content: string | null; stats: Stats }> {
  const file = await fs.open(path, READ_FLAGS)
  try {
    const stats = await fs.fstat(file)
    const isSmall = stats.isFile() && stats.size <= maxBytes
    return { content: isSmall ? await fs.readFile(file, 'utf8') : null, stats }
  } finally {
    await fs.close(file)
  }
}

/** Does work on this file in its turn. Throws FileError, also if the disk does not answer in time. */
export async function onFile<T>(path: string, work: () => Promise<T>): Promise<T> {
  try {
    return await inDirectory(dirname(path), work)
  } catch (error) {
    throw asFileError(path, error)
  }
}

/** For `sockets`, and the lock beside them, the directory's owner must be trusted, too. */
type DirectoryUse = 'files' | 'sockets'

/**
 * Opens the directory itself, and refuses it if other users could exchange what is made there. Then does the
 * work with `reached`, the path of the file through the directory's descriptor: it leads to this directory
 * even if a directory above is renamed or replaced. Throws FileError.
 */
export async function throughDirectory<T>(
  path: string,
  use: DirectoryUse,
  work: (reached: string, directory: number) => Promise<T>,
): Promise<T> {
  try {
    const directory = await fs.open(dirname(path), DIRECTORY_FLAGS)
    try {
      const unsafe = unsafeDirectory(dirname(path), await fs.fstat(directory), { use, path })
      if (unsafe !== undefined) throw unsafe
      return await work(`/proc/self/fd/${directory}/${basename(path)}`, directory)
    } finally {
      await fs.close(directory)
    }
  } catch (error) {
    throw asFileError(path, error)
  }
}

/**
 * Why this user must not use the directory; undefined: it may. Root writes files to directories of its own
 * alone: another owner could exchange what root creates and gives away. Other users may give a directory of
 * theirs to files of the daemon.
 */
export function unsafeDirectory(
  directory: string,
  stats: DirectoryStats,
  { use, uid = process.geteuid!(), path = directory }: { use: DirectoryUse; uid?: number; path?: string },
): FileError | undefined {
  const { isOwnerTrusted, writers } = directoryAccess(stats, uid)
  const unsafe = (by: FileError['writers']): FileError =>
    new FileError({ path, directory, kind: 'unsafe-directory', writers: by })
  if (!isOwnerTrusted && (use === 'sockets' || uid === 0)) return unsafe({ kind: 'user', id: stats.uid })
  return writers === 'all' ? unsafe('all') : undefined
}

/** A risk of using the directory: a group can exchange what is in it; undefined: there is none. */
export function unwiseDirectory(
  directory: string,
  stats: DirectoryStats & Pick<Stats, 'gid'>,
  { uid = process.geteuid!(), list = null }: { uid?: number; list?: AccessList | null } = {},
): FileError | undefined {
  if (directoryAccess(stats, uid, list).writers !== 'group') return undefined
  const writers = { kind: 'group', id: stats.gid } as const
  return new FileError({ path: directory, directory, kind: 'unsafe-directory', writers })
}

/**
 * Writes the file under a temporary name, which is gone afterwards, also after an error, and renames it.
 * `reached`: its path through the directory's descriptor.
 */
async function writeAndRename(
  reached: string,
  { path, content, attributes }: { path: string; content: string | Uint8Array; attributes: FileAttributes },
): Promise<Stats> {
  // Unguessable, so that others cannot occupy it in a directory that all may write (a sticky one), and short:
  // names of more than 31 bytes cost the kernel more.
  const temporary = join(dirname(reached), `.${basename(path)}.${randomHex(6)}.kyc`)
  // Private until it has its owner: who opened it before would see what is written later.
  const file = await fs.open(temporary, CREATE_FLAGS, 0o600)
  let stats: Stats
  try {
    if (!(await applyAttributes(file, attributes))) throw new FileError({ path, kind: 'attributes' })
    await fs.writeFile(file, content)
    await fs.fsync(file)
    await fs.rename(temporary, reached)
    stats = await fs.fstat(file)
  } catch (error) {
    // The first error is the cause: after it the file system may have become read-only.
    await fs.close(file).catch(() => undefined)
    await fs.unlink(temporary).catch(() => undefined)
    throw error
  }
  await fs.close(file)
  return stats
}

/** Gives the new, empty file its owner, then its mode. Reports whether the file system keeps them. */
async function applyAttributes(file: number, { mode, uid, gid }: FileAttributes): Promise<boolean> {
  const created = await fs.fstat(file)
  const owner = { uid: uid ?? created.uid, gid: gid ?? created.gid }
  const isOwned = owner.uid === created.uid && owner.gid === created.gid
  if (isOwned && (created.mode & MODE_BITS) === mode) return true
  // The owner first: chown takes set-id bits away, and a mode must not open the file to another group.
  if (!isOwned) await fs.fchown(file, owner.uid, owner.gid)
  await fs.fchmod(file, mode)
  const kept = await fs.fstat(file)
  return kept.uid === owner.uid && kept.gid === owner.gid && (kept.mode & MODE_BITS) === mode
}

function isTemporaryOf(path: string, name: string): boolean {
  const start = `.${basename(path)}.`
  return name.startsWith(start) && /^[0-9a-f]{12}\.kyc$/.test(name.slice(start.length))
}

/** Throws FileError if what has the path may not or cannot be replaced or removed. `directory`: opened. */
async function refuseTarget(
  path: string,
  { found, directory }: { found: Stats | null; directory: number },
): Promise<void> {
  refuseOddTarget(path, found)
  if (found === null || found.uid === process.geteuid!()) return
  if (isHeldBySticky(found, await fs.fstat(directory))) throw heldTarget(path, found)
}

/** The error about what this user can neither replace nor remove in a sticky directory. */
export function heldTarget(path: string, { uid: id }: Pick<Stats, 'uid'>): FileError {
  return new FileError({ path, kind: 'held-target', writers: { kind: 'user', id } })
}

/** Throws FileError if what has the path is no regular file: a link, a directory, a device. */
export function refuseOddTarget(path: string, stats: Stats | null): void {
  if (stats === null || stats.isFile()) return
  const code = stats.isSymbolicLink() ? 'ELOOP' : stats.isDirectory() ? 'EISDIR' : undefined
  throw new FileError({ path, kind: 'odd-target', code })
}
