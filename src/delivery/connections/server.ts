// Listens on one socket: accepts connections, identifies the peers, and hands what happens to their handlers.
import type { Socket } from 'node:net'
import type { SocketConfig } from '../../config/config.ts'
import { untilAborted } from '../../lib/abort.ts'
import type { Log } from '../../lib/log.ts'
import { adoptListeners, openListener, type Listener } from '../listener/listener.ts'
import type { Peer, PeerCredentials } from '../peer-credentials.ts'
import type { Replies } from '../replies.ts'
import { acceptDirectly, readThroughStream, type MakeSocket } from './accept.ts'
import {
  Connection,
  needsSweeps,
  TIMEOUTS,
  unsentBytes,
  type ConnectionHandler,
  type DropReason,
  type Timeouts,
} from './connection.ts'
import { createTurns, tryAcquire, type MemoryBudget } from './limits.ts'
import { createOpenConnections } from './open-connections.ts'

/** Connections and subscribers are those of now; dropped clients are counted since the start, by reason. */
export interface ConnectionStatistics {
  readonly connections: number
  readonly subscribers: number
  readonly dropped: Readonly<Record<DropReason, number>>
}

export interface ConnectionServer {
  /** Listens until the signal is aborted, then lets answers under way be finished. Throws UserError (69, 78). */
  readonly run: (signal: AbortSignal, options: { onListening: () => void }) => Promise<void>
  /** Goes on with other settings; connections live on. Throws UserError, and the former settings stay. */
  readonly reconfigure: (config: SocketConfig) => Promise<void>
  /** Makes a removed socket again. Never fails: an obstacle is logged. */
  readonly repair: () => Promise<void>
  statistics(): ConnectionStatistics
  /** A request has arrived. False: one more than `maxRequestsPerSecond` allows. */
  readonly acceptRequest: (connection: Connection) => boolean
  /** To be called when the connection holds more or less than before, or waits for something else. */
  readonly update: (connection: Connection) => void
  /** Calls the function when it is the connection's turn again. */
  readonly whenItsTurn: (connection: Connection, work: () => void) => void
  readonly drop: (connection: Connection, reason: DropReason) => void
  /** An internal error while serving a connection: costs that connection, not the process. */
  readonly fail: (connection: Connection, error: unknown) => void
}

export interface ConnectionServerOptions {
  readonly transport: 'ipc' | 'http' | 'metrics'
  readonly socket: SocketConfig
  /** Descriptors of listening sockets that were handed over, and no other is opened; null: one is opened at its path. */
  readonly inherited: readonly number[] | null
  /** null: peers are not on this host's kernel to know (TCP). */
  readonly peers: PeerCredentials | null
  readonly memory: MemoryBudget
  readonly replies: Pick<Replies, 'onChange'>
  readonly log: Log
  readonly timeouts?: Partial<Timeouts> | undefined
  /** Reads past Node's streams (accept.ts). */
  readonly isDirect: boolean
  readonly open: (connection: Connection) => ConnectionHandler
}

