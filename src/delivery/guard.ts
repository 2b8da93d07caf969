// The guard of one socket, whatever is spoken there: who connects, how many and how long, and a stop at which
// all that was received is answered. Each connection holds little, and there are at most so many.
import { closeSync } from 'node:fs'
import { createServer, Socket, type Server, type SocketConstructorOpts } from 'node:net'
import type { DuplexOptions } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import type { SocketConfig } from '../config/config.ts'
import { monotonicMs } from '../lib/clock.ts'
import { errorCode } from '../lib/error.ts'
import { logFault } from '../lib/internal-fault.ts'
import { loadLibc } from '../lib/libc.ts'
import type { Log } from '../lib/log.ts'
import { CONNECTION_IDLE_MS } from '../protocol.ts'
import * as most from './limits.ts'
import { UNKNOWN_PEER, type Peers } from './peers.ts'
import type { Reader } from './token-audit.ts'
import { descriptorOf, takeOver } from './undocumented.ts'

/** Connections are counted apart by these: operators have as many places as all others together. */
type Place = 'operator' | 'member' | 'denied'

export interface Connection extends Reader {
  socket: Socket
  readonly place: Place
  readonly openedAtMs: number
  /** `allow` excludes its peer. */
  readonly isDenied: boolean
  /** The reason for which the daemon ends it; null: the client does. */
  drop: most.DropReason | null
  /** Whole requests so far, and of this second. */
  requests: number
  rate: { second: number; count: number } | null
  /** Its requests that wait for an answer, and what ends the waits. */
  waiting: number
  waits: AbortController | null
  /** Their ids. */
  subscriptions: readonly string[]
  /** Requests and bytes that the peer has taken, at the last sweep at which they were more, and when that was. */
  progress: number
  progressAtMs: number
}

/** What is spoken at a socket. `State` is what it knows of a connection. */
export interface Protocol<State> {
  readonly createState: () => State
  readonly optionsOf: (connection: Connection & State) => SocketConstructorOpts & DuplexOptions
  readonly begin: (connection: Connection & State) => void
  /** Sends the newest token, or why there is none, for each subscription, as far as the peer reads. */
  readonly push: (connection: Connection & State) => void
}
export type Guard = ReturnType<typeof createGuard>

/** Timers may fire this much early. */
const GRAIN_MS = 500
/** At a stop, a connection that has sent nothing yet has this time for it. */
const FIRST_REQUEST_MS = 250

