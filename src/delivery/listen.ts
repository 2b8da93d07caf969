// A listening Unix socket at a path: never takes one over on which somebody answers, and of two daemons started at once one lives.
import { randomBytes, createHash } from 'node:crypto'
import {
  chmodSync,
  closeSync,
  constants,
  fstatSync,
  lchownSync,
  lstatSync,
  openSync,
  readdirSync,
  renameSync,
  statSync,
  unlinkSync,
  type Stats,
} from 'node:fs'
import { connect, createServer, type Server, type Socket } from 'node:net'
import { basename, dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { getSystemErrorMessage } from 'node:util'
import { errorCode, errorMessage, exitStatus, UserError } from '../lib/error.ts'

/** Connects that wait while the daemon is busy; Node's own 511 refuses a burst of 1,000. */
const BACKLOG = 4096
/** `sun_path` without its NUL byte (unix(7)). */
const MAX_PATH_BYTES = 107
/** How long another daemon that starts at this moment is waited for, in ms. */
const RIVAL_PATIENCE_MS = 5_000
const RIVAL_LOOK_MS = 10

export interface Spot {
  readonly path: string
  /** The setting with which another can be chosen; `path` where left out. */
  readonly setting?: string
}
/** Where to listen, and who may connect. */
export interface Place extends Spot {
  /** Permission bits. */
  readonly mode: number
  /** null: as the socket is created. */
  readonly gid: number | null
}
/** What is told of a listening socket. */
export interface Callers {
  readonly onConnection: (socket: Socket) => void
  /** A connection could not be accepted: too many open files, say. */
  readonly onFault: (error: Error) => void
}
export interface Listening {
  /** Whether what stands at the path is still our socket. */
  isThere(): boolean
  /** Gives the socket another mode and group, if it is still ours. Throws UserError. */
  adjust(place: Place): void
  /** Accepts no more, and removes the socket if it is still ours. Connections live on. */
  close(): void
}

/**
 * Listens at a path. Throws UserError: 69 where somebody answers there, 78 where something that is not a socket is
 * in the way or the place cannot be used.
 */
export async function listenAt(place: Place, callers: Callers): Promise<Listening> {
  const folder = dirname(place.path)
  const prefix = candidatePrefix(place.path)
  const until = performance.now() + RIVAL_PATIENCE_MS
  while (performance.now() < until) {
    await refuseTaken(place)
    const name = prefix + randomBytes(3).toString('hex')
    const server = await listenAsCandidate(join(folder, name), place, callers)
    if (server === null) continue
    const outcome = await standForElection({ name, folder, prefix, place, until }).catch((error: unknown) => {
      withdraw(server, join(folder, name))
      throw error
    })
    if (outcome === 'elected') {
      server.removeAllListeners('error').on('error', callers.onFault)
      return listening(server, place.path)
    }
    withdraw(server, join(folder, name))
    await sleep(RIVAL_LOOK_MS)
  }
  throw new UserError(
    `Another kyc-tokend is starting at ${place.path} and does not get on: end it, or set another ${settingOf(place)}`,
    exitStatus.unavailable,
  )
}

/** Listens on a socket that was handed over: its mode, owner and end are the affair of who made it. */
export async function listenOn(fd: number, callers: Callers): Promise<Listening> {
  const server = createServer({ allowHalfOpen: true }, callers.onConnection)
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error) => {
      const message = `The socket handed over as descriptor ${fd} cannot be used (${errorMessage(error)}): check the .socket unit`
      reject(new UserError(message, exitStatus.configuration, { cause: error }))
    })
    // As `listen({ fd, backlog })` it would get Node's own backlog.
    server.listen({ fd }, BACKLOG, resolve)
  })
  server.removeAllListeners('error').on('error', callers.onFault)
  return { isThere: () => true, adjust: () => undefined, close: () => void server.close() }
}

function listening(server: Server, path: string): Listening {
  const { ino, dev } = lstatSync(path)
  /** What cannot be looked at is not ours to touch, whoever barred the way to it. */
  const isOurs = (): boolean => {
    try {
      const now = lstatSync(path, { throwIfNoEntry: false })
      return now?.ino === ino && now.dev === dev
    } catch (error) {
      if (errorCode(error) === undefined) throw error
      return false
    }
  }
  return {
    isThere: isOurs,
    adjust(place) {
      if (isOurs()) setAccess(path, place)
    },
    close() {
      server.close()
      if (!isOurs()) return
      try {
        unlinkIfThere(path)
      } catch (error) {
        // The directory is no longer ours to write. A dead socket does no harm: the next daemon replaces it.
        if (errorCode(error) === undefined) throw error
      }
    },
  }
}

