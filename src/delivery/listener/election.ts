// Binds a listening socket at a path: never takes one over that answers, and of two daemons started at once one lives.
//
// A candidate listens under a name of its own beside the path, and only then looks for others. Of two that start at once
// at least one sees the other; the one with the larger name withdraws and tries again when the other has gone. The one
// that sees no other takes the path by an atomic rename. The kernel says whether a candidate lives, when it is connected
// to, so the leftovers of a crash block no start; and only users who may write in the directory can make such names.
import { once } from 'node:events'
import {
  chmodSync,
  chownSync,
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  openSync,
  readdirSync,
  renameSync,
  unlinkSync,
  type Stats,
} from 'node:fs'
import { createServer, type Server, type Socket } from 'node:net'
import { basename } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { errorCode, exitStatus, UserError } from '../../lib/error.ts'
import { loadLibc } from '../../lib/libc.ts'
import { randomHex, sha256 } from '../../lib/hash.ts'
import {
  assertPathFree,
  openDirectoryOf,
  probe,
  settingOf,
  socketError,
  type OpenDirectory,
  type SocketAddress,
} from './socket-path.ts'
import { monotonicMs } from '../../lib/monotonic.ts'

/** Connects that wait while the daemon is busy; Node's own 511 refuses a burst of 1,000. */
export const BACKLOG = 4096
/** Longest wait for another daemon that starts at this moment, in ms. */
const CANDIDATE_TIMEOUT_MS = 5_000
const POLL_MS = 10
/** open(2): a descriptor of the file itself, whatever it is, for nothing but naming it. */
const O_PATH = 0o10000000

export interface ListenerEvents {
  readonly onConnection: (socket: Socket) => void
  /** The server listens; connections may also be accepted from it directly. */
  readonly onServer?: (server: Server) => void
  /** A connection could not be accepted, because too many files are open, for example. */
  readonly onFault: (error: Error) => void
}

export interface Elected {
  readonly server: Server
  /** Of the socket at the path. */
  readonly stats: Stats
}

/**
 * Listens at the path. Throws UserError: 69 where a process answers there, 78 where something that is not a socket is
 * in the way or the directory cannot be used, 75 where its disk does not answer.
 */
export async function bindElected(address: SocketAddress, events: ListenerEvents): Promise<Elected> {
  const until = monotonicMs() + CANDIDATE_TIMEOUT_MS
  do {
    await assertPathFree(address)
    const directory = openDirectoryOf(address)
    try {
      const elected = await runAsCandidate({ address, directory, until, events })
      if (elected !== null) return elected
    } finally {
      directory.close()
    }
    await sleep(POLL_MS)
  } while (monotonicMs() < until)
  throw new UserError(
    `Another kyc-tokend is starting at ${address.path} and does not finish: end it, or set another ${settingOf(address)}`,
    exitStatus.unavailable,
  )
}

interface Candidacy {
  readonly address: SocketAddress
  readonly directory: OpenDirectory
  readonly until: number
  readonly events: ListenerEvents
}

/** null where another candidate comes first, or took this one for dead. */
async function runAsCandidate(candidacy: Candidacy): Promise<Elected | null> {
  const { address, directory, events } = candidacy
  const name = `${candidatePrefix(address.path)}${randomHex(3)}`
  const server = await listenAsCandidate(directory.reach(name), candidacy)
  if (server === null) return null
  try {
    const isElected = (await isFirst(name, candidacy)) && takePath(directory.reach(name), candidacy)
    if (isElected) {
      events.onServer?.(server)
      server.removeAllListeners('error').on('error', events.onFault)
      return { server, stats: lstatSync(directory.reach(basename(address.path))) }
    }
  } catch (error) {
    withdraw(server, directory.reach(name))
    throw error
  }
  withdraw(server, directory.reach(name))
  return null
}

