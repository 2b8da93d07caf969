// The guard of one socket, whatever is spoken there: who connects, how many and how long, and a stop at which
// all that was received is answered. Each connection holds little, and there are at most so many.
import { closeSync } from 'node:fs'
import { createServer, Socket, type Server, type SocketConstructorOpts } from 'node:net'
import type { DuplexOptions } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import type { SocketConfig } from '../config/config.ts'
import { monotonicMs } from '../lib/clock.ts'
import { errorCode } from '../lib/error.ts'
import { loadLibc } from '../lib/libc.ts'
import { createHourlyCount, type Log, logFault } from '../lib/log.ts'
import { CONNECTION_IDLE_MS } from '../protocol.ts'
import * as most from './limits.ts'
import { descriptorOf } from './undocumented.ts'

/** The user of a connection. Operators are root and the daemon's own user; `allow` excludes the denied. */
interface Peer {
  readonly uid: number
  /** Each has places of its own. */
  readonly place: 'operator' | 'member' | 'denied'
}
export type ReadPeer = (fd: number, allow: SocketConfig['allow']) => Peer

export interface Connection {
  readonly peer: Peer
  socket: Socket
  /** The reason for which the daemon ends it; null: the client does. */
  drop: most.DropReason | null
  /** It has sent so many whole requests so far, and in this second. */
  requests: number
  rate: { second: number; count: number } | null
  /** Its requests that wait for an answer, and what ends the waits. */
  waiting: number
  waits: AbortController | null
  /** The ids of its subscriptions. */
  subscriptions: readonly string[]
  /** Requests and bytes that the peer has taken, at the last sweep at which they were more, and when that was. */
  progress: number
  progressAtMs: number
}

/** The protocol on one connection. */
export interface Session {
  /** Node makes its socket with these. */
  readonly options: SocketConstructorOpts & DuplexOptions
  readonly begin: () => void
  /** Sends the newest token, or why there is none, for each subscription, as far as the peer reads. */
  readonly push: () => void
}
export type Protocol = (connection: Connection) => Session

/** At a stop, a connection that has sent nothing yet has this time for it. */
const FIRST_REQUEST_MS = 250
/** The id that the kernel shows for every user or group that this user namespace does not have (user_namespaces(7)). */
const OVERFLOW_ID = 65_534

/** Returns the function that asks the kernel who connected (unix(7), SO_PEERCRED). */
export function createReadPeer({ libc = loadLibc(), ownUid = process.geteuid!() } = {}): ReadPeer {
  return (fd, { users: uids, groups: gids }) => {
    const { uid, gid } = libc.peerOf(fd)
    const isKnown = uid !== OVERFLOW_ID
    if (isKnown && (uid === 0 || uid === ownUid)) return { uid, place: 'operator' }
    const groups = gids.length === 0 ? [] : [gid, ...libc.peerGroups(fd)]
    const isAllowed =
      uids.length + gids.length === 0 ||
      (isKnown && uids.includes(uid)) ||
      groups.some((group) => group !== OVERFLOW_ID && gids.includes(group))
    return { uid, place: isAllowed ? 'member' : 'denied' }
  }
}

