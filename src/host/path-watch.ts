// Compares the daemon's paths with their table at each tick: mends what is its own; the rest is in the log and in
// `status`.
import type { Stats } from 'node:fs'
import { dirname } from 'node:path'
import { accessListOf } from '../lib/access-list.ts'
import { errorCode, fallbackOnSystemError } from '../lib/error.ts'
import { fs, MODE_BITS, SETGID } from '../files/fs.ts'
import { isLate } from '../files/file-error.ts'
import { inDirectory } from '../files/in-directory.ts'
import type { Log } from '../lib/log.ts'
import {
  clientGroups,
  differenceOf,
  pathTable,
  type Found,
  type PathRow,
  type SocketFacts,
} from './path-table.ts'
import { isSocketActivated, type InheritedSockets } from './inherited-sockets.ts'
import { loadLibc } from '../lib/libc.ts'
import { openSocket, rendered, type Place } from './place-commands.ts'

/** A socket as the configuration has it. */
interface OwnSocket {
  readonly path: string
  readonly mode: number
  readonly gid: number | null
  readonly allow: { readonly uids: readonly number[]; readonly gids: readonly number[] }
}
/** What the configuration says of the daemon's paths. */
interface OwnPaths {
  readonly runtimeDirectory: string
  readonly stateDirectory: string
  readonly ipc: OwnSocket
  readonly http: OwnSocket | null
}

interface Problem {
  readonly path: string
  /** With the remedy. */
  readonly sentence: string
  /** Everybody may connect, which is unwise only. */
  readonly isOpen?: boolean
}

export function createPathWatch(options: {
  config: () => OwnPaths
  inherited: InheritedSockets
  place: Place
  log: Log
}) {
  const { config, inherited, place, log } = options
  const uid = process.geteuid!()
  // Read before anything can close them: a stop may come before the first tick.
  const handedOver = inheritedPaths(inherited)
  /** Sockets of systemd, as they were at the first tick: so they are to stay. */
  let adopted: readonly SocketFacts[] | null = null
  let problems: readonly Problem[] = []

  /** Mends the path if that is possible, and says what is still wrong with it. */
  async function problemOf(row: PathRow): Promise<Problem[]> {
    const { path } = row
    const find = async (): Promise<Found> => ({
      stats: await statsOf(path),
      list: row.writer === null ? null : await accessListOf(path),
    })
    let found = await find()
    const { stats } = found
    if (stats !== null && differenceOf(row, found) !== undefined && (await mend(row, stats))) {
      const sentence = 'Mode or group of a path was changed, and is restored'
      log('warning', sentence, { event: 'path-restored', path })
      found = await find()
    }
    const left = differenceOf(row, found)
    return left === undefined ? [] : [{ path, sentence: rendered(left) }]
  }

  async function compareAll(): Promise<Problem[]> {
    const configured = socketsOf(config()).map(({ path, mode, gid }) => ({ path, mode, gid, uid }))
    const sockets = isSocketActivated(inherited) ? (adopted ?? []) : configured
    const clients = await clientGroups(sockets, place).catch(fallbackOnSystemError([]))
    const rows = pathTable({ ...config(), sockets }, { uid, clients }, { ...place, isRunning: true })
    const found = await Promise.all(
      [...new Set(rows.map(({ path }) => dirname(path)))].map(async (directory) => {
        const together = rows.filter(({ path }) => dirname(path) === directory)
        // One after the other: a disk that hangs takes one thread.
        const work = async (): Promise<Problem[][]> => Array.fromAsync(together, problemOf)
        // Whatever uses a disk that hangs reports that.
        return inDirectory(directory, work).catch((error: unknown) => {
          if (isLate(error)) return []
          throw error
        })
      }),
    )
    return found.flat(2)
  }

  /** Sockets of systemd to which everybody may connect. */
  function openSockets(): Problem[] {
    return socketsOf(config()).flatMap(({ path, allow }) => {
      const mode = adopted?.find((socket) => socket.path === path)?.mode ?? 0
      const isForAll = (mode & 0o002) !== 0 && allow.uids.length + allow.gids.length === 0
      return isForAll ? [{ path, sentence: rendered(openSocket(path, place)), isOpen: true }] : []
    })
  }

  function logProblem({ path, sentence: error, isOpen }: Problem): void {
    const open = 'Every user of this host may connect to a socket of systemd and take the token'
    if (isOpen) log('warning', open, { event: 'socket-open', path, remedy: error })
    else log('error', 'A path is not as it has to be', { event: 'path-problem', path, error })
  }

  return {
    /** What is wrong with the paths, each a sentence with its remedy. */
    problems: (): string[] => problems.map(({ sentence }) => sentence),
    /** Never fails. */
    async tick(): Promise<void> {
      adopted ??= await Promise.all(handedOver.map(asItIs))
      const before = new Set(problems.map(({ sentence }) => sentence))
      problems = [...(await compareAll()), ...openSockets()]
      for (const problem of problems) if (!before.has(problem.sentence)) logProblem(problem)
    },
  }
}

function socketsOf({ ipc, http }: OwnPaths): OwnSocket[] {
  return [ipc, http].filter((socket) => socket !== null)
}

function inheritedPaths({ ipc, http }: InheritedSockets): string[] {
  return [...ipc, ...http].map((fd) => loadLibc().socketPath(fd)).filter((path) => path !== '')
}

/** Of the path itself; null: nothing is there, or may be seen. */
async function statsOf(path: string): Promise<Stats | null> {
  return fs.lstat(path).catch(fallbackOnSystemError(null))
}

async function asItIs(path: string): Promise<SocketFacts> {
  const stats = await inDirectory(dirname(path), async () => statsOf(path)).catch(() => null)
  return {
    path,
    uid: stats?.uid ?? null,
    gid: stats?.gid ?? null,
    mode: stats === null ? null : stats.mode & 0o777,
  }
}

/** Gives a path of this user its mode and group again, if that is allowed; reports whether it did. */
async function mend({ path, kind, uid, gids, mode }: PathRow, stats: Stats): Promise<boolean> {
  if (stats.uid !== process.geteuid!() || (uid !== null && stats.uid !== uid) || kind === 'file') return false
  if (kind === 'socket' && !stats.isSocket()) return false
  const wanted = (stats.mode | mode) & MODE_BITS
  try {
    if (gids[0] !== undefined && !gids.includes(stats.gid)) await fs.chown(path, -1, gids[0])
    await fs.chmod(path, wanted)
    return true
  } catch (error) {
    // In the unit nothing may be made setgid: a directory that has lost that is opened without it, and reported.
    if (errorCode(error) !== 'EPERM' || (stats.mode & SETGID) !== 0 || (wanted & SETGID) === 0) return false
    return fs
      .chmod(path, wanted & ~SETGID)
      .then(() => stats.mode !== (stats.mode | (wanted & ~SETGID)), fallbackOnSystemError(false))
  }
}