export function createConnectionServer(options: ConnectionServerOptions): ConnectionServer {
  const { transport, inherited, peers, memory, replies, log } = options
  const timeouts = { ...TIMEOUTS, ...options.timeouts }
  const open = createOpenConnections({ transport, memory, log, timeouts })
  const { drop, fail } = open
  const turns = createTurns()
  let config = options.socket
  let listener: Listener | null = null

  // ---- accepting ----------------------------------------------------------------------------------------------------

  async function listen(): Promise<Listener> {
    const events = {
      onConnection: (socket: Socket) => accept(readThroughStream(socket)),
      onServer: (server: Parameters<typeof acceptDirectly>[0]) => {
        if (options.isDirect) acceptDirectly(server, { libc: peers?.libc ?? null, onConnection: accept })
      },
      onFault: (error: Error) => open.logFault('A connection could not be accepted', error),
    }
    return inherited === null ? openListener(config, events) : adoptListeners(inherited, events)
  }

  function accept(makeSocket: MakeSocket): void {
    let connection: Connection | null = null
    const socket = makeSocket((length, buffer) => {
      if (connection !== null) receive(connection, length, buffer)
    })
    // A reset by a client is no error here: 'close' follows.
    socket.on('error', () => undefined)
    try {
      connection = identify(socket)
    } catch (error) {
      socket.destroy()
      return open.logFault('A connection failed by an internal error', error)
    }
    const opened = connection
    socket.on('end', () => onHalfClose(opened))
    socket.on('close', () => onClose(opened))
    open.add(opened)
    if (open.isOver(opened.peer, config)) drop(opened, 'too-many-connections')
  }

  /** Comes before everything else: limits and rights depend on it. */
  function identify(socket: Socket): Connection {
    const peer: Peer | null = peers?.of(socket) ?? null
    const onEvicted = (connection: Connection): void => drop(connection, 'too-much-held')
    return new Connection(socket, { peer, isAllowed: isAllowed(socket, peer), onEvicted, open: options.open })
  }

  function isAllowed(socket: Socket, peer: Peer | null): boolean {
    return peers?.isAllowed(socket, peer, config.allow) ?? true
  }

  // ---- events of a connection ---------------------------------------------------------------------------------------

  function receive(connection: Connection, length: number, buffer: Buffer): void {
    if (connection.isClosing) return open.discard(connection, length)
    try {
      connection.handler.receive(buffer, length)
    } catch (error) {
      fail(connection, error)
    }
  }

  /** An error in a handler costs its connection. */
  function guarded(connection: Connection, work: () => void): void {
    try {
      work()
    } catch (error) {
      fail(connection, error)
    }
  }

  function onHalfClose(connection: Connection): void {
    const { socket } = connection
    // A client that ended its side only still gets the answers for which it waits.
    if (connection.isClosing || peers?.hasHungUp(socket) === true) socket.destroy()
    else guarded(connection, () => connection.handler.onHalfClose())
  }

  function onClose(connection: Connection): void {
    open.remove(connection)
    connection.handler.onClose()
  }

  function update(connection: Connection): void {
    if (connection.isClosing) return
    const unsent = unsentBytes(connection)
    const held = unsent + connection.handler.keptBytes()
    if (held !== connection.held) memory.set(connection, held)
    if (unsent > 0) awaitSent(connection)
    if (needsSweeps(connection)) open.startSweeps()
  }

  /** Node emits 'drain' only above its own high-water mark; an empty write comes after everything else. */
  function awaitSent(connection: Connection): void {
    if (connection.isAwaitingSent) return
    connection.isAwaitingSent = true
    connection.socket.write('', () => {
      connection.isAwaitingSent = false
      if (connection.isClosing || connection.socket.destroyed) return
      guarded(connection, () => connection.handler.onSent())
      update(connection)
    })
  }

  function onTokenChange(): void {
    for (const connection of open.all) {
      if (connection.subscriptions === 0 || connection.isClosing) continue
      guarded(connection, () => connection.handler.onTokenChange())
    }
  }

  // ---- the whole ----------------------------------------------------------------------------------------------------

  async function run(signal: AbortSignal, { onListening }: { onListening: () => void }): Promise<void> {
    peers?.require(config.allow)
    if (signal.aborted) return
    listener = await listen()
    const unsubscribe = replies.onChange(onTokenChange)
    try {
      if (!signal.aborted) onListening()
      await untilAborted(signal)
    } finally {
      unsubscribe()
      await listener.close()
      listener = null
      await open.drain()
    }
  }

  return {
    run,
    async reconfigure(next) {
      peers?.require(next.allow)
      await listener?.move(next)
      config = next
      for (const connection of open.all) {
        if (!connection.isClosing) connection.isAllowed = isAllowed(connection.socket, connection.peer)
      }
    },
    repair: async () => listener?.tick(log),
    statistics: () => ({
      connections: open.count(),
      subscribers: open.all.filter(({ subscriptions }) => subscriptions > 0).length,
      dropped: { ...open.dropped },
    }),
    acceptRequest(connection) {
      connection.idleSweeps = 0
      connection.partialSweeps = 0
      return tryAcquire(connection.rate, config.maxRequestsPerSecond)
    },
    update,
    whenItsTurn(connection, work) {
      turns.add(() => {
        if (!connection.isClosing) guarded(connection, work)
      })
    },
    drop,
    fail,
  }
}