// ---- the election -----------------------------------------------------------------------------------------------------
//
// A candidate listens under a name of its own beside the path, and only then looks around. Of two that start at once at
// least one sees the other; the one with the larger name withdraws and looks again when the other has gone. Whoever sees
// no rival takes the path by an atomic rename. Whether a candidate lives is asked of the kernel, by connecting to it, so
// what a crash leaves behind blocks nobody; and nobody else can take the names, which only this folder's users can make.

type Outcome = 'elected' | 'again'

interface Candidacy {
  readonly name: string
  readonly folder: string
  readonly prefix: string
  readonly place: Spot
  readonly until: number
}

async function standForElection({ name, folder, prefix, place, until }: Candidacy): Promise<Outcome> {
  while (performance.now() < until) {
    const rivals = await livingRivals(folder, prefix, name)
    if (rivals.some((rival) => rival < name)) return 'again'
    if (rivals.length === 0) {
      await refuseTaken(place)
      return takePath(join(folder, name), place)
    }
    await sleep(RIVAL_LOOK_MS)
  }
  return 'again'
}

function takePath(candidate: string, place: Spot): Outcome {
  try {
    renameSync(candidate, place.path)
    return 'elected'
  } catch (error) {
    // A rival that looked between our bind and our listen took us for dead.
    if (errorCode(error) === 'ENOENT') return 'again'
    throw placeError(place, error)
  }
}

/** The other candidates that live, by name. Clears away the dead. Those of other users cannot stand here. */
async function livingRivals(folder: string, prefix: string, own: string): Promise<string[]> {
  const names = readdirSync(folder).filter((name) => name.startsWith(prefix) && name !== own)
  const living: string[] = []
  for (const name of names) {
    const path = join(folder, name)
    const found = lstatSync(path, { throwIfNoEntry: false })
    if (!found?.isSocket() || found.uid !== process.geteuid?.()) continue
    const answer = await knock(path)
    if (answer === 'answers') living.push(name)
    if (answer === 'dead') unlinkIfThere(path)
  }
  return living
}

function candidatePrefix(path: string): string {
  return `.${createHash('sha256').update(basename(path)).digest('hex').slice(0, 4)}.`
}

/** Null where a rival that looked between our bind and our listen took us for dead. */
async function listenAsCandidate(
  path: string,
  place: Place,
  { onConnection }: Callers,
): Promise<Server | null> {
  const server = createServer({ allowHalfOpen: true }, onConnection)
  const started = new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.once('listening', resolve)
  })
  // Binding is synchronous, so the umask is ours alone for that moment; nobody but us may connect until all is set.
  const umask = process.umask(0o177)
  try {
    atReach(path, (reached) => server.listen({ path: reached, backlog: BACKLOG }))
  } catch (error) {
    throw placeError(place, error)
  } finally {
    process.umask(umask)
  }
  try {
    await started
    setAccess(path, place)
  } catch (error) {
    server.close()
    if (error instanceof UserError && errorCode(error.cause) === 'ENOENT' && !isFolderMissing(path))
      return null
    throw error instanceof UserError ? error : placeError(place, error)
  }
  return server
}

function withdraw(server: Server, path: string): void {
  server.close()
  unlinkIfThere(path)
}

function setAccess(path: string, place: Place): void {
  const { mode, gid } = place
  try {
    if (gid !== null && lstatSync(path).gid !== gid) lchownSync(path, -1, gid)
    chmodSync(path, mode)
  } catch (error) {
    throw errorCode(error) === 'EPERM'
      ? new UserError(
          `The socket cannot be given the group ${String(gid)}: make the daemon's user a member of it, or set another \`group\``,
          exitStatus.configuration,
          { cause: error },
        )
      : placeError(place, error)
  }
}

// ---- what is at the path ------------------------------------------------------------------------------------------------

/** Throws UserError where somebody answers at this path (69), or something that is not a socket is in the way (78). */
export async function refuseTaken(spot: Spot): Promise<void> {
  const { path } = spot
  const found = lookAt(spot)
  if (found === undefined) return
  if (!found.isSocket()) {
    throw new UserError(
      `${path} is in the way and is not a socket: remove it, or set another ${settingOf(spot)}`,
      exitStatus.configuration,
    )
  }
  if ((await knock(path)) === 'answers') {
    throw new UserError(
      `Somebody answers at ${path}, presumably another kyc-tokend: stop it, or set another ${settingOf(spot)}`,
      exitStatus.unavailable,
    )
  }
}

function lookAt(spot: Spot): Stats | undefined {
  try {
    return lstatSync(spot.path, { throwIfNoEntry: false })
  } catch (error) {
    throw placeError(spot, error)
  }
}

