// The connections of one socket, whatever its protocol: identified, counted against the limits, swept for
// timeouts, ended for a named reason only, and answered at a stop.
import { createServer, type Server, type Socket } from 'node:net'
import type { SocketConfig } from '../config/config.ts'
import { logFault } from '../lib/internal-fault.ts'
import type { Log } from '../lib/log.ts'
import { createClient, WRITE_BYTES, type Client, type Protocol } from './client.ts'
import { createHandling } from './handling.ts'
import type { LimitedUsers } from './limited.ts'
import { createQuota, isWithinRate, OVER_LIMIT, type ClosingFault, type DropReason } from './limits.ts'
import { listen, type Listener } from './listener/listener.ts'
import type { Memory } from './memory.ts'
import type { ListeningSocket, Operations, Reload, TestAlert } from './operations.ts'
import type { Peer, Peers } from './peers.ts'
import type { Replies } from './replies.ts'
import { createSweeper, drain } from './sweeper.ts'
import type { TokenAudit } from './token-audit.ts'
import type { Turns } from './turns.ts'

/** Shared by all servers. */
export interface DeliveryContext {
  readonly replies: Replies
  readonly testAlert: TestAlert
  readonly reload: Reload
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

export interface ConnectionServer {
  /** Listens. Throws UserError (69, 78). */
  open(): Promise<void>
  /** Stops listening, answers the requests that have arrived, and ends each connection. */
  close(): Promise<void>
  /**
   * Gives the socket the mode and group of other settings, and returns the function that has the settings
   * used; connections stay, but for subscriptions of users who may not use it any more. Throws UserError.
   */
  prepare(next: SocketConfig, room?: number): Promise<() => void>
  /** Makes a removed socket again. Never fails: a problem is logged. */
  tick(): Promise<void>
  /** The present connections and subscribers; all else is counted since the start. */
  counts(): ReturnType<Operations['counts']> & {
    readonly connections: number
    readonly subscribers: number
    readonly dropped: Readonly<Record<DropReason, number>>
  }
}

export function createConnections<State>(
  protocol: Protocol<State>,
  { peers, memory, turns, limited, log, ...options }: DeliveryContext & ServerOptions,
) {
  const { transport, operations } = protocol
  const quota = createQuota()
  const all = new Map<Socket, Client & State>()
  const handling = createHandling(protocol, { memory, turns, log })
  const { safely, setReading } = handling
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
      handling.noteDrop(peer, release === null ? 'denied' : 'too-many-connections')
      if (release !== null) limited.note(transport, peer?.uid ?? null, release)
    } catch (error) {
      accepted.destroy()
      logFault(log, error, { transport })
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
        onread: { buffer: input, callback: (length) => handling.receive(client, input, length) },
      })
    } finally {
      if (socket === null) release()
    }
    if (socket === null) return
    const client: Client & State = {
      ...createClient(socket, peer, isAllowed),
      goOn: () => safely(client, protocol.proceed),
      ...protocol.createState(socket),
    }
    all.set(socket, client)
    socket.on('error', ignore)
    socket.on('drain', () => safely(client, protocol.drained ?? protocol.proceed))
    socket.once('end', () => {
      client.hasEnded = true
      if (peers.hasHungUp(client.socket)) client.socket.destroy()
      else safely(client, protocol.endInput)
    })
    socket.once('close', () => {
      release()
      all.delete(client.socket)
      client.isClosing = true
      client.waits.abort()
      turns.cancel(client.goOn)
      memory.setHeld(client, 0)
    })
    sweeper.start()
    setReading(client, true)
    if (protocol.begin !== undefined) safely(client, protocol.begin)
  }

  function readAll(): void {
    for (const client of all.values()) setReading(client, client.wantsInput)
  }

  function proceedAll(): void {
    readAll()
    for (const client of all.values())
      if (client.held > 0 || client.subscriptions.length > 0) handling.plan(client)
  }

  /** A client that has not read the last change yet is sent the newest one once it has. */
  function pushAll(): void {
    for (const client of all.values()) {
      if (client.subscriptions.length === 0) continue
      client.pushed = 0
      safely(client, protocol.push)
    }
  }

  const sweeper = createSweeper({ protocol, clients: all, drop: handling.drop })
  memory.join<Client & State>({
    members: () => all.values(),
    heldBy: (client) => (client.socket.destroyed ? 0 : protocol.heldBy(client)),
    readByPeer: ({ socket }) => peers.readByPeer(socket),
    pause: readAll,
    resume: proceedAll,
    end: (client) => handling.drop(client, 'stalled'),
  })

  function use(next: SocketConfig): void {
    config = next
    for (const client of all.values()) {
      client.isAllowed = peers.isAllowed(client.socket, client.peer, next.allow)
      if (!client.isAllowed && client.subscriptions.length > 0) handling.endSubscriber(client)
    }
  }

  const server: ConnectionServer = {
    async open(): Promise<void> {
      // Before anybody can connect: no subscription misses a token.
      unsubscribe = options.replies.onChange(pushAll)
      listener = await listen(options, {
        createServer: (): Server => createServer({ allowHalfOpen: true, pauseOnConnect: true }, accept),
        transport,
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
    async prepare(next: SocketConfig, nextRoom = room): Promise<() => void> {
      await listener?.setAccess(next)
      return () => {
        room = nextRoom
        use(next)
      }
    },
    tick: async () => listener?.tick(),
    counts() {
      const subscribers = [...all.values()].filter(({ subscriptions }) => subscriptions.length > 0).length
      const dropped = { ...handling.dropped }
      return { connections: all.size, subscribers, dropped, ...operations.counts() }
    },
  }

  return {
    ...handling,
    clients: () => all.values(),
    isFull: memory.isFull,
    /** Counts a request that has arrived. Returns why it ends the connection; null: it is performed. */
    closingFaultOf(client: Client): ClosingFault | null {
      client.requests += 1
      if (!client.isAllowed) return { ...operations.denied, drop: 'denied' }
      const { maxRequestsPerSecond: most } = config
      return most === null || isWithinRate(client.rate, most) ? null : OVER_LIMIT.requests
    },
    server,
  }
}

const ignore = (): void => undefined
