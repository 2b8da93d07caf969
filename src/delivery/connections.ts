// The connections of one socket, whatever its protocol: identified, counted against the limits, swept for
// timeouts, ended for a named reason only, and answered at a stop.
import type { Server, Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import type { SocketConfig } from '../config/config.ts'
import { monotonicMs } from '../lib/clock.ts'
import { errorMessage } from '../lib/error.ts'
import type { Log } from '../lib/log.ts'
import { CONNECTION_IDLE_MS } from '../protocol.ts'
import {
  createQuota,
  dropReasons,
  isWithinRate,
  OVER_LIMIT,
  type ClosingFault,
  type Descriptors,
  type DropReason,
  type RequestRate,
  type TimeoutReason,
  type Timeouts,
} from './limits.ts'
import { listen, type Listener } from './listener/listener.ts'
import type { Caller, Operations, ListeningSocket, TestAlert } from './operations.ts'
import type { Peer, Peers } from './peers.ts'
import type { Replies } from './replies.ts'
import type { TokenAudit } from './token-audit.ts'

const TIMEOUTS: Timeouts = {
  sweepMs: 15_000,
  idle: CONNECTION_IDLE_MS,
  stalled: 30_000,
  'incomplete-request': 30_000,
}
/** The time for pending answers when the daemon stops, in ms. */
const DRAIN_MS = 2_500
/** The time for which a stop waits for the first request of a new connection, in ms. */
const FIRST_REQUEST_MS = 500
const ERROR_LOGGED_EVERY_MS = 3_600_000

/** Shared by all servers. */
export interface DeliveryContext {
  readonly replies: Replies
  readonly testAlert: TestAlert
  readonly log: Log
  readonly peers: Peers
  readonly audit: TokenAudit
  readonly descriptors: Descriptors
  readonly sockets?: () => ListeningSocket[]
}

export interface ServerOptions {
  readonly socket: SocketConfig
  /**
   * Descriptors of listening sockets that were handed over; then no other is opened. Null: a socket is opened
   * at its path.
   */
  readonly inherited: readonly number[] | null
}

/** One connection. */
export interface Client extends Caller {
  readonly socket: Socket
  readonly madeAtMs: number
  isAllowed: boolean
  isClosing: boolean
  readonly rate: RequestRate
  /** Requests so far. */
  requests: number
  /** Their ids, and how many of them were sent the newest token. */
  readonly subscriptions: string[]
  pushed: number
  /** The timeout that runs, as the last sweep saw it, for this number of sweeps without progress. */
  watch: { readonly timeout: TimeoutReason | null; readonly progress: number; readonly sweeps: number }
}

interface Protocol<Own> {
  readonly transport: 'ipc' | 'http' | 'metrics'
  readonly operations: Operations
  /** What the protocol knows of a new client. */
  readonly own: () => Own
  /** Sends the newest token for each subscription that lacks it, as far as the client reads. */
  readonly push: (client: Client & Own) => void
  /** The timeout that runs for a client that has read all its answers; null: none, or Node has it. */
  readonly timeoutOf: (client: Client & Own) => TimeoutReason | null
  readonly timeouts?: Partial<Timeouts>
  /** Makes a server that does not listen yet: one for each socket that is opened. */
  readonly createServer: () => Server
  readonly onStop?: () => void
  /**
   * Closes connections that have sent all and have their answers, of a server that stops: called again and
   * again until all have ended. `isFresh`: the first request of a client may be on its way.
   */
  readonly endAnswered: (isFresh: (client: Client) => boolean) => Promise<void> | void
}

export interface ConnectionServer {
  /** Listens. Throws UserError (69, 78). */
  open(): Promise<void>
  /** Stops listening, answers the requests that have arrived, and ends each connection. */
  close(): Promise<void>
  /** Uses other settings from now on; connections stay. Throws UserError; then the former settings stay. */
  reconfigure(next: SocketConfig): Promise<void>
  /** Makes a removed socket again. Never fails: a problem is logged. */
  tick(): Promise<void>
  /** The present connections and subscribers; all else is counted since the start. */
  counts(): ReturnType<Operations['counts']> & {
    readonly connections: number
    readonly subscribers: number
    readonly dropped: Readonly<Record<DropReason, number>>
  }
}

export function createConnections<Own>(
  protocol: Protocol<Own>,
  { peers, descriptors, log, ...options }: DeliveryContext & ServerOptions,
) {
  const { transport, operations } = protocol
  const timeouts = { ...TIMEOUTS, ...protocol.timeouts }
  const quota = createQuota(descriptors)
  const all = new Map<Socket, Client & Own>()
  const { dropped, noteDrop, logError } = createReports(transport, log)
  let config = options.socket
  let sweepTimer: NodeJS.Timeout | undefined
  let listener: Listener | null = null
  let unsubscribe = (): void => undefined

  /** Identifies and counts a new connection; null: it was closed without an answer. */
  function accept(socket: Socket): (Client & Own) | null {
    // A reset by a client is no error here: 'close' follows.
    socket.on('error', () => undefined)
    try {
      const peer = peers.of(socket)
      const isAllowed = peers.isAllowed(socket, peer, config.allow)
      const release = quota(peer, isAllowed, config)
      if (release === null) {
        socket.destroy()
        noteDrop(peer, isAllowed ? 'too-many-connections' : 'denied')
        return null
      }
      const client = { ...createClient(socket, peer, isAllowed), ...protocol.own() }
      all.set(socket, client)
      socket.once('close', () => {
        release()
        all.delete(socket)
        client.isClosing = true
        client.waits.abort()
      })
      sweepTimer ??= setInterval(sweep, timeouts.sweepMs)
      return client
    } catch (error) {
      socket.destroy()
      logError('A connection failed by an internal error', error)
      return null
    }
  }

  /** Ends the connection, after these last words if the client reads them. */
  function end(client: Client, reason: DropReason, lastWords = ''): void {
    if (client.isClosing) return
    client.isClosing = true
    noteDrop(client.peer, reason)
    client.waits.abort()
    if (lastWords === '') return void client.socket.destroy()
    client.socket.pause()
    client.socket.write(lastWords)
    client.socket.destroySoon()
  }

  /** An internal error while serving a client costs its connection, not the process. */
  function fail(client: Client, error: unknown): void {
    logError('A connection failed by an internal error', error)
    end(client, 'fault-of-ours')
  }

  function sweep(): void {
    for (const client of all.values()) {
      const { socket, watch } = client
      const timeout = socket.writableLength > 0 ? 'stalled' : protocol.timeoutOf(client)
      const progress = timeout === 'stalled' ? socket.bytesWritten - socket.writableLength : client.requests
      const isSame = timeout === watch.timeout && progress === watch.progress
      const sweeps = isSame ? watch.sweeps + 1 : 0
      client.watch = { timeout, progress, sweeps }
      if (timeout === null || sweeps * timeouts.sweepMs < timeouts[timeout]) continue
      // Also one that does not read its last words.
      if (client.isClosing) socket.destroy()
      else end(client, timeout)
    }
    if (all.size > 0) return
    clearInterval(sweepTimer)
    sweepTimer = undefined
  }

  /** A client that has not read the last change yet gets the newest one later. */
  function onTokenChange(): void {
    for (const client of all.values()) {
      if (client.subscriptions.length === 0) continue
      client.pushed = 0
      pushTo(client)
    }
  }

  function pushTo(client: Client & Own): void {
    try {
      protocol.push(client)
    } catch (error) {
      fail(client, error)
    }
  }

  /** Ends the waits, and each connection once it is answered. What is left after 2.5 s is closed. */
  async function drain(): Promise<void> {
    const begunAtMs = monotonicMs()
    const isFresh = ({ socket, madeAtMs }: Client): boolean =>
      socket.bytesRead === 0 && monotonicMs() - madeAtMs < FIRST_REQUEST_MS
    for (const client of all.values()) client.waits.abort()
    while (all.size > 0 && monotonicMs() - begunAtMs < DRAIN_MS) {
      await protocol.endAnswered(isFresh)
      await sleep(1)
    }
    for (const socket of all.keys()) socket.destroy()
    clearInterval(sweepTimer)
  }

  const server: ConnectionServer = {
    async open(): Promise<void> {
      const onAcceptError = (error: Error): void => logError('A connection could not be accepted', error)
      // Before anybody can connect: no subscription misses a token.
      unsubscribe = options.replies.onChange(onTokenChange)
      const { createServer } = protocol
      listener = await listen(options, { createServer, onAcceptError, log }).catch((error: unknown) => {
        unsubscribe()
        throw error
      })
    },
    async close(): Promise<void> {
      unsubscribe()
      protocol.onStop?.()
      await listener?.close()
      await drain()
    },
    async reconfigure(next: SocketConfig): Promise<void> {
      await listener?.move(next)
      config = next
      for (const client of all.values())
        client.isAllowed = peers.isAllowed(client.socket, client.peer, next.allow)
    },
    tick: async () => listener?.tick(),
    counts() {
      const subscribers = [...all.values()].filter(({ subscriptions }) => subscriptions.length > 0).length
      return { connections: all.size, subscribers, dropped: { ...dropped }, ...operations.counts() }
    },
  }

  return {
    accept,
    end,
    fail,
    noteDrop,
    /** Sends the newest token for each subscription that lacks it. */
    pushTo,
    /** The client of this connection; undefined: it has ended. */
    of: (socket: Socket): (Client & Own) | undefined => all.get(socket),
    clients: () => [...all.values()],
    /** Counts a request that has arrived. Returns why it ends the connection; null: it is performed. */
    closingFaultOf(client: Client): ClosingFault | null {
      client.requests += 1
      if (!client.isAllowed) return { ...operations.denied, drop: 'denied' }
      const { maxRequestsPerSecond: most } = config
      return most === null || isWithinRate(client.rate, most) ? null : OVER_LIMIT.requests
    },
    /** Answers when the reply is there, unless the client has gone. */
    async later<T>(client: Client, reply: Promise<T>, answer: (reply: T) => void): Promise<void> {
      try {
        const value = await reply
        if (!client.isClosing) answer(value)
      } catch (error) {
        fail(client, error)
      }
    },
    server,
  }
}

/** From now on the client is sent each change; it has what there is now. */
export function subscribe({ client, id }: { client: Client; id: string }): void {
  client.subscriptions.unshift(id)
  client.pushed += 1
}

/** What is counted and logged of connections that end. */
function createReports(transport: string, log: Log) {
  const dropped = Object.fromEntries(dropReasons.map((reason) => [reason, 0])) as Record<DropReason, number>
  let errorLoggedAtMs = -Infinity

  /** Counts and logs that a client loses its connection. */
  function noteDrop(peer: Peer | null, reason: DropReason): void {
    dropped[reason] += 1
    const fields = { transport, reason, ...(peer && { uid: peer.uid, pid: peer.pid }) }
    log('debug', 'A client lost its connection', { event: 'client-dropped', ...fields })
  }

  /** Logs one record an hour at most, because clients could cause them over and over. */
  function logError(sentence: string, error: unknown): void {
    const nowMs = monotonicMs()
    if (nowMs - errorLoggedAtMs < ERROR_LOGGED_EVERY_MS) return
    errorLoggedAtMs = nowMs
    log('error', sentence, { event: 'connection-fault', transport, detail: errorMessage(error) })
  }

  return { dropped, noteDrop, logError }
}

function createClient(socket: Socket, peer: Peer | null, isAllowed: boolean): Client {
  return {
    socket,
    madeAtMs: monotonicMs(),
    peer,
    isAllowed,
    isClosing: false,
    lastRead: null,
    rate: { count: 0, sinceMs: -Infinity },
    requests: 0,
    waits: new AbortController(),
    waiting: 0,
    subscriptions: [],
    pushed: 0,
    watch: { timeout: null, progress: 0, sweeps: 0 },
  }
}
