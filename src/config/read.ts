// Reads the files of a configuration: small regular ones, each judged by the descriptor that it is read from.
import { constants, type Stats } from 'node:fs'
import { open, readlink, stat } from 'node:fs/promises'
import { remedyWithoutPlace } from '../host/remedy.ts'
import { errorCode, errorMessage, fallbackOnSystemError } from '../lib/error.ts'

/** Far more than any configuration, secret or bundle of certificates holds. */
const MAX_FILE_BYTES = 1024 * 1024

/** `problem` follows the name of the file, and ends with the remedy. Null: nothing is there. */
type Reading =
  | (Pick<Stats, 'uid' | 'mode'> & { readonly bytes: Buffer; readonly isProjected: boolean })
  | { readonly problem: string }
  | null

/**
 * Reads the file, or the one at the end of a link. Its kind is checked before it is opened, because to open a
 * device can do harm, and to open a FIFO waits for its writer.
 */
export async function readInput(path: string): Promise<Reading> {
  try {
    const found = await stat(path)
    if (!found.isFile()) return { problem: 'is not a regular file: name a file' }
    if (found.size > MAX_FILE_BYTES) return { problem: 'is larger than 1 MiB: name the right file' }
    await using file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY)
    // Kubernetes projects a secret as a link into `..data`, where chmod is of no use.
    const target = await readlink(path).catch(fallbackOnSystemError(''))
    const { uid, mode } = await file.stat()
    return { uid, mode, isProjected: target.startsWith('..data/'), bytes: await file.readFile() }
  } catch (error) {
    const code = errorCode(error)
    if (code === undefined) throw error
    if (code === 'ENOENT' || code === 'ENOTDIR') return null
    if (code !== 'EACCES')
      return { problem: `cannot be read (${errorMessage(error)}): repair it, or name another file` }
    return { problem: remedyWithoutPlace({ fault: 'unreadable', path }) }
  }
}

/**
 * Faults of owner and mode: root or the daemon's user must own the file, only its owner may write it, and others
 * may not read one that holds a secret. Each sentence follows the file's name and ends with the remedy.
 */
export function permissionFaults(
  path: string,
  { uid, mode, isProjected = false }: Pick<Stats, 'uid' | 'mode'> & { isProjected?: boolean },
  { holdsSecret }: { holdsSecret: boolean },
): string[] {
  const broken = {
    owner: uid !== 0 && uid !== process.geteuid!(),
    writable: (mode & 0o022) !== 0,
    readable: holdsSecret && (mode & 0o004) !== 0,
  }
  const problems = (['owner', 'writable', 'readable'] as const).filter((problem) => broken[problem])
  return isProjected && problems.length > 0
    ? [`has mode ${(mode & 0o777).toString(8)}: set defaultMode: 0400 at its volume, and fsGroup at the pod`]
    : problems.map((fault) => remedyWithoutPlace({ fault, path }))
}

/**
 * A text that changes when one of the files is written or replaced, or when a link to it is replaced. They are
 * asked for one after the other, so that a disk that does not answer holds one thread.
 */
export async function versionOf(files: readonly string[]): Promise<string> {
  const versions = await Array.fromAsync(files, async (path) => {
    const { dev, ino, size, mtimeNs, ctimeNs } = await stat(path, { bigint: true })
    return [dev, ino, size, mtimeNs, ctimeNs].join(':')
  }).catch(errorMessage)
  return String(versions)
}
