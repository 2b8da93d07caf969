// Asks systemd, by its own commands, about the units of an account: it knows their drop-ins and defaults.
import { existsSync, globSync, lstatSync } from 'node:fs'
import { join } from 'node:path'
import { accountConfigPath, accountOfConfig, systemSocket, unitNames } from '../lib/account.ts'
import { SERVICE_USER, SYSTEM_CONFIG_DIRECTORY } from '../lib/paths.ts'
import { isLocalGroup } from '../lib/posix-ids.ts'
import { errorCode, exitStatus, UserError } from '../lib/error.ts'
import { runProgram } from '../lib/run-program.ts'
import {
  editUnit,
  programCommand,
  remakeSockets,
  remedy,
  unitPlace,
  type Place,
  type Remedy,
} from '../lib/remedy.ts'

const SYSTEMD_RUNS = '/run/systemd/system'
const ASK_MS = 10_000

/** The directory of the configuration that the unit of an account reads. */
export function configDirectory(account: string | undefined): string {
  return account === undefined ? SYSTEM_CONFIG_DIRECTORY : join(SYSTEM_CONFIG_DIRECTORY, 'accounts')
}

export type UnitProperties = Readonly<Record<string, string>>

/**
 * Properties of a unit by name; a property with several lines has them joined. `LoadState` is `loaded` or
 * `masked`. Null if there is no such unit, no systemd runs this host, or systemd does not answer; in the
 * last case, with `isNeeded`, throws UserError (69).
 */
export async function unitProperties(
  unit: string,
  names: readonly string[],
  { isNeeded = false } = {},
): Promise<UnitProperties | null> {
  if (!existsSync(SYSTEMD_RUNS)) return null
  const shown = ['LoadState', ...names].flatMap((name) => ['-p', name])
  const words = ['show', '--timestamp=unix', ...shown, unit]
  const { isOk, stdout, stderr } = await runProgram('systemctl', words, ASK_MS)
  const properties = parseProperties(stdout)
  if (!isOk && isNeeded)
    throw new UserError(
      `systemd does not say whether ${unit} is installed (${firstLine(stderr)}): run this again.`,
      exitStatus.unavailable,
    )
  return isOk && ['loaded', 'masked'].includes(properties['LoadState'] ?? '') ? properties : null
}

export function firstLine(text: string): string {
  return text.trim().split('\n')[0] ?? ''
}

/** Parses lines of `NAME=VALUE`; several values of one name are joined by a blank. */
function parseProperties(text: string): UnitProperties {
  const properties: Record<string, string> = {}
  for (const line of text.split('\n')) {
    const [, name, value = ''] = /(\w+)=(.*)/.exec(line) ?? []
    if (name !== undefined) properties[name] = `${properties[name] ?? ''} ${value}`.trim()
  }
  return properties
}

/** For the commands of remedies about a daemon that answers. */
export async function placeOfDaemon(daemon: { pid: number; configFile: string }): Promise<Place> {
  const { pid, configFile } = daemon
  const account = accountOfConfig(configFile)
  const service = await unitProperties(`${unitNames(account).unit}.service`, ['MainPID'])
  return { account, isUnit: service?.['MainPID'] === String(pid), pid }
}

/** How a unit ended: its exit status, or the result as systemd names it. */
export function resultOf({ Result: result = '', ExecMainStatus: status = '0' }: UnitProperties): string {
  return result === 'exit-code' ? `exit status ${status}` : result
}

