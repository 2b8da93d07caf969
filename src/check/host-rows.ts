// The one table about the host: each row asks for facts, says which are bad, and has the sentence and the commands.
import type { Stats } from 'node:fs'
import { dirname } from 'node:path'
import { CLIENTS_GROUP, SERVICE_USER } from '../host/paths.ts'
import { dropIn, isNamedFault, type Remedies } from '../host/remedy.ts'
import { wordsIn, type UnitProperties } from '../host/systemd.ts'
import { shellWord } from '../lib/display-text.ts'
import type { StatusResult } from '../protocol.ts'
import type { Finding } from './findings.ts'

/** The host as rows ask it; in tests a script. */
export interface Host {
  readonly remedies: Remedies
  /** Null: the service is not installed. */
  readonly service: Unit | null
  /** The other units of the account that are wanted. */
  readonly others: readonly Unit[]
  readonly sockets: readonly Socket[]
  /** Of a daemon that runs with this configuration; null: none is known to run. */
  readonly status: StatusResult | null
  /** Directories that the daemon writes to. */
  readonly directories: readonly string[]
  readonly nowMs: number
  /** The output of a program of the system; empty if it cannot be run. */
  readonly run: (program: string, ...words: readonly string[]) => Promise<string>
  /** Null: it is not there, or may not be seen. */
  readonly stat: (path: string) => Pick<Stats, 'mode'> | null
  /** A question as a member of the group. Gives the code of an error; null: it is answered. */
  readonly askAsMember: (socket: Socket, group: string) => Promise<string | null>
  /** Of systeminformation, in bytes; undefined: no answer in time. */
  readonly space: () => Promise<readonly { mount: string; available: number }[] | undefined>
  readonly memory: () => Promise<number | undefined>
}

export interface Unit {
  /** With its suffix. */
  readonly name: string
  readonly properties: UnitProperties
  /** Of a socket unit. */
  readonly path?: string | undefined
}

export interface Socket {
  readonly name: 'ipc' | 'http'
  readonly path: string
  /** `allow` names nobody: the mode alone decides. */
  readonly isOpen: boolean
}

interface Row<T> {
  /** Default: `fault`. */
  readonly level?: 'warning' | 'fault'
  readonly ask: (host: Host) => Promise<readonly T[]> | readonly T[]
  /** Default: all are. */
  readonly isBad?: (fact: T) => boolean
  readonly says: (fact: T, host: Host) => string
  readonly commands?: (fact: T, host: Host) => readonly string[]
  /** Default: nothing is said of a fact that is good. */
  readonly fine?: (fact: T) => string
}

type Examine = (host: Host) => Promise<readonly (Finding & { readonly subject: string })[]>

function row<T>(subject: string, { level = 'fault', ask, isBad, says, commands, fine }: Row<T>): Examine {
  return async (host) =>
    (await ask(host)).flatMap((fact): (Finding & { subject: string })[] => {
      if (isBad?.(fact) ?? true)
        return [{ subject, level, sentence: says(fact, host), commands: commands?.(fact, host) }]
      return fine === undefined ? [] : [{ subject, level: 'ok', sentence: fine(fact) }]
    })
}

const MIB = 1024 * 1024
/** A clock that shows an earlier time was never set. */
const EARLIEST_MS = Date.UTC(2026, 0, 1)
const OWN_NAMES = [SERVICE_USER, CLIENTS_GROUP]

const is = ({ properties }: Unit, name: string, value: string): boolean => properties[name] === value
const isMasked = (unit: Unit): boolean => is(unit, 'LoadState', 'masked')
const isActive = (unit: Unit): boolean => is(unit, 'ActiveState', 'active')
const isUsed = (unit: Unit): boolean => isActive(unit) || is(unit, 'UnitFileState', 'enabled')
const units = ({ service, others }: Host): Unit[] => (service === null ? [] : [service, ...others])
const rebind = (_: unknown, { remedies }: Host): readonly string[] => remedies.commands.rebind
const inMib = (bytes: number): string =>
  bytes < 10 * MIB ? `${Math.floor(bytes / 1024)} KiB` : `${Math.floor(bytes / MIB)} MiB`

async function wordsOf({ name }: Unit, { run }: Host): Promise<string> {
  return wordsIn(await run('systemctl', 'status', '--lines=0', '--full', name))
}

