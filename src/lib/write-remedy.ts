// Why the daemon cannot write in a directory, and the remedy, by the system's error.
import { readFileSync } from 'node:fs'
import { isAbsolute } from 'node:path'
import { serviceEnvironment } from './account.ts'
import { errorCode, errorMessage, withSystemFallback } from './error.ts'
import { isSystemDirectory, SERVICE_USER } from './paths.ts'
import { nameOf } from './posix-ids.ts'
import { allowInUnit, commandAt, remakeSockets, shellWord, type Place, type Remedy } from './remedy.ts'

/** The text begins with what is wrong with the directory. */
export function writeRemedy(directory: string, error: unknown, place: Place): Remedy {
  const only = (text: string): Remedy => ({ text, commands: [] })
  if ((error as { syscall?: unknown }).syscall === 'fchown') {
    const why = `kyc-tokend may not give it this owner or group (${errorMessage(error)})`
    return only(`${why}: leave out owner and group, and make ${directory} setgid, with that group`)
  }
  switch (errorCode(error)) {
    case 'ENOENT':
      return absentRemedy(directory, place)
    case 'ENOTDIR':
    case 'ELOOP':
      return only(`${directory} is a symbolic link or no directory: choose the directory itself`)
    case 'EACCES':
    case 'EPERM':
      return deniedRemedy(directory, place)
    case 'EROFS':
      return readOnlyRemedy(directory, place)
    case 'ENOSPC':
    case 'EDQUOT':
      return only(`no space is left in ${directory}: free some`)
    case undefined:
    default:
      return only(errorMessage(error))
  }
}

function absentRemedy(directory: string, place: Place): Remedy {
  const text = `the directory ${directory} is not there`
  return {
    text,
    commands: isOfUnit(directory, place) ? remakeSockets(place.account) : [makeFor(directory, place)],
  }
}

function deniedRemedy(directory: string, place: Place): Remedy {
  const user = userOf(place)
  const text = `the user ${user} may not write in ${directory}`
  if (isOfUnit(directory, place)) return { text, commands: remakeSockets(place.account) }
  return isSystemDirectory(directory)
    ? { text: `${text}: set a directory of its own, such as ${directory}/kyc-tokend`, commands: [] }
    : { text, commands: [`${sudo(place)}chown ${user} ${shellWord(directory)}`] }
}

/**
 * The file system itself is read-only, or only this mount of it, which is what the sandbox of a unit makes. In both cases the
 * unit needs a restart: its mounts are made at its start.
 */
function readOnlyRemedy(directory: string, place: Place): Remedy {
  const mount = mountOf(directory)
  const restart = commandAt('restart', place)
  if (mount?.isReadOnly !== false || !place.isUnit) {
    const point = mount?.path ?? directory
    const commands = [`sudo mount -o remount,rw ${shellWord(point)}`]
    return {
      text: `the file system of ${directory}, at ${point}, is read-only for everybody`,
      commands: place.isUnit && restart !== undefined ? [...commands, restart] : commands,
    }
  }
  return {
    text: `${directory} is read-only for this unit alone`,
    commands: allowInUnit(place.account, [`ReadWritePaths=-${directory}`]),
  }
}

/** The mount of a path as this process sees it (proc_pid_mountinfo(5)); undefined if it is not known. */
function mountOf(path: string): { path: string; isReadOnly: boolean } | undefined {
  const lines = withSystemFallback([], () => readFileSync('/proc/self/mountinfo', 'utf8').split('\n'))
  const mounts = lines.flatMap((line) => {
    const [before = '', after = ''] = line.split(' - ')
    // A blank in a path is written as an octal number.
    const point = (before.split(' ')[4] ?? '').replaceAll(/\\([0-7]{3})/g, (_, octal: string) =>
      String.fromCharCode(Number.parseInt(octal, 8)),
    )
    const isAbove = isAbsolute(point) && `${path}/`.startsWith(point === '/' ? '/' : `${point}/`)
    const isReadOnly = after.split(' ')[2]?.split(',').includes('ro') ?? false
    return isAbove ? [{ path: point, isReadOnly }] : []
  })
  // Of several at one point, the last covers the others.
  return mounts.reduce<(typeof mounts)[number] | undefined>(
    (best, mount) => (best === undefined || mount.path.length >= best.path.length ? mount : best),
    undefined,
  )
}

function isOfUnit(directory: string, { account, isUnit }: Place): boolean {
  const { RUNTIME_DIRECTORY, STATE_DIRECTORY } = serviceEnvironment(account)
  return isUnit && [RUNTIME_DIRECTORY, STATE_DIRECTORY].includes(directory)
}

/** The user as whom the daemon of a unit, or this process, writes. */
function userOf({ isUnit }: Place): string {
  return isUnit ? SERVICE_USER : nameOf('user', process.geteuid!())
}

function sudo({ isUnit }: Place): string {
  return isUnit ? 'sudo ' : ''
}

/** Makes a directory for the daemon. */
function makeFor(directory: string, place: Place): string {
  return `${sudo(place)}install -d -m 0750 -o ${userOf(place)} ${shellWord(directory)}`
}
