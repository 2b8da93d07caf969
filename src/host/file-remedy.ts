// Why a file cannot be read or written, in words, with the remedy for this host.
import { accessSync, constants, existsSync, readFileSync, statSync } from 'node:fs'
import { basename, dirname, isAbsolute, join } from 'node:path'
import { serviceEnvironment } from './account.ts'
import { errorCode, errorMessage, exitStatus, UserError, withSystemFallback } from '../lib/error.ts'
import { FileError, isLate, type Writers } from '../files/file-error.ts'
import { fs } from '../files/fs.ts'
import { STALLED_AFTER_MS } from '../files/in-directory.ts'
import { isSystemDirectory, SERVICE_USER, SYSTEM_CONFIG_DIRECTORY } from './paths.ts'
import { nameOf } from './ids.ts'
import { shellWord } from '../lib/display-text.ts'
import { formatDuration } from '../lib/duration.ts'
import type { Log } from '../lib/log.ts'
import {
  allowInUnit,
  clearPath,
  commandsAt,
  remakeDirectory,
  remakeSockets,
  remedy,
  rendered,
  sudoAt,
  type Place,
  type Remedy,
} from './remedy.ts'

/** As one line for people: which file, if it is about one and not about a directory, why, and the commands. */
export function fileSentence(error: FileError, place: Place): string {
  const why = rendered(fileRemedy(error, place))
  return error.path === error.directory ? why : `Cannot write ${error.path}: ${why}`
}

/** The sentence, or null if there is no error. */
export function fileProblem(error: FileError | null, place: Place): string | null {
  return error && fileSentence(error, place)
}

/** The error as one that a command ends with: 75 if the disk is late, 78 for all others. */
export function asUserError(error: FileError, sentence: string): UserError {
  return new UserError(sentence, isLate(error) ? exitStatus.tryAgain : exitStatus.configuration, {
    cause: error,
  })
}

/** The log, in whose records an error of a file is its sentence. */
export function withFileSentences(log: Log, place: Place): Log {
  return (level, sentence, { event, ...fields }) => {
    const shown = Object.entries(fields).map(([name, value]) => [
      name,
      value instanceof FileError ? fileSentence(value, place) : value,
    ])
    log(level, sentence, { event, ...Object.fromEntries(shown) })
  }
}

/** Why it failed, and what to do; the text begins with what is wrong, and follows the name of the file. */
export function fileRemedy(error: FileError, place: Place): Remedy {
  const { directory, code, writers } = error
  switch (error.kind) {
    case 'stalled':
      return remedy(`the disk of ${directory} has not answered for ${PATIENCE}: check the disk or its server`)
    case 'busy': {
      const why = 'because other disks are waited for: check those'
      return remedy(`${directory} has not had its turn for ${PATIENCE}, ${why}`)
    }
    case 'odd-target': {
      const found = { ELOOP: 'a symbolic link', EISDIR: 'a directory' }[code ?? ''] ?? 'no regular file'
      const text = `it is ${found}, which is never replaced; choose another path, or clear this one`
      return remedy(text, clearPath(error.path, { isDirectory: code === 'EISDIR', place }))
    }
    case 'held-target':
      return heldRemedy(error)
    case 'attributes':
      return remedy('its file system does not keep owner, group and mode: choose another directory')
    case 'unsafe-directory':
      return unsafeRemedy(directory, writers ?? 'all')
    case 'system':
    default:
      return systemRemedy(error, place)
  }
}

const PATIENCE = formatDuration(STALLED_AFTER_MS)

function systemRemedy({ directory, code, syscall, cause }: FileError, place: Place): Remedy {
  if (syscall === 'fchown') {
    const why = `kyc-tokend may not give it this owner or group (${code})`
    return remedy(`${why}: leave out owner and group, and make ${directory} setgid, with that group`)
  }
  switch (code) {
    case 'ENOENT':
      return absentRemedy(directory, place)
    case 'ENOTDIR':
    case 'ELOOP':
      return remedy(`${directory} is a symbolic link or no directory: choose the directory itself`)
    case 'EACCES':
    case 'EPERM':
      return deniedRemedy(directory, place)
    case 'EROFS':
      return readOnlyRemedy(directory, place)
    case 'ENOSPC':
    case 'EDQUOT':
      return remedy(`no space is left in ${directory}: free some`)
    case undefined:
    default:
      return remedy(cause === undefined ? `${syscall} failed with ${code}` : errorMessage(cause))
  }
}

