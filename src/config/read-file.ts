// Reads the files of a configuration: small regular ones, each judged by the descriptor that it is read from.
import { constants, type Stats } from 'node:fs'
import { dirname } from 'node:path'
import { errorCode, errorMessage, fallbackOnSystemError } from '../lib/error.ts'
import type { Hidden } from '../host/finding.ts'
import { fs } from '../files/fs.ts'
import { inDirectory } from '../files/in-directory.ts'
import { readRemedy } from '../host/file-remedy.ts'
import { nameOf } from '../host/ids.ts'
import { shellWord } from '../lib/display-text.ts'
import { rendered } from '../host/place-commands.ts'

/** Far more than any configuration, secret or bundle of certificates holds. */
const MAX_FILE_BYTES = 1024 * 1024

type Reading =
  /** `isProjected`: Kubernetes projects it as a link into `..data`, where chmod is of no use. */
  | { readonly kind: 'read'; readonly bytes: Buffer; readonly stats: Stats; readonly isProjected: boolean }
  | { readonly kind: 'absent' }
  /**
   * The sentence follows the file's name and ends with the remedy. `isThere`: it is known to exist. `hidden`:
   * this user may not read it.
   */
  | {
      readonly kind: 'unreadable'
      readonly sentence: string
      readonly isThere: boolean
      readonly hidden: Hidden | undefined
    }

export type Present = Exclude<Reading, { kind: 'absent' }>

/** Files that are read instead of others, which they are about to replace, by the paths of the latter. */
export type StagedFiles = ReadonlyMap<string, string>

/**
 * Reads the file, or the one at the end of a link. Its kind is checked before it is opened, because to open
 * a device can do harm (start a watchdog, make a terminal), and to open a FIFO waits for its writer. Throws
 * FileError if the disk is late.
 */
export async function readFile(name: string, staged?: StagedFiles): Promise<Reading> {
  const path = staged?.get(name) ?? name
  return inDirectory(dirname(path), async () => {
    let descriptor: number | null = null
    let isThere = false
    const unreadable = (sentence: string, hidden?: Hidden): Reading => {
      return { kind: 'unreadable', sentence, isThere, hidden }
    }
    try {
      const problem = kindProblem(await fs.stat(path))
      isThere = true
      if (problem !== undefined) return unreadable(problem)
      descriptor = await fs.open(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY)
      const stats = await fs.fstat(descriptor)
      const bytes = await fs.readFile(descriptor)
      return { kind: 'read', bytes, stats, isProjected: await leadsToData(path) }
    } catch (error) {
      const code = errorCode(error)
      if (code === 'ENOENT' || code === 'ENOTDIR') return { kind: 'absent' }
      const hidden = code === 'EACCES' ? { path: name, isAbsent: false } : undefined
      return unreadable(await cannotRead(path, error), hidden)
    } finally {
      if (descriptor !== null) await fs.close(descriptor)
    }
  })
}

async function leadsToData(path: string): Promise<boolean> {
  const target = await fs.readlink(path).catch(fallbackOnSystemError(''))
  return target.startsWith('..data/')
}

function kindProblem(stats: Stats): string | undefined {
  if (stats.isDirectory()) return 'is a directory: name the file in it'
  if (!stats.isFile()) return 'is not a regular file (a pipe, a socket or a device): name a file'
  if (stats.size > MAX_FILE_BYTES)
    return 'is larger than 1 MiB, and so not what it should be: name the right file'
  return undefined
}

async function cannotRead(path: string, error: unknown): Promise<string> {
  const code = errorCode(error)
  if (code !== 'EACCES' && code !== 'EPERM')
    return `cannot be read (${errorMessage(error)}): repair it, or name another file`
  return rendered(await readRemedy(path))
}

/**
 * Faults of owner and mode: root or the daemon's user must own the file, and no other user may write it or,
 * if it holds a secret, read it. Each sentence follows the file's name and ends with the remedy.
 */
export function permissionFaults(
  path: string,
  { uid: owner, mode }: Pick<Stats, 'uid' | 'mode'>,
  { uid, holdsSecret, isProjected = false }: { uid: number; holdsSecret: boolean; isProjected?: boolean },
): string[] {
  const word = shellWord(path)
  const sudo = owner === process.geteuid!() ? '' : 'sudo '
  const others = uid === 0 ? '' : ` or to the user ${nameOf('user', uid)}, who runs kyc-tokend`
  const closing = isProjected
    ? 'set defaultMode: 0440 at its volume and fsGroup at the pod'
    : `\`${sudo}chmod o-rwx ${word}\``
  const faults: string[] = []
  if (owner !== 0 && owner !== uid)
    faults.push(
      `belongs to the user ${nameOf('user', owner)}, and must belong to root${others}: ` +
        `\`sudo chown root ${word}\``,
    )
  if ((mode & 0o022) !== 0) {
    const writers = (mode & 0o002) === 0 ? 'its group' : 'others'
    faults.push(`can be written by ${writers}: \`${sudo}chmod go-w ${word}\``)
  }
  if (holdsSecret && (mode & 0o004) !== 0)
    faults.push(`holds a secret and can be read by everybody: ${closing}`)
  return faults
}
