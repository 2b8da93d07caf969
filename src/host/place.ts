// The place of a daemon, for the commands of remedies: its account, its unit, its socket and its configuration.
import { dirname } from 'node:path'
import { FileError } from '../files/file-error.ts'
import { capitalized } from '../lib/display-text.ts'
import { exitStatus, UserError } from '../lib/error.ts'
import type { Log } from '../lib/log.ts'
import { accountOfConfig, accountOfEnvironment, serviceEnvironment, systemSocket } from './account.ts'
import { programName, SYSTEM_CONFIG_DIRECTORY } from './paths.ts'
import { createRemedies, fileRemedy, rendered, type Place, type RemedyOf } from './remedy.ts'

/**
 * Of the daemon that runs in this environment: that of the unit has the unit's runtime directory, from systemd.
 */
export function placeOf(env: NodeJS.ProcessEnv, pid?: number): Place {
  const account = accountOfEnvironment(env)
  const isOfUnit = env['RUNTIME_DIRECTORY'] === serviceEnvironment(account).RUNTIME_DIRECTORY
  const isUnit = isOfUnit && env['INVOCATION_ID'] !== undefined
  return { account, isUnit, pid, program: programName() }
}

/** Of a daemon with this configuration, at this socket; undefined: where clients find it. */
export function placeAt(
  { configFile, socket }: { configFile: string; socket: string | undefined },
  { isUnit, pid }: Pick<Place, 'isUnit' | 'pid'>,
): Place {
  const account = accountOfConfig(configFile)
  const isFound = account !== undefined || isUnit || dirname(configFile) === SYSTEM_CONFIG_DIRECTORY
  return {
    account,
    isUnit,
    pid,
    socket: socket === systemSocket(account) ? undefined : socket,
    config: isFound ? undefined : configFile,
    program: programName(),
  }
}

/** The error with which a command or a start ends (78). `subject`: the beginning of its sentence. */
export function asUserError(error: FileError, env: NodeJS.ProcessEnv, subject = ''): UserError {
  const place = placeOf(env)
  const sentence = rendered(fileRemedy(error, place, createRemedies(place).commands))
  return new UserError(`${capitalized(subject + sentence)}.`, exitStatus.configuration, { cause: error })
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