/** Who can exchange what is made in the directory, and the remedy. */
function unsafeRemedy(directory: string, writers: Writers): Remedy {
  const word = shellWord(directory)
  if (writers === 'all') {
    const close = 'or close this one (an emptyDir of Kubernetes: medium: Memory)'
    const commands = isSystemDirectory(directory) ? [] : [`sudo chmod o-w ${word}`]
    return remedy(`every user can write in the directory; choose another directory, ${close}`, ...commands)
  }
  const name = nameOf(writers.kind, writers.id)
  if (writers.kind === 'group') {
    const risk = `the group ${name} can exchange what kyc-tokend writes in ${directory}`
    return remedy(`${risk}; unless all its members may`, `sudo chmod g-w ${word}`)
  }
  const why = `the directory belongs to the user ${name}, who could exchange what is made there`
  // Of a user who is gone nothing is taken away.
  const isGone = name === String(writers.id) && !isSystemDirectory(directory)
  if (!isGone) return remedy(`${why}; choose another directory`)
  const mine = `sudo chown -h ${nameOf('user', process.geteuid!())} ${word}`
  return remedy(`${why}; choose another directory, or take this one over`, mine)
}

/** For what this user can neither replace nor remove, because it is another's in a sticky directory. */
function heldRemedy({ path, writers }: FileError): Remedy {
  const owner = typeof writers === 'object' ? nameOf(writers.kind, writers.id) : 'another'
  const text = `it belongs to the user ${owner}, and its directory is sticky: remove it`
  return remedy(text, `sudo rm -f ${shellWord(path)}`)
}

/**
 * For a file that this user may not read; the text follows the file's name. No system directory is opened,
 * and no owner changed: a file that lies where the daemon has no access is copied to where it has.
 */
export async function readRemedy(path: string): Promise<Remedy> {
  const user = nameOf('user', process.geteuid!())
  const group = shellWord(nameOf('group', process.getegid!()))
  const file = shellWord(path)
  const denied = `may not be read by the user ${user}`
  const isOfSystem = (name: string): boolean => `${name}/`.startsWith(`${SYSTEM_CONFIG_DIRECTORY}/`)
  // Another group would take the file from the daemon.
  if (isOfSystem(path) && user !== SERVICE_USER)
    return remedy(`${denied}: use sudo, and leave owner and mode of the file as they are`)
  const closed = await firstClosed(dirname(path))
  if (closed === undefined) return remedy(denied, `sudo chgrp ${group} ${file}`, `sudo chmod 0640 ${file}`)
  const text = `${denied}, who may not enter ${closed}`
  if (isOfSystem(closed))
    return remedy(text, `sudo chgrp ${group} ${shellWord(closed)}`, `sudo chmod g+rx ${shellWord(closed)}`)
  const copy = shellWord(join(SYSTEM_CONFIG_DIRECTORY, basename(path)))
  return remedy(`${text}; put it elsewhere and name that`, `sudo install -m 0640 -g ${group} ${file} ${copy}`)
}

/** The first directory from the root that this user may not enter; undefined: there is none. */
async function firstClosed(directory: string): Promise<string | undefined> {
  const above = directory === '/' ? undefined : await firstClosed(dirname(directory))
  if (above !== undefined) return above
  // A name in it is looked up, which asks for no more than that.
  const error: unknown = await fs.stat(`${directory}/.`).then(
    () => undefined,
    (reason: unknown) => reason,
  )
  return errorCode(error) === 'EACCES' ? directory : undefined
}

