// What systemd says of the unit: what keeps it from starting, its sockets, the alert command, and the units
// of programs that load the token.
import { existsSync, statSync } from 'node:fs'
import { isAbsolute } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { unitNames } from '../host/account.ts'
import { monotonicMs } from '../lib/clock.ts'
import { fault, warning, type Finding } from '../host/finding.ts'
import { shellWord } from '../lib/display-text.ts'
import { ALERT_COMMAND, type AlertState } from '../host/alert-command.ts'
import { settingsIn } from './check-drop-ins.ts'
import { readSocketUnits } from './check-sockets.ts'
import { resultOf, unitProperties, type UnitProperties } from '../host/systemd.ts'
import { failedStart } from '../host/why-not-running.ts'

/** The longest time for which a start that is under way is awaited, and between two looks, in ms. */
const START_MS = 5_000
const START_POLL_MS = 200
/** The permissions that others need to run a script, which has to be read for that. */
const RUN_BY_OTHERS = 0o005

export type Unit = NonNullable<Awaited<ReturnType<typeof readUnit>>>

/**
 * The facts about an account's unit that this user may see. Null if the unit is not installed, no systemd runs
 * here, or, unless this is root, systemd does not answer. Throws UserError (69).
 */
export async function readUnit(account: string | undefined) {
  const { unit: name } = unitNames(account)
  const asked = [
    'ActiveState',
    'Result',
    'ExecMainStatus',
    'NeedDaemonReload',
    'ReadWritePaths',
    'DropInPaths',
  ]
  const properties = await readStarted(`${name}.service`, asked)
  if (properties === null) return null
  const sockets = await readSocketUnits(account)
  return {
    /** Without its suffix. */
    name,
    account,
    properties,
    isMasked: properties['LoadState'] === 'masked',
    isActive: properties['ActiveState'] === 'active',
    needsReload: properties['NeedDaemonReload'] === 'yes',
    dropIns: settingsIn(properties['DropInPaths']),
    sockets,
  }
}

/** The same properties, once a start that is under way has succeeded or failed. Throws UserError (69). */
async function readStarted(service: string, asked: readonly string[]): Promise<UnitProperties | null> {
  const isNeeded = process.geteuid!() === 0
  for (const until = monotonicMs() + START_MS; ; await sleep(START_POLL_MS)) {
    const properties = await unitProperties(service, asked, { isNeeded })
    // While it starts a unit that has failed again and again, systemd shows no failure.
    const isStarting = properties?.['ActiveState'] === 'activating' && properties['Result'] === 'success'
    if (!isStarting || monotonicMs() >= until) return properties
  }
}

/** Findings about what keeps the unit from starting, and about the alert command. */
export function unitFindings(
  unit: Unit,
  { alerts, isStarted }: { alerts: AlertState; isStarted: boolean },
): Finding[] {
  return [
    ...reloadFindings(unit),
    ...stateFindings(unit, isStarted),
    ...neededPathFindings(unit),
    // The unit starts the one that runs the alert command.
    ...alertCommandFindings(unit.isActive ? alerts : { ...alerts, alertProblem: null }),
  ]
}

function reloadFindings({ name, needsReload: isChanged, sockets }: Unit): Finding[] {
  const changed = [
    ...(isChanged ? [`${name}.service`] : []),
    ...sockets.filter(({ needsReload }) => needsReload).map((socket) => socket.unit),
  ]
  if (changed.length === 0) return []
  return [
    warning(`${changed.join(' and ')} changed on disk, and systemd has not read that yet`, readChanged(name)),
  ]
}

/** Has systemd read a unit again that changed on disk. */
export function readChanged(name: string): string[] {
  return ['sudo systemctl daemon-reload', `sudo systemctl restart ${name}`]
}

/** Paths of drop-ins without which the unit does not start, because the `-` before them is missing. */
function neededPathFindings({ name, properties }: Unit): Finding[] {
  const files = wordsOf(properties['DropInPaths']).map(shellWord).join(' ')
  const needed = wordsOf(properties['ReadWritePaths']).filter((path) => isAbsolute(path))
  return needed.map((path) => {
    const setting = `a drop-in of ${name}.service has ReadWritePaths=${path}`
    const remedy = `write ReadWritePaths=-${path} there`
    const change = String.raw`/^ReadWritePaths=/s#\([= ]\)${path}\( \|$\)#\1-${path}\2#`
    const commands = [
      `sudo sed -i '${change}' ${files}`,
      'sudo systemctl daemon-reload',
      `sudo systemctl restart ${name}`,
    ]
    if (existsSync(path))
      return warning(`${setting}: without that directory the daemon would not start; ${remedy}`, commands)
    const why = 'which does not exist, so the daemon does not start (226/NAMESPACE)'
    return fault(`${setting}, ${why}; ${remedy}`, commands)
  })
}

/** `isStarted`: a copy of the unit, which has another ExecStart=, could start. */
function stateFindings({ name, properties, isMasked }: Unit, isStarted: boolean): Finding[] {
  const service = `${name}.service`
  if (isMasked)
    return [
      fault(`${service} is masked, so that the daemon does not start`, [
        `sudo systemctl unmask ${service}`,
        `sudo systemctl enable --now ${name}`,
      ]),
    ]
  const { ActiveState: state, Result: result, ExecMainStatus: status = '' } = properties
  const isFailed = state === 'failed' || (result !== 'success' && state !== 'active')
  // Why a copy cannot start is a finding already.
  if (!isFailed || result === undefined || !isStarted) return []
  const known = failedStart(name, status)
  // Its own program could not be run; all else the copy would have met.
  if (status === '203' && known !== undefined) return [fault(known.text, known.commands)]
  return [
    warning(`${service} failed at its last start (${resultOf(properties)})`, [
      `sudo systemctl restart ${name}`,
    ]),
  ]
}

/** Findings about the alert command, which its unit runs as another user than root. */
function alertCommandFindings({ alertCommand, alertProblem }: AlertState): Finding[] {
  const mode = statSync(ALERT_COMMAND, { throwIfNoEntry: false })?.mode
  if (mode === undefined) return []
  const isRunnable = (mode & RUN_BY_OTHERS) === RUN_BY_OTHERS
  const failure = alertCommand?.failure ?? null
  return [
    ...(isRunnable
      ? []
      : [fault('the alert command cannot be run by its unit', [`sudo chmod 755 ${ALERT_COMMAND}`])]),
    ...(alertProblem === null ? [] : [warning(alertProblem)]),
    ...(failure === null ? [] : [warning(`the alert command failed at its last run, ${failure}`)]),
  ]
}

function wordsOf(list = ''): string[] {
  return list.split(' ').filter((word) => word !== '')
}
