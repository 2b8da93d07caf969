// The operator's command for alerts: how its last run ended, and whether alerts reach it, as systemd knows.
import { statSync } from 'node:fs'
import { join } from 'node:path'
import { unitNames } from './account.ts'
import { withSystemFallback } from '../lib/error.ts'
import { SYSTEM_CONFIG_DIRECTORY } from './paths.ts'
import { remedy, rendered } from './place-commands.ts'
import { isAbsent } from './system-config.ts'
import { placeOfDaemon, resultOf, unitProperties, type UnitProperties } from './systemd.ts'

/** That of all accounts. */
export const ALERT_COMMAND = join(SYSTEM_CONFIG_DIRECTORY, 'alert-command')

export interface AlertState {
  /** Its last run. Null: it has not run, or there is none. */
  readonly alertCommand: {
    /** How it failed, with the remedy; null: it succeeded. */
    readonly failure: string | null
    /** When it ended; null: it fails, and its unit runs it again and again. */
    readonly endedAt: string | null
  } | null
  /** Why alerts do not reach the alert command, with the remedy; null: they do, or there is none. */
  readonly alertProblem: string | null
}

export interface SystemdState extends AlertState {
  /** systemd runs the daemon. */
  readonly isUnit: boolean
}

export const notUnderSystemd: SystemdState = { isUnit: false, alertCommand: null, alertProblem: null }

/** The facts about a daemon that answers. */
export async function systemdStateOf(daemon: { pid: number; configFile: string }): Promise<SystemdState> {
  const { account, isUnit } = await placeOfDaemon(daemon)
  return isUnit ? { isUnit, ...(await alertState(account)) } : notUnderSystemd
}

/** The facts about the command, and about the unit that starts it at an alert of the account. */
export async function alertState(account: string | undefined): Promise<AlertState> {
  if (isAbsent(ALERT_COMMAND)) return { alertCommand: null, alertProblem: null }
  const { alertUnit } = unitNames(account)
  const names = ['Result', 'ExecMainStatus', 'ExecMainExitTimestamp', 'StatusText']
  const run = (await unitProperties(`${alertUnit}.service`, names)) ?? {}
  return { alertCommand: lastRunOf(run, alertUnit), alertProblem: await problemOf(`${alertUnit}.path`) }
}

async function problemOf(path: string): Promise<string | null> {
  const { LoadState, ActiveState = 'active' } = (await unitProperties(path, ['ActiveState'])) ?? {}
  if (ActiveState === 'active') return null
  const isMasked = LoadState === 'masked'
  const closed = remedy(
    `${path} is ${isMasked ? 'masked' : ActiveState}, so that no alert reaches the alert command`,
    ...(isMasked ? [`sudo systemctl unmask ${path}`] : []),
    `sudo systemctl enable --now ${path}`,
  )
  return rendered(closed)
}

function lastRunOf(run: UnitProperties, alertUnit: string): AlertState['alertCommand'] {
  const failed = (result: string): string => `${result}: see \`sudo journalctl -u ${alertUnit}\``
  // The unit does not end while the command fails, and says itself how that is.
  if (run['StatusText']) return { failure: failed(run['StatusText']), endedAt: null }
  const seconds = Number(/^@(\d+)/.exec(run['ExecMainExitTimestamp'] ?? '')?.[1] ?? 0)
  if (seconds === 0) return null
  const failure = run['Result'] === 'success' ? null : failed(resultOf(run))
  // Before that there was another command, or none.
  const changedAtMs = withSystemFallback(0, () => statSync(ALERT_COMMAND).ctimeMs)
  if (failure === null && (seconds + 1) * 1_000 <= changedAtMs) return null
  return { failure, endedAt: new Date(seconds * 1_000).toISOString() }
}