export function absentRemedy(directory: string, place: Place): Remedy {
  const word = shellWord(directory)
  // Root makes nothing below a directory of the daemon's user, who could put a link there.
  const make = isBelowOwn(directory, place)
    ? `sudo runuser -u ${userOf(place)} -- mkdir -p -m 0750 ${word}`
    : `${mayWrite(nearestThere(directory)) ? sudoAt(place) : 'sudo '}install -d -m 0750 -o ${userOf(place)} ${word}`
  const commands = isOfUnit(directory, place) ? remakeSockets(place.account) : [make]
  return remedy(`the directory ${directory} is not there`, ...commands)
}

function mayWrite(directory: string): boolean {
  return withSystemFallback(false, () => {
    accessSync(directory, constants.W_OK)
    return true
  })
}

function isBelowOwn(directory: string, place: Place): boolean {
  if (!place.isUnit) return false
  const uid = withSystemFallback(0, () => statSync(nearestThere(directory)).uid)
  return nameOf('user', uid) === SERVICE_USER
}

function deniedRemedy(directory: string, place: Place): Remedy {
  const user = userOf(place)
  const text = `the user ${user} may not write in ${directory}`
  if (isOfUnit(directory, place)) return remedy(text, ...remakeDirectory(place.account))
  return isSystemDirectory(directory)
    ? remedy(`${text}; make a directory of its own and set that`, ownDirectory(directory, place))
    : // Not what a link leads to: its maker may be the daemon's user.
      remedy(text, `sudo chown -h ${user} ${shellWord(directory)}`)
}

/**
 * The file system itself is read-only, or only this mount of it, which is what the sandbox of a unit makes.
 * In both cases the unit needs a restart: its mounts are made at its start.
 */
function readOnlyRemedy(directory: string, place: Place): Remedy {
  // The unit may write in its own directories: what keeps it from that is no setting of the sandbox.
  if (place.isUnit && !isOfUnit(directory, place) && !isForEverybody(directory)) {
    const commands = allowInUnit(place.account, directory)
    return remedy(`${directory} is read-only for this unit alone`, ...commands)
  }
  return remedy(
    `the file system of ${directory} is read-only for everybody`,
    // The sandbox has mount points that the host has not.
    `sudo mount -o remount,rw "$(findmnt -no TARGET -T ${shellWord(directory)})"`,
    ...(place.isUnit ? commandsAt('restart', place) : []),
  )
}

/**
 * Reports whether the file system of a path is read-only, and not only its mount in this process
 * (proc_pid_mountinfo(5)).
 */
function isForEverybody(path: string): boolean {
  const lines = withSystemFallback([], () => readFileSync('/proc/self/mountinfo', 'utf8').split('\n'))
  let nearest = { length: 0, isReadOnly: true }
  for (const line of lines) {
    const [mount = '', fileSystem = ''] = line.split(' - ')
    // A blank in a path is written as an octal number.
    const point = (mount.split(' ')[4] ?? '').replaceAll(/\\([0-7]{3})/g, (_, octal: string) =>
      String.fromCharCode(Number.parseInt(octal, 8)),
    )
    const isAbove = isAbsolute(point) && `${path}/`.startsWith(point === '/' ? '/' : `${point}/`)
    const isReadOnly = fileSystem.split(' ')[2]?.split(',').includes('ro') ?? false
    // Of several at one point, the last covers the others.
    if (isAbove && point.length >= nearest.length) nearest = { length: point.length, isReadOnly }
  }
  return nearest.isReadOnly
}

function isOfUnit(directory: string, { account, isUnit }: Place): boolean {
  const { RUNTIME_DIRECTORY, STATE_DIRECTORY } = serviceEnvironment(account)
  return isUnit && [RUNTIME_DIRECTORY, STATE_DIRECTORY].includes(directory)
}

/** The user as whom the daemon of a unit, or this process, writes. */
function userOf({ isUnit }: Place): string {
  return isUnit ? SERVICE_USER : nameOf('user', process.geteuid!())
}

/** The directory, or the nearest above it that exists and may be seen. */
export function nearestThere(directory: string): string {
  return existsSync(directory) ? directory : nearestThere(dirname(directory))
}

/** Makes a directory of the daemon's own in one that serves the whole system. */
export function ownDirectory(directory: string, place: Place): string {
  return `sudo install -d -m 2750 -o ${userOf(place)} ${shellWord(join(directory, 'kyc-tokend'))}`
}
