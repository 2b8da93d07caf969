// Remedies: what a person does about a problem, and the commands for it, ready to paste on this host.
import { dirname } from 'node:path'
import { shellWord } from '../lib/display-text.ts'
import type { StatusResult } from '../protocol.ts'
import { createRemedies, isNamedFault, rendered, type NamedFault, type Place, type Remedy } from './remedy.ts'
import {
  accountOfConfig,
  accountOfEnvironment,
  accountWords,
  serviceEnvironment,
  socketUnits,
  systemSocket,
  unitNames,
} from './account.ts'
import { CLIENTS_GROUP, programName, SYSTEM_CONFIG_DIRECTORY } from './paths.ts'

export { rendered, type Place, type Remedy } from './remedy.ts'

/** A command whose words depend on the place. */
export type Step = 'check' | 'check --live' | 'refresh' | 'status' | 'reload' | 'restart'

/** A remedy that holds at every place. */
export interface Advice {
  readonly text: string
  readonly steps: readonly Step[]
}

/** Of the account's unit. */
export function unitPlace(account: string | undefined): Place {
  return { account, isUnit: true }
}

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

/** The advice with the commands of this place; one that needs a daemon is left out if none is known. */
export function renderedAt({ text, steps }: Advice, place: Place): string {
  return rendered({ text, commands: steps.flatMap((step) => commandsAt(step, place)) })
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

/** `sudo ` before a command about what is the unit's. */
export function sudoAt({ isUnit }: Place): string {
  return isUnit ? 'sudo ' : ''
}

/** The command that makes the package's directory of configurations. */
export const MAKE_DIRECTORIES = 'sudo systemd-tmpfiles --create kyc-tokend.conf'

/** Commands that give the directories of the account's unit their owner and mode again: each start makes them. */
export function remakeDirectory(account: string | undefined): string[] {
  return bindSockets(account)
}

/**
 * Commands that make the runtime directory and the sockets of the account's units again, with their owners
 * and modes.
 */
export function remakeSockets(account: string | undefined): string[] {
  return bindSockets(account)
}

/**
 * Commands after which systemd listens at all sockets that are wanted, and the daemon has them. All are stopped first:
 * systemd binds none beside a daemon that runs, which a client at one of them starts. The service brings back its
 * sockets (Sockets=), those that are enabled, and the path unit, which watches a directory that is gone, too.
 */
export function bindSockets(account: string | undefined): string[] {
  const { unit, alertUnit } = unitNames(account)
  const units = [...socketUnits(account).map((socket) => socket.unit), `${alertUnit}.path`, unit]
  return [`sudo systemctl stop ${units.join(' ')}`, `sudo systemctl start ${unit}`]
}

/** The command after which nothing is at the path. What a directory holds may be somebody's: it is kept. */
export function clearPath(
  path: string,
  { isDirectory, place }: { isDirectory: boolean; place: Place },
): string {
  const word = shellWord(path)
  return `${sudoAt(place)}${isDirectory ? `mv -T --backup=numbered ${word} ${word}.old` : `rm -f ${word}`}`
}

/** Commands that make the package's user, groups and directories again, where they are gone. */
export function makeUsersAgain(): string[] {
  return ['sudo systemd-sysusers kyc-tokend.conf', MAKE_DIRECTORIES]
}

/** Commands that let the account's unit write in this directory. */
export function allowInUnit(account: string | undefined, directory: string): string[] {
  const { unit } = unitNames(account)
  // A file of its own for each directory: so the same command, pasted again, changes nothing.
  const name = `write${directory.replaceAll(/[^\w]+/g, '-')}`
  const lines = ['[Service]', `ReadWritePaths=-${directory}`]
  return [...dropIn(`${unit}.service`, { name, lines }), `sudo systemctl restart ${unit}`]
}

/** Commands that open the settings of a unit in an editor and have them take effect. */
export function editUnit(unit: string): string[] {
  return [`sudo systemctl edit ${unit}`, `sudo systemctl restart ${unit}`]
}

/** Commands that write this drop-in of a unit, of which it is the only content, and have systemd read it. */
function dropIn(unit: string, { name, lines }: { name: string; lines: readonly string[] }): string[] {
  const folder = `/etc/systemd/system/${unit}.d`
  const text = lines.map((line) => `${line}\\n`).join('')
  return [
    `sudo mkdir -p ${folder}`,
    `printf '${text}' | sudo tee ${folder}/${name}.conf`,
    'sudo systemctl daemon-reload',
  ]
}

/** Everybody may connect to this socket of systemd. No commands: it is none of the package's units. */
export function openSocket(path: string, { account, isUnit }: Place): Remedy {
  const known = isUnit ? socketUnits(account).find((socket) => socket.path === path) : undefined
  const mode = 'SocketMode=0660'
  // A unit of the package has a group, which may be that of its account alone.
  const settings = known === undefined ? `${mode} and SocketGroup=${CLIENTS_GROUP}` : mode
  const text =
    `every user of this host may connect to ${path} and take the token; ` +
    `list those who may in \`allow\`, or set ${settings} in its unit`
  if (known === undefined) return remedy(text)
  // By its name systemd reads it after the `override.conf` of `systemctl edit`.
  const file = { name: 'zz-clients-only', lines: ['[Socket]', mode] }
  return remedy(text, ...dropIn(known.unit, file), ...bindSockets(account))
}

/** Commands after which a daemon that runs has started again. */
const RESTARTING = /`[^`]*(?:systemctl (?:restart|start|stop|enable --now)|kill -TERM) [^`]*`/

/**
 * How the daemon takes over a configuration that it does not use; null: it uses it, or asks with its pair already.
 * Never by a restart while another pair was not tried: that would use it.
 */
export function takeOverStep({
  daemon: { configuration },
  candidate,
}: Pick<StatusResult, 'daemon' | 'candidate'>): 'reload' | 'restart' | null {
  const { state, problem, pair } = configuration
  if (state === 'current' || (pair !== undefined && candidate)) return null
  return state === 'changed' && problem !== null && pair === undefined ? 'restart' : 'reload'
}

/**
 * The sentence behind what comes before a restart, if it has a command for one: the files hold a pair that is not
 * in use, which a restart would use.
 */
export function behindOtherPair(sentence: string): string {
  if (!RESTARTING.test(sentence) || sentence.startsWith(CORRECT_FIRST)) return sentence
  return `${CORRECT_FIRST}, because a restart would use the other pair in them; then: ${sentence}`
}
const CORRECT_FIRST = 'Correct these files first'

/** The remedy of a fault at this place, as one line; empty: another version has a fault of that name. */
export function remedyIfKnown(fault: string, place: Place): string {
  return isNamedFault(fault) ? remedyLine(fault, place) : ''
}

export function remedyLine(fault: NamedFault, place: Place): string {
  return createRemedies({ ...place, program: programName() }).remedyOf(fault)
}
