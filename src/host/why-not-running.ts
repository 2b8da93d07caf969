// Why a unit of the daemon does not run, as systemd knows, and the remedy.
import { systemSocket, unitNames } from './account.ts'
import { CLIENTS_GROUP, SERVICE_USER } from './paths.ts'
import { idOf, isLocalGroup } from './ids.ts'
import {
  bindSockets,
  editUnit,
  makeUsersAgain,
  programCommand,
  remakeSockets,
  remedy,
  unitPlace,
  type Remedy,
} from './place-commands.ts'
import { isAbsent, isConfigured } from './system-config.ts'
import { resultOf, unitProperties, type UnitProperties } from './systemd.ts'

/** Why the unit does not run, and the remedy; undefined if it runs or is not installed. */
export async function whyNotRunning(account: string | undefined): Promise<Remedy | undefined> {
  const { unit } = unitNames(account)
  const names = ['ActiveState', 'Result', 'ExecMainStatus', 'UnitFileState', 'StatusText']
  const service = await unitProperties(`${unit}.service`, names)
  if (service === null) return undefined
  if (!isConfigured(account))
    return remedy(`${unit}.service has no configuration`, programCommand('setup', unitPlace(account)))
  const socket = await unitProperties(`${unit}.socket`, ['ActiveState', 'Result', 'SocketGroup'])
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
  return (await socketReason(account, socket)) ?? reasonOf(account, service)
}

/** Why the socket, without which the unit does not start, failed; undefined: it did not. */
async function socketReason(
  account: string | undefined,
  socket: UnitProperties | null,
): Promise<Remedy | undefined> {
  if (socket?.['ActiveState'] !== 'failed') return undefined
  const { unit } = unitNames(account)
  const group = socket['SocketGroup'] || CLIENTS_GROUP
  if ((await idOf('group', group)) === undefined)
    return groupIsGone(`${unit}.socket`, group, bindSockets(account))
  return remedy(`${unit}.socket has failed (${socket['Result']})`, ...bindSockets(account))
}

/** A group of a socket does not exist. `again`: the commands after which the sockets listen. */
export function groupIsGone(socket: string, group: string, again: readonly string[]): Remedy {
  const text = `the group ${group} of ${socket} does not exist, so that nobody can connect (216/GROUP)`
  // Another one is of a drop-in, which is not known here.
  if (group !== CLIENTS_GROUP) return remedy(text)
  // With the group its members are gone, and nobody else knows who they were.
  const members = `make it again, then add its members, each by usermod -aG ${CLIENTS_GROUP} USER`
  return remedy(`${text}; ${members}`, ...makeUsersAgain(), ...again)
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

/** What a failed start means, by its exit status; undefined: none of systemd's own (systemd.exec(5)). */
export function failedStart(unit: string, status: string): Remedy | undefined {
  const edited = editUnit(unit)
  const users = [...makeUsersAgain(), `sudo systemctl restart ${unit}`]
  // Those of the package; another one is of a drop-in.
  const isPackageWhole = isLocalGroup(SERVICE_USER) && isLocalGroup(CLIENTS_GROUP)
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
