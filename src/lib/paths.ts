// Paths of the runtime directory, the state directory, the sockets and the configuration, by the user (contract, section 1).
import { constants } from 'node:fs'
import { userInfo } from 'node:os'
import { isAbsolute, join } from 'node:path'

import { directoryProblem } from './directory-access.ts'
import { errorCode, errorMessage, exitStatus, fallbackOnSystemError, UserError } from './error.ts'
import { fs } from './fs.ts'

/** Identity of a process: the effective uid and the environment. */
export interface ProcessIdentity {
  readonly env: NodeJS.ProcessEnv
  readonly uid: number
}

export const SYSTEM_RUNTIME_DIRECTORY = '/run/kyc-tokend'
export const SYSTEM_STATE_DIRECTORY = '/var/lib/kyc-tokend'
export const SYSTEM_CONFIG_DIRECTORY = '/etc/kyc-tokend'
const IPC_SOCKET_NAME = 'ipc.sock'
/** Longest path of a Unix socket: `sun_path` without its NUL byte (unix(7)). */
export const MAX_SOCKET_PATH_BYTES = 107

/** The runtime directory of a daemon, absolute: systemd's, `/run/kyc-tokend` for root, the person's own otherwise. */
export function runtimeDirectoryOf({ env, uid }: ProcessIdentity): string {
  return firstOf(env['RUNTIME_DIRECTORY']) ?? ownRuntimeDirectory({ env, uid })
}

/** The state directory of a daemon, absolute: systemd's, `/var/lib/kyc-tokend` for root, the person's own otherwise. */
export function stateDirectoryOf({ env, uid }: ProcessIdentity): string {
  const given = firstOf(env['STATE_DIRECTORY'])
  if (given !== undefined) return given
  if (uid === 0) return SYSTEM_STATE_DIRECTORY
  return join(absolute(env['XDG_STATE_HOME']) ?? join(homeOf(env), '.local', 'state'), 'kyc-tokend')
}

/**
 * Paths at which a client looks for the daemon's socket, in this order, without systemd's `$RUNTIME_DIRECTORY`: in a
 * client's unit it is the client's own.
 */
export function socketCandidates({ env, uid }: ProcessIdentity): string[] {
  const directories = new Set([SYSTEM_RUNTIME_DIRECTORY, ownRuntimeDirectory({ env, uid })])
  return [...directories].map((directory) => join(directory, IPC_SOCKET_NAME))
}

/** Directories in which a configuration is looked for, in this order: a service, and root, read what root installed and nothing else. */
export function configDirectories({ env, uid }: ProcessIdentity, workingDirectory: string): string[] {
  const isService = firstOf(env['RUNTIME_DIRECTORY']) !== undefined
  return isService || uid === 0 ? [SYSTEM_CONFIG_DIRECTORY] : [workingDirectory, SYSTEM_CONFIG_DIRECTORY]
}

/** Of the directory itself, whatever a link says. */
const DIRECTORY_FLAGS = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW

/** Mode of a runtime directory that has to be made: the modes of what is in it decide for root's, 0700 for a person's. */
export function runtimeDirectoryMode(uid: number): number {
  return uid === 0 ? 0o755 : 0o700
}
export const STATE_DIRECTORY_MODE = 0o700

/**
 * Makes the directory with this mode, whatever the umask; one that exists is left as it is. Returns why it must not be
 * used, with the remedy: it is a link, another user owns it, or every user can write in it. Throws UserError (78) where it
 * cannot be made.
 */
export async function prepareDirectory(
  path: string,
  { mode, uid }: { mode: number; uid: number },
): Promise<string | undefined> {
  try {
    // mkdir of a directory that exists would wait for a frozen disk.
    const isMade = (await fs.lstat(path).catch(fallbackOnSystemError(null))) === null
    if (isMade) await fs.mkdir(path, { recursive: true, mode })
    const directory = await fs.open(path, DIRECTORY_FLAGS)
    try {
      const stats = await fs.fstat(directory)
      if (isMade && (stats.mode & 0o7777) !== mode) await fs.fchmod(directory, mode)
      // As a mount of a sandbox it outlives its name: no file can be made in it.
      if (stats.nlink === 0) throw Object.assign(new Error('it was removed'), { code: 'ENOENT' })
      const problem = directoryProblem(path, stats, { uid, use: 'sockets' })
      return problem && `The directory ${path} is not safe: ${problem}.`
    } finally {
      await fs.close(directory)
    }
  } catch (error) {
    const isLink = (await fs.lstat(path).catch(fallbackOnSystemError(null)))?.isSymbolicLink()
    if (isLink === true)
      return `The directory ${path} is a symbolic link, which another could replace: name the directory itself.`
    throw new UserError(cannotMake(path, error), exitStatus.configuration, { cause: error })
  }
}

function ownRuntimeDirectory({ env, uid }: ProcessIdentity): string {
  if (uid === 0) return SYSTEM_RUNTIME_DIRECTORY
  const own = absolute(env['XDG_RUNTIME_DIR'])
  if (own !== undefined) return join(own, 'kyc-tokend')
  return join(absolute(env['TMPDIR']) ?? '/tmp', `kyc-tokend-${uid}`)
}

function homeOf(env: NodeJS.ProcessEnv): string {
  const home = absolute(env['HOME'])
  if (home !== undefined) return home
  try {
    return userInfo().homedir
  } catch {
    // A user without an entry in passwd has no home: where that is not writable, the sentence says what to set.
    return '/'
  }
}

/** systemd gives several directories joined by colons; the first is the one named after the unit. */
function firstOf(list: string | undefined): string | undefined {
  return absolute(list?.split(':')[0])
}

/** Relative paths in these variables are to be ignored (XDG Base Directory Specification). */
function absolute(path: string | undefined): string | undefined {
  return path !== undefined && isAbsolute(path) ? path : undefined
}

function cannotMake(path: string, error: unknown): string {
  const code = errorCode(error)
  if (code === 'EEXIST' || code === 'ENOTDIR')
    return `${path} cannot be a directory, because it or a part of its path is something else: remove that, or set another directory.`
  if (code === 'EROFS')
    return `The directory ${path} cannot be made, because the file system there is read-only: under systemd name it in a ReadWritePaths= drop-in, or set another directory.`
  if (code === 'EACCES' || code === 'EPERM')
    return `The directory ${path} may not be made: make it as root and give it to the daemon's user (install -d -m 0700 -o USER ${path}), or set another directory.`
  return `The directory ${path} cannot be made (${errorMessage(error)}): set another directory.`
}
