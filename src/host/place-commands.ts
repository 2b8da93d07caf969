// Remedies: what a person does about a problem, and the commands for it, ready to paste on this host.
import { dirname } from 'node:path'
import { shellWord } from '../lib/display-text.ts'
import { createRemedies, isNamedFault, type NamedFault, type Place, type Remedy } from './remedy.ts'
import {
  accountOfConfig,
  accountOfEnvironment,
  accountWords,
  serviceEnvironment,
  systemSocket,
  unitNames,
} from './account.ts'
import { programName, SYSTEM_CONFIG_DIRECTORY } from './paths.ts'

export { rendered, type Place, type Remedy } from './remedy.ts'

/** A command whose words depend on the place. */
export type Step = 'check' | 'check --live' | 'refresh' | 'status' | 'reload' | 'restart'

/**
 * Of the daemon that runs in this environment: that of the unit has the unit's runtime directory, from
 * systemd.
 */
export function placeOf(env: NodeJS.ProcessEnv, pid?: number): Place {
  const account = accountOfEnvironment(env)
  const isOfUnit = env['RUNTIME_DIRECTORY'] === serviceEnvironment(account).RUNTIME_DIRECTORY
  return { account, isUnit: isOfUnit && env['INVOCATION_ID'] !== undefined, pid }
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
  }
}

export function remedy(text: string, ...commands: readonly string[]): Remedy {
  return { text, commands }
}

/** None: the command needs a daemon, and none is known. */
export function commandsAt(step: Step, place: Place): string[] {
  if (step !== 'restart' && step !== 'reload') return [programCommand(step, place)]
  const { account, isUnit, pid } = place
  if (isUnit) return [`sudo systemctl ${step} ${unitNames(account).unit}`]
  return pid === undefined ? [] : [`kill -${step === 'restart' ? 'TERM' : 'HUP'} ${pid}`]
}

/** Commands that read the configuration; the others connect to the socket. */
const READING = /^(?:check|setup|run)\b/

/** A command of this program about the daemon of this place: where its unit is, the package is. */
export function programCommand(words: string, { account, isUnit, socket, config }: Place): string {
  const [option, path] = READING.test(words) ? ['--config', config] : ['--socket', socket]
  const which = path === undefined ? accountWords(account) : ` ${option} ${shellWord(path)}`
  return `${isUnit ? 'sudo kyc-tokend' : programName()} ${words}${which}`
}

/** The remedy of a fault at this place, as one line; empty: another version has a fault of that name. */
export function remedyIfKnown(fault: string, place: Place): string {
  return isNamedFault(fault) ? remedyLine(fault, place) : ''
}

export function remedyLine(fault: NamedFault, place: Place): string {
  return createRemedies({ ...place, program: programName() }).remedyOf(fault)
}
