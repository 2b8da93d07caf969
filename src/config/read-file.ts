// Reads the files of a configuration: small regular ones, each checked by the descriptor that it is read from.
import {
  closeSync,
  constants,
  fstatSync,
  openSync,
  readFileSync,
  readlinkSync,
  statSync,
  type Stats,
} from 'node:fs'
import { errorCode, errorMessage, withSystemFallback } from '../lib/error.ts'
import { SERVICE_USER, SYSTEM_CONFIG_DIRECTORY } from '../lib/paths.ts'
import { nameOf } from '../lib/posix-ids.ts'
import { shellWord } from '../lib/remedy.ts'

/** Far more than any configuration, secret or bundle of certificates holds. */
const MAX_FILE_BYTES = 1024 * 1024

type Reading =
  | { readonly kind: 'read'; readonly bytes: Buffer; readonly stats: Stats }
  | { readonly kind: 'absent' }
  /** The sentence follows the file's name and ends with the remedy. */
  | { readonly kind: 'unreadable'; readonly sentence: string }

/**
 * Reads the file, or the one at the end of a link. Its kind is checked before it is opened, because to open a device can do harm
 * (start a watchdog, make a terminal), and to open a FIFO waits for its writer.
 */
export function readFile(path: string): Reading {
  let descriptor: number | null = null
  try {
    const problem = kindProblem(statSync(path))
    if (problem !== undefined) return unreadable(problem)
    descriptor = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY)
    const stats = fstatSync(descriptor)
    const other = kindProblem(stats)
    return other === undefined ? { kind: 'read', bytes: readFileSync(descriptor), stats } : unreadable(other)
  } catch (error) {
    const code = errorCode(error)
    return code === 'ENOENT' || code === 'ENOTDIR' ? { kind: 'absent' } : unreadable(cannotRead(path, error))
  } finally {
    if (descriptor !== null) closeSync(descriptor)
  }
}

function kindProblem(stats: Stats): string | undefined {
  if (stats.isDirectory()) return 'is a directory: name the file in it'
  if (!stats.isFile()) return 'is not a regular file (a pipe, a socket or a device): name a file'
  if (stats.size > MAX_FILE_BYTES)
    return 'is larger than 1 MiB, and so not what it should be: name the right file'
  return undefined
}

function unreadable(sentence: string): Reading {
  return { kind: 'unreadable', sentence }
}

/** Files that are read instead of others, which they are about to replace, by the paths of the latter. */
export type StagedFiles = ReadonlyMap<string, string>

/** The path at which the content of a file is now. */
export function contentPath(path: string, staged: StagedFiles | undefined): string {
  return staged?.get(path) ?? path
}

export const MAY_NOT_BE_READ = 'may not be read'

function cannotRead(path: string, error: unknown): string {
  const code = errorCode(error)
  if (code === 'ELOOP') return 'is a link that leads round in a circle: replace it by the file'
  if (code !== 'EACCES' && code !== 'EPERM')
    return `cannot be read (${errorMessage(error)}): repair it, or name another file`
  const user = nameOf('user', process.geteuid!())
  const group = shellWord(nameOf('group', process.getegid!()))
  // Another group would take the file from the daemon.
  const remedy =
    path.startsWith(`${SYSTEM_CONFIG_DIRECTORY}/`) && user !== SERVICE_USER
      ? 'use sudo, and leave owner and mode of the file as they are'
      : `chgrp ${group} ${shellWord(path)} && chmod 0640 ${shellWord(path)} (its directory must let that group in)`
  return `${MAY_NOT_BE_READ} by the user ${user}: ${remedy}`
}

/**
 * Faults of owner and mode: root or the daemon's user must own the file, and no other user may write it or, if it holds a
 * secret, read it. Each sentence follows the file's name and ends with the remedy.
 */
export function permissionFaults(
  path: string,
  { uid: owner, mode }: Pick<Stats, 'uid' | 'mode'>,
  { uid, holdsSecret }: { uid: number; holdsSecret: boolean },
): string[] {
  const word = shellWord(path)
  const others = uid === 0 ? '' : ` or to the user ${nameOf('user', uid)}, who runs kyc-tokend`
  const faults = [
    owner !== 0 &&
      owner !== uid &&
      `belongs to the user ${nameOf('user', owner)}, and must belong to root${others}: chown root ${word}`,
    (mode & 0o022) !== 0 &&
      `can be written by ${(mode & 0o002) === 0 ? 'its group' : 'others'}: chmod go-w ${word}`,
    holdsSecret &&
      (mode & 0o004) !== 0 &&
      `holds a secret and can be read by everybody: ${isProjected(path) ? 'set defaultMode: 0440 at its volume and fsGroup at the pod' : `chmod o-rwx ${word}`}`,
  ]
  return faults.filter((fault) => fault !== false)
}

/** Kubernetes projects a secret as a link into `..data`, where chmod is of no use. */
function isProjected(path: string): boolean {
  return withSystemFallback(false, () => readlinkSync(path).startsWith('..data/'))
}