/** Whether somebody listens at a path. Whatever is neither certain to be dead nor gone counts as living. */
function knock(path: string): Promise<'answers' | 'dead' | 'gone'> {
  return new Promise((resolve) => {
    const socket = atReach(path, (reached) => connect(reached))
    socket.once('connect', () => {
      socket.destroy()
      resolve('answers')
    })
    socket.once('error', (error) => {
      const code = errorCode(error)
      if (code === 'ECONNREFUSED') resolve('dead')
      else resolve(code === 'ENOENT' ? 'gone' : 'answers')
    })
  })
}

/**
 * Calls with the path, or, where that is longer than the address of a socket, with one through a descriptor of its
 * folder. That is good for the call alone: bind and connect happen in it.
 */
function atReach<T>(path: string, use: (reached: string) => T): T {
  if (Buffer.byteLength(path) <= MAX_PATH_BYTES) return use(path)
  const folder = openSync(dirname(path), constants.O_RDONLY | constants.O_DIRECTORY)
  try {
    return use(`/proc/self/fd/${folder}/${basename(path)}`)
  } finally {
    closeSync(folder)
  }
}

function unlinkIfThere(path: string): void {
  try {
    unlinkSync(path)
  } catch (error) {
    if (errorCode(error) !== 'ENOENT') throw error
  }
}

function placeError(spot: Spot, cause: unknown): UserError {
  const { path } = spot
  // bind tells a missing directory as EACCES, because libuv does.
  const code = isFolderMissing(path) ? 'ENOENT' : (errorCode(cause) ?? '')
  const { errno } = cause as NodeJS.ErrnoException
  const why =
    code === 'ENOENT' ? 'its directory is not there' : `${code}: ${getSystemErrorMessage(errno ?? 0)}`
  const remedy = REMEDIES[code] ?? 'make its directory writable for the user of the daemon'
  return new UserError(
    `No socket can be made at ${path} (${why}): ${remedy}, or set another ${settingOf(spot)}`,
    exitStatus.configuration,
    { cause },
  )
}

function settingOf({ setting = 'path' }: Spot): string {
  return `\`${setting}\``
}

const REMEDIES: Readonly<Record<string, string>> = {
  ENOENT: 'make it',
  EROFS: 'add its directory to `ReadWritePaths=` in a drop-in of the unit',
  ENOSPC: 'make room on its file system',
  EDQUOT: 'make room on its file system',
}

function isFolderMissing(path: string): boolean {
  try {
    return statSync(dirname(path), { throwIfNoEntry: false }) === undefined
  } catch {
    // It is not known to be missing: the first error says more than this one.
    return false
  }
}

// ---- sockets handed over by systemd ---------------------------------------------------------------------------------------

/** Descriptors of the sockets that were handed over, by the names of the contract: any number of each. */
export interface InheritedSockets {
  readonly ipc: readonly number[]
  readonly http: readonly number[]
  /** Those of other names, which are not ours. */
  readonly unknown: readonly { readonly name: string; readonly fd: number }[]
}

/** Takes LISTEN_FDS, LISTEN_PID and LISTEN_FDNAMES out of the environment, so that no child takes them for its own (sd_listen_fds(3)). */
export function takeInheritedSockets(env: NodeJS.ProcessEnv, pid: number): InheritedSockets {
  const { LISTEN_PID, LISTEN_FDS, LISTEN_FDNAMES } = env
  delete env['LISTEN_PID']
  delete env['LISTEN_FDS']
  delete env['LISTEN_FDNAMES']
  const count = Number(LISTEN_PID) === pid && /^\d{1,4}$/.test(LISTEN_FDS ?? '') ? Number(LISTEN_FDS) : 0
  const names = (LISTEN_FDNAMES ?? '').split(':')
  const sockets = Array.from({ length: count }, (_, index) => ({
    // As systemd calls one without a name.
    name: names[index] || 'unknown',
    fd: FIRST_FD + index,
  }))
  const fdsOf = (wanted: string): number[] =>
    sockets.filter(({ name }) => name === wanted).map(({ fd }) => fd)
  return {
    ipc: fdsOf('ipc'),
    http: fdsOf('http'),
    unknown: sockets.filter(({ name }) => name !== 'ipc' && name !== 'http'),
  }
}
/** SD_LISTEN_FDS_START. */
const FIRST_FD = 3

/**
 * Closes those that are not ours: where nobody else holds one, its clients are refused and do not wait for ever. To be
 * called before anything else is opened, and only a socket is closed: the descriptor might be one of Node's own.
 */
export function closeUnknownSockets({ unknown }: InheritedSockets): void {
  for (const { fd } of unknown) {
    try {
      if (fstatSync(fd).isSocket()) closeSync(fd)
    } catch (error) {
      if (errorCode(error) !== 'EBADF') throw error
    }
  }
}
