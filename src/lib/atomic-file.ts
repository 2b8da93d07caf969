// Replaces a file so that a reader sees the old one or the new one, whole, with the right mode and owner from its first moment.
import { randomUUID } from 'node:crypto'
import { constants, type Stats } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { errorCode, errorMessage } from './error.ts'
import { call, lstatIfAny, perform, type FileSteps } from './file-calls.ts'

export interface FileAttributes {
  /** Permission bits, whatever the umask. */
  readonly mode: number
  /** Numeric ids; null or left out: as the file is created. */
  readonly uid?: number | null
  readonly gid?: number | null
}

/** Why a file could not be replaced or removed: one sentence with the remedy. `code` is the system's, where it said so. */
export class FileError extends Error {
  override readonly name = 'FileError'
  readonly code: string | undefined
  constructor(message: string, options?: ErrorOptions) {
    super(message, options)
    this.code = errorCode(options?.cause)
  }
}

/**
 * Writes the file durably under its name and gives what fstat said of it before it got its content. Throws FileError;
 * the file is then as it was, save where the very last step, syncing the directory, failed.
 */
export function replaceFile(
  path: string,
  content: string | Uint8Array,
  attributes: FileAttributes,
): Promise<Stats> {
  return onFile(path, replacing(path, content, attributes))
}

/** Removes a regular file durably, where there is one; anything else at the path stays. Throws FileError. */
export function removeFile(path: string): Promise<void> {
  return onFile(path, removing(path))
}

/** Removes what a crash left of replacing this file. Throws FileError. */
export function clearLeftovers(path: string): Promise<void> {
  return onFile(path, clearing(path))
}

/** Makes the calls, all of them about this file. What the system says against it is thrown as FileError. */
export async function onFile<T>(path: string, steps: FileSteps<T>): Promise<T> {
  try {
    return await perform(dirname(path), steps)
  } catch (error) {
    throw errorCode(error) === undefined ? error : fileError(path, error)
  }
}

const CREATE_FLAGS = constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW | constants.O_WRONLY
const DIRECTORY_FLAGS = constants.O_RDONLY | constants.O_DIRECTORY
const MODE_BITS = 0o7777

/** The steps of replaceFile. A kill between any two of them leaves the old file or the new one. Throws as the calls do, or FileError. */
export function* replacing(
  path: string,
  content: string | Uint8Array,
  attributes: FileAttributes,
): FileSteps<Stats> {
  const directory = dirname(path)
  const directoryFd = yield* call('open', directory, DIRECTORY_FLAGS)
  try {
    refuseOpenDirectory(directory, yield* call('fstat', directoryFd))
    refuseOddTarget(path, yield* lstatIfAny(path))
    const temporary = temporaryPath(path)
    const stats = yield* writing(temporary, { path, content, attributes })
    yield* call('fsync', directoryFd)
    return stats
  } finally {
    yield* call('close', directoryFd)
  }
}

/** Writes the file under its temporary name and renames it; the temporary name is gone afterwards, however it went. */
function* writing(
  temporary: string,
  { path, content, attributes }: { path: string; content: string | Uint8Array; attributes: FileAttributes },
): FileSteps<Stats> {
  // Nobody else may open it before it is whose it shall be: a descriptor opened now would read what is written later.
  const fd = yield* call('open', temporary, CREATE_FLAGS, 0o600)
  let isRenamed = false
  try {
    const stats = yield* dressing(fd, attributes)
    yield* call('writeFile', fd, content)
    yield* call('fsync', fd)
    yield* call('rename', temporary, path)
    isRenamed = true
    return stats
  } finally {
    yield* call('close', fd)
    if (!isRenamed) yield* call('unlink', temporary)
  }
}

