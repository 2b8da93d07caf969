// Asks systemd, by its own commands, about the units of an account, and has it act on them: drop-ins and defaults are
// systemd's affair.
import { existsSync, lstatSync } from 'node:fs'
import { join } from 'node:path'

import { accountOfConfig, accountWords, socketCure, systemSocket, unitNames } from '../lib/account.ts'
import { errorCode, exitStatus, UserError } from '../lib/error.ts'
import { SYSTEM_CONFIG_DIRECTORY } from '../lib/paths.ts'
import { runProgram, type Finished } from '../lib/run-program.ts'

/** Of the operator; the same for all accounts. */
export const ALERT_COMMAND = join(SYSTEM_CONFIG_DIRECTORY, 'alert-command')
const SYSTEMD_RUNS = '/run/systemd/system'
const ASK_MS = 10_000
const CREDENTIAL_PROPERTIES = [
  'LoadCredential',
  'LoadCredentialEncrypted',
  'SetCredential',
  'SetCredentialEncrypted',
]

/** The directory of the configuration that the unit of an account reads. */
export function configDirectory(account: string | undefined): string {
  return account === undefined ? SYSTEM_CONFIG_DIRECTORY : join(SYSTEM_CONFIG_DIRECTORY, 'accounts')
}

export type UnitProperties = Readonly<Record<string, string>>

/**
 * Properties of a unit by name, of all its lines where one has several; `LoadState` is `loaded` or `masked`. Null if
 * there is no such unit, or no systemd runs this host. Throws UserError (69) where systemd does not answer.
 */
export async function askUnit(unit: string, names: readonly string[]): Promise<UnitProperties | null> {
  if (!existsSync(SYSTEMD_RUNS)) return null
  const shown = ['LoadState', ...names].flatMap((name) => ['-p', name])
  const { isOk, stdout, stderr } = await systemctl(['show', '--timestamp=unix', ...shown, unit])
  const properties = parseProperties(stdout)
  if (isOk) return ['loaded', 'masked'].includes(properties['LoadState'] ?? '') ? properties : null
  throw new UserError(
    `systemd does not say whether ${unit} is installed (${firstLine(stderr)}): run this again.`,
    exitStatus.unavailable,
  )
}

/** The same; null also where systemd does not answer. */
export async function unitProperties(unit: string, names: readonly string[]): Promise<UnitProperties | null> {
  try {
    return await askUnit(unit, names)
  } catch (error) {
    if (error instanceof UserError) return null
    throw error
  }
}

export function firstLine(text: string): string {
  return text.trim().split('\n')[0] ?? ''
}

/** The variables that a unit and its drop-ins set by `Environment=`, as `systemctl show` quotes them. */
export async function unitEnvironment(account: string | undefined): Promise<Record<string, string>> {
  const unit = await unitProperties(`${unitNames(account).unit}.service`, ['Environment'])
  const words = (unit?.['Environment'] ?? '').match(/"(?:[^"\\]|\\.)*"|\S+/g) ?? []
  return Object.fromEntries(
    words.map((word) => {
      const text = word.startsWith('"') ? word.slice(1, -1).replaceAll(/\\(.)/g, '$1') : word
      return [text.split('=', 1)[0] ?? '', text.slice(text.indexOf('=') + 1)]
    }),
  )
}

/** Lines of `NAME=VALUE`; the values of a name that is there several times are joined by a blank. */
function parseProperties(text: string): UnitProperties {
  const properties: Record<string, string> = {}
  for (const line of text.split('\n')) {
    const [, name, value = ''] = /(\w+)=(.*)/.exec(line) ?? []
    if (name === undefined) continue
    properties[name] = [properties[name], value].filter((part) => part !== undefined && part !== '').join(' ')
  }
  return properties
}

/** Credentials of a service, with the file of those that are loaded from one; null if systemd does not say. */
export async function unitCredentials(
  service: string,
): Promise<{ id: string; path: string | undefined }[] | null> {
  const escaped = service.replaceAll(
    /[^A-Za-z0-9]/g,
    (character) => `_${character.charCodeAt(0).toString(16).padStart(2, '0')}`,
  )
  // systemctl shows no property that is a list of pairs.
  const words = [
    '--json=short',
    'get-property',
    'org.freedesktop.systemd1',
    `/org/freedesktop/systemd1/unit/${escaped}`,
    'org.freedesktop.systemd1.Service',
    ...CREDENTIAL_PROPERTIES,
  ]
  const { isOk, stdout } = await runProgram('busctl', words, ASK_MS)
  const lines = stdout.trim().split('\n')
  if (!isOk || lines.length !== CREDENTIAL_PROPERTIES.length) return null
  return lines.flatMap((line) =>
    (JSON.parse(line) as { data: [string, unknown][] }).data.map(([id, from]) => ({
      id,
      path: typeof from === 'string' ? from : undefined,
    })),
  )
}

export async function systemctl(words: readonly string[], timeoutMs = ASK_MS): Promise<Finished> {
  return runProgram('systemctl', words, timeoutMs)
}

interface AlertCommandRun {
  readonly isOk: boolean
  /** Its exit status, or the result as systemd names it. */
  readonly result: string
  readonly at: string
}

export interface HostFacts {
  /** Unit of the daemon without its suffix; null: systemd does not run it. */
  readonly unit: string | null
  /** Null: it has not run, or there is none. */
  readonly alertCommand: AlertCommandRun | null
  /** Why alerts do not reach the alert command, with the remedy; null: they do, or there is none. */
  readonly alertProblem: string | null
}

export const noFacts: HostFacts = { unit: null, alertCommand: null, alertProblem: null }