/** What a failed start means, by its exit status; undefined: none of systemd's own (systemd.exec(5)). */
export function failedStart(unit: string, status: string): Remedy | undefined {
  const edited = editUnit(unit)
  const users = [
    'sudo systemd-sysusers kyc-tokend.conf',
    'sudo systemd-tmpfiles --create kyc-tokend.conf',
    `sudo systemctl restart ${unit}`,
  ]
  // Those of the package; another one is of a drop-in.
  const isPackageWhole = isLocalGroup(SERVICE_USER) && isLocalGroup('kyc-token')
  const correct = 'make it, or correct the drop-in'
  const meanings: Readonly<Record<string, readonly [because: string, commands: string[]]>> = {
    '203': ['203/EXEC: its program cannot be run; correct ExecStart= in its drop-ins', edited],
    '216': ['216/GROUP: a group of it does not exist', isPackageWhole ? edited : users],
    '217': ['217/USER: its user does not exist', users],
    '226': [`226/NAMESPACE: a path of its drop-ins does not exist; ${correct}`, edited],
    '243': [
      `243/CREDENTIALS: what LoadCredential= of its drop-ins names does not exist; ${correct}`,
      [`systemctl cat ${unit} | grep Credential`, ...edited],
    ],
  }
  const [because, commands] = meanings[status] ?? []
  return commands && remedy(`${unit}.service cannot start (${because})`, ...commands)
}

/** Why the unit does not run, and the remedy; undefined if it runs or is not installed. */
export async function whyNotRunning(account: string | undefined): Promise<Remedy | undefined> {
  const { unit } = unitNames(account)
  const names = ['ActiveState', 'Result', 'ExecMainStatus', 'UnitFileState', 'StatusText']
  const service = await unitProperties(`${unit}.service`, names)
  if (service === null) return undefined
  if (!isConfigured(account))
    return remedy(`${unit}.service has no configuration`, programCommand('setup', unitPlace(account)))
  const socket = await unitProperties(`${unit}.socket`, ['ActiveState'])
  const masked = Object.entries({ service, socket })
    .filter(([, known]) => known?.['LoadState'] === 'masked')
    .map(([suffix]) => `${unit}.${suffix}`)
  if (masked.length > 0)
    return remedy(
      `${masked.join(' and ')} ${masked.length > 1 ? 'are' : 'is'} masked`,
      `sudo systemctl unmask ${masked.join(' ')}`,
      `sudo systemctl enable --now ${unit}`,
    )
  if (socket?.['ActiveState'] === 'active' && isAbsent(systemSocket(account)))
    return remedy(`the socket of ${unit}.socket was removed`, ...remakeSockets(account))
  return reasonOf(account, service)
}

function reasonOf(account: string | undefined, service: UnitProperties): Remedy | undefined {
  const { unit } = unitNames(account)
  const { ActiveState: state, Result: result, ExecMainStatus: status = '0', UnitFileState: file } = service
  if (state === 'active' || state === 'reloading') return undefined
  if (result === 'success' && state === 'activating') return remedy(`${unit}.service is starting`)
  if (result === 'success' && state !== 'failed') {
    const start = file === 'enabled' ? 'start' : 'enable --now'
    return remedy(`${unit}.service is ${state}`, `sudo systemctl ${start} ${unit}`)
  }
  const text = `${unit}.service is ${state} (${resultOf(service)})`
  const check = programCommand('check', unitPlace(account))
  const exit = result === 'exit-code' ? status : ''
  if (exit === '69') return remedy(`${text}: another daemon runs, or its directories are in use`, check)
  if (exit === '78') {
    // The daemon itself has said what is faulty.
    const faults = service['StatusText'] || 'the configuration is faulty'
    return remedy(`${text}: ${faults}; correct that, then`, check, `sudo systemctl restart ${unit}`)
  }
  return failedStart(unit, exit) ?? remedy(text, `sudo journalctl -u ${unit} -n 20`)
}

/** True if this user may not look. */
export function isConfigured(account: string | undefined): boolean {
  const defaults = ['json', 'yaml', 'yml'].map((ending) =>
    join(SYSTEM_CONFIG_DIRECTORY, `kyc-tokend.config.${ending}`),
  )
  return !(account === undefined ? defaults : [accountConfigPath(account)]).every(isAbsent)
}

/** The names of the accounts that have a configuration; none if this user may not look. */
export function configuredAccounts(): string[] {
  const paths = globSync(accountConfigPath('*'))
  return paths.map((path) => accountOfConfig(path)).filter((name) => name !== undefined)
}

export function isAbsent(path: string): boolean {
  try {
    lstatSync(path)
    return false
  } catch (error) {
    return errorCode(error) === 'ENOENT'
  }
}