/** Gives the new, empty file its owner, then its mode, and looks whether the file system keeps them. */
function* dressing(fd: number, { mode, uid, gid }: FileAttributes): FileSteps<Stats> {
  const created = yield* call('fstat', fd)
  const owner = { uid: uid ?? created.uid, gid: gid ?? created.gid }
  const isOwned = owner.uid === created.uid && owner.gid === created.gid
  if (isOwned && (created.mode & MODE_BITS) === mode) return created
  if (!isOwned) yield* call('fchown', fd, owner.uid, owner.gid)
  yield* call('fchmod', fd, mode)
  const dressed = yield* call('fstat', fd)
  if (dressed.uid === owner.uid && dressed.gid === owner.gid && (dressed.mode & MODE_BITS) === mode) {
    return dressed
  }
  throw new FileError(
    `Its file system does not keep owner, group and mode ${octal(mode)}: choose another directory`,
  )
}

function* removing(path: string): FileSteps<void> {
  const stats = yield* lstatIfAny(path)
  if (stats === null) return
  refuseOddTarget(path, stats)
  yield* call('unlink', path)
  yield* syncing(dirname(path))
}

function* clearing(path: string): FileSteps<void> {
  const directory = dirname(path)
  const leftovers = (yield* call('readdir', directory)).filter((name) => isTemporaryOf(path, name))
  for (const name of leftovers) yield* call('unlink', join(directory, name))
  if (leftovers.length > 0) yield* syncing(directory)
}

function* syncing(directory: string): FileSteps<void> {
  const fd = yield* call('open', directory, DIRECTORY_FLAGS)
  try {
    yield* call('fsync', fd)
  } finally {
    yield* call('close', fd)
  }
}

/**
 * Unguessable, so that nobody can be there first in a directory that all may write (a sticky one), and short: names
 * of more than 31 bytes cost the kernel more.
 */
function temporaryPath(path: string): string {
  return join(dirname(path), `.${basename(path)}.${randomUUID().slice(-12)}${TEMPORARY_END}`)
}

function isTemporaryOf(path: string, name: string): boolean {
  const start = `.${basename(path)}.`
  return name.startsWith(start) && TEMPORARY_REST.test(name.slice(start.length))
}

const TEMPORARY_END = '.kyc'
const TEMPORARY_REST = /^[0-9a-f]{12}\.kyc$/

/** In a directory that others can write, they can put another file in the place of ours; a sticky one prevents that. */
function refuseOpenDirectory(directory: string, { mode }: Stats): void {
  if ((mode & 0o002) === 0 || (mode & 0o1000) !== 0) return
  throw new FileError(`Every user can write in ${directory}: chmod o-w ${directory}, or choose another one`)
}

function refuseOddTarget(path: string, stats: Stats | null): void {
  if (stats === null || stats.isFile()) return
  const kind = stats.isSymbolicLink() ? 'a symbolic link' : stats.isDirectory() ? 'a directory' : undefined
  throw new FileError(
    `${path} is ${kind ?? 'no regular file'}, which is never replaced: remove it, or choose another path`,
  )
}

/** The system's error as a sentence with its remedy. */
function fileError(path: string, error: unknown): FileError {
  return new FileError(`Cannot write ${path}: ${remedyFor(dirname(path), error)}`, { cause: error })
}

function remedyFor(directory: string, error: unknown): string {
  const isChown = (error as { syscall?: unknown } | null)?.syscall === 'fchown'
  if (isChown) {
    return `kyc-tokend may not give it this owner or group (${errorMessage(error)}): leave out owner, and for the group make the directory setgid (chgrp GROUP ${directory} && chmod g+s ${directory}) and leave out group`
  }
  switch (errorCode(error)) {
    case 'ENOENT':
      return `the directory ${directory} is not there: create it`
    case 'ENOTDIR':
      return `${directory} is not a directory: choose another path`
    case 'EACCES':
    case 'EPERM':
      return `kyc-tokend may not write in ${directory}: give its user write permission there (chown or chmod)`
    case 'EROFS':
      return `${directory} is read-only, under systemd for this service alone: systemctl edit kyc-tokend, and add [Service] ReadWritePaths=${directory}`
    case 'ENOSPC':
    case 'EDQUOT':
      return `no space is left in ${directory}: free some`
    case undefined:
    default:
      return errorMessage(error)
  }
}

function octal(mode: number): string {
  return mode.toString(8).padStart(4, '0')
}