/** Facts for a daemon that answers. */
export async function factsOf({ pid, configFile }: { pid: number; configFile: string }): Promise<HostFacts> {
  const account = accountOfConfig(configFile)
  const { unit } = unitNames(account)
  const service = await unitProperties(`${unit}.service`, ['MainPID'])
  return service?.['MainPID'] === String(pid) ? { unit, ...(await alertFacts(account)) } : noFacts
}

/** The way from an alert to the operator's command. */
export async function alertFacts(account: string | undefined): Promise<Omit<HostFacts, 'unit'>> {
  if (isAbsent(ALERT_COMMAND)) return { alertCommand: null, alertProblem: null }
  const { alertUnit } = unitNames(account)
  const path = `${alertUnit}.path`
  const { LoadState: load, ActiveState: state = 'active' } =
    (await unitProperties(path, ['ActiveState'])) ?? {}
  const unmask = load === 'masked' ? `\`sudo systemctl unmask ${path}\`, then ` : ''
  const alertProblem =
    state === 'active'
      ? null
      : `${path} is ${load === 'masked' ? load : state}, so that no alert reaches the alert command: ${unmask}\`sudo systemctl enable --now ${path}\``
  const names = ['Result', 'ExecMainStatus', 'ExecMainExitTimestamp', 'StatusText']
  const run = await unitProperties(`${alertUnit}.service`, names)
  return { alertCommand: alertRunOf(run), alertProblem }
}

function alertRunOf(properties: Readonly<Record<string, string>> | null): AlertCommandRun | null {
  // The unit runs as long as the command fails, and its status says so.
  const [, failure, failedAt] = /^(exit status \d+) at (\S+Z): /.exec(properties?.['StatusText'] ?? '') ?? []
  if (failure !== undefined && failedAt !== undefined) return { isOk: false, result: failure, at: failedAt }
  const seconds = Number(/^@(\d+)/.exec(properties?.['ExecMainExitTimestamp'] ?? '')?.[1] ?? 0)
  if (properties === null || seconds === 0) return null
  const { Result: result = '', ExecMainStatus: status = '' } = properties
  return {
    isOk: result === 'success',
    result: result === 'exit-code' ? `exit status ${status}` : result,
    at: new Date(seconds * 1_000).toISOString(),
  }
}

const EXIT_MEANINGS: Readonly<Record<string, string>> = {
  '78': 'the configuration is faulty: `sudo kyc-tokend check`',
  '69': 'another daemon runs, or its directories are in use',
  '226': 'a directory of its drop-ins does not exist: `sudo kyc-tokend check`',
  '243': 'a credential of its drop-ins does not exist: `sudo kyc-tokend check`',
}

/** The reason why the unit does not run, as a sentence with a remedy; undefined if it runs or is not installed. */
export async function whyNotRunning(
  account: string | undefined,
  { isMisconfigured }: { isMisconfigured: boolean },
): Promise<string | undefined> {
  const { unit } = unitNames(account)
  const names = ['ActiveState', 'Result', 'ExecMainStatus', 'UnitFileState']
  const properties = await unitProperties(`${unit}.service`, names)
  if (properties === null) return undefined
  if (isMisconfigured) return `${unit}.service does not start: ${meaningOf('78', account)}.`
  if (isUnconfigured(account))
    return `${unit}.service has no configuration: \`sudo kyc-tokend setup${accountWords(account)}\`.`
  const socket = await unitProperties(`${unit}.socket`, ['ActiveState'])
  const masked = [properties, socket].findIndex((one) => one?.['LoadState'] === 'masked')
  if (masked >= 0) {
    const name = `${unit}.${masked === 0 ? 'service' : 'socket'}`
    return `${name} is masked: \`sudo systemctl unmask ${name}\`, then \`sudo systemctl enable --now ${unit}\`.`
  }
  if (socket?.['ActiveState'] === 'active' && isAbsent(systemSocket(account)))
    return `The socket of ${unit}.socket was removed: \`${socketCure(account)}\`.`
  return reasonOf(unit, properties)
}

/** False where this user may not look. */
function isUnconfigured(account: string | undefined): boolean {
  const names = ['json', 'yaml', 'yml'].map((ending) => `kyc-tokend.config.${ending}`)
  const paths = account === undefined ? names : [`${account}.json`]
  return paths.every((name) => isAbsent(join(configDirectory(account), name)))
}

function isAbsent(path: string): boolean {
  try {
    lstatSync(path)
    return false
  } catch (error) {
    return errorCode(error) === 'ENOENT'
  }
}

/** The meaning of an exit status of the unit, with the remedy. */
function meaningOf(status: string, account: string | undefined): string | undefined {
  return EXIT_MEANINGS[status]?.replace('kyc-tokend check', `kyc-tokend check${accountWords(account)}`)
}

export function reasonOf(unit: string, properties: Readonly<Record<string, string>>): string | undefined {
  const { ActiveState: state, Result: result, ExecMainStatus: status = '0', UnitFileState: file } = properties
  if (state === 'active' || state === 'reloading') return undefined
  if (state === 'activating' && result === 'success') return `${unit}.service is starting.`
  if (result !== 'success' || state === 'failed') {
    const meaning = meaningOf(status, unit.split('@')[1]) ?? `see \`journalctl -u ${unit} -n 20\``
    const how = result === 'exit-code' ? `exit status ${status}` : result
    return `${unit}.service is ${state} (${how}): ${meaning}.`
  }
  const enable = file === 'enabled' ? 'start' : 'enable --now'
  return `${unit}.service is ${state}: \`sudo systemctl ${enable} ${unit}\`.`
}
