// What `check` says of the places that the daemon writes to: directories and sockets, judged by trying.
import { randomBytes } from 'node:crypto'
import { closeSync, lstatSync, openSync, statSync, unlinkSync, type Stats } from 'node:fs'
import { connect } from 'node:net'
import { dirname, join } from 'node:path'

import { shellWord } from '../config/read-file.ts'
import { errorCode, errorMessage } from '../lib/error.ts'
import { objectionTo } from '../lib/places.ts'

export interface Finding {
  readonly level: 'ok' | 'warning' | 'fault'
  /** What is the case, and the remedy where one is needed. */
  readonly sentence: string
}

const CONNECT_MS = 1_000

/** Whether a directory that the daemon writes to is fit for it. One that it would make itself may be missing. */
export function directoryFinding(
  path: string,
  options: { purpose: string; isMadeByDaemon: boolean },
): Finding {
  const { purpose, isMadeByDaemon } = options
  const name = `the ${purpose} ${path}`
  const stats = look(path)
  if (stats === 'hidden')
    return fault(`${name} cannot be seen: let the daemon's user enter the directories above it`)
  if (stats === undefined)
    return isMadeByDaemon
      ? missing(path, name)
      : fault(`${name} is not there: make it (mkdir ${shellWord(path)})`)
  if (!stats.isDirectory()) return fault(`${name} is not a directory: remove it, or set another`)
  const objection = objectionTo(path, process.geteuid!())
  if (objection !== undefined) return fault(objection)
  const error = tryToWrite(path)
  if (error !== undefined) return fault(`${name} ${cannotWrite(path, error)}`)
  if ((stats.mode & 0o002) !== 0 && (stats.mode & 0o1000) === 0)
    return fault(
      `${name} can be written by everybody, who could replace what is in it: chmod o-w ${shellWord(path)}`,
    )
  return { level: 'ok', sentence: `${name} can be written` }
}

/** Whether the daemon can listen here. */
export async function socketFinding(path: string, name: string): Promise<Finding> {
  const there = lookWithoutFollowing(path)
  const socket = `the ${name} socket ${path}`
  if (there === undefined) return { level: 'ok', sentence: `${socket} is free` }
  if (!there.isSocket())
    return fault(`${socket} is taken by something that is not a socket: remove it (rm ${shellWord(path)})`)
  const error = await tryToConnect(path)
  if (error === undefined) return { level: 'ok', sentence: `${socket} is answered: a daemon runs` }
  if (errorCode(error) === 'ECONNREFUSED')
    return {
      level: 'ok',
      sentence: `${socket} was left behind by a daemon that is gone; the next one replaces it`,
    }
  return {
    level: 'warning',
    sentence: `${socket} is there and cannot be tried (${errorMessage(error)}): run this as the user that runs the daemon`,
  }
}

function missing(path: string, name: string): Finding {
  const above = nearestThere(dirname(path))
  const error = tryToWrite(above)
  if (error === undefined) return { level: 'ok', sentence: `${name} will be made` }
  return fault(
    `${name} is not there and cannot be made: make it as root (install -d -m 0700 -o ${process.geteuid!()} ${shellWord(path)}), or set another`,
  )
}

function nearestThere(path: string): string {
  const stats = look(path)
  return (stats !== undefined && stats !== 'hidden') || path === '/' ? path : nearestThere(dirname(path))
}

function look(path: string): Stats | 'hidden' | undefined {
  try {
    return statSync(path, { throwIfNoEntry: false })
  } catch (error) {
    if (errorCode(error) === 'EACCES') return 'hidden'
    if (errorCode(error) === 'ENOTDIR') return undefined
    throw error
  }
}

function lookWithoutFollowing(path: string): Stats | undefined {
  try {
    return lstatSync(path, { throwIfNoEntry: false })
  } catch (error) {
    const code = errorCode(error)
    if (code === 'EACCES' || code === 'ENOTDIR') return undefined
    throw error
  }
}

/** Makes and removes a file: whatever forbids it (modes, lists, read-only, quota, a policy) speaks for itself. */
function tryToWrite(directory: string): unknown {
  const path = join(directory, `.kyc-tokend-check-${randomBytes(6).toString('hex')}`)
  try {
    closeSync(openSync(path, 'wx', 0o600))
    unlinkSync(path)
    return undefined
  } catch (error) {
    return error
  }
}

function cannotWrite(path: string, error: unknown): string {
  const who = `uid ${process.geteuid!()}`
  const code = errorCode(error)
  if (code === 'EROFS')
    return 'is on a read-only file system: under systemd name it in a ReadWritePaths= drop-in, or set another'
  if (code === 'ENOSPC' || code === 'EDQUOT') return 'is on a file system that is full: make room on it'
  if (code === 'EACCES' || code === 'EPERM')
    return `may not be written by ${who}: give it to that user (chown ${process.geteuid!()} ${shellWord(path)}), or set another`
  return `cannot be written (${errorMessage(error)}): set another`
}

/** The error, or undefined where somebody answers. */
function tryToConnect(path: string): Promise<unknown> {
  return new Promise((resolve) => {
    const socket = connect(path)
    const end = (error: unknown): void => {
      socket.destroy()
      resolve(error)
    }
    socket.setTimeout(CONNECT_MS, () => end(new Error('nobody answered in time')))
    socket.once('connect', () => end(undefined))
    socket.once('error', end)
  })
}

function fault(sentence: string): Finding {
  return { level: 'fault', sentence }
}