export function createGuard<State extends object>(
  protocol: Protocol<State>,
  options: {
    readonly limits: () => SocketConfig
    /** Null: over TCP, without users. */
    readonly peers: Peers | null
    readonly log: Log
    /** A clock that stops during suspend, in ms. */
    readonly awakeMs: () => number
    /** A connection was closed, because its user, or all together, have too many. */
    readonly onExcess: (uid: number, setting: 'maxConnections' | 'maxConnectionsPerUser') => void
  },
) {
  const { limits, peers, log, awakeMs, onExcess } = options
  const libc = loadLibc()
  const servers: Server[] = []
  const all = new Set<Connection & State>()
  const taken: Record<Place, number> = { operator: 0, member: 0, denied: 0 }
  /** Connections by user. */
  const users = new Map<number, number>()
  const dropped = Object.fromEntries(most.dropReasons.map((reason) => [reason, 0])) as Record<
    most.DropReason,
    number
  >

  function onAccepted(this: Server, first: Socket): void {
    const accepted = takeOver(first)
    if (accepted !== null) open(accepted)
    acceptOthers(this, most.ACCEPTED_IN_A_TURN - 1)
  }

  /** Node accepts one connection in a turn: a newcomer would wait as many turns as others came before it. */
  function acceptOthers(server: Server, count: number): void {
    const listening = descriptorOf(server)
    for (let left = count; left > 0; left -= 1) {
      const fd = libc.accept(listening)
      if (fd < 0) return
      open({ from: { fd }, fd, close: () => closeSync(fd) })
    }
  }

  function excessOf(place: Place, uid: number): 'maxConnections' | 'maxConnectionsPerUser' | null {
    const { maxConnections, maxConnectionsPerUser } = limits()
    if (taken[place] >= (place === 'denied' ? most.MAX_DENIED : maxConnections)) return 'maxConnections'
    const isFull = place === 'member' && (users.get(uid) ?? 0) >= maxConnectionsPerUser
    return isFull ? 'maxConnectionsPerUser' : null
  }

  function open({ from, fd, close }: NonNullable<ReturnType<typeof takeOver>>): void {
    try {
      const peer = peers?.of(fd) ?? UNKNOWN_PEER
      const isDenied = peers?.isAllowed(fd, peer, limits().allow) === false
      const place: Place = peer.isOperator ? 'operator' : isDenied ? 'denied' : 'member'
      const excess = excessOf(place, peer.uid)
      if (excess === null) return begin({ from, fd }, { peer, place, isDenied })
      dropped['too-many-connections'] += 1
      onExcess(peer.uid, excess)
    } catch (error) {
      // Otherwise there is no descriptor left, or the peer has gone.
      if (errorCode(error) === undefined) logFault(log, error)
    }
    close()
  }

  function begin(
    { from, fd }: { from: SocketConstructorOpts; fd: number },
    by: Pick<Connection, 'peer' | 'place' | 'isDenied'>,
  ): void {
    libc.limitSendBuffer(fd, most.SEND_BUFFER_BYTES)
    const openedAtMs = awakeMs()
    const when = { openedAtMs, progressAtMs: openedAtMs }
    const connection = { ...NEW, ...by, ...when, ...protocol.createState() }
    const socket = new Socket({ ...from, ...HALF_OPEN, ...protocol.optionsOf(connection) })
    const { peer, place } = by
    connection.socket = socket
    taken[place] += 1
    users.set(peer.uid, (users.get(peer.uid) ?? 0) + 1)
    all.add(connection)
    socket.on('error', ignore)
    socket.once('end', () => {
      // Both directions are closed: nobody waits for the answers.
      if (libc.isHungUp(descriptorOf(socket))) socket.destroy()
    })
    socket.once('close', () => forget(connection))
    safely(connection, log, protocol.begin)
  }

  function forget(connection: Connection & State): void {
    const { peer, place, drop } = connection
    all.delete(connection)
    taken[place] -= 1
    const left = (users.get(peer.uid) ?? 1) - 1
    if (left === 0) users.delete(peer.uid)
    else users.set(peer.uid, left)
    if (drop !== null) dropped[drop] += 1
    connection.subscriptions = NONE
    endWaits(connection)
  }

  return {
    /** A server that listens nowhere yet. */
    addServer: (): Server => {
      const server = createServer({ allowHalfOpen: true }, onAccepted)
      servers.push(server)
      return server
    },
    push(): void {
      for (const connection of all)
        if (connection.subscriptions.length > 0) safely(connection, log, protocol.push)
    },
    /** `limits` have changed. Connections of users whom they exclude now are closed. */
    recheck(): void {
      for (const connection of all) {
        const { socket, peer, isDenied } = connection
        const fd = descriptorOf(socket)
        if (fd < 0 || isDenied || peers?.isAllowed(fd, peer, limits().allow) !== false) continue
        connection.drop = 'denied'
        socket.destroy()
      }
    },
    /**
     * Ends connections whose peer reads nothing, and those that have been silent for long without a wait or a
     * subscription. To be called every 15 s.
     */
    sweep(): void {
      const nowMs = awakeMs()
      for (const connection of all) {
        const { socket, waiting, subscriptions } = connection
        const progress = connection.requests + socket.bytesWritten - socket.writableLength
        if (progress !== connection.progress) Object.assign(connection, { progress, progressAtMs: nowMs })
        const isStalled = socket.writableLength > 0
        const isServed = waiting + subscriptions.length > 0
        const lastsMs = isStalled ? most.STALLED_MS : isServed ? Infinity : CONNECTION_IDLE_MS
        if (nowMs - connection.progressAtMs < lastsMs - GRAIN_MS) continue
        connection.drop ??= isStalled ? 'stalled' : 'idle'
        socket.destroy()
      }
    },
    /** Accepts what has connected, and answers what has been received; the kernel refuses what comes later. */
    async stop(): Promise<void> {
      for (const server of servers) {
        acceptOthers(server, most.BACKLOG)
        server.close()
      }
      const untilMs = monotonicMs() + most.STOP_MS
      for (let nowMs = monotonicMs(); all.size > 0 && nowMs < untilMs; nowMs = monotonicMs()) {
        for (const connection of all) {
          endWaits(connection)
          if (connection.requests > 0 || awakeMs() - connection.openedAtMs > FIRST_REQUEST_MS)
            libc.endInput(descriptorOf(connection.socket))
        }
        await sleep(5)
      }
      for (const { socket } of all) socket.destroy()
    },
    connectionsOf: (uid: number): number => users.get(uid) ?? 0,
    counts: () => ({
      connections: all.size,
      subscribers: [...all].filter(({ subscriptions }) => subscriptions.length > 0).length,
      dropped: { ...dropped },
    }),
  }
}

/** An internal fault while one client is served costs its connection, not the process. */
export function safely<C extends Connection>(connection: C, log: Log, step: (connection: C) => void): void {
  try {
    step(connection)
  } catch (error) {
    fail(connection, log, error)
  }
}

export function fail(connection: Connection, log: Log, error: unknown): void {
  logFault(log, error)
  connection.drop = 'fault-of-ours'
  connection.socket.destroy()
}

/** Aborted when the client goes or the daemon stops: its waits are answered then with what there is. */
export function waitsOf(connection: Connection): AbortSignal {
  connection.waits ??= new AbortController()
  return connection.waits.signal
}

export function endWaits(connection: Connection): void {
  connection.waits?.abort()
  connection.waits = null
}

const ignore = (): void => undefined
/** A client that has ended its side still gets the answers for which it waits. */
const HALF_OPEN = { allowHalfOpen: true }
const NONE: readonly string[] = []
const NEW = {
  /** Until its own is made. */
  socket: new Socket(),
  drop: null,
  tally: null,
  client: undefined,
  requests: 0,
  rate: null,
  waiting: 0,
  waits: null,
  subscriptions: NONE,
  progress: -1,
}
