// The one table of the daemon's paths, made from its configuration: what each is, whose, with which mode,
// and who needs it. The daemon, `status` and `check` compare it with what is there.
import type { Stats } from 'node:fs'
import { dirname, join } from 'node:path'
import { serviceEnvironment } from './account.ts'
import { OWN_FILES, SERVICE_USER, SYSTEM_RUNTIME_DIRECTORY } from './paths.ts'
import { nameOf } from './ids.ts'
import { octal, shellWord } from '../lib/display-text.ts'
import { commandsAt, remakeSockets, sudoAt, type Place, type Remedy } from './remedy.ts'

/** Directories and files of the daemon, as its configuration names them. */
interface DaemonPaths {
  readonly runtimeDirectory: string
  readonly stateDirectory: string
  readonly sockets: readonly SocketFacts[]
}

/** A socket as it should be; null: that is not known. */
export interface SocketFacts {
  readonly path: string
  readonly uid: number | null
  readonly gid: number | null
  readonly mode: number | null
}

/** The ids of the daemon's user, and of the group of its clients; null: not known. */
interface PathIds {
  readonly uid: number
  readonly clients: number | null
}

export interface PathRow {
  readonly path: string
  readonly kind: 'directory' | 'socket' | 'file'
  /** In a sentence, before the path. */
  readonly name: string
  /** What a difference leads to, after `so that`. */
  readonly effect: string
  readonly uid: number | null
  readonly gid: number | null
  /** Permission bits that it must have, at least. */
  readonly mode: number
  readonly mayBeAbsent: boolean
  readonly commands: readonly string[]
}

/**
 * Others pass through, and the modes within decide; setgid: what is created there belongs to the clients'
 * group.
 */
const RUNTIME_MODE = 0o2751

export function pathTable(paths: DaemonPaths, { uid, clients }: PathIds, place: Place): PathRow[] {
  const { runtimeDirectory, stateDirectory, sockets } = paths
  const { account, isUnit } = place
  const sudo = sudoAt(place)
  const remake = remakeSockets(account)
  const restart = commandsAt('restart', place)
  const takeState = `sudo chown -hR ${SERVICE_USER}:${SERVICE_USER} ${shellWord(stateDirectory)}`

  const directory = (row: Pick<PathRow, 'path' | 'name' | 'effect'> & Partial<PathRow>): PathRow => ({
    kind: 'directory',
    // Whether a person's daemon can use a directory of another user is found by trying.
    uid: isUnit ? uid : null,
    gid: null,
    mode: 0o700,
    mayBeAbsent: true,
    commands: [`${sudo}chmod u+rwx ${shellWord(row.path)}`],
    ...row,
  })
  const file = (path: string, command = `${sudo}rm ${shellWord(path)}`): PathRow => ({
    path,
    kind: 'file',
    name: 'the file',
    effect: 'the daemon cannot use it',
    uid,
    gid: null,
    mode: 0o600,
    mayBeAbsent: true,
    commands: [command, ...restart],
  })
  const socket = ({ path, uid: owner, gid, mode }: SocketFacts): PathRow => ({
    path,
    kind: 'socket',
    name: 'the socket',
    effect: 'clients cannot connect',
    uid: isUnit ? owner : null,
    gid,
    mode: mode ?? 0o600,
    mayBeAbsent: !isUnit,
    commands: isUnit ? remake : [`chmod ${octal(mode ?? 0o600)} ${shellWord(path)}`],
  })

  const isRuntimeOfUnit = isUnit && runtimeDirectory === serviceEnvironment(account).RUNTIME_DIRECTORY
  /** What systemd-tmpfiles makes for clients. */
  const ofUnit = { mode: RUNTIME_MODE, mayBeAbsent: sockets.length === 0, commands: remake }
  const above =
    isRuntimeOfUnit && account !== undefined ? [SYSTEM_RUNTIME_DIRECTORY, dirname(runtimeDirectory)] : []
  const rows = [
    ...above.map((path) =>
      directory({
        path,
        name: 'the directory',
        effect: 'clients do not reach the sockets below it',
        ...ofUnit,
      }),
    ),
    directory({
      path: runtimeDirectory,
      name: 'the runtime directory',
      effect: 'clients do not reach the sockets and files in it',
      ...(isRuntimeOfUnit && { ...ofUnit, gid: clients }),
    }),
    directory({
      path: stateDirectory,
      name: 'the state directory',
      effect: 'the daemon cannot save its state',
      ...(isUnit && { commands: ['sudo systemd-tmpfiles --create kyc-tokend.conf', takeState, ...restart] }),
    }),
    ...Object.values(OWN_FILES.runtimeDirectory).map((name) => file(join(runtimeDirectory, name))),
    ...Object.values(OWN_FILES.stateDirectory).map((name) =>
      file(join(stateDirectory, name), isUnit ? takeState : undefined),
    ),
    ...sockets.map(socket),
  ]
  // Both directories may be one, and both locks are then one.
  return rows.filter(({ path }, index) => rows.findIndex((other) => other.path === path) === index)
}

/**
 * How what is there differs from the row, with the remedy; undefined: it does not. `stats` are of the path
 * itself, no link's; null: nothing is there.
 */
export function differenceOf(row: PathRow, stats: Stats | null): Remedy | undefined {
  const { kind, uid, gid, mode, name, path, effect, commands } = row
  const differs = (how: string, first: readonly string[] = []): Remedy => ({
    text: `${name} ${path} ${how}, so that ${effect}`,
    commands: [...first, ...commands],
  })
  if (stats === null) return row.mayBeAbsent ? undefined : differs('is not there')
  const isKind = { directory: stats.isDirectory(), socket: stats.isSocket(), file: stats.isFile() }[kind]
  // Whoever opens the directory tells of a link or a file at its path.
  if (!isKind && kind === 'directory') return undefined
  if (!isKind) return differs(`is no ${kind}`, [`sudo rm ${shellWord(path)}`])
  if (uid !== null && stats.uid !== uid)
    return differs(`belongs to the user ${shown('user', stats.uid)} and not to ${nameOf('user', uid)}`)
  if (gid !== null && stats.gid !== gid)
    return differs(`belongs to the group ${shown('group', stats.gid)} and not to ${nameOf('group', gid)}`)
  if ((stats.mode & mode) !== mode)
    return differs(`has the mode ${octal(stats.mode)} and needs ${octal(stats.mode | mode)}`)
  return undefined
}

function shown(kind: 'user' | 'group', id: number): string {
  const name = nameOf(kind, id)
  return name === String(id) ? `${id}, which is gone,` : name
}
