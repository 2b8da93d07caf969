// One connection that was let in, what is watched of it, and when it has overstayed.
import type { Socket } from 'node:net'
import type { Holder } from './holdings.ts'
import type { Peer, Taker } from './peer.ts'

/** Why a client lost its connection. */
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

export interface Guest extends Holder {
  readonly socket: Socket
  /** null: not known, or not yet. */
  peer: Peer | null
  isAllowed: boolean
  /** It was shown out: what it still sends is of no interest. */
  isLeaving: boolean
  /** Kept by the census. */
  isCounted: boolean
  /** Kept by the protocol: requests whose answers are not there yet. */
  pending: number
  /** Kept by the protocol: who subscribes to something may be silent. */
  subscriptions: number
  /** Kept by the protocol: it has sent the beginning of a request. */
  hasPartialRequest: boolean
  /** Sweeps since the last request; the protocol sets it back. */
  idleSweeps: number
  /** Sweeps since the beginning of a request that has not ended; the protocol sets it back. */
  partialSweeps: number
  stalledSweeps: number
  sentAtSweep: number
  taker: Taker | null
  /** Tokens that were taken before the peer was known. */
  takenUnknown: number
}

/** How long clients may be silent, slow or unfinished. */
export interface Patience {
  readonly sweepMs: number
  /** Nothing was asked, and nothing is subscribed to. */
  readonly idleMs: number
  /** Answers wait and are not read. */
  readonly stalledMs: number
  /** A request has begun and does not end. */
  readonly incompleteMs: number
  /** For answers under way when the daemon stops. */
  readonly farewellMs: number
}
export const PATIENCE: Patience = {
  sweepMs: 5_000,
  idleMs: 60_000,
  stalledMs: 30_000,
  incompleteMs: 30_000,
  farewellMs: 2_500,
}

export function newGuest(socket: Socket, { onTooMuch }: { onTooMuch: (guest: Guest) => void }): Guest {
  const guest: Guest = {
    socket,
    peer: null,
    isAllowed: false,
    isLeaving: false,
    isCounted: false,
    pending: 0,
    subscriptions: 0,
    hasPartialRequest: false,
    idleSweeps: 0,
    partialSweeps: 0,
    stalledSweeps: 0,
    sentAtSweep: 0,
    taker: null,
    takenUnknown: 0,
    held: 0,
    onTooMuch() {
      onTooMuch(guest)
    },
  }
  return guest
}

/** One more sweep has passed: why the guest has to go, or null. */
export function overstayed(guest: Guest, patience: Patience): DropReason | null {
  const sweepsOf = (ms: number): number => Math.ceil(ms / patience.sweepMs)
  const isUnsent = guest.socket.writableLength > 0
  const sent = sentBytes(guest.socket)
  guest.stalledSweeps = isUnsent && sent === guest.sentAtSweep ? guest.stalledSweeps + 1 : 0
  guest.sentAtSweep = sent
  // Whose answers wait to be read is not read from either: that its request does not end is not its fault.
  guest.partialSweeps = guest.hasPartialRequest && !isUnsent ? guest.partialSweeps + 1 : 0
  guest.idleSweeps = isUnsent || guest.pending > 0 || guest.subscriptions > 0 ? 0 : guest.idleSweeps + 1
  if (guest.stalledSweeps >= sweepsOf(patience.stalledMs)) return 'stalled'
  if (guest.partialSweeps > sweepsOf(patience.incompleteMs)) return 'incomplete-request'
  return guest.idleSweeps > sweepsOf(patience.idleMs) ? 'idle' : null
}

/** Whether time alone can make the guest overstay. */
export function needsWatching(guest: Guest): boolean {
  if (guest.hasPartialRequest || guest.socket.writableLength > 0) return true
  return guest.pending === 0 && guest.subscriptions === 0
}

/** What the kernel has taken of what we wrote: grows while the client reads. Node tells the rest of it only inside. */
function sentBytes(socket: Socket): number {
  const { _handle: handle } = socket as Socket & { _handle?: { writeQueueSize?: number } | null }
  return socket.bytesWritten - (handle?.writeQueueSize ?? 0)
}
