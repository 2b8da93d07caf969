// The guard of one socket, whatever is spoken there: who connects, how many and how long, and a stop at which
// all that was received is answered. Each connection holds little; there are at most so many.
import { closeSync } from 'node:fs'
import { createServer, Socket, type Server, type SocketConstructorOpts } from 'node:net'
import type { DuplexOptions } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import type { SocketConfig } from '../config/next/config.ts'
import { monotonicMs } from '../lib/clock.ts'
import { errorCode } from '../lib/error.ts'
import { logFault } from '../lib/internal-fault.ts'
import { loadLibc } from '../lib/libc.ts'
import type { Log } from '../lib/log.ts'
import { CONNECTION_IDLE_MS } from '../protocol.ts'
import {
  ACCEPTED_IN_A_TURN,
  BACKLOG,
  dropReasons,
  MAX_DENIED,
  SEND_BUFFER_BYTES,
  STALLED_MS,
  STOP_MS,
  type DropReason,
} from './limits.ts'
import type { Reader } from './token-audit.ts'
import { UNKNOWN_PEER, type Peers } from './peers.ts'
import { descriptorOf, takeOver } from './undocumented.ts'

/** Connections are counted apart by these: operators have as many places as all others together. */
type Place = 'operator' | 'member' | 'denied'

export interface Connection extends Reader {
  socket: Socket
  readonly place: Place
  readonly openedAtMs: number
  /** `allow` excludes its peer. */
  isDenied: boolean
  /** The reason for which the daemon ends it; null: the client does. */
  drop: DropReason | null
  /** Whole requests so far. */
  requests: number
  /** Of this second; the second, on the monotonic clock. */
  rate: number
  rateSecond: number
  /** Its requests that wait for an answer, and what ends the waits. */
  waiting: number
  waits: AbortController | null
  /** Their ids. */
  subscriptions: string[]
  /** Requests and bytes that the peer has taken, as of the last sweep at which they were more, and when that was. */
  progress: number
  progressAtMs: number
}

/** What is spoken at a socket. `State` is what it knows of a connection. */
export interface Protocol<State> {
  readonly name: 'ipc' | 'http' | 'metrics'
  readonly createState: () => State
  readonly optionsOf: (connection: Connection & State) => SocketConstructorOpts & DuplexOptions
  readonly begin: (connection: Connection & State) => void
  /** Sends the newest token, or why there is none, for each subscription, as far as the peer reads. */
  readonly push: (connection: Connection & State) => void
}
export type Limits = Pick<SocketConfig, 'allow' | 'maxConnections' | 'maxConnectionsPerUser'>
export type Guard = ReturnType<typeof createGuard>

const IDLE_MS = CONNECTION_IDLE_MS
/** Timers may fire this much early. */
const GRAIN_MS = 500
/** At a stop, a connection that has sent nothing yet has this time for it. */
const FIRST_REQUEST_MS = 50