export function createGuard(
  protocol: Protocol,
  options: {
    /** The name of the limits in the configuration. */
    readonly name: 'ipc' | 'http'
    readonly limits: () => SocketConfig
    readonly readPeer: ReadPeer
    readonly log: Log
    /** A clock that stops during suspend, in ms. */
    readonly awakeMs: () => number
  },
) {
  const { name, limits, readPeer, log, awakeMs } = options
  const libc = loadLibc()
  const servers: Server[] = []
  const all = new Map<Connection, Session>()
  /** Connections by place, and by user. */
  const taken = new Map<Peer['place'] | Peer['uid'], number>()
  const excessOf = createHourlyCount(awakeMs)
  const dropped = { ...most.nothingDropped }

  function onAccepted(this: Server, first: Socket): void {
    // It goes on as a socket with options that a server of Node cannot set.
    const fd = libc.duplicate(descriptorOf(first))
    first.destroy()
    if (fd >= 0) open(fd)
    acceptOthers(this, most.ACCEPTED_IN_A_TURN - 1)
  }

  /** Node accepts one connection in a turn: a newcomer would wait as many turns as others came before it. */
  function acceptOthers(server: Server, count: number): void {
    const listening = descriptorOf(server)
    for (let left = count; left > 0; left -= 1) {
      const fd = libc.accept(listening)
      if (fd < 0) return
      open(fd)
    }
  }

  function open(fd: number): void {
    try {
      const peer = readPeer(fd, limits().allow)
      if (hasPlace(peer)) return begin(fd, peer)
    } catch (error) {
      // Otherwise there is no descriptor left, or the peer has gone.
      if (errorCode(error) === undefined) logFault(log, error)
    }
    closeSync(fd)
  }

  const takenBy = (key: Peer['place'] | Peer['uid']): number => taken.get(key) ?? 0

  function hasPlace({ uid, place }: Peer): boolean {
    const { maxConnections, maxConnectionsPerUser } = limits()
    const isFull = takenBy(place) >= (place === 'denied' ? most.MAX_DENIED : maxConnections)
    if (!isFull && (place !== 'member' || takenBy(uid) < maxConnectionsPerUser)) return true
    dropped['too-many-connections'] += 1
    const count = excessOf(uid)
    const sentence = 'Connections of a user were closed, because there are too many: it may keep fewer open'
    const setting = `${name}.${isFull ? 'maxConnections' : 'maxConnectionsPerUser'}`
    if (count > 0) log('warning', sentence, { event: 'clients-limited', uid, setting, count })
    return false
  }

  function begin(fd: number, peer: Peer): void {
    libc.limitSendBuffer(fd, most.SEND_BUFFER_BYTES)
    const facts: Omit<Connection, 'socket'> = { ...NEW, peer, subscriptions: [], progressAtMs: awakeMs() }
    const connection = facts as Connection
    const session = protocol(connection)
    // A client that has ended its side still gets the answers for which it waits.
    const socket = new Socket({ fd, allowHalfOpen: true, ...session.options })
    connection.socket = socket
    all.set(connection, session)
    occupy(peer, 1)
    socket.on('error', ignore)
    socket.once('end', () => {
      // Both directions are closed: nobody waits for the answers.
      if (libc.isHungUp(descriptorOf(socket))) socket.destroy()
    })
    socket.once('close', () => forget(connection))
    safely(connection, log, session.begin)
  }

  function occupy({ uid, place }: Peer, by: 1 | -1): void {
    for (const key of [uid, place]) taken.set(key, takenBy(key) + by)
  }

  function forget(connection: Connection): void {
    all.delete(connection)
    occupy(connection.peer, -1)
    if (connection.drop !== null) dropped[connection.drop] += 1
    connection.subscriptions = []
    endWaits(connection)
  }

  /** Returns why the daemon ends the connection now; null: it may stay. */
  function endOf(connection: Connection, nowMs: number): most.DropReason | null {
    const { socket, peer, waiting, subscriptions } = connection
    if (peer.place === 'member' && readPeer(descriptorOf(socket), limits().allow).place === 'denied')
      return 'denied'
    const progress = connection.requests + socket.bytesWritten - socket.writableLength
    if (progress !== connection.progress) Object.assign(connection, { progress, progressAtMs: nowMs })
    const forMs = nowMs - connection.progressAtMs
    if (socket.writableLength > 0) return forMs < most.STALLED_MS ? null : 'stalled'
    return waiting + subscriptions.length > 0 || forMs < CONNECTION_IDLE_MS ? null : 'idle'
  }

  return {
    /** A server that listens nowhere yet. */
    addServer: (): Server => {
      const server = createServer({ pauseOnConnect: true }, onAccepted).on('error', ignore)
      servers.push(server)
      return server
    },
    push(): void {
      for (const [connection, { push }] of all)
        if (connection.subscriptions.length > 0) safely(connection, log, push)
    },
    /**
     * Ends connections whose peer reads nothing, those that have been silent for long without a wait or a
     * subscription, and those of users whom a reload excludes. To be called every 15 s, and after a reload.
     */
    sweep(): void {
      const nowMs = awakeMs()
      for (const connection of all.keys()) {
        const reason = connection.socket.destroyed ? null : endOf(connection, nowMs)
        if (reason === null) continue
        connection.drop ??= reason
        connection.socket.destroy()
      }
    },
    /** Accepts what has connected, and answers what has been received; the kernel refuses what comes later. */
    async stop(): Promise<void> {
      for (const server of servers) {
        acceptOthers(server, most.BACKLOG)
        server.close()
      }
      const begunMs = monotonicMs()
      for (let forMs = 0; all.size > 0 && forMs < most.STOP_MS; forMs = monotonicMs() - begunMs) {
        for (const connection of all.keys()) {
          endWaits(connection)
          if (connection.requests > 0 || forMs > FIRST_REQUEST_MS)
            libc.endInput(descriptorOf(connection.socket))
        }
        await sleep(5)
      }
      for (const { socket } of all.keys()) socket.destroy()
    },
    connectionsOf: (uid: number): number => takenBy(uid),
    counts: () => ({
      connections: all.size,
      subscribers: [...all.keys()].filter(({ subscriptions }) => subscriptions.length > 0).length,
    }),
    /** Connections that the daemon ended, since the start. */
    dropped: () => ({ ...dropped }),
  }
}

/** An internal fault while one client is served costs its connection, not the process. */
export function safely(connection: Connection, log: Log, step: () => void): void {
  try {
    step()
  } catch (error) {
    fail(connection, log, error)
  }
}

export function fail(connection: Connection, log: Log, error: unknown): void {
  logFault(log, error)
  connection.drop = 'fault-of-ours'
  connection.socket.destroy()
}

/** The signal is aborted when the client goes or the daemon stops: its waits are answered then with what there is. */
export function waitsOf(connection: Connection): AbortSignal {
  return (connection.waits ??= new AbortController()).signal
}

function endWaits(connection: Connection): void {
  connection.waits?.abort()
  connection.waits = null
}

const ignore = (): void => undefined
const NEW = { drop: null, requests: 0, rate: null, waiting: 0, waits: null, progress: -1 }
