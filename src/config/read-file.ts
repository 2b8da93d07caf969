// Reads a small file of the configuration: looked at before it is opened, then read and checked by one descriptor.
import {
  closeSync,
  constants,
  fstatSync,
  openSync,
  readlinkSync,
  readSync,
  statSync,
  type Stats,
} from 'node:fs'

import { errorCode, errorMessage } from '../lib/error.ts'

/** Far more than any configuration, secret or bundle of certificates holds. */
const MAX_FILE_BYTES = 1024 * 1024
/** A file that is replaced by renaming may be another one when it is opened; this often in a row it is not. */
const ATTEMPTS = 3

export type Reading =
  | { readonly kind: 'read'; readonly bytes: Buffer; readonly stats: Stats }
  | { readonly kind: 'absent' }
  /** The sentence goes on from the file's name and ends with the remedy. */
  | { readonly kind: 'unreadable'; readonly sentence: string }

/**
 * Links are followed: the file at their end counts. Opens regular files only, because opening a device can already do
 * harm (a watchdog starts, a terminal is made) and opening a FIFO waits for its writer.
 */
export function readFile(path: string): Reading {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const reading = readOnce(path)
    if (reading !== 'replaced') return reading
  }
  return unreadable('was replaced while it was read: try again')
}

/** The reason why the file is not to be opened; undefined where it may, or is not there. Opens nothing. */
export function irregularity(path: string): string | undefined {
  const stats = statOf(path)
  return stats instanceof Error ? undefined : kindProblem(stats)
}

function readOnce(path: string): Reading | 'replaced' {
  const before = statOf(path)
  if (before instanceof Error) return absentOr(path, before)
  const problem = kindProblem(before)
  if (problem !== undefined) return unreadable(problem)
  let descriptor: number
  try {
    descriptor = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY)
  } catch (error) {
    return absentOr(path, error)
  }
  try {
    const stats = fstatSync(descriptor)
    if (stats.ino !== before.ino || stats.dev !== before.dev) return 'replaced'
    return readDescriptor(descriptor, stats)
  } catch (error) {
    return unreadable(`cannot be read (${errorMessage(error)}): repair or replace it`)
  } finally {
    closeSync(descriptor)
  }
}

function statOf(path: string): Stats | Error {
  try {
    return statSync(path)
  } catch (error) {
    if (error instanceof Error) return error
    throw error
  }
}

function kindProblem(stats: Stats): string | undefined {
  if (stats.isDirectory()) return 'is a directory: name the file in it'
  if (!stats.isFile()) return 'is not a regular file (a pipe, a socket or a device): name a file'
  if (stats.size > MAX_FILE_BYTES)
    return 'is larger than 1 MiB, and so not what it should be: name the right file'
  return undefined
}

function readDescriptor(descriptor: number, stats: Stats): Reading {
  const buffer = Buffer.alloc(stats.size + 1)
  let length = 0
  while (length < buffer.length) {
    const added = readSync(descriptor, buffer, length, buffer.length - length, null)
    if (added === 0) return { kind: 'read', bytes: buffer.subarray(0, length), stats }
    length += added
  }
  return unreadable('grew while it was read: try again')
}

/**
 * Faults of owner and mode: root or the daemon's user must own the file, and no other may write it, nor, where it
 * holds a secret, read it. Each sentence goes on from the file's name and ends with the remedy.
 */
export function permissionFaults(
  path: string,
  stats: Stats,
  options: { uid: number; holdsSecret: boolean },
): string[] {
  const faults: string[] = []
  if (stats.uid !== 0 && stats.uid !== options.uid)
    faults.push(
      `belongs to uid ${stats.uid}, and must belong to root or to the user that runs kyc-tokend (uid ${options.uid}): chown root ${shellWord(path)}`,
    )
  if ((stats.mode & 0o022) !== 0)
    faults.push(
      `can be written by ${(stats.mode & 0o002) === 0 ? 'its group' : 'others'}: chmod go-w ${shellWord(path)}`,
    )
  if (options.holdsSecret && (stats.mode & 0o004) !== 0)
    faults.push(
      `holds a secret and can be read by everybody: ${isProjected(path) ? 'set defaultMode: 0440 at its volume and fsGroup at the pod' : `chmod o-rwx ${shellWord(path)}`}`,
    )
  return faults
}

/** Kubernetes projects a secret as a link into `..data`, where chmod is of no use. */
function isProjected(path: string): boolean {
  try {
    return readlinkSync(path).startsWith('..data/')
  } catch {
    // No link, or none that may be read: a file like any other.
    return false
  }
}

/** A word that a person can paste into a shell. */
export function shellWord(text: string): string {
  return /^[\w./:@%+=,-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`
}

function unreadable(sentence: string): Reading {
  return { kind: 'unreadable', sentence }
}

function absentOr(path: string, error: unknown): Reading {
  const code = errorCode(error)
  return code === 'ENOENT' || code === 'ENOTDIR' ? { kind: 'absent' } : unreadable(cannotOpen(path, error))
}

function cannotOpen(path: string, error: unknown): string {
  const code = errorCode(error)
  const user = `uid ${process.geteuid!()}`
  if (code === 'EACCES' || code === 'EPERM')
    return `may not be read by ${user}: chgrp ${process.getegid!()} ${shellWord(path)} && chmod 0640 ${shellWord(path)} (and chmod g+x the directories above)`
  if (code === 'ELOOP') return 'is a link that leads round in a circle: replace it by the file'
  return `cannot be opened (${errorMessage(error)}): name another file`
}
