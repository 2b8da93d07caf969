// The one table of the daemon's paths, made from its configuration: what each is, whose, with which mode,
// and who needs it. The daemon, `status` and `check` compare it with what is there.
import type { Stats } from 'node:fs'
import type { AccessList } from '../lib/access-list.ts'
import { dirname, join } from 'node:path'
import { serviceEnvironment } from './account.ts'
import { foreignWriters } from '../lib/directory-access.ts'
import { idOf, nameOf } from './ids.ts'
import {
  CLIENTS_GROUP,
  OWN_FILES,
  SERVICE_USER,
  SYSTEM_CONFIG_DIRECTORY,
  SYSTEM_RUNTIME_DIRECTORY,
  SYSTEM_STATE_DIRECTORY,
} from './paths.ts'
import { octal, shellWord } from '../lib/display-text.ts'
import {
  clearPath,
  commandsAt,
  MAKE_DIRECTORIES,
  remakeDirectory,
  remakeSockets,
  sudoAt,
  unitPlace,
  type Place,
  type Remedy,
} from './place-commands.ts'

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

/**
 * The groups that the runtime directory may have, so that clients read what is created in it; the first one is
 * advised. The package makes it for kyc-token, and a drop-in of an account's sockets for theirs.
 */
export async function clientGroups(
  sockets: readonly SocketFacts[],
  { account, isUnit }: Place,
): Promise<number[]> {
  const ofPackage = isUnit && account === undefined ? await idOf('group', CLIENTS_GROUP) : undefined
  // No client is in root's group.
  const ofSockets = sockets.map(({ gid, mode }) => (((mode ?? 0) & 0o060) === 0 || gid === ROOT ? null : gid))
  return [ofPackage ?? null, ...ofSockets].filter((gid) => gid !== null)
}

/** The id of the daemon's user, and the groups of its clients. */
interface PathIds {
  readonly uid: number
  readonly clients: readonly number[]
}

/** The circumstances of the daemon. */
interface PathPlace extends Place {
  /** It runs, so that systemd or it itself has made its directories. */
  readonly isRunning: boolean
}

export interface PathRow {
  readonly path: string
  readonly kind: 'directory' | 'socket' | 'file'
  /** In a sentence, before the path. */
  readonly name: string
  /** What a difference leads to, after `so that`. */
  readonly effect: string
  readonly uid: number | null
  /** The first one is advised; empty: any. */
  readonly gids: readonly number[]
  /** Permission bits that it must have, at least, and those that it must not have. */
  readonly mode: number
  readonly forbidden: number
  /** The user who writes there by an access list, alone beside the owner; null: there need be none. */
  readonly writer: number | null
  readonly mayBeAbsent: boolean
  readonly commands: readonly string[]
}

/**
 * Sticky: nobody but root removes or replaces what root made. Setgid: what is created there belongs to the
 * clients' group. Others pass through, and the modes within decide.
 */
const RUNTIME_MODE = 0o3751
/** Of the directory of the accounts' directories, in which nobody but root makes any. */
const ACCOUNTS_MODE = 0o751
const ROOT = 0

/** Its files are judged when they are read; whoever may write here can exchange them. */
const CONFIG_ROW = {
  path: SYSTEM_CONFIG_DIRECTORY,
  name: 'the configuration directory',
  effect: 'the daemon does not reach its files, or others can exchange them',
  uid: ROOT,
  mode: 0o750,
  forbidden: 0o022,
  commands: [
    `sudo chown root:${SERVICE_USER} ${SYSTEM_CONFIG_DIRECTORY}`,
    `sudo chmod 0750 ${SYSTEM_CONFIG_DIRECTORY}`,
  ],
} as const

/** What rows of a kind have in common. */
function rowMakers(uid: number, place: Place) {
  const { account, isUnit } = place
  const sudo = sudoAt(place)
  const remake = remakeSockets(account)
  const restart = commandsAt('restart', place)

  const directory = (row: Pick<PathRow, 'path' | 'name' | 'effect'> & Partial<PathRow>): PathRow => ({
    kind: 'directory',
    // Whether a person's daemon can use a directory of another user is found by trying.
    uid: isUnit ? uid : null,
    gids: [],
    mode: 0o700,
    forbidden: 0,
    writer: null,
    mayBeAbsent: true,
    commands: [`${sudo}chmod u+rwx ${shellWord(row.path)}`],
    ...row,
  })
  const file = (path: string, command = `${sudo}rm -f ${shellWord(path)}`): PathRow => ({
    path,
    kind: 'file',
    name: 'the file',
    effect: 'the daemon cannot use it',
    uid,
    gids: [],
    mode: 0o600,
    forbidden: 0,
    writer: null,
    mayBeAbsent: true,
    commands: [command, ...restart],
  })
  const socket = ({ path, uid: owner, gid, mode }: SocketFacts): PathRow => ({
    path,
    kind: 'socket',
    name: 'the socket',
    effect: 'clients cannot connect',
    uid: isUnit ? owner : null,
    gids: gid === null ? [] : [gid],
    mode: mode ?? 0o600,
    forbidden: 0,
    writer: null,
    mayBeAbsent: !isUnit,
    commands: isUnit ? remake : [`chmod ${octal(mode ?? 0o600)} ${shellWord(path)}`],
  })
  return { directory, file, socket }
}

/** Reports whether it is the runtime directory that systemd and the package make for the unit. */
export function isRuntimeOfUnit(directory: string, { account, isUnit }: Place): boolean {
  return isUnit && directory === serviceEnvironment(account).RUNTIME_DIRECTORY
}

