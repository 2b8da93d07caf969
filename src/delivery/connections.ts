// The connections of one socket, whatever its protocol: identified, counted against the limits, swept for
// timeouts, ended for a named reason only, and answered at a stop.
import { createServer, type Server, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import type { SocketConfig } from '../config/config.ts'
import { monotonicMs } from '../lib/clock.ts'
import { errorMessage } from '../lib/error.ts'
import type { Log } from '../lib/log.ts'
import { CONNECTION_IDLE_MS } from '../protocol.ts'
import type { LimitedUsers } from './limited.ts'
import {
  createQuota,
  dropReasons,
  isWithinRate,
  OVER_LIMIT,
  type ClosingFault,
  type DropReason,
  type RequestRate,
  type TimeoutReason,
  type Timeouts,
} from './limits.ts'
import { listen, type Listener } from './listener/listener.ts'
import type { Holder, Memory } from './memory.ts'
import type { Caller, Operations, ListeningSocket, TestAlert } from './operations.ts'
import type { Peer, Peers } from './peers.ts'
import type { Replies } from './replies.ts'
import type { TokenAudit } from './token-audit.ts'
import type { Turns } from './turns.ts'

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
/** Answers go out together once they have so many bytes; with as many unsent, no more are given. */
export const WRITE_BYTES = 16 * 1024

/** Shared by all servers. */
export interface DeliveryContext {
  readonly replies: Replies
  readonly testAlert: TestAlert
  readonly log: Log
  readonly peers: Peers
  readonly audit: TokenAudit
  readonly sockets?: () => ListeningSocket[]
  readonly limited: LimitedUsers
  readonly memory: Memory
  readonly turns: Turns
}

export interface ServerOptions {
  readonly socket: SocketConfig
  /** All connections that there may be, of root, too. */
  readonly room?: number
  /**
   * Descriptors of listening sockets that were handed over; then no other is opened. Null: a socket is opened
   * at its path.
   */
  readonly inherited: readonly number[] | null
}

/** One connection. */
export interface Client extends Caller, Holder {
  readonly socket: Socket
  readonly madeAtMs: number
  isAllowed: boolean
  isClosing: boolean
  readonly rate: RequestRate
  /** Requests so far. */
  requests: number
  /** More input can be used. It is read unless the memory of all connections is full. */
  wantsInput: boolean
  isReading: boolean
  /** It goes on in a later turn of the event loop. */
  isPlanned: boolean
  /** The client has ended its side. */
  hasEnded: boolean
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
  readonly own: (socket: Socket) => Own
  /** So much is read at once, into memory that all connections share: what is kept has to be copied. */
  readonly readBytes: number
  readonly begin?: (client: Client & Own) => void
  readonly receive: (client: Client & Own, input: Buffer, length: number) => void
  /** The client has ended its side, or its connection. */
  readonly endInput: (client: Client & Own) => void
  /** The client has read what it was sent. */
  readonly drained?: (client: Client & Own) => void
  /** Goes on: there may be room again in the client's socket, or in the memory of all connections. */
  readonly proceed: (client: Client & Own) => void
  /** Its unread and unsent bytes, and what else it holds. */
  readonly heldBy: (client: Client & Own) => number
  /** Sends the newest token for each subscription that lacks it, as far as the client reads. */
  readonly push: (client: Client & Own) => void
  /** The timeout that runs for a client that has read all its answers; null: none. */
  readonly timeoutOf: (client: Client & Own) => TimeoutReason | null
  readonly timeouts?: Partial<Timeouts>
  /** Answers a request that does not end in time. Without it the connection ends without an answer. */
  readonly refuseLate?: (client: Client & Own) => void
  readonly onStop?: () => void
}

export interface ConnectionServer {
  /** Listens. Throws UserError (69, 78). */
  open(): Promise<void>
  /** Stops listening, answers the requests that have arrived, and ends each connection. */
  close(): Promise<void>
  /** Uses other settings from now on; connections stay. Throws UserError; then the former settings stay. */
  reconfigure(next: SocketConfig, room?: number): Promise<void>
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
  { peers, memory, turns, limited, log, ...options }: DeliveryContext & ServerOptions,
) {
  const { transport, operations } = protocol
  const quota = createQuota()
  const all = new Map<Socket, Client & Own>()
  const reports = createReports(transport, log)
  const input = Buffer.allocUnsafeSlow(protocol.readBytes)
  let config = options.socket
  let { room = Infinity } = options
  let listener: Listener | null = null
  let unsubscribe = (): void => undefined

  /** Identifies and counts a new connection, or closes it without an answer. */
  function accept(accepted: Socket): void {
    turns.accepting()
    // A reset by a client is no error here: 'close' follows.
    accepted.on('error', ignore)
    try {
      const peer = peers.of(accepted)
      const isAllowed = peers.isAllowed(accepted, peer, config.allow)
      const release = quota(peer, isAllowed, { ...config, room })
      if (typeof release === 'function') return open(accepted, { peer, isAllowed, release })
      accepted.destroy()
      reports.noteDrop(peer, release === null ? 'denied' : 'too-many-connections')
      if (release !== null) limited.note(transport, peer?.uid ?? null, release)
    } catch (error) {
      accepted.destroy()
      reports.logError('A connection failed by an internal error', error)
    }
  }

  function open(
    accepted: Socket,
    { peer, isAllowed, release }: { peer: Peer | null; isAllowed: boolean; release: () => void },
  ): void {
    let socket: Socket | null = null
    try {
      socket = peers.reopen(accepted, {
        // Half open: a client that has ended its side still gets the answers for which it waits.
        allowHalfOpen: true,
        writableHighWaterMark: WRITE_BYTES,
        onread: { buffer: input, callback: (length) => receive(client, length) },
      })
    } finally {
      if (socket === null) release()
    }
    if (socket === null) return
    const client: Client & Own = { ...createClient(socket, peer, isAllowed), ...protocol.own(socket) }
    all.set(socket, client)
    socket.on('error', ignore)
    socket.on('drain', () => attempt(client, protocol.drained ?? protocol.proceed))
    socket.once('end', () => {
      client.hasEnded = true
      if (peers.hasHungUp(client.socket)) client.socket.destroy()
      else attempt(client, protocol.endInput)
    })
    socket.once('close', () => {
      release()
      all.delete(client.socket)
      client.isClosing = true
      client.waits.abort()
      memory.account(client, 0)
    })
    sweeper.start()
    setReading(client, true)
    if (protocol.begin !== undefined) attempt(client, protocol.begin)
  }

  function receive(client: Client & Own, length: number): boolean {
    try {
      if (!client.isClosing) protocol.receive(client, input, length)
    } catch (error) {
      fail(client, error)
    }
    return client.isReading
  }

  /** Goes on with the client in a later turn of the event loop: meanwhile others are served. */
  function plan(client: Client & Own): void {
    if (client.isPlanned) return
    client.isPlanned = true
    turns.plan(() => {
      client.isPlanned = false
      attempt(client, protocol.proceed)
    })
  }

  /** An internal error while serving a client costs its connection, not the process. */
  function attempt(client: Client & Own, act: (client: Client & Own) => void): void {
    if (client.isClosing) return
    try {
      act(client)
    } catch (error) {
      fail(client, error)
    }
  }

  function fail(client: Client, error: unknown): void {
    reports.logError('A connection failed by an internal error', error)
    end(client, 'fault-of-ours')
  }

  /** Ends the connection, after these last words if the client reads them. */
  function end(client: Client, reason: DropReason, lastWords = ''): void {
    if (client.isClosing) return
    client.isClosing = true
    reports.noteDrop(client.peer, reason)
    client.waits.abort()
    setReading(client, false)
    if (lastWords === '') return void client.socket.destroy()
    client.socket.write(lastWords)
    client.socket.destroySoon()
  }

  /** The same, also of one that does not read its last words. */
  function drop(client: Client, reason: DropReason): void {
    if (client.isClosing) client.socket.destroy()
    else end(client, reason)
  }

  /** Reads from the client, or leaves what it sends in the kernel: at once, also amid a turn of the event loop. */
  function setReading(client: Client, wantsInput: boolean): void {
    client.wantsInput = wantsInput
    const isReading = wantsInput && !memory.isFull()
    if (isReading === client.isReading) return
    client.isReading = isReading
    if (isReading) client.socket.resume()
    else client.socket.pause()
  }

  function readAll(): void {
    for (const client of all.values()) setReading(client, client.wantsInput)
  }

  function proceedAll(): void {
    readAll()
    for (const client of all.values()) attempt(client, protocol.proceed)
  }

  /** A client that has not read the last change yet gets the newest one later. */
  function pushAll(): void {
    for (const client of all.values()) {
      if (client.subscriptions.length === 0) continue
      client.pushed = 0
      attempt(client, protocol.push)
    }
  }

  const sweeper = createSweeper({ protocol, clients: all, drop })
  memory.join<Client & Own>({
    members: () => all.values(),
    heldBy: (client) => (client.socket.destroyed ? 0 : protocol.heldBy(client)),
    takenBy: ({ socket }) => peers.takenBy(socket),
    hold: readAll,
    release: proceedAll,
    end: (client) => drop(client, 'stalled'),
  })

  const server: ConnectionServer = {
    async open(): Promise<void> {
      // Before anybody can connect: no subscription misses a token.
      unsubscribe = options.replies.onChange(pushAll)
      listener = await listen(options, {
        createServer: (): Server => createServer({ allowHalfOpen: true, pauseOnConnect: true }, accept),
        onAcceptError: (error) => reports.logError('A connection could not be accepted', error),
        log,
      }).catch((error: unknown) => {
        unsubscribe()
        throw error
      })
    },
    async close(): Promise<void> {
      unsubscribe()
      protocol.onStop?.()
      await listener?.close()
      await drain(all, peers)
      sweeper.stop()
    },
    async reconfigure(next: SocketConfig, nextRoom = room): Promise<void> {
      await listener?.move(next)
      config = next
      room = nextRoom
      for (const client of all.values())
        client.isAllowed = peers.isAllowed(client.socket, client.peer, next.allow)
    },
    tick: async () => listener?.tick(),
    counts() {
      const subscribers = [...all.values()].filter(({ subscriptions }) => subscriptions.length > 0).length
      const dropped = { ...reports.dropped }
      return { connections: all.size, subscribers, dropped, ...operations.counts() }
    },
  }

  return {
    end,
    fail,
    setReading,
    plan,
    noteDrop: reports.noteDrop,
    clients: () => all.values(),
    /** Has what the client holds now counted. */
    account(client: Client & Own): void {
      const held = protocol.heldBy(client)
      if (held !== client.held && !client.isClosing) memory.account(client, held)
    },
    isFull: memory.isFull,
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

/** Ends connections whose timeout is over, as long as there are any. */
function createSweeper<Own>({
  protocol,
  clients,
  drop,
}: {
  protocol: Protocol<Own>
  clients: ReadonlyMap<Socket, Client & Own>
  drop: (client: Client, reason: DropReason) => void
}) {
  const timeouts = { ...TIMEOUTS, ...protocol.timeouts }
  let timer: NodeJS.Timeout | undefined

  function sweep(): void {
    for (const client of clients.values()) {
      const { socket, watch } = client
      const timeout = socket.writableLength > 0 ? 'stalled' : protocol.timeoutOf(client)
      const progress = timeout === 'stalled' ? socket.bytesWritten - socket.writableLength : client.requests
      const isSame = timeout === watch.timeout && progress === watch.progress
      const sweeps = isSame ? watch.sweeps + 1 : 0
      client.watch = { timeout, progress, sweeps }
      if (timeout === null || sweeps * timeouts.sweepMs < timeouts[timeout]) continue
      const isRefused = timeout === 'incomplete-request' && protocol.refuseLate !== undefined
      if (isRefused && !client.isClosing) protocol.refuseLate?.(client)
      else drop(client, timeout)
    }
    if (clients.size === 0) stop()
  }

  function stop(): void {
    clearInterval(timer)
    timer = undefined
  }

  return {
    start(): void {
      timer ??= setInterval(sweep, timeouts.sweepMs)
    },
    stop,
  }
}

/**
 * Ends the waits, and each connection once it is answered: what has arrived can still be read, and nothing
 * comes after it. What is left after 2.5 s is closed.
 */
async function drain(clients: ReadonlyMap<Socket, Client>, peers: Peers): Promise<void> {
  const begunAtMs = monotonicMs()
  for (const client of clients.values()) client.waits.abort()
  while (clients.size > 0 && monotonicMs() - begunAtMs < DRAIN_MS) {
    for (const { socket, madeAtMs, hasEnded } of clients.values()) {
      const isFresh = socket.bytesRead === 0 && monotonicMs() - madeAtMs < FIRST_REQUEST_MS
      if (!hasEnded && !isFresh) peers.endInput(socket)
    }
    await sleep(1)
  }
  for (const socket of clients.keys()) socket.destroy()
}

const ignore = (): void => undefined

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
    held: 0,
    mark: null,
    wantsInput: true,
    isReading: true,
    isPlanned: false,
    hasEnded: false,
    subscriptions: [],
    pushed: 0,
    watch: { timeout: null, progress: 0, sweeps: 0 },
  }
}
