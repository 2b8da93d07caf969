// The path of a socket or a lock: whether a process answers there, whether it can be taken, and errors with
// their remedies.
import { connect } from 'node:net'
import { basename, dirname, join } from 'node:path'
import { lstatIfAny } from '../../files/atomic-file.ts'
import { asFileError, FileError } from '../../files/file-error.ts'
import { inDirectory } from '../../files/in-directory.ts'
import { errorCode, exitStatus, UserError } from '../../lib/error.ts'
import { fs } from '../../files/fs.ts'
import { asUserError, fileRemedy } from '../../host/file-remedy.ts'
import { isHeldBySticky } from '../../lib/directory-access.ts'
import { nameOf } from '../../host/ids.ts'
import { placeOf, rendered } from '../../host/place-commands.ts'
import { shellWord } from '../../lib/display-text.ts'

interface SocketPath {
  readonly path: string
  /** The setting with which a person chooses another path; by default `path`. */
  readonly setting?: string
  /** The beginning of an error's sentence; by default, that no socket can be made. */
  readonly failure?: string
}
/** A path to listen at, and the access to it. */
export interface SocketAddress extends SocketPath {
  /** Permission bits. */
  readonly mode: number
  /** null: as the socket is created. */
  readonly gid: number | null
}

/**
 * Does the work on the path after all earlier work in its directory. The system's errors become UserErrors
 * with the remedy: 75 if the disk does not answer, 78 for all others.
 */
export async function inTurnAt<T>(
  address: SocketPath,
  work: (givenUp: AbortSignal) => Promise<T>,
): Promise<T> {
  const { path } = address
  return inDirectory(dirname(path), work).catch((thrown: unknown) => {
    const error = asFileError(path, thrown)
    if (!(error instanceof FileError)) throw error
    const why = rendered(fileRemedy(error, placeOf(process.env)))
    throw asUserError(error, `${failureOf(address)}: ${why}, or set another ${settingOf(address)}`)
  })
}

/**
 * Resolves if the path can be taken: nothing exists there, or a socket at which no process answers. Throws
 * UserError: 69 if a process answers, 78 if something that is not a socket is in the way. Call it within the
 * work of inTurnAt.
 */
export async function assertPathFree(address: SocketPath): Promise<void> {
  const { path } = address
  const found = await lstatIfAny(path)
  if (found === null) return
  if (!found.isSocket()) {
    const remedy = `remove it, or set another ${settingOf(address)}`
    throw new UserError(`${path} is in the way and is not a socket: ${remedy}`, exitStatus.configuration)
  }
  if (await isAnswering(path)) {
    const isOurs = found.uid === process.geteuid!()
    const sentence = isOurs
      ? `A process answers at ${path}, presumably another kyc-tokend: stop it`
      : `${path} is a socket of the user ${nameOf('user', found.uid)}: stop its process and remove it ` +
        `(\`sudo rm ${shellWord(path)}\`)`
    throw new UserError(`${sentence}, or set another ${settingOf(address)}`, exitStatus.unavailable)
  }
  await assertReplaceable(address, path)
}

/**
 * In a sticky directory, such as /tmp, only root and its owners may replace a file (inode(7)). Throws
 * UserError (78), which says whose it is, if that is another user. `reached`: the file, by a path that nobody
 * can exchange. Call it within the work of inTurnAt.
 */
export async function assertReplaceable(address: SocketPath, reached: string): Promise<void> {
  const found = await lstatIfAny(reached)
  // With the dot, a link to the directory is followed.
  if (found === null || !isHeldBySticky(found, await fs.lstat(`${dirname(reached)}/.`))) return
  const file = join(dirname(address.path), basename(reached))
  const message =
    `${file} belongs to the user ${nameOf('user', found.uid)}, and its directory is sticky: ` +
    `remove it (\`sudo rm -f ${shellWord(file)}\`), or set another ${settingOf(address)}`
  throw new UserError(message, exitStatus.configuration)
}

/**
 * Reports whether a process listens at a path. A socket that is neither certain to be dead nor gone counts as
 * living.
 */
function isAnswering(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path, () => {
      socket.destroy()
      resolve(true)
    })
    socket.once('error', (error) => resolve(!['ECONNREFUSED', 'ENOENT'].includes(errorCode(error) ?? '')))
  })
}

function failureOf({ path, failure = `No socket can be made at ${path}` }: SocketPath): string {
  return failure
}

export function settingOf({ setting = 'path' }: SocketPath): string {
  return `\`${setting}\``
}
