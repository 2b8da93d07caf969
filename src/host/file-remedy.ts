// Why a file cannot be read or written, in words, with the remedy for this host.
import { accessSync, constants, existsSync, statSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { serviceEnvironment } from './account.ts'
import { errorCode, exitStatus, UserError, withSystemFallback } from '../lib/error.ts'
import { FileError, isLate } from '../files/file-error.ts'
import { fs } from '../files/fs.ts'
import { SERVICE_USER, SYSTEM_CONFIG_DIRECTORY } from './paths.ts'
import { nameOf } from './ids.ts'
import { shellWord } from '../lib/display-text.ts'
import type { Log } from '../lib/log.ts'
import { createRemedies, fileRemedy as fileParts, type RemedyOf } from './remedy.ts'
import { remakeSockets, remedy, rendered, sudoAt, type Place, type Remedy } from './place-commands.ts'

/** As one line for people: which file, if it is about one and not about a directory, why, and the commands. */
export function fileSentence(error: FileError, place: Place): string {
  const why = rendered(fileRemedy(error, place))
  return error.path === error.directory ? why : `Cannot write ${error.path}: ${why}`
}

/** The error as one that a command ends with: 75 if the disk is late, 78 for all others. */
export function asUserError(error: FileError, sentence: string): UserError {
  return new UserError(sentence, isLate(error) ? exitStatus.tryAgain : exitStatus.configuration, {
    cause: error,
  })
}

/** The log, in whose records an error of a file is its sentence. */
export function withFileSentences(log: Log, remedyOf: RemedyOf): Log {
  return (level, sentence, { event, ...fields }) => {
    const shown = Object.entries(fields).map(([name, value]) => [
      name,
      value instanceof FileError ? remedyOf({ kind: 'file', error: value }) : value,
    ])
    log(level, sentence, { event, ...Object.fromEntries(shown) })
  }
}

/** Why it failed, and what to do; the text begins with what is wrong, and follows the name of the file. */
export function fileRemedy(error: FileError, place: Place): Remedy {
  return fileParts(error, place, createRemedies(place).commands)
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
