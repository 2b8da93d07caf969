// Those inside: watched for silence and slowness, shown out when they overdo it, and seen off when the daemon stops.
import type { Socket } from 'node:net'
import { errorMessage } from '../lib/error.ts'
import type { Log } from '../lib/log.ts'
import { createCensus, type Census } from './census.ts'
import {
  dropReasons,
  needsWatching,
  newGuest,
  overstayed,
  PATIENCE,
  type DropReason,
  type Guest,
  type Patience,
} from './guest.ts'
import type { Holdings } from './holdings.ts'
import { createRegister } from './register.ts'

/** What must be known of the protocol that is spoken. */
export interface Protocol {
  readonly transport: 'ipc' | 'http'
  welcome(guest: Guest): void
  /** A sweep is about to look at the guest. */
  beforeLook(guest: Guest): void
  /** What a client is told that loses its connection, or null where nothing fits. */
  lastWords(reason: DropReason): string | null
  /** What was answered before is sent first. */
  beforeLastWords(guest: Guest): void
  /** The daemon stops: finish what is under way, then end the connection. */
  finish(guest: Guest): void
  /** The connection is gone; it may never have been welcomed. */
  forget(guest: Guest): void
}

export interface Room {
  /** All of now, in no order. */
  readonly guests: readonly Guest[]
  readonly census: Census
  /** A connection was accepted. */
  enter(socket: Socket): Guest
  readonly drop: (guest: Guest, reason: DropReason) => void
  /** An error of ours while serving a guest: costs that connection, not the process. */
  readonly blameUs: (guest: Guest, error: unknown) => void
  /** A fault that clients can cause over and over: one record an hour. */
  tellFault(sentence: string, error: unknown): void
  /** There is something to watch: an answer that could not be sent at once, say. */
  readonly watch: () => void
  /** Has everybody finish what is under way and go. Resolves when the room is empty, within `farewellMs`. */
  sayFarewell(): Promise<void>
  connections(): number
  readonly dropped: Readonly<Record<DropReason, number>>
}

/** Connections that have had their last words and do not hang up. */
const MAX_LEAVING = 256
const FAULT_TOLD_EVERY_MS = 3_600_000

export function createRoom(
  protocol: Protocol,
  options: { holdings: Holdings; log: Log; patience?: Partial<Patience> | undefined },
): Room {
  const { holdings, log } = options
  const { transport } = protocol
  const patience = { ...PATIENCE, ...options.patience }
  const guests = createRegister<Guest, Guest>()
  const leaving = new Set<Guest>()
  const census = createCensus()
  const dropped = Object.fromEntries(dropReasons.map((reason) => [reason, 0])) as Record<DropReason, number>
  let sweeper: NodeJS.Timeout | null = null
  let faultToldAtMs = -Infinity
  let onAllGone = (): void => undefined

  function enter(socket: Socket): Guest {
    const guest = newGuest(socket, { onTooMuch: (holder) => drop(holder, 'too-much-held') })
    guests.set(guest, guest)
    socket.on('close', () => leave(guest))
    // A reset by a client is no event of ours: 'close' follows.
    socket.on('error', () => undefined)
    return guest
  }

  function watch(): void {
    sweeper ??= setInterval(sweep, patience.sweepMs)
  }

  /** Looks at everybody once. Where nobody needs watching, it was the last time. */
  function sweep(): void {
    for (const guest of leaving) {
      guest.idleSweeps += 1
      if (guest.idleSweeps > 1) guest.socket.destroy()
    }
    let isNeeded = leaving.size > 0
    for (const guest of guests.values) {
      if (guest.isLeaving) continue
      protocol.beforeLook(guest)
      const reason = overstayed(guest, patience)
      if (reason !== null) drop(guest, reason)
      if (reason !== null || needsWatching(guest)) isNeeded = true
    }
    if (!isNeeded) stopWatching()
  }

  function stopWatching(): void {
    if (sweeper !== null) clearInterval(sweeper)
    sweeper = null
  }

  function drop(guest: Guest, reason: DropReason): void {
    if (guest.isLeaving) return
    dropped[reason] += 1
    const { peer } = guest
    log('debug', 'A client lost its connection', {
      event: 'client-dropped',
      transport,
      reason,
      ...(peer !== null && { uid: peer.uid, pid: peer.pid }),
    })
    const words = protocol.lastWords(reason)
    if (words !== null) protocol.beforeLastWords(guest)
    guest.isLeaving = true
    census.remove(guest)
    holdings.hold(guest, 0)
    if (words === null || leaving.size >= MAX_LEAVING) guest.socket.destroy()
    else seeOff(guest, words)
  }

  /** Says the last words and lets the client read them: closed with requests unread, the connection would be reset. */
  function seeOff(guest: Guest, words: string): void {
    const { socket } = guest
    leaving.add(guest)
    guest.idleSweeps = 0
    socket.removeAllListeners('data')
    socket.on('data', () => undefined)
    socket.on('end', () => socket.destroy())
    socket.resume()
    socket.end(words)
    watch()
  }

  function leave(guest: Guest): void {
    guests.delete(guest)
    leaving.delete(guest)
    guest.isLeaving = true
    census.remove(guest)
    holdings.hold(guest, 0)
    protocol.forget(guest)
    if (guests.values.length === 0) onAllGone()
  }

  function blameUs(guest: Guest, error: unknown): void {
    tellFault('A connection failed by a fault of kyc-tokend', error)
    drop(guest, 'fault-of-ours')
  }

  function tellFault(sentence: string, error: unknown): void {
    const nowMs = performance.now()
    if (nowMs - faultToldAtMs < FAULT_TOLD_EVERY_MS) return
    faultToldAtMs = nowMs
    log('error', sentence, { event: 'connection-fault', transport, detail: errorMessage(error) })
  }

  async function sayFarewell(): Promise<void> {
    const allGone = new Promise<void>((resolve) => {
      onAllGone = resolve
    })
    for (const guest of guests.values) {
      if (guest.isLeaving) guest.socket.destroySoon()
      else protocol.finish(guest)
    }
    if (guests.values.length === 0) return stopWatching()
    const patienceEnds = setTimeout(() => {
      for (const guest of guests.values) guest.socket.destroy()
    }, patience.farewellMs)
    await allGone
    clearTimeout(patienceEnds)
    stopWatching()
  }

  return {
    guests: guests.values,
    census,
    enter,
    drop,
    blameUs,
    tellFault,
    watch,
    sayFarewell,
    connections: () => guests.values.length - leaving.size,
    dropped,
  }
}
