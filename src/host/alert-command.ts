// The operator's command for alerts: whether alerts reach it, as systemd knows.
import { join } from 'node:path'
import { unitNames } from './account.ts'
import { SYSTEM_CONFIG_DIRECTORY } from './paths.ts'
import { remedy, rendered } from './place-commands.ts'
import { isAbsent } from './system-config.ts'
import { placeOfDaemon, unitProperties } from './systemd.ts'

/** That of all accounts. */
const ALERT_COMMAND = join(SYSTEM_CONFIG_DIRECTORY, 'alert-command')

export interface SystemdState {
  /** systemd runs the daemon. */
  readonly isUnit: boolean
  /** Why alerts do not reach the alert command, with the remedy; null: they do, or there is none. */
  readonly alertProblem: string | null
}

export const notUnderSystemd: SystemdState = { isUnit: false, alertProblem: null }

/** The facts about a daemon that answers. */
export async function systemdStateOf(daemon: { pid: number; configFile: string }): Promise<SystemdState> {
  const { account, isUnit } = await placeOfDaemon(daemon)
  if (!isUnit) return notUnderSystemd
  const alertProblem = isAbsent(ALERT_COMMAND)
    ? null
    : await problemOf(`${unitNames(account).alertUnit}.path`)
  return { isUnit, alertProblem }
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