export function pathTable(paths: DaemonPaths, { uid, clients }: PathIds, place: PathPlace): PathRow[] {
  const { runtimeDirectory, stateDirectory, sockets } = paths
  const { account, isUnit, isRunning } = place
  const restart = commandsAt('restart', place)
  // From the first directory of its user on: below it, a link of that user could lead root elsewhere.
  const isOfSystem = `${stateDirectory}/`.startsWith(`${SYSTEM_STATE_DIRECTORY}/`)
  const firstOfState = isOfSystem ? SYSTEM_STATE_DIRECTORY : stateDirectory
  const chownState = `sudo chown -hR ${SERVICE_USER}:${SERVICE_USER} ${shellWord(firstOfState)}`

  const { directory, file, socket } = rowMakers(uid, place)

  const isOfUnit = isRuntimeOfUnit(runtimeDirectory, place)
  /** What systemd-tmpfiles makes. */
  const ofRoot = { uid: ROOT, mayBeAbsent: sockets.length === 0 }
  const above = [
    { path: SYSTEM_RUNTIME_DIRECTORY, mode: RUNTIME_MODE },
    { path: dirname(runtimeDirectory), mode: ACCOUNTS_MODE },
  ]
  const rows = [
    ...(isOfUnit && account !== undefined ? above : []).map((row) =>
      directory({
        ...row,
        name: 'the directory',
        effect: 'clients do not reach the sockets below it, or others can exchange them',
        ...ofRoot,
        commands: [MAKE_DIRECTORIES],
      }),
    ),
    directory({
      path: runtimeDirectory,
      name: 'the runtime directory',
      effect: isOfUnit
        ? 'the daemon and clients do not reach the sockets and files in it, or others can exchange them'
        : 'clients do not reach the sockets and files in it',
      ...(isOfUnit && {
        ...ofRoot,
        gids: clients,
        mode: RUNTIME_MODE,
        writer: uid,
        commands: remakeDirectory(account),
      }),
    }),
    directory({
      path: stateDirectory,
      name: 'the state directory',
      effect: 'the daemon cannot save its state',
      mayBeAbsent: !isRunning,
      ...(isUnit && { commands: [MAKE_DIRECTORIES, chownState, ...restart] }),
    }),
    ...(isUnit ? [directory(CONFIG_ROW)] : []),
    ...Object.values(OWN_FILES.runtimeDirectory).map((name) => file(join(runtimeDirectory, name))),
    ...Object.values(OWN_FILES.stateDirectory).map((name) =>
      file(join(stateDirectory, name), isUnit ? chownState : undefined),
    ),
    ...sockets.map(socket),
  ]
  // Both directories may be one, and both locks are then one.
  return rows.filter(({ path }, index) => rows.findIndex((each) => each.path === path) === index)
}

/** What is at a path. */
export interface Found {
  /** Of the path itself, no link's; null: nothing is there, or may be seen. */
  readonly stats: Stats | null
  /** Null: there is none, or it does not matter. */
  readonly list: AccessList | null
}

/** How what is there differs from the row, with the remedy; undefined: it does not. */
export function differenceOf(row: PathRow, { stats, list }: Found): Remedy | undefined {
  const { kind, name, path, effect, commands } = row
  const differs = (difference: string, first: readonly string[] = []): Remedy => ({
    text: `${name} ${path} ${difference}, so that ${effect}`,
    commands: [...first, ...commands],
  })
  if (stats === null) return row.mayBeAbsent ? undefined : differs('is not there')
  const isKind = { directory: stats.isDirectory(), socket: stats.isSocket(), file: stats.isFile() }[kind]
  // Whoever opens the directory tells of a link or a file at its path.
  if (!isKind && kind === 'directory') return undefined
  if (!isKind)
    return differs(`is no ${kind}`, [
      clearPath(path, { isDirectory: stats.isDirectory(), place: unitPlace(undefined) }),
    ])
  const difference = wrongAttribute(row, stats) ?? wrongAccess(row, list)
  return difference === undefined ? undefined : differs(difference)
}

function wrongAttribute({ uid, gids, mode, forbidden }: PathRow, stats: Stats): string | undefined {
  if (uid !== null && stats.uid !== uid)
    return `belongs to the user ${shown('user', stats.uid)} and not to ${nameOf('user', uid)}`
  if (gids[0] !== undefined && !gids.includes(stats.gid))
    return `belongs to the group ${shown('group', stats.gid)} and not to ${nameOf('group', gids[0])}`
  if ((stats.mode & mode) !== mode)
    return `has the mode ${octal(stats.mode)} and needs ${octal(stats.mode | mode)}`
  if ((stats.mode & forbidden) !== 0)
    return `has the mode ${octal(stats.mode)}, by which others may write in it`
  return undefined
}

function wrongAccess({ writer }: PathRow, list: AccessList | null): string | undefined {
  if (writer === null) return undefined
  const entryOfWriter = list?.find(({ kind, id }) => kind === 'user' && id === writer)
  if (entryOfWriter?.access !== 0o7)
    return `has no access list by which the user ${nameOf('user', writer)} may write`
  const others = foreignWriters(list ?? [], writer).map(entryName)
  return others.length === 0 ? undefined : `lets ${others.join(' and ')} write, too`
}

function entryName({ kind, id }: AccessList[number]): string {
  return id === null ? 'its group' : `the ${kind} ${nameOf(kind === 'user' ? 'user' : 'group', id)}`
}

function shown(kind: 'user' | 'group', id: number): string {
  const name = nameOf(kind, id)
  return name === String(id) ? `${id}, which is gone,` : name
}
