// Facts of systemd about the daemon: its unit, the reason why it does not run, and the last run of the alert command.
import { lstatSync } from 'node:fs'
import { join } from 'node:path'

import { accountOfConfig, unitNames } from '../lib/account.ts'
import { errorCode } from '../lib/error.ts'
import { ALERT_COMMAND, configDirectory, systemctl, unitProperties } from './systemctl.ts'

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
}

export const noFacts: HostFacts = { unit: null, alertCommand: null }

/** Facts for a daemon that answers. */
export async function factsOf({ pid, configFile }: { pid: number; configFile: string }): Promise<HostFacts> {
  const { unit, alertUnit } = unitNames(accountOfConfig(configFile))
  const service = await unitProperties(`${unit}.service`, ['MainPID'])
  if (service?.['MainPID'] !== String(pid)) return noFacts
  const names = ['Result', 'ExecMainStatus', 'ExecMainExitTimestamp']
  const properties = await unitProperties(`${alertUnit}.service`, names)
  return { unit, alertCommand: isAbsent(ALERT_COMMAND) ? null : alertRunOf(properties) }
}

function alertRunOf(properties: Readonly<Record<string, string>> | null): AlertCommandRun | null {
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

/** The reason why the unit does not run, as a sentence with a remedy; undefined where it runs or is not installed. */
export async function whyNotRunning(
  account: string | undefined,
  { isMisconfigured }: { isMisconfigured: boolean },
): Promise<string | undefined> {
  const { unit } = unitNames(account)
  const names = ['ActiveState', 'Result', 'ExecMainStatus', 'UnitFileState']
  const properties = await unitProperties(`${unit}.service`, names)
  if (properties === null) return undefined
  if (isMisconfigured) return `${unit}.service does not start: ${meaningOf('78', account)}.`
  const words = account === undefined ? '' : ` --account ${account}`
  if (isUnconfigured(account))
    return `${unit}.service has no configuration: \`sudo kyc-tokend setup${words}\`.`
  const socket = await systemctl(['is-enabled', `${unit}.socket`])
  if (socket.stdout.startsWith('masked'))
    return `${unit}.socket is masked: \`sudo systemctl unmask ${unit}.socket\`, then \`sudo systemctl enable --now ${unit}\`.`
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
  const words = account === undefined ? '' : ` --account ${account}`
  return EXIT_MEANINGS[status]?.replace('kyc-tokend check', `kyc-tokend check${words}`)
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
