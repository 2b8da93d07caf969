// Why the daemon cannot write in a directory, or read a file, and the remedy.
import { existsSync, readFileSync } from 'node:fs'
import { basename, dirname, isAbsolute, join } from 'node:path'
import { serviceEnvironment } from './account.ts'
import { errorCode, errorMessage, withSystemFallback } from '../lib/error.ts'
import { fs } from '../files/fs.ts'
import { isSystemDirectory, SERVICE_USER, SYSTEM_CONFIG_DIRECTORY } from './paths.ts'
import { nameOf } from './ids.ts'
import { shellWord } from '../lib/display-text.ts'
import { allowInUnit, commandsAt, remakeSockets, remedy, sudoAt, type Place, type Remedy } from './remedy.ts'

/** The text begins with what is wrong with the directory. */
export function writeRemedy(directory: string, error: unknown, place: Place): Remedy {
  if ((error as { syscall?: unknown }).syscall === 'fchown') {
    const why = `kyc-tokend may not give it this owner or group (${errorMessage(error)})`
    return remedy(`${why}: leave out owner and group, and make ${directory} setgid, with that group`)
  }
  switch (errorCode(error)) {
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
      return remedy(errorMessage(error))
  }
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
  const make = `${sudoAt(place)}install -d -m 0750 -o ${userOf(place)} ${shellWord(directory)}`
  const commands = isOfUnit(directory, place) ? remakeSockets(place.account) : [make]
  return remedy(`the directory ${directory} is not there`, ...commands)
}

function deniedRemedy(directory: string, place: Place): Remedy {
  const user = userOf(place)
  const text = `the user ${user} may not write in ${directory}`
  if (isOfUnit(directory, place)) return remedy(text, ...remakeSockets(place.account))
  return isSystemDirectory(directory)
    ? remedy(`${text}; make a directory of its own and set that`, ownDirectory(directory, place))
    : remedy(text, `sudo chown ${user} ${shellWord(directory)}`)
}

/**
 * The file system itself is read-only, or only this mount of it, which is what the sandbox of a unit makes.
 * In both cases the unit needs a restart: its mounts are made at its start.
 */
function readOnlyRemedy(directory: string, place: Place): Remedy {
  if (!isForEverybody(directory) && place.isUnit) {
    const commands = allowInUnit(place.account, [`ReadWritePaths=-${directory}`])
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