export function createGuard<State extends object>(
  protocol: Protocol<State>,
  options: {
    readonly limits: () => Limits
    /** Null: over TCP, without users. */
    readonly peers: Peers | null
    readonly log: Log
    /** A connection was closed, because its user, or all together, have too many. */
    readonly onExcess: (uid: number, setting: 'maxConnections' | 'maxConnectionsPerUser') => void
  },
) {
  const { limits, peers, log, onExcess } = options
  const libc = loadLibc()
  const servers: Server[] = []
  const all = new Set<Connection & State>()
  const taken: Record<Place, number> = { operator: 0, member: 0, denied: 0 }
  /** Connections by user. */
  const users = new Map<number, number>()
  const dropped = Object.fromEntries(dropReasons.map((reason) => [reason, 0])) as Record<DropReason, number>

  function onAccepted(this: Server, first: Socket): void {
    const accepted = takeOver(first)
    if (accepted !== null) open(accepted)
    acceptOthers(this, ACCEPTED_IN_A_TURN - 1)
  }

  /** Node accepts one connection in a turn: a newcomer would wait as many turns as others came before it. */
  function acceptOthers(server: Server, most: number): void {
    const listening = descriptorOf(server)
    for (let left = most; left > 0; left -= 1) {
      const fd = libc.accept(listening)
      if (fd < 0) return
      open({ options: { fd }, fd, close: () => closeSync(fd) })
    }
  }

  function excessOf(place: Place, uid: number): 'maxConnections' | 'maxConnectionsPerUser' | null {
    const { maxConnections, maxConnectionsPerUser } = limits()
    if (taken[place] >= (place === 'denied' ? MAX_DENIED : maxConnections)) return 'maxConnections'
    const isFull = place === 'member' && (users.get(uid) ?? 0) >= maxConnectionsPerUser
    return isFull ? 'maxConnectionsPerUser' : null
  }

  function open({ options: from, fd, close }: NonNullable<ReturnType<typeof takeOver>>): void {
    const peer = peers?.of(fd) ?? UNKNOWN_PEER
    const isDenied = peers?.isAllowed(fd, peer, limits().allow) === false
    const place: Place = peer.isOperator ? 'operator' : isDenied ? 'denied' : 'member'
    const excess = excessOf(place, peer.uid)
    if (excess !== null) {
      close()
      dropped['too-many-connections'] += 1
      return onExcess(peer.uid, excess)
    }
    libc.limitSendBuffer(fd, SEND_BUFFER_BYTES)
    const openedAtMs = monotonicMs()
    const when = { openedAtMs, progressAtMs: openedAtMs }
    const connection = { ...NEW, peer, place, isDenied, ...when, ...protocol.createState() }
    try {
      connection.socket = new Socket({ ...from, ...HALF_OPEN, ...protocol.optionsOf(connection) })
    } catch (error) {
      // There is no descriptor left, or the peer has gone.
      close()
      if (errorCode(error) === undefined) throw error
      return
    }
    const { socket } = connection
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
    addServer(): Server {
      const server = createServer({ allowHalfOpen: true }, onAccepted)
      servers.push(server)
      return server
    },
    push(): void {
      for (const connection of all)
        if (connection.subscriptions.length > 0) safely(connection, log, protocol.push)
    },
    /** `limits` have changed. A subscriber whom they exclude is sent that, and its connection ends. */
    recheck(): void {
      for (const connection of all) {
        const fd = descriptorOf(connection.socket)
        if (fd < 0 || peers === null) continue
        connection.isDenied = !peers.isAllowed(fd, connection.peer, limits().allow)
        if (connection.isDenied && connection.subscriptions.length > 0) safely(connection, log, protocol.push)
      }
    },
    /**
     * Ends connections whose peer reads nothing, and those that have been silent for long without a wait or a
     * subscription. To be called every 15 s.
     */
    sweep(nowMs: number): void {
      for (const connection of all) {
        const { socket, waiting, subscriptions } = connection
        const progress = connection.requests + socket.bytesWritten - socket.writableLength
        const isStalled = socket.writableLength > 0
        if (progress !== connection.progress) {
          connection.progress = progress
          connection.progressAtMs = nowMs
        }
        const mostMs = isStalled ? STALLED_MS : waiting + subscriptions.length > 0 ? Infinity : IDLE_MS
        if (nowMs - connection.progressAtMs < mostMs - GRAIN_MS) continue
        connection.drop ??= isStalled ? 'stalled' : 'idle'
        socket.destroy()
      }
    },
    /** Accepts what has connected, and answers what has been received; the kernel refuses what comes later. */
    async stop(): Promise<void> {
      for (const server of servers) {
        acceptOthers(server, BACKLOG)
        server.close()
      }
      const until = monotonicMs() + STOP_MS
      for (let now = monotonicMs(); all.size > 0 && now < until; now = monotonicMs()) {
        for (const connection of all) {
          endWaits(connection)
          if (connection.requests > 0 || now - connection.openedAtMs > FIRST_REQUEST_MS)
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

/** Counts a request. False: it is one too many in this second. */
export function isWithinRate(connection: Connection, perSecond: number): boolean {
  const second = Math.floor(monotonicMs() / 1_000)
  connection.rate = second === connection.rateSecond ? connection.rate + 1 : 1
  connection.rateSecond = second
  return connection.rate <= perSecond
}

const ignore = (): void => undefined
/** A client that has ended its side still gets the answers for which it waits. */
const HALF_OPEN = { allowHalfOpen: true }
const NONE: string[] = []
Object.freeze(NONE)
const NEW = {
  /** Until its own is made. */
  socket: new Socket(),
  drop: null,
  tally: null,
  client: undefined,
  requests: 0,
  rate: 0,
  rateSecond: -1,
  waiting: 0,
  waits: null,
  subscriptions: NONE,
  progress: -1,
}
