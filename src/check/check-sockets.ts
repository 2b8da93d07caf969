// The socket units of an account, as systemd knows them: each that is used must listen, at its path, for whom it
// is made.
import { isAbsolute } from 'node:path'
import { socketUnits, type SocketName } from '../host/account.ts'
import { fault, ok, warning, type Finding } from '../host/finding.ts'
import { CLIENTS_GROUP, SERVICE_USER } from '../host/paths.ts'
import { idOf } from '../host/ids.ts'
import { bindSockets, openSocket, unitPlace } from '../host/place-commands.ts'
import { groupIsGone } from '../host/why-not-running.ts'
import { unitProperties } from '../host/systemd.ts'
import { lineFault, lineOf, settingsIn } from './check-drop-ins.ts'
import type { ExaminedConfig } from './check-examine.ts'

export type SocketUnit = Awaited<ReturnType<typeof readSocketUnits>>[number]

/** Read and write, for the group of the clients: connect(2) needs write alone, and nobody gives one of them. */
const USED_BY_GROUP = 0o060
/** No client is in these groups. Any other is the administrator's choice. */
const GROUPS_WITHOUT_CLIENTS = new Set(['root', SERVICE_USER])

/** What systemd says of each socket unit of the account that is installed. Throws as `readUnit` does. */
export async function readSocketUnits(account: string | undefined) {
  const asked = ['ActiveState', 'Result', 'UnitFileState', 'Listen', 'NeedDaemonReload', 'DropInPaths']
  const rows = await Promise.all(
    socketUnits(account).map(async ({ name, unit, path }) => {
      const names = [...asked, 'SocketUser', 'SocketGroup', 'SocketMode']
      const known = await unitProperties(unit, names, { isNeeded: process.geteuid!() === 0 })
      if (known === null) return []
      const group = known['SocketGroup'] || (isForClients(name) ? CLIENTS_GROUP : null)
      return {
        name,
        unit,
        isMasked: known['LoadState'] === 'masked',
        isEnabled: known['UnitFileState'] === 'enabled',
        state: known['ActiveState'] ?? 'inactive',
        result: known['Result'] ?? 'success',
        needsReload: known['NeedDaemonReload'] === 'yes',
        dropIns: settingsIn(known['DropInPaths']),
        // systemd does not read a masked unit.
        path: known['Listen']?.split(' ').find((word) => isAbsolute(word)) ?? path,
        user: known['SocketUser'] || (isForClients(name) ? SERVICE_USER : 'root'),
        /** Null: systemd leaves it as it comes from the directory. */
        group,
        isGroupThere: group === null || (await idOf('group', group)) !== undefined,
        mode: Number.parseInt(known['SocketMode'] || '660', 8),
      }
    }),
  )
  return rows.flat()
}

/** The unit that the sockets are for. */
interface Unit {
  readonly name: string
  readonly account: string | undefined
  readonly isActive: boolean
  readonly sockets: readonly SocketUnit[]
}
interface Circumstances {
  readonly unit: Unit
  readonly config: ExaminedConfig
  /** The sockets that the daemon says it has; null: it was not asked, or is of a version that does not say. */
  readonly handedOver: readonly { readonly name: string; readonly path: string }[] | null
  /** `setup` asks, which enables and starts what it finds good. */
  readonly isSetup: boolean
}

/** Findings about all socket units. Makes no connection, which would start the daemon. */
export function socketUnitFindings(circumstances: Circumstances): Finding[] {
  return circumstances.unit.sockets.flatMap((socket) =>
    isForClients(socket.name)
      ? clientSocketFindings(socket, circumstances)
      : furtherSocketFindings(socket, circumstances),
  )
}

function isForClients(name: SocketName): boolean {
  return name === 'ipc' || name === 'http'
}

