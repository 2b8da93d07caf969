// Reads a file of the configuration: opened once, judged and read by that one descriptor, so that nothing can be swapped in between.
import { closeSync, constants, fstatSync, openSync, readSync, type Stats } from 'node:fs'

import { errorCode, errorMessage } from '../lib/error.ts'

/** Far more than any configuration, secret or bundle of certificates holds. */
const MAX_FILE_BYTES = 1024 * 1024

export type Reading =
  | { readonly kind: 'read'; readonly bytes: Buffer; readonly stats: Stats }
  | { readonly kind: 'absent' }
  /** The sentence goes on from the file's name and ends with the remedy. */
  | { readonly kind: 'unreadable'; readonly sentence: string }

/** Links are followed: what counts is the file at their end. Never waits, whatever is at the path. */
export function readFile(path: string): Reading {
  let descriptor: number
  try {
    // Without O_NONBLOCK a FIFO would keep us waiting for its writer.
    descriptor = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY)
  } catch (error) {
    const code = errorCode(error)
    if (code === 'ENOENT' || code === 'ENOTDIR') return { kind: 'absent' }
    return unreadable(cannotOpen(path, error))
  }
  try {
    return readDescriptor(descriptor)
  } catch (error) {
    return unreadable(`cannot be read (${errorMessage(error)}): mend or replace it`)
  } finally {
    closeSync(descriptor)
  }
}

function readDescriptor(descriptor: number): Reading {
  const stats = fstatSync(descriptor)
  if (stats.isDirectory()) return unreadable('is a directory: name the file in it')
  if (!stats.isFile()) return unreadable('is not a regular file (a pipe, a socket or a device): name a file')
  if (stats.size > MAX_FILE_BYTES)
    return unreadable('is larger than 1 MiB, and so not what it should be: name the right file')
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
 * What is wrong with owner and mode: root or the daemon's user must own it, and nobody else may write it, nor, where
 * it holds a secret, read it. Each sentence goes on from the file's name and ends with the command that mends it.
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
    faults.push(`holds a secret and can be read by everybody: chmod o-rwx ${shellWord(path)}`)
  return faults
}

/** A word that a person can paste into a shell. */
export function shellWord(text: string): string {
  return /^[\w./:@%+=,-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`
}

function unreadable(sentence: string): Reading {
  return { kind: 'unreadable', sentence }
}

function cannotOpen(path: string, error: unknown): string {
  const code = errorCode(error)
  const who = `uid ${process.geteuid!()}`
  if (code === 'EACCES' || code === 'EPERM')
    return `may not be read by ${who}: give that user or a group of it the right to (chgrp GROUP ${shellWord(path)} && chmod 0640 ${shellWord(path)}, and chmod g+x the directories above)`
  if (code === 'ELOOP') return 'is a link that leads round in a circle: replace it by the file'
  if (code === 'ENXIO') return 'is not a regular file (a pipe, a socket or a device): name a file'
  return `cannot be opened (${errorMessage(error)}): name another file`
}
