// One connection: who is at the other end, what it waits for, and when it has been idle or slow for too long.
import type { Socket } from 'node:net'
import { CONNECTION_IDLE_MS } from '../../protocol.ts'
import type { Peer } from '../peer-credentials.ts'
import type { ReadCounter } from '../token-audit.ts'
import type { Holder, RequestRate } from './limits.ts'

/** Reasons for which a client loses its connection. */
export const dropReasons = [
  'too-many-connections',
  'too-many-requests',
  'too-many-subscriptions',
  'too-much-held',
  'stalled',
  'idle',
  'incomplete-request',
  'broken-framing',
  'fault-of-ours',
] as const
export type DropReason = (typeof dropReasons)[number]

/** Speaks the protocol of one connection. */
export interface ConnectionHandler {
  /** Bytes have arrived: the first `length` of the buffer, which is reused after the call. */
  receive(buffer: Buffer, length: number): void
  /** The client has ended its side. */
  onHalfClose(): void
  /** Everything that was written has been sent. */
  onSent(): void
  /** Bytes it keeps, beside those that are not sent yet. */
  keptBytes(): number
  /** The token or the phase has changed. */
  onTokenChange(): void
  /** The daemon stops: finish what is under way, then end the connection. */
  drain(): void
  /** Sends what is ready, before the message with which the connection is closed. */
  flush(): void
  /** The last message before the connection is closed for this reason; null where none fits. */
  closeMessage(reason: DropReason): string | null
  onClose(): void
}

export class Connection implements Holder {
  readonly socket: Socket
  /** null: the peer cannot be known. */
  readonly peer: Peer | null
  readonly handler: ConnectionHandler
  readonly onEvicted: () => void
  isAllowed: boolean
  /** Its index in the server's list. */
  index = -1
  /** Being closed; further input is ignored. */
  isClosing = false
  /** Bytes read since then. */
  discardedBytes = 0
  /** Bytes of a direct write that the kernel has not taken yet (direct-write.ts). */
  unsentDirectly = 0
  /** Requests whose answers are not there yet. */
  pending = 0
  /** A connection that subscribes to something may be silent. */
  subscriptions = 0
  /** It has sent the beginning of a request. */
  hasPartialRequest = false
  /** A write callback is due. */
  isAwaitingSent = false
  /** Sweeps since the last request; the handler sets it back. */
  idleSweeps = 0
  /** Sweeps since the beginning of a request that has not ended; the handler sets it back. */
  partialSweeps = 0
  stalledSweeps = 0
  sentAtSweep = 0
  readonly rate: RequestRate = { left: 0, refilledAtMs: -Infinity }
  /** Tokens it has read, for the log. */
  reads: ReadCounter | null = null
  held = 0

  constructor(
    socket: Socket,
    options: {
      peer: Peer | null
      isAllowed: boolean
      onEvicted: (connection: Connection) => void
      open: (connection: Connection) => ConnectionHandler
    },
  ) {
    this.socket = socket
    this.peer = options.peer
    this.isAllowed = options.isAllowed
    this.onEvicted = () => options.onEvicted(this)
    this.handler = options.open(this)
  }
}

/** Limits on silence, slowness and unfinished requests. */
export interface Timeouts {
  readonly sweepMs: number
  /** Nothing was asked, and nothing is subscribed to. */
  readonly idleMs: number
  /** Answers wait and are not read. */
  readonly stalledMs: number
  /** A request has begun and does not end. */
  readonly incompleteMs: number
  /** For answers under way when the daemon stops. */
  readonly drainTimeoutMs: number
}
export const TIMEOUTS: Timeouts = {
  sweepMs: 5_000,
  idleMs: CONNECTION_IDLE_MS,
  stalledMs: 30_000,
  incompleteMs: 30_000,
  drainTimeoutMs: 2_500,
}

/** Bytes of answers that the kernel has not taken yet. */
export function unsentBytes({ socket, unsentDirectly }: Connection): number {
  return socket.writableLength + unsentDirectly
}

/** Counts one more sweep. Returns why the connection has to go, or null. */
export function timeoutReason(connection: Connection, timeouts: Timeouts): DropReason | null {
  const sweepsOf = (ms: number): number => Math.ceil(ms / timeouts.sweepMs)
  const isUnsent = unsentBytes(connection) > 0
  const sent = sentBytes(connection.socket)
  connection.stalledSweeps = isUnsent && sent === connection.sentAtSweep ? connection.stalledSweeps + 1 : 0
  connection.sentAtSweep = sent
  // A client with unread answers is not read from either: its request cannot end.
  connection.partialSweeps = connection.hasPartialRequest && !isUnsent ? connection.partialSweeps + 1 : 0
  connection.idleSweeps = isUnsent || isExpectingAnswers(connection) ? 0 : connection.idleSweeps + 1
  if (connection.stalledSweeps >= sweepsOf(timeouts.stalledMs)) return 'stalled'
  if (connection.partialSweeps > sweepsOf(timeouts.incompleteMs)) return 'incomplete-request'
  return connection.idleSweeps > sweepsOf(timeouts.idleMs) ? 'idle' : null
}

/** Reports whether a timeout can end the connection. */
export function needsSweeps(connection: Connection): boolean {
  return connection.hasPartialRequest || unsentBytes(connection) > 0 || !isExpectingAnswers(connection)
}

function isExpectingAnswers({ pending, subscriptions }: Connection): boolean {
  return pending > 0 || subscriptions > 0
}

/** Bytes the kernel has accepted. Node exposes the unsent rest only on the handle. */
function sentBytes(socket: Socket): number {
  const { _handle: handle } = socket as Socket & { _handle?: { writeQueueSize?: number } | null }
  return socket.bytesWritten - (handle?.writeQueueSize ?? 0)
}
