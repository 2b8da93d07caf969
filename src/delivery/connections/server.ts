// The connections of one socket: accepted, identified, counted against the limits, swept for timeouts, closed, drained.
import type { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import type { SocketConfig } from '../../config/config.ts'
import { errorMessage } from '../../lib/error.ts'
import { monotonicMs } from '../../lib/clock.ts'
import { CONNECTION_IDLE_MS, type Fault } from '../../protocol.ts'
import {
  createQuota,
  LINGER_MS,
  MAX_SUBSCRIPTIONS,
  SEND_BUFFER_BYTES,
  tryAcquire,
  type Timeouts,
} from '../limits.ts'
import { adoptListeners, openListener, type Listener } from '../listener/listener.ts'
import type { Operations } from '../operations.ts'
import type { DeliveryContext } from '../servers.ts'
import {
  dropReasons,
  type Connection,
  type ConnectionOptions,
  type DropReason,
  type Host,
} from './connection.ts'

const TIMEOUTS: Timeouts = {
  sweepMs: 15_000,
  idle: CONNECTION_IDLE_MS,
  stalled: 30_000,
  'incomplete-request': 30_000,
}
/** Connections to the metrics, which may come from the network, end within 10 s. */
const METRICS_TIMEOUTS: Timeouts = {
  sweepMs: 2_000,
  idle: 8_000,
  stalled: 8_000,
  'incomplete-request': 6_000,
}
/** The time for pending answers when the daemon stops, in ms; with the time in which the backlog is accepted. */
const DRAIN_MS = 2_500
const STOP_MS = 4_500
/** The time for which the daemon's end waits for the first request of a new connection, in ms. */
const FIRST_REQUEST_MS = 500
/** The longest time for which clients that send requests without a pause delay the daemon's end, in ms. */
const BUSY_DRAIN_MS = 1_000
const ERROR_LOGGED_EVERY_MS = 3_600_000

export interface ServerOptions {
  readonly socket: SocketConfig
  /** Descriptors of listening sockets that were handed over; then no other is opened. Null: a socket is opened at its path. */
  readonly inherited: readonly number[] | null
}
interface Protocol {
  readonly transport: 'ipc' | 'http' | 'metrics'
  readonly operations: Operations
  /** The message for clients that send something other than requests. */
  readonly framing: string
  readonly open: (options: ConnectionOptions) => Connection
}

export type ConnectionServer = ReturnType<typeof createConnectionServer>

export function createConnectionServer(
  { transport, operations, framing, open }: Protocol,
  options: DeliveryContext & ServerOptions,
) {
  const { inherited, peers, turns, descriptors, replies, log } = options
  const timeouts = transport === 'metrics' ? METRICS_TIMEOUTS : TIMEOUTS
  const quota = createQuota(descriptors)
  /** The connections, each with the function that ends its count. */
  const all = new Map<Connection, () => void>()
  const dropped = Object.fromEntries(dropReasons.map((reason) => [reason, 0])) as Record<DropReason, number>
  let config = options.socket
  let listener: Listener | null = null
  let unsubscribe = (): void => undefined
  let sweepTimer: NodeJS.Timeout | undefined
  let errorLoggedAtMs = -Infinity

  const host: Host = {
    operations,
    faults: faultsOf(operations.denied, framing),
    refusalOf({ isAllowed, rate }) {
      if (!isAllowed) return 'denied'
      return tryAcquire(rate, config.maxRequestsPerSecond) ? null : 'too-many-requests'
    },
    whenItsTurn(connection, work) {
      turns.add(() => {
        if (!connection.isClosing) connection.guard(work)
      })
    },
    isAccepting: turns.isAccepting,
    drop,
    close,
    fail(connection, error) {
      logError('A connection failed by an internal error', error)
      drop(connection, 'fault-of-ours')
    },
    hasHungUp: (socket) => peers.hasHungUp(socket),
  }

  function accept(socket: Socket): void {
    turns.accepted()
    // A reset by a client is no error here: 'close' follows.
    socket.on('error', () => undefined)
    try {
      const peer = peers.of(socket)
      const isAllowed = peers.isAllowed(socket, peer, config.allow)
      peers.limitSendBuffer(socket, SEND_BUFFER_BYTES)
      if (transport === 'metrics') closeOldestIdle()
      const release = quota(peer, isAllowed, config)
      const connection = open({ host, socket, peer, isAllowed })
      if (release === null) return drop(connection, isAllowed ? 'too-many-connections' : 'denied')
      all.set(connection, release)
      socket.on('close', () => leave(connection))
      sweepTimer ??= setInterval(sweep, timeouts.sweepMs)
    } catch (error) {
      socket.destroy()
      logError('A connection failed by an internal error', error)
    }
  }

  /** Makes space for a new connection to the metrics, whose users are not known: closes the oldest one that waits for nothing. */
  function closeOldestIdle(): void {
    if (all.size < config.maxConnections) return
    for (const connection of all.keys()) if (connection.hasAnsweredAll()) return drop(connection, 'idle')
  }

  function leave(connection: Connection): void {
    all.get(connection)?.()
    all.delete(connection)
    connection.onClose()
  }

  function drop(connection: Connection, reason: DropReason): void {
    if (connection.isClosing) return
    dropped[reason] += 1
    const { peer } = connection
    log('debug', 'A client lost its connection', {
      event: 'client-dropped',
      transport,
      reason,
      ...(peer !== null && { uid: peer.uid, pid: peer.pid }),
    })
    close(connection, connection.closeMessage(reason))
  }

  /** Sends the message and reads on for a while: closed with unread input, the connection would be reset and the message lost. */
  function close(connection: Connection, message: string | null): void {
    const { socket } = connection
    leave(connection)
    if (message === null || !descriptors.mayLinger()) return void socket.destroy()
    descriptors.lingering += 1
    const timeout = setTimeout(() => socket.destroy(), LINGER_MS)
    socket.on('close', () => {
      descriptors.lingering -= 1
      clearTimeout(timeout)
    })
    socket.end(message)
    socket.resume()
  }

  /** Logs one record an hour at most, because clients could cause them over and over. */
  function logError(sentence: string, error: unknown): void {
    const nowMs = monotonicMs()
    if (nowMs - errorLoggedAtMs < ERROR_LOGGED_EVERY_MS) return
    errorLoggedAtMs = nowMs
    log('error', sentence, { event: 'connection-fault', transport, detail: errorMessage(error) })
  }

  function sweep(): void {
    for (const connection of all.keys()) {
      const reason = connection.sweep(timeouts)
      if (reason !== null) drop(connection, reason)
    }
    if (all.size > 0) return
    clearInterval(sweepTimer)
    sweepTimer = undefined
  }

  /** In turns: a token may have a thousand readers. */
  function onTokenChange(): void {
    for (const connection of all.keys())
      if (connection.subscriptions.size > 0) host.whenItsTurn(connection, () => connection.onTokenChange())
  }

  /**
   * Answers the requests in the sockets' buffers. The input of a connection ends once nothing has come for some rounds of the event
   * loop: a request that comes later is refused by the kernel, where closing would reset it unread.
   */
  async function drain(mostMs: number): Promise<void> {
    const begunMs = monotonicMs()
    const quiet = new Map<Connection, { rounds: number; bytesRead: number }>()
    for (let passedMs = 0; all.size > 0 && passedMs < mostMs; passedMs = monotonicMs() - begunMs) {
      for (const connection of all.keys()) {
        connection.drain()
        const { bytesRead } = connection.socket
        const before = quiet.get(connection) ?? { rounds: 0, bytesRead: 0 }
        const isFresh = bytesRead === 0 && monotonicMs() - connection.madeAtMs < FIRST_REQUEST_MS
        const isQuiet = connection.hasAnsweredAll() && !isFresh && bytesRead === before.bytesRead
        const rounds = isQuiet ? before.rounds + 1 : 0
        quiet.set(connection, { rounds, bytesRead })
        if (rounds > 2 || passedMs > BUSY_DRAIN_MS) peers.endInput(connection.socket)
      }
      await sleep(1)
    }
    for (const connection of all.keys()) close(connection, null)
  }

  return {
    /** Listens. Throws UserError (69, 78). */
    async open(): Promise<void> {
      const events = {
        onConnection: accept,
        onAcceptError: (error: Error) => logError('A connection could not be accepted', error),
        log,
      }
      listener = await (inherited === null ? openListener(config, events) : adoptListeners(inherited, events))
      unsubscribe = replies.onChange(onTokenChange)
    },
    /** Stops listening, answers the requests that have arrived, and ends each connection. */
    async close(): Promise<void> {
      unsubscribe()
      const untilMs = monotonicMs() + STOP_MS
      await listener?.close()
      listener = null
      await drain(Math.min(DRAIN_MS, untilMs - monotonicMs()))
      clearInterval(sweepTimer)
    },
    /** Uses other settings from now on; connections stay. Throws UserError; then the former settings stay. */
    async reconfigure(next: SocketConfig): Promise<void> {
      await listener?.move(next)
      config = next
      for (const connection of all.keys())
        connection.isAllowed = peers.isAllowed(connection.socket, connection.peer, next.allow)
    },
    /** Makes a removed socket again. Never fails: a problem is logged. */
    tick: async () => listener?.tick(),
    /** The present connections and subscribers; all else is counted since the start. */
    counts: () => ({
      connections: all.size,
      subscribers: [...all.keys()].filter(({ subscriptions }) => subscriptions.size > 0).length,
      dropped: { ...dropped },
      ...operations.counts(),
    }),
  }
}

function faultsOf(denied: Fault, framing: string): Host['faults'] {
  const busy = (message: string): Fault => ({ code: 'busy', message })
  const badRequest = (message: string): Fault => ({ code: 'bad-request', message })
  return {
    denied,
    'too-many-connections': busy(
      'Too many connections: close some, or raise `maxConnections` and `maxConnectionsPerUser`',
    ),
    'too-many-requests': busy('More requests per second than `maxRequestsPerSecond` allows: send fewer'),
    'too-many-subscriptions': busy(
      `One connection has at most ${MAX_SUBSCRIPTIONS} subscriptions: open another`,
    ),
    'broken-framing': badRequest(framing),
    'incomplete-request': badRequest('The request did not end in time'),
  }
}
