// Checks the directories and sockets that the daemon writes to, by trying.
import { once } from 'node:events'
import { closeSync, lstatSync, openSync, statSync, unlinkSync, type Stats } from 'node:fs'
import { connect } from 'node:net'
import { dirname, join } from 'node:path'

import { shellWord } from '../config/read-file.ts'
import { accountOfSocket, socketCure, systemSocket } from '../lib/account.ts'
import { randomHex } from '../lib/crypto.ts'
import { directoryProblem, directoryWarning } from '../lib/directory-access.ts'
import { errorCode, errorMessage } from '../lib/error.ts'
import { fault, ok, warning, type Finding } from '../lib/finding.ts'
import { nameOf } from '../lib/posix-ids.ts'
import { nearestThere } from '../report/host.ts'

/** A directory that the daemon writes to. */
export interface WrittenDirectory {
  readonly path: string
  /** The setting that names it. */
  readonly setting: string
  /** Its name in a finding. */
  readonly name: string
  /** One that has a maker need not exist. */
  readonly maker: 'daemon' | 'systemd' | null
}

export function directoryFinding({ path, name, maker }: WrittenDirectory): Finding {
  const stats = statsOf(path, statSync)
  if (stats === 'hidden')
    return fault(`${name} cannot be seen: let the daemon's user enter the directories above it`)
  if (stats === undefined) {
    if (maker === 'systemd') return ok(`${name} will be made by systemd`)
    if (maker === 'daemon') return missing(path, name)
    return fault(`${name} does not exist: make it (mkdir ${shellWord(path)})`)
  }
  if (!stats.isDirectory()) return fault(`${name} is not a directory: remove it, or set another`)
  // The daemon opens its own directories, and those of files, without following a link.
  if (lstatSync(path).isSymbolicLink())
    return fault(`${name} is a symbolic link, which another could replace: name the directory itself`)
  const error = tryToWrite(path)
  if (error !== undefined) return fault(`${name} ${cannotWrite(path, error)}`)
  const uid = process.geteuid!()
  const isSystem = SYSTEM_DIRECTORY.test(path)
  const problem = directoryProblem(path, stats, { uid, use: maker === null ? 'files' : 'sockets' })
  if (problem !== undefined)
    return fault(
      `${name} ${isSystem ? `serves the whole system: ${ownDirectory(path)}` : `is not safe: ${problem}`}`,
    )
  const unwise = directoryWarning(path, stats, uid)
  return unwise === undefined || isSystem
    ? ok(`${name} can be written`)
    : warning(`${name} can be written, but ${unwise}`)
}

/** Checks that the daemon can listen here. */
export async function socketFinding({ path, name }: { path: string; name: string }): Promise<Finding> {
  const stats = statsOf(path, lstatSync)
  if (stats === undefined || stats === 'hidden') return ok(`${name} is free`)
  if (!stats.isSocket())
    return fault(`${name} is taken by something that is not a socket: remove it (rm ${shellWord(path)})`)
  const socket = connect(path)
  try {
    await once(socket, 'connect')
    return ok(`${name} is answered: a daemon runs`)
  } catch (error) {
    return errorCode(error) === 'ECONNREFUSED'
      ? ok(`${name} was left behind by a daemon that is gone; the next one replaces it`)
      : warning(
          `${name} exists and cannot be tried (${errorMessage(error)}): run this as the user that runs the daemon`,
        )
  } finally {
    socket.destroy()
  }
}

/** The user's name, for remedies. */
function user(): string {
  return nameOf('user', process.geteuid!())
}

function missing(path: string, name: string): Finding {
  if (tryToWrite(nearestThere(dirname(path))) === undefined) return ok(`${name} will be made`)
  const account = accountOfSocket(join(path, 'ipc.sock'))
  return path === dirname(systemSocket(account))
    ? fault(`${name} was removed: make it and its sockets again (${socketCure(account)})`)
    : fault(
        `${name} does not exist and cannot be made: make it as root (install -d -m 0700 -o ${user()} ${shellWord(path)}), or set another`,
      )
}

function statsOf(path: string, read: typeof statSync): Stats | 'hidden' | undefined {
  try {
    return read(path, { throwIfNoEntry: false })
  } catch (error) {
    if (errorCode(error) === 'EACCES') return 'hidden'
    if (errorCode(error) === 'ENOTDIR') return undefined
    throw error
  }
}

/** Makes and removes a file: whatever forbids it (modes, lists, read-only, quota, a policy) speaks for itself. */
function tryToWrite(directory: string): unknown {
  const path = join(directory, `.kyc-tokend-check-${randomHex(6)}`)
  try {
    closeSync(openSync(path, 'wx', 0o600))
    unlinkSync(path)
    return undefined
  } catch (error) {
    return error
  }
}

function cannotWrite(path: string, error: unknown): string {
  const denied = `may not be written by ${user()}: ${SYSTEM_DIRECTORY.test(path) ? ownDirectory(path) : `give it to that user (chown ${user()} ${shellWord(path)}), or set another`}`
  const full = 'is on a file system that is full: free some space on it'
  const sentences: Readonly<Record<string, string>> = {
    EROFS:
      'is on a read-only file system: under systemd name it in a ReadWritePaths= drop-in, or set another',
    ENOSPC: full,
    EDQUOT: full,
    EACCES: denied,
    EPERM: denied,
  }
  return sentences[errorCode(error) ?? ''] ?? `cannot be written (${errorMessage(error)}): set another`
}

/** Directories that serve the whole system, or a person: their owner and mode are not ours to change. */
const SYSTEM_DIRECTORY =
  /^\/(?:(?:bin|boot|dev|efi|etc|lib|proc|sbin|sys|usr)(?:\/.*)?|[^/]+|var\/[^/]+|run\/user|(?:home|media|mnt)\/[^/]+)?$/

function ownDirectory(path: string): string {
  const own = join(path, 'kyc-tokend')
  return `make a directory of its own (install -d -m 2750 -o ${user()} ${shellWord(own)}) and set that`
}
