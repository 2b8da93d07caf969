// Paths of the runtime directory, the state directory, the sockets and the configuration, by the user (contract, section 1).
import { constants, lstatSync, statSync, type Stats } from 'node:fs'
import { userInfo } from 'node:os'
import { dirname, isAbsolute, join } from 'node:path'

import { errorCode, errorMessage, exitStatus, fallbackOnSystemError, UserError } from './error.ts'
import { fs } from './fs.ts'
import { isQuick, noteDevice } from './serial.ts'

/** Identity of a process: the effective uid and the environment. */
export interface ProcessIdentity {
  readonly env: NodeJS.ProcessEnv
  readonly uid: number
}

export const SYSTEM_RUNTIME_DIRECTORY = '/run/kyc-tokend'
export const SYSTEM_STATE_DIRECTORY = '/var/lib/kyc-tokend'
export const SYSTEM_CONFIG_DIRECTORY = '/etc/kyc-tokend'
const IPC_SOCKET_NAME = 'ipc.sock'

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

/** Mode of a runtime directory that has to be made: the modes of what is in it decide for root's, 0700 for a person's. */
export function runtimeDirectoryMode(uid: number): number {
  return uid === 0 ? 0o755 : 0o700
}
export const STATE_DIRECTORY_MODE = 0o700

/**
 * Makes the directory with this mode, whatever the umask; one that is there is left as it is. In a directory where
 * everybody may make names (such as /tmp), one that is a link, that another owns or that others can write is
 * refused. Throws UserError (78) with the remedy.
 */
export async function prepareDirectory(path: string, options: { mode: number; uid: number }): Promise<void> {
  try {
    // mkdir of a directory that is there would wait for a frozen disk.
    const isMade =
      !(await isDirectory(path)) && (await fs.mkdir(path, { recursive: true, mode: options.mode }))
    if (isMade) await setMode(path, options.mode)
  } catch (error) {
    throw new UserError(cannotMake(path, error), exitStatus.configuration, { cause: error })
  }
  const objection = pathProblem(path, options.uid)
  if (objection !== undefined) throw new UserError(objection, exitStatus.configuration)
}

/** Reports whether it is certain without a thread that the directory is there and may be used. */
export function isUsableForCertain(path: string, uid: number): boolean {
  try {
    return isQuick(path) && statSync(path).isDirectory() && pathProblem(path, uid) === undefined
  } catch (error) {
    return fallbackOnSystemError(false)(error)
  }
}

/** Why this directory must not be used, with the remedy; undefined where it may be, or is not there. */
export function pathProblem(path: string, uid: number): string | undefined {
  const there = lstatSync(path, { throwIfNoEntry: false })
  if (there === undefined || !isSharedByAll(statSync(dirname(path)))) return undefined
  const refusal = (why: string): string =>
    `The directory ${path} ${why}, in a directory where everybody may make names: remove it, or set runtimeDirectory and stateDirectory to directories of your own.`
  if (there.isSymbolicLink()) return refusal('is a symbolic link')
  if (there.uid !== uid) return refusal(`belongs to uid ${there.uid} and not to uid ${uid}`)
  if ((there.mode & 0o022) !== 0) return refusal('can be written by others')
  return undefined
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

function isSharedByAll(parent: Stats): boolean {
  return (parent.mode & 0o002) !== 0
}

async function isDirectory(path: string): Promise<boolean> {
  const stats = await fs.stat(path).catch(() => null)
  if (stats?.isDirectory() !== true) return false
  noteDevice(path, stats.dev)
  return true
}

async function setMode(path: string, mode: number): Promise<void> {
  const directory = await fs.open(path, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW)
  try {
    if (((await fs.fstat(directory)).mode & 0o7777) !== mode) await fs.fchmod(directory, mode)
  } finally {
    await fs.close(directory)
  }
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
