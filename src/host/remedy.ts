// Remedies: what a person does about a problem, and the commands for it, ready to paste on this host.
import { accountOfEnvironment, accountWords, serviceEnvironment, unitNames } from './account.ts'
import { programName } from './paths.ts'

export interface Remedy {
  /** What to do, in plain words, without a full stop. */
  readonly text: string
  /** To be pasted in this order; none: there is nothing to paste. */
  readonly commands: readonly string[]
}

/** The daemon that commands are for. */
export interface Place {
  /** Undefined: the default account. */
  readonly account: string | undefined
  /** systemd runs it. */
  readonly isUnit: boolean
  /** Of a daemon that a person started; undefined: none runs. */
  readonly pid?: number | undefined
}

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

export function remedy(text: string, ...commands: readonly string[]): Remedy {
  return { text, commands }
}

/** The remedy as one line for people: the text, then its commands as one that can be pasted. */
export function rendered({ text, commands }: Remedy): string {
  return commands.length === 0 ? text : `${text}: \`${commands.join(' && ')}\``
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

/** A command of this program about the daemon of this place: where its unit is, the package is. */
export function programCommand(words: string, { account, isUnit }: Place): string {
  return `${isUnit ? 'sudo kyc-tokend' : programName()} ${words}${accountWords(account)}`
}

/** `sudo ` before a command about what is the unit's. */
export function sudoAt({ isUnit }: Place): string {
  return isUnit ? 'sudo ' : ''
}

/** The command that gives the directories of the package their owners, modes and access lists. */
export const MAKE_DIRECTORIES = 'sudo systemd-tmpfiles --create kyc-tokend.conf'

/**
 * Commands that give the runtime directory of the account's units its owner, group, mode and access list again.
 * Not chmod: where there is an access list, that sets its mask.
 */
export function remakeDirectory(account: string | undefined): string[] {
  return account === undefined ? [MAKE_DIRECTORIES] : [restartSockets(account)]
}

/**
 * Commands that make the runtime directory and the sockets of the account's units again, with their owners
 * and modes.
 */
export function remakeSockets(account: string | undefined): string[] {
  return [MAKE_DIRECTORIES, restartSockets(account)]
}

function restartSockets(account: string | undefined): string {
  const { unit, httpUnit, alertUnit } = unitNames(account)
  // The path unit watches a directory that is gone, too. `restart` would fail for a unit that is masked.
  return `sudo systemctl try-restart ${unit}.socket ${httpUnit}.socket ${alertUnit}.path`
}

/**
 * Commands after which these sockets listen and the daemon has them: systemd binds none beside a daemon that runs,
 * and a client at one of them would start the daemon before the others are bound.
 */
export function bindSockets(sockets: readonly string[], unit: string): string[] {
  const all = [...sockets, unit].join(' ')
  return [`sudo systemctl stop ${all}`, `sudo systemctl start ${all}`]
}

/** Commands that make the package's user, groups and directories again, where they are gone. */
export function makeUsersAgain(): string[] {
  return ['sudo systemd-sysusers kyc-tokend.conf', MAKE_DIRECTORIES]
}

/** Commands that add settings to a drop-in of the account's unit and have them take effect. */
export function allowInUnit(account: string | undefined, settings: readonly string[]): string[] {
  const { unit } = unitNames(account)
  const lines = ['[Service]', ...settings]
  return [...dropIn(`${unit}.service`, { name: 'token-files', lines }), `sudo systemctl restart ${unit}`]
}

/** Commands that open the settings of a unit in an editor and have them take effect. */
export function editUnit(unit: string): string[] {
  return [`sudo systemctl edit ${unit}`, `sudo systemctl restart ${unit}`]
}

/** Commands that add lines to this drop-in of a unit and have systemd read it. */
export function dropIn(unit: string, { name, lines }: { name: string; lines: readonly string[] }): string[] {
  const folder = `/etc/systemd/system/${unit}.d`
  const text = lines.map((line) => `${line}\\n`).join('')
  return [
    `sudo mkdir -p ${folder}`,
    `printf '${text}' | sudo tee -a ${folder}/${name}.conf`,
    'sudo systemctl daemon-reload',
  ]
}
