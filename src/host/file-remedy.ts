// Why a file cannot be read or written, in words, with the remedy for this host.
import { basename, dirname, join } from 'node:path'
import { errorCode, exitStatus, UserError } from '../lib/error.ts'
import { FileError, isLate } from '../files/file-error.ts'
import { fs } from '../files/fs.ts'
import { SERVICE_USER, SYSTEM_CONFIG_DIRECTORY } from './paths.ts'
import { nameOf } from './ids.ts'
import { shellWord } from '../lib/display-text.ts'
import type { Log } from '../lib/log.ts'
import { createRemedies, fileRemedy as fileParts, type RemedyOf } from './remedy.ts'
import { remedy, type Place, type Remedy } from './place-commands.ts'

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
