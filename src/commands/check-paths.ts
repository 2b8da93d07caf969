// Checks the directories and sockets that the daemon writes to, by trying.
import { closeSync, lstatSync, openSync, statSync, unlinkSync, type Stats } from 'node:fs'
import { connect } from 'node:net'
import { dirname, join } from 'node:path'

import { shellWord } from '../config/read-file.ts'
import { accountOfSocket, socketCure, systemSocket } from '../lib/account.ts'
import { directoryProblem, directoryWarning } from '../lib/directory-access.ts'
import { errorCode, errorMessage } from '../lib/error.ts'
import { fault, ok, warning, type Finding } from '../lib/finding.ts'
import { randomHex } from '../lib/crypto.ts'
import { nameOf } from '../lib/posix-ids.ts'
import { nearestThere } from '../report/host.ts'

const CONNECT_MS = 1_000

/** A directory that the daemon writes to. */
export interface WrittenDirectory {
  readonly path: string
  /** The setting that names it. */
  readonly setting: string
  /** Its name in a finding. */
  readonly name: string
  /** One that has a maker may be missing. */
  readonly maker: 'daemon' | 'systemd' | null
}

export function directoryFinding({ path, name, maker }: WrittenDirectory): Finding {
  const stats = look(path)
  if (stats === undefined && maker === 'systemd') return ok(`${name} will be made by systemd`)
  if (stats === 'hidden')
    return fault(`${name} cannot be seen: let the daemon's user enter the directories above it`)
  if (stats === undefined)
    return maker === null
      ? fault(`${name} is not there: make it (mkdir ${shellWord(path)})`)
      : missing(path, name)
  if (!stats.isDirectory()) return fault(`${name} is not a directory: remove it, or set another`)
  // The daemon opens its own directories, and those of files, without following a link.
  if (lstatSync(path).isSymbolicLink())
    return fault(`${name} is a symbolic link, which another could replace: name the directory itself`)
  const error = tryToWrite(path)
  if (error !== undefined) return fault(`${name} ${cannotWrite(path, error)}`)
  const uid = process.geteuid!()
  const problem = directoryProblem(path, stats, { uid, use: maker === null ? 'files' : 'sockets' })
  if (problem !== undefined) {
    const sentence = isSystemDirectory(path)
      ? `serves the whole system: ${ownDirectory(path)}`
      : `is not safe: ${problem}`
    return fault(`${name} ${sentence}`)
  }
  const unwise = directoryWarning(path, stats, uid)
  if (unwise !== undefined && !isSystemDirectory(path))
    return warning(`${name} can be written, but ${unwise}`)
  return ok(`${name} can be written`)
}

/** By its name, for remedies. */
function user(): string {
  return nameOf('user', process.geteuid!())
}

/** Checks that the daemon can listen here. */
export async function socketFinding(path: string, name: string): Promise<Finding> {
  const there = look(path, lstatSync)
  const socket = `the ${name} socket ${path}`
  if (there === undefined || there === 'hidden') return ok(`${socket} is free`)
  if (!there.isSocket())
    return fault(`${socket} is taken by something that is not a socket: remove it (rm ${shellWord(path)})`)
  const error = await tryToConnect(path)
  if (error === undefined) return ok(`${socket} is answered: a daemon runs`)
  if (errorCode(error) === 'ECONNREFUSED')
    return ok(`${socket} was left behind by a daemon that is gone; the next one replaces it`)
  return warning(
    `${socket} is there and cannot be tried (${errorMessage(error)}): run this as the user that runs the daemon`,
  )
}

function missing(path: string, name: string): Finding {
  const above = nearestThere(dirname(path))
  const error = tryToWrite(above)
  if (error === undefined) return ok(`${name} will be made`)
  const account = accountOfSocket(join(path, 'ipc.sock'))
  if (path === dirname(systemSocket(account)))
    return fault(`${name} was removed: make it and its sockets again (${socketCure(account)})`)
  return fault(
    `${name} is not there and cannot be made: make it as root (install -d -m 0700 -o ${user()} ${shellWord(path)}), or set another`,
  )
}

function look(path: string, read = statSync): Stats | 'hidden' | undefined {
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
  const code = errorCode(error)
  if (code === 'EROFS')
    return 'is on a read-only file system: under systemd name it in a ReadWritePaths= drop-in, or set another'
  if (code === 'ENOSPC' || code === 'EDQUOT') return 'is on a file system that is full: free some space on it'
  if (code === 'EACCES' || code === 'EPERM')
    return `may not be written by ${user()}: ${isSystemDirectory(path) ? ownDirectory(path) : `give it to that user (chown ${user()} ${shellWord(path)}), or set another`}`
  return `cannot be written (${errorMessage(error)}): set another`
}

/** The error, or undefined if a daemon answers. */
function tryToConnect(path: string): Promise<unknown> {
  return new Promise((resolve) => {
    const socket = connect(path)
    const end = (error: unknown): void => {
      socket.destroy()
      resolve(error)
    }
    socket.setTimeout(CONNECT_MS, () => end(new Error('no answer in time')))
    socket.once('connect', () => end(undefined))
    socket.once('error', end)
  })
}

const SYSTEM_TREES = ['/bin', '/boot', '/dev', '/efi', '/etc', '/lib', '/proc', '/sbin', '/sys', '/usr']
const SHARED_DIRECTORY = /^\/(?:[^/]+|var\/[^/]+|run\/user|home\/[^/]+|media\/[^/]+|mnt\/[^/]+)?$/

/** Reports whether a directory serves the whole system, or a person: its owner and mode are not ours to change. */
function isSystemDirectory(path: string): boolean {
  const isInTree = SYSTEM_TREES.some((tree) => path === tree || path.startsWith(`${tree}/`))
  return isInTree || SHARED_DIRECTORY.test(path)
}

function ownDirectory(path: string): string {
  const own = join(path, 'kyc-tokend')
  return `make a directory of its own (install -d -m 2750 -o ${user()} ${shellWord(own)}) and set that`
}
