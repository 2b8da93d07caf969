// The open connections of one socket: counted against the limits, swept for timeouts, closed with a message, drained.
import { errorMessage } from '../../lib/error.ts'
import type { Log } from '../../lib/log.ts'
import {
  dropReasons,
  needsSweeps,
  timeoutReason,
  type Connection,
  type DropReason,
  type Timeouts,
} from './connection.ts'
import { createConnectionCounts, type ConnectionCounts, type MemoryBudget } from './limits.ts'
import { monotonicMs } from '../../lib/monotonic.ts'

export interface OpenConnections {
  /** All of now, in no order. */
  readonly all: readonly Connection[]
  /** Returns after the connection was counted; `isOver` then returns whether it is one too many. */
  add(connection: Connection): void
  isOver: ConnectionCounts['isOver']
  remove(connection: Connection): void
  /** The client loses its connection; a message says why, where one fits. */
  readonly drop: (connection: Connection, reason: DropReason) => void
  /** An internal error while serving a connection: costs that connection, not the process. */
  readonly fail: (connection: Connection, error: unknown) => void
  /** Bytes arrived on a connection that is being closed. */
  discard(connection: Connection, length: number): void
  /** A timeout can end a connection again. */
  startSweeps(): void
  /** Has every connection finish what is under way. Resolves when all are closed, within `drainTimeoutMs`. */
  drain(): Promise<void>
  readonly logFault: (sentence: string, error: unknown) => void
  /** Without those that are being closed. */
  count(): number
  readonly dropped: Readonly<Record<DropReason, number>>
}

/** Connections that were sent a closing message and do not hang up. */
const MAX_CLOSING = 256
/** So much is read from one of them: closed with something unread it would be reset, and the message lost. */
const MAX_DISCARDED_BYTES = 256 * 1024
const FAULT_LOGGED_EVERY_MS = 3_600_000

export function createOpenConnections(options: {
  transport: string
  memory: MemoryBudget
  log: Log
  timeouts: Timeouts
}): OpenConnections {
  const { transport, memory, log, timeouts } = options
  const all: Connection[] = []
  const closing = new Set<Connection>()
  const counts = createConnectionCounts()
  const dropped = Object.fromEntries(dropReasons.map((reason) => [reason, 0])) as Record<DropReason, number>
  let sweepTimer: NodeJS.Timeout | null = null
  let faultLoggedAtMs = -Infinity
  let onAllClosed = (): void => undefined

  function remove(connection: Connection): void {
    const last = all.pop()
    if (last !== undefined && last !== connection) {
      all[connection.index] = last
      last.index = connection.index
    }
    closing.delete(connection)
    forgetLimits(connection)
    connection.isClosing = true
    if (all.length === 0) onAllClosed()
  }

  function forgetLimits(connection: Connection): void {
    if (!connection.isClosing) counts.remove(connection.peer)
    memory.set(connection, 0)
  }

  // ---- closing ------------------------------------------------------------------------------------------------------

  function drop(connection: Connection, reason: DropReason): void {
    if (connection.isClosing) return
    dropped[reason] += 1
    const { peer, handler, socket } = connection
    log('debug', 'A client lost its connection', {
      event: 'client-dropped',
      transport,
      reason,
      ...(peer !== null && { uid: peer.uid, pid: peer.pid }),
    })
    const message = handler.closeMessage(reason)
    if (message !== null) handler.flush()
    forgetLimits(connection)
    connection.isClosing = true
    if (message === null || closing.size >= MAX_CLOSING) socket.destroy()
    else closeWithMessage(connection, message)
  }

  /** Goes on reading for a while: closed with requests unread, the connection would be reset and the message lost. */
  function closeWithMessage(connection: Connection, message: string): void {
    closing.add(connection)
    connection.idleSweeps = 0
    connection.socket.resume()
    connection.socket.end(message)
    startSweeps()
  }

  function fail(connection: Connection, error: unknown): void {
    logFault('A connection failed by an internal error', error)
    drop(connection, 'fault-of-ours')
  }

  /** Clients can cause it over and over: one record an hour. */
  function logFault(sentence: string, error: unknown): void {
    const nowMs = monotonicMs()
    if (nowMs - faultLoggedAtMs < FAULT_LOGGED_EVERY_MS) return
    faultLoggedAtMs = nowMs
    log('error', sentence, { event: 'connection-fault', transport, detail: errorMessage(error) })
  }

  async function drain(): Promise<void> {
    const { promise: allClosed, resolve } = Promise.withResolvers<void>()
    onAllClosed = resolve
    for (const connection of all) {
      if (connection.isClosing) connection.socket.destroySoon()
      else connection.handler.drain()
    }
    if (all.length === 0) resolve()
    const timeout = setTimeout(() => {
      for (const { socket } of all) socket.destroy()
    }, timeouts.drainTimeoutMs)
    await allClosed
    clearTimeout(timeout)
    stopSweeps()
  }

  // ---- timeouts -----------------------------------------------------------------------------------------------------

  function startSweeps(): void {
    sweepTimer ??= setInterval(sweep, timeouts.sweepMs)
  }

  function stopSweeps(): void {
    if (sweepTimer !== null) clearInterval(sweepTimer)
    sweepTimer = null
  }

  /** Looks at each connection once. The last sweep is the one after which no timeout can end any of them. */
  function sweep(): void {
    for (const connection of closing) {
      connection.idleSweeps += 1
      if (connection.idleSweeps > 1) connection.socket.destroy()
    }
    let isNeeded = closing.size > 0
    for (const connection of all) {
      if (connection.isClosing) continue
      const reason = timeoutReason(connection, timeouts)
      if (reason !== null) drop(connection, reason)
      isNeeded ||= reason !== null || needsSweeps(connection)
    }
    if (!isNeeded) stopSweeps()
  }

  return {
    all,
    add(connection) {
      connection.index = all.push(connection) - 1
      counts.add(connection.peer)
      startSweeps()
    },
    isOver: (peer, limits) => counts.isOver(peer, limits),
    remove,
    drop,
    fail,
    discard(connection, length) {
      connection.discardedBytes += length
      if (connection.discardedBytes > MAX_DISCARDED_BYTES) connection.socket.destroy()
    },
    startSweeps,
    drain,
    logFault,
    count: () => all.length - closing.size,
    dropped,
  }
}
