// A name in a directory that others cannot exchange: reached through the directory's descriptor.
import { constants, type Stats } from 'node:fs'
import { basename, dirname } from 'node:path'
import type { AccessList } from '../lib/access-list.ts'
import { directoryAccess, type DirectoryStats } from '../lib/directory-access.ts'
import { errorCode } from '../lib/error.ts'
import { fs } from './fs.ts'
import { asFileError, FileError } from './file-error.ts'
import { inDirectory } from './in-directory.ts'

/** Opens the directory itself, never what a link leads to. */
export const DIRECTORY_FLAGS = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW
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
