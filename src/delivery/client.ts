// One connection, as the servers of both protocols know it, and what a protocol does with it.
import type { Socket } from 'node:net'
import { monotonicMs } from '../lib/clock.ts'
import type { RequestRate, TimeoutReason, Timeouts } from './limits.ts'
import type { Holder } from './memory.ts'
import type { Caller, Operations } from './operations.ts'
import type { Peer } from './peers.ts'

/** Answers go out together once they have so many bytes; with as many unsent, no more are given. */
export const WRITE_BYTES = 16 * 1024

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
  /** Goes on with it, in a later turn of the event loop. */
  readonly goOn: () => void
  /** The client has ended its side. */
  hasEnded: boolean
  /** Their ids, and how many of them were sent the newest token. */
  readonly subscriptions: string[]
  pushed: number
  /** The timeout that runs, as the last sweep saw it, for this number of sweeps without progress. */
  watch: { readonly timeout: TimeoutReason | null; readonly progress: number; readonly sweeps: number }
}

export interface Protocol<State> {
  readonly transport: 'ipc' | 'http' | 'metrics'
  readonly operations: Operations
  /** What the protocol knows of a new client. */
  readonly createState: (socket: Socket) => State
  /** So much is read at once, into memory that all connections share: what is kept has to be copied. */
  readonly readBytes: number
  readonly begin?: (client: Client & State) => void
  readonly receive: (client: Client & State, input: Buffer, length: number) => void
  /** The client has ended its side, or its connection. */
  readonly endInput: (client: Client & State) => void
  /** The client has read what it was sent. */
  readonly drained?: (client: Client & State) => void
  /** Goes on: there may be room again in the client's socket, or in the memory of all connections. */
  readonly proceed: (client: Client & State) => void
  /** Its unread and unsent bytes, and what else it holds. */
  readonly heldBy: (client: Client & State) => number
  /** Sends the newest token for each subscription that lacks it, as far as the client reads. */
  readonly push: (client: Client & State) => void
  /** The timeout that runs for a client that has read all its answers; null: none. */
  readonly timeoutOf: (client: Client & State) => TimeoutReason | null
  readonly timeouts?: Partial<Timeouts>
  /** Answers a request that does not end in time. Without it the connection ends without an answer. */
  readonly refuseLate?: (client: Client & State) => void
  readonly onStop?: () => void
}

/** From now on the client is sent each change; it has what there is now. */
export function subscribe({ client, id }: { client: Client; id: string }): void {
  client.subscriptions.unshift(id)
  client.pushed += 1
}

/** In memory of its own: that of a short Buffer is a part of a larger one. */
export function copyOf(bytes: Buffer): Buffer {
  const copy = Buffer.allocUnsafeSlow(bytes.length)
  bytes.copy(copy)
  return copy
}

export function createClient(socket: Socket, peer: Peer | null, isAllowed: boolean): Omit<Client, 'goOn'> {
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
    hasEnded: false,
    subscriptions: [],
    pushed: 0,
    watch: { timeout: null, progress: 0, sweeps: 0 },
  }
}