/** In the order in which a person acts. Rows of units are left out where the service is not installed. */
export const hostRows: readonly Examine[] = [
  row('unit', {
    ask: units,
    isBad: isMasked,
    says: ({ name }) => `${name} is masked, so that it does not start`,
    commands: ({ name }, host) => [`sudo systemctl unmask ${name}`, ...rebind(name, host)],
  }),
  row('unit', {
    level: 'warning',
    ask: units,
    isBad: (unit) => is(unit, 'NeedDaemonReload', 'yes'),
    says: ({ name }) => `${name} changed on disk, and systemd has not read that yet`,
    commands: (_, { remedies }) => ['sudo systemctl daemon-reload', ...remedies.commands.restart],
  }),
  row('unit', {
    level: 'warning',
    async ask(host) {
      const names = units(host).flatMap((unit) => (isMasked(unit) ? [] : [unit.name]))
      const words =
        names.length === 0 ? '' : await host.run('systemd-analyze', 'verify', '--man=no', ...names)
      return words.split('\n').filter((line) => line.includes('kyc-tokend'))
    },
    says: (words) => `systemd says: ${words}`,
  }),
  row('unit', {
    ask: async (host) =>
      Promise.all(
        [host.service].flatMap((unit) =>
          unit === null || isMasked(unit) || isActive(unit) ? [] : [wordsOf(unit, host)],
        ),
      ),
    says: (words) => `the service does not run. ${words}`,
    commands: (_, { remedies: { commands } }) => [...commands.log, ...commands.rebind],
  }),
  row('users', {
    async ask(host) {
      const named = units(host).flatMap(({ properties: { User, Group, SocketGroup } }) => [
        ['passwd', User ?? ''],
        ...[...OWN_NAMES, Group ?? '', SocketGroup ?? ''].map((name) => ['group', name]),
      ])
      const unique = new Map(
        named.filter(([, name]) => name !== '').map((pair) => [pair.join(' '), pair] as const),
      )
      const facts = [...unique.values()].map(async ([database = '', name = '']) => ({
        name,
        isThere: (await host.run('getent', database, name)).startsWith(`${name}:`),
      }))
      return Promise.all(facts)
    },
    isBad: ({ isThere }) => !isThere,
    says: ({ name }) =>
      `there is no user or group ${name}; make it again, then add its members (usermod -aG ${name} USER)` +
      (OWN_NAMES.includes(name) ? '' : ', or correct the drop-in that names it'),
    commands: ({ name }, host) =>
      OWN_NAMES.includes(name) ? [...host.remedies.commands.users, ...rebind(name, host)] : [],
  }),
  row('directories', {
    async ask({ run, service, sockets }) {
      const below = service === null ? '' : `${dirname(sockets[0]?.path ?? '/')}/`
      const mounts = (await run('findmnt', '-rno', 'TARGET')).split('\n')
      return mounts.filter((mount) => mount.startsWith('/run/') && below.startsWith(`${mount}/`))
    },
    says: (mount) => `a file system is mounted over ${mount}, and hides the sockets below`,
    commands: (mount, host) => [`sudo umount ${shellWord(mount)}`, ...rebind(mount, host)],
  }),
  row('directories', {
    ask: ({ service, stat }) => (service === null ? [] : [stat('/run')?.mode ?? 0o001]),
    isBad: (mode) => (mode & 0o001) === 0,
    says: () => 'others may not pass through /run, so that no client reaches the sockets',
    commands: () => ['sudo chmod 0755 /run'],
  }),
  row('unit', {
    ask: ({ service, others }) => (service !== null && isUsed(service) ? others : []),
    isBad: (unit) => !isActive(unit) && !isMasked(unit),
    says: ({ name, path, properties: { ActiveState, Result } }) =>
      `${name} is ${ActiveState} (${Result}), so that ${path === undefined ? 'no alert runs the alert command' : `${path} is closed`}`,
    commands: rebind,
  }),
  row('sockets', {
    ask: ({ service, others }) =>
      others.map(({ name, properties }) => ({
        name,
        group: properties['SocketGroup'] ?? '',
        ofService: service?.properties['Group'] ?? '',
      })),
    isBad: ({ group, ofService }) => group !== '' && ofService !== '' && group !== ofService,
    says: ({ name, group, ofService }) =>
      `${name} has SocketGroup=${group}, and its service Group=${ofService}: members of one alone get the token`,
    commands: ({ name, ofService }, { remedies: { commands } }) => [
      ...dropIn(name, 'group', ['[Socket]', `SocketGroup=${ofService}`]),
      commands.rebind.join(' && '),
    ],
  }),
  row('sockets', {
    ask: ({ sockets, stat }) => sockets.map((socket) => ({ ...socket, mode: stat(socket.path)?.mode ?? 0 })),
    isBad: ({ isOpen, mode }) => isOpen && (mode & 0o006) !== 0,
    says: ({ path }, { remedies }) => remedies.partsOf({ kind: 'open-socket', path }).text,
    commands: ({ path }, { remedies }) => remedies.partsOf({ kind: 'open-socket', path }).commands,
  }),
  row('sockets', {
    async ask({ service, status, sockets, askAsMember }) {
      // A question would start a daemon that does not run.
      if (service === null ? status === null : !isActive(service)) return []
      const group = service?.properties['Group'] || CLIENTS_GROUP
      // One after the other: the process acts as a member meanwhile.
      return Array.fromAsync(sockets, async (socket) => ({
        socket,
        group,
        code: await askAsMember(socket, group),
      }))
    },
    isBad: ({ code }) => code !== null,
    says: ({ socket: { path }, group, code }, { remedies }) =>
      code === 'daemon-unreachable'
        ? `no answer at ${path}: ${remedies.partsOf('unanswered').text}`
        : `a member of ${group} gets no answer at ${path} (${code})`,
    commands({ code }, { remedies: { commands } }) {
      if (code === 'daemon-unreachable') return []
      return code === 'timeout' ? commands.restart : commands.rebind
    },
    fine: ({ socket: { path } }) => `${path} answers`,
  }),
  row('host', {
    async ask({ nowMs, run }) {
      const answer = await run('timedatectl', 'show', '--property=NTPSynchronized', '--value')
      return [{ shown: new Date(nowMs).toISOString(), isSet: nowMs >= EARLIEST_MS && answer.trim() !== 'no' }]
    },
    level: 'warning',
    isBad: ({ isSet }) => !isSet,
    says: ({ shown }) => `the clock says ${shown}, and is not synchronised; switch that on`,
    commands: () => ['sudo timedatectl set-ntp true'],
    fine: ({ shown }) => `the clock says ${shown}, and Node is ${process.version}`,
  }),
  row('host', {
    async ask({ space, directories }) {
      const all = (await space()) ?? []
      const holds = (mount: string, directory: string): boolean =>
        `${directory}/`.startsWith(mount === '/' ? '/' : `${mount}/`)
      const nearest = directories.map((directory) =>
        all
          .filter(({ mount }) => holds(mount, directory))
          .toSorted((one, other) => other.mount.length - one.mount.length)
          .slice(0, 1),
      )
      return [...new Set(nearest.flat())]
    },
    isBad: ({ available }) => available < MIB,
    says: ({ mount }) => `the file system at ${mount} is full: free space on it`,
    commands: ({ mount }) => [`df -h ${shellWord(mount)}`],
    fine: ({ mount, available }) => `the file system at ${mount} has ${inMib(available)} left`,
  }),
  row('host', {
    level: 'warning',
    ask: async ({ memory }) => [(await memory()) ?? Infinity],
    isBad: (bytes) => bytes < 64 * MIB,
    says: (bytes) => `only ${inMib(bytes)} of memory are free: stop what is not needed`,
  }),
  row('files', {
    ask: ({ status }) => status?.files ?? [],
    isBad: ({ ok }) => !ok,
    says: ({ path, error }) => `${path}: ${error}`,
  }),
  row('state', {
    ask: ({ status }) => (status?.daemon.stateProblem ? [status.daemon.stateProblem] : []),
    says: (problem) => `the state for a restart cannot be saved: ${problem}`,
  }),
  row('credentials', {
    ask: ({ status }) =>
      status?.daemon.configuration.pair === undefined ? [] : [status.daemon.configuration],
    says: ({ problem }) => problem ?? 'the pair in the files is not in use',
  }),
  row('configuration', {
    level: 'warning',
    ask: ({ status }) => (status === null ? [] : [status.daemon.configuration]),
    isBad: ({ state, pair }) => state === 'changed' && pair === undefined,
    says: ({ problem }) =>
      `the daemon runs with a former configuration${problem === null ? '' : `: ${problem}`}`,
    commands: ({ problem }, { remedies: { commands } }) =>
      problem === null ? commands.reload : commands.restart,
  }),
  row('token', {
    level: 'warning',
    ask: ({ status }) => (status === null ? [] : [status]),
    isBad: ({ state }) => state !== 'ready',
    says({ state, failure, alert }, { remedies }) {
      const reason = failure?.reason ?? 'no-token'
      return `the daemon is ${state}: ${alert?.remedy ?? (isNamedFault(reason) ? remedies.remedyOf(reason) : reason)}`
    },
  }),
]
