// Replaces a file: a reader sees the old one or the new one, whole, with its mode and owner from the start.
import { constants, type Stats } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { randomHex } from '../lib/crypto.ts'
import { directoryProblem, directoryWarning } from '../host/directory-access.ts'
import { octal } from '../lib/display-text.ts'
import { errorCode, errorMessage, fallbackOnSystemError } from '../lib/error.ts'
import { fs, MODE_BITS } from './fs.ts'
import { DiskError, inDirectory } from './in-directory.ts'
import { placeOf, rendered } from '../host/remedy.ts'
import { writeRemedy } from '../host/access-remedy.ts'

/** Why a file could not be replaced or removed, with the remedy. `code`: the system's, if there is one. */
export class FileError extends Error {
  override readonly name = 'FileError'
  readonly code: string | undefined
  constructor(message: string, options?: ErrorOptions) {
    super(message, options)
    this.code = errorCode(options?.cause)
  }
}

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
const FILES = { use: 'files' } as const

/**
 * Writes the file durably under its name, and gives its stats and why its directory could not be synced;
 * null: it was. Throws FileError; then the file is as it was.
 */
export async function replaceFile(
  path: string,
  content: string | Uint8Array,
  attributes: FileAttributes,
): Promise<{ stats: Stats; unsynced: string | null }> {
  return throughDirectory(path, FILES, async (reached, directory) => {
    refuseOddTarget(path, await lstatIfAny(reached))
    const stats = await writeAndRename(reached, content, attributes)
    return { stats, unsynced: await syncDirectory(directory) }
  })
}

/**
 * Removes a regular file durably, if there is one; anything else at the path stays. Gives why its directory
 * could not be synced; null: it was. Throws FileError.
 */
export async function removeFile(path: string): Promise<string | null> {
  return throughDirectory(path, FILES, async (reached, directory) => {
    const stats = await lstatIfAny(reached)
    if (stats === null) return null
    refuseOddTarget(path, stats)
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
    return fallbackOnSystemError(errorMessage(error))(error)
  }
}

/** Removes what a crash left of replacing the file. Gives a warning about its directory. Throws FileError. */
export async function clearLeftovers(path: string): Promise<string | undefined> {
  return throughDirectory(path, FILES, async (reached, directory) => {
    const names = await fs.readdir(dirname(reached))
    const leftovers = names.filter((name) => isTemporaryOf(path, name))
    for (const name of leftovers) await fs.unlink(join(dirname(reached), name))
    if (leftovers.length > 0) await syncDirectory(directory)
    return directoryWarning(dirname(path), await fs.fstat(directory), process.geteuid!())
  })
}

/** Removes what is at the path, of any kind, if it still has this inode. Throws FileError. */
export async function removeOwn(path: string, own: Pick<Stats, 'ino' | 'dev'>): Promise<void> {
  await throughDirectory(path, FILES, async (reached) => {
    const stats = await lstatIfAny(reached)
    if (stats?.ino === own.ino && stats.dev === own.dev) await fs.unlink(reached)
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

/**
 * Opens the directory itself, and refuses it if other users could exchange what is made there. Then does the
 * work with `reached`, the path of the file through the directory's descriptor: it leads to this directory
 * even if a directory above is renamed or replaced. Throws FileError, whose message begins with `failure`.
 */
export async function throughDirectory<T>(
  path: string,
  { use, failure }: { use: 'files' | 'sockets'; failure?: string },
  work: (reached: string, directory: number) => Promise<T>,
): Promise<T> {
  try {
    const directory = await fs.open(dirname(path), DIRECTORY_FLAGS)
    try {
      const stats = await fs.fstat(directory)
      const problem = directoryProblem(dirname(path), stats, { uid: process.geteuid!(), use })
      if (problem !== undefined) throw new FileError(`${failure ?? cannotWrite(path)}: ${problem}`)
      return await work(`/proc/self/fd/${directory}/${basename(path)}`, directory)
    } finally {
      await fs.close(directory)
    }
  } catch (error) {
    throw asFileError(path, error, failure)
  }
}

/** Writes the file under a temporary name, which is gone afterwards, also after an error, and renames it. */
async function writeAndRename(
  path: string,
  content: string | Uint8Array,
  attributes: FileAttributes,
): Promise<Stats> {
  // Unguessable, so that others cannot occupy it in a directory that all may write (a sticky one), and short:
  // names of more than 31 bytes cost the kernel more.
  const temporary = join(dirname(path), `.${basename(path)}.${randomHex(6)}.kyc`)
  // Private until it has its owner: who opened it before would see what is written later.
  const file = await fs.open(temporary, CREATE_FLAGS, 0o600)
  let isRenamed = false
  try {
    await applyAttributes(file, attributes)
    await fs.writeFile(file, content)
    await fs.fsync(file)
    await fs.rename(temporary, path)
    isRenamed = true
    return await fs.fstat(file)
  } finally {
    if (!isRenamed) await fs.unlink(temporary)
    await fs.close(file)
  }
}

/** Gives the new, empty file its owner, then its mode, and checks that the file system keeps them. */
async function applyAttributes(file: number, { mode, uid, gid }: FileAttributes): Promise<void> {
  const created = await fs.fstat(file)
  const owner = { uid: uid ?? created.uid, gid: gid ?? created.gid }
  const isOwned = owner.uid === created.uid && owner.gid === created.gid
  if (isOwned && (created.mode & MODE_BITS) === mode) return
  // The owner first: chown takes set-id bits away, and a mode must not open the file to another group.
  if (!isOwned) await fs.fchown(file, owner.uid, owner.gid)
  await fs.fchmod(file, mode)
  const kept = await fs.fstat(file)
  if (kept.uid !== owner.uid || kept.gid !== owner.gid || (kept.mode & MODE_BITS) !== mode) {
    const words = `owner, group and mode ${octal(mode)}`
    throw new FileError(`Its file system does not keep ${words}: choose another directory`)
  }
}

function isTemporaryOf(path: string, name: string): boolean {
  const start = `.${basename(path)}.`
  return name.startsWith(start) && /^[0-9a-f]{12}\.kyc$/.test(name.slice(start.length))
}

/** Throws FileError if what has the path is no regular file: a link, a directory, a device. */
export function refuseOddTarget(path: string, stats: Stats | null): void {
  if (stats === null || stats.isFile()) return
  const kind = stats.isSymbolicLink() ? 'a symbolic link' : stats.isDirectory() ? 'a directory' : undefined
  throw new FileError(
    `${path} is ${kind ?? 'no regular file'}, which is never replaced: remove it, or choose another path`,
  )
}

/** An error of the system as a FileError with its remedy, others as they are. `failure` begins the text. */
export function asFileError(path: string, error: unknown, failure = cannotWrite(path)): unknown {
  if (error instanceof DiskError) return new FileError(`${failure}: ${error.message}`, { cause: error })
  if (error instanceof FileError || errorCode(error) === undefined) return error
  const remedy = writeRemedy(dirname(path), error, placeOf(process.env))
  return new FileError(`${failure}: ${rendered(remedy)}`, { cause: error })
}

function cannotWrite(path: string): string {
  return `Cannot write ${path}`
}