/** `ipc` and `http`, which the configuration names. */
function clientSocketFindings(socket: SocketUnit, { unit, config, isSetup }: Circumstances): Finding[] {
  const { path } = socket
  const used = config.sockets.find((each) => each.path === path)
  if (used === undefined) return unusedFindings(socket, config)
  const isStarted = unit.isActive || (socket.isEnabled && !isSetup)
  const closed = closedFinding(socket, { unit, isStarted })
  if (closed !== null) return [closed]
  const { mode, group } = socket
  if (group !== null && GROUPS_WITHOUT_CLIENTS.has(group))
    return [
      changedFinding(
        socket,
        `SocketGroup=${group}`,
        `no client is in the group ${group}, so none can connect to ${path}`,
      ),
    ]
  if ((mode & USED_BY_GROUP) !== USED_BY_GROUP)
    return [
      changedFinding(
        socket,
        'SocketMode=',
        `its mode 0${mode.toString(8)} keeps clients from connecting to ${path}`,
      ),
    ]
  if ((mode & 0o002) === 0 || !used.isOpen) return []
  const { text, commands } = openSocket(used.path, unitPlace(unit.account))
  return [warning(text, commands)]
}

/** Findings about a socket at which the configuration has none. */
function unusedFindings(
  { name, unit, path, isMasked, state }: SocketUnit,
  config: ExaminedConfig,
): Finding[] {
  const wanted = config.sockets[name === 'ipc' ? 0 : 1]
  if (wanted === undefined || path === null || state !== 'active')
    return isMasked && name === 'http' ? [ok(`${unit} is masked, and \`http\` is false`)] : []
  const instead = `the daemon listens at ${path} of ${unit} instead of ${wanted.path}`
  return [warning(`${config.file}: ${name}.path: ${instead}: take this setting out`)]
}

/** Those that an administrator enables: `credential`, `metrics`. */
function furtherSocketFindings(socket: SocketUnit, { unit, handedOver }: Circumstances): Finding[] {
  const { name, isEnabled, isMasked, state } = socket
  if (!isEnabled && state !== 'active') return []
  const closed = closedFinding(socket, { unit, isStarted: true })
  if (closed !== null) return [closed]
  if (isMasked || !unit.isActive || handedOver === null || handedOver.some((each) => each.name === name))
    return []
  return [
    fault(
      `${socket.unit} listens, and the daemon, which was started before it, does not answer there`,
      bindSockets(unit.account),
    ),
  ]
}

/**
 * Why nobody listens at the socket; null: systemd does, or will. `isStarted`: it should listen now. The package
 * enables nothing before there is a configuration.
 */
function closedFinding(
  socket: SocketUnit,
  { unit, isStarted }: { unit: Unit; isStarted: boolean },
): Finding | null {
  const { unit: name, name: kind, path, isMasked, state, result, group, isGroupThere } = socket
  const shown = path === null ? name : `the socket ${path}`
  if (isMasked) {
    const or = kind === 'http' ? ', or set `http: false` and reload' : ''
    return fault(`${shown} is closed, because ${name} is masked: unmask it${or}`, [
      `sudo systemctl unmask ${name}`,
      ...bindSockets(unit.account),
    ])
  }
  if (group !== null && !isGroupThere) {
    const { text, commands } = groupIsGone(name, group, bindSockets(unit.account))
    if (group !== CLIENTS_GROUP)
      return changedFinding(socket, `SocketGroup=${group}`, text, `make it (groupadd ${group}), or `)
    return fault(text, commands)
  }
  if (state === 'active' || (!isStarted && result === 'success')) return null
  const why = result === 'success' ? state : `${state} (${result})`
  return fault(`${shown} is closed, because ${name} is ${why}`, bindSockets(unit.account))
}

/** A setting of a drop-in keeps clients out: its file is named, and nothing else is advised. */
function changedFinding(
  { unit: name, dropIns }: SocketUnit,
  setting: string,
  effect: string,
  before = '',
): Finding {
  const line = lineOf(dropIns, setting)
  return line === undefined
    ? fault(`${name}: ${effect}: correct ${setting.replace(/=.*/, '=')} in that unit`)
    : lineFault(line, effect, before)
}