/** Waits until no other candidate lives; false where one comes before this one. Looks once however late it is. */
async function isFirst(name: string, { address, directory, until }: Candidacy): Promise<boolean> {
  do {
    const others = await livingCandidates(directory, { prefix: candidatePrefix(address.path), own: name })
    if (others.some((other) => other < name)) return false
    if (others.length === 0) {
      await assertPathFree(address)
      return true
    }
    await sleep(POLL_MS)
  } while (monotonicMs() < until)
  return false
}

function takePath(candidate: string, { address, directory }: Candidacy): boolean {
  try {
    renameSync(candidate, directory.reach(basename(address.path)))
    return true
  } catch (error) {
    // Another one that looked between bind and listen took this one for dead.
    if (errorCode(error) === 'ENOENT') return false
    throw socketError(address, error)
  }
}

/** The other candidates that live, by name. Removes the dead. Those of other users do not count. */
async function livingCandidates(
  directory: OpenDirectory,
  { prefix, own }: { prefix: string; own: string },
): Promise<string[]> {
  const names = readdirSync(directory.reach('')).filter((name) => name.startsWith(prefix) && name !== own)
  const living: string[] = []
  for (const name of names) {
    const path = directory.reach(name)
    const found = lstatSync(path, { throwIfNoEntry: false })
    if (!found?.isSocket() || found.uid !== process.geteuid?.()) continue
    const answer = await probe(path)
    if (answer === 'answers') living.push(name)
    if (answer === 'dead') unlinkIfThere(path)
  }
  return living
}

function candidatePrefix(path: string): string {
  return `.${sha256(basename(path)).slice(0, 4)}.`
}

/** null where another candidate that looked between bind and listen took this one for dead. */
async function listenAsCandidate(
  path: string,
  { address, events }: Pick<Candidacy, 'address' | 'events'>,
): Promise<Server | null> {
  const server = createServer({ allowHalfOpen: true }, events.onConnection)
  try {
    await listenPrivately(server, path)
    setAccess(path, address)
    return server
  } catch (error) {
    server.close()
    if (errorCode(error) === 'ENOENT') return null
    throw error instanceof UserError ? error : socketError(address, error)
  }
}

/** Binding is synchronous, so the umask is changed for that moment alone. Only this user may connect at first. */
async function listenPrivately(server: Server, path: string): Promise<void> {
  const libc = loadLibc()
  const umask = process.umask(0o177)
  try {
    if ('error' in libc) server.listen({ path, backlog: BACKLOG })
    else server.listen({ fd: libc.listenAt(path, BACKLOG) }, BACKLOG)
  } finally {
    process.umask(umask)
  }
  await once(server, 'listening')
}

function withdraw(server: Server, path: string): void {
  server.close()
  unlinkIfThere(path)
}

function unlinkIfThere(path: string): void {
  try {
    unlinkSync(path)
  } catch (error) {
    if (errorCode(error) !== 'ENOENT') throw error
  }
}

/**
 * Gives the socket its group, then its mode, through a descriptor of the socket itself: a link at the path is never
 * followed. Throws UserError, or ENOENT where the socket is gone.
 */
export function setAccess(path: string, address: SocketAddress): void {
  const { mode, gid } = address
  const fd = openSync(path, O_PATH | constants.O_NOFOLLOW)
  try {
    const stats = fstatSync(fd)
    if (!stats.isSocket()) {
      throw new UserError(
        `${address.path} is no longer a socket: remove it, or set another ${settingOf(address)}`,
        exitStatus.configuration,
      )
    }
    const itself = `/proc/self/fd/${fd}`
    if (gid !== null && stats.gid !== gid) chownSync(itself, stats.uid, gid)
    chmodSync(itself, mode)
  } catch (error) {
    throw errorCode(error) === 'EPERM'
      ? new UserError(
          `The socket cannot be given the group ${String(gid)}: make the daemon's user a member of it, or set another \`group\``,
          exitStatus.configuration,
          { cause: error },
        )
      : error
  } finally {
    closeSync(fd)
  }
}
