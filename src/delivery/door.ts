// The door of a socket: lets in whom it may, watches those inside, shows out who overdoes it, and closes in order.
import type { Socket } from 'node:net'
import type { SocketConfig } from '../config/config.ts'
import type { Log } from '../lib/log.ts'
import { idle } from '../lib/replaceable.ts'
import type { DropReason, Guest, Patience } from './guest.ts'
import type { Holdings } from './holdings.ts'
import { listenOn } from './listen.ts'
import type { Peers } from './peer.ts'
import { createRoom, type Protocol, type Room } from './room.ts'
import { standAt, standing, type Standing } from './standing.ts'

/** What is counted since the start; connections and subscribers are those of now. */
export interface ServerCounts {
  readonly connections: number
  readonly subscribers: number
  /** Tokens handed out. */
  readonly reads: number
  readonly dropped: Readonly<Record<DropReason, number>>
}

export interface Door extends Pick<Room, 'guests' | 'drop' | 'blameUs' | 'watch'> {
  /** Listens until the signal is aborted, then lets answers under way be finished. Throws UserError. */
  readonly run: (signal: AbortSignal, options: { onListening: () => void }) => Promise<void>
  /** Goes on with other settings; connections live on. Throws UserError, and the former settings stay. */
  readonly reconfigure: (config: SocketConfig) => Promise<void>
  /** Makes the socket anew where somebody removed it. Never fails: what speaks against it is told in the log. */
  readonly look: () => Promise<void>
  readonly config: () => SocketConfig
  /** A guest took a token. `client` is the name it gives itself. */
  took(guest: Guest, client: string | null): void
  /** Whether the guest is root or the daemon's own user. */
  isPrivileged(guest: Guest): Promise<boolean>
  counts(): ServerCounts
}

export interface DoorOptions {
  readonly socket: SocketConfig
  /** Descriptors of listening sockets that were handed over; where there are any, none is made. */
  readonly inherited?: readonly number[]
  readonly peers: Peers
  readonly holdings: Holdings
  readonly log: Log
  readonly patience?: Partial<Patience> | undefined
}

/** Peers are looked up this long after the start, so that the first answer does not wait for it. */
const PEERS_AFTER_MS = 100

export function createDoor(protocol: Protocol, options: DoorOptions): Door {
  const { inherited = [], peers } = options
  const { transport } = protocol
  const room = createRoom(protocol, options)
  const { guests, census, drop, blameUs } = room
  let config = options.socket
  let listening: Standing | null = null
  let reads = 0

  function onConnection(socket: Socket): void {
    const guest = room.enter(socket)
    try {
      identify(guest)
      if (guest.isLeaving) return
      protocol.welcome(guest)
      room.watch()
    } catch (error) {
      blameUs(guest, error)
    }
  }

  function identify(guest: Guest): void {
    census.remove(guest)
    guest.peer = peers.of(guest.socket)
    guest.isAllowed = peers.isAllowed(guest.socket, guest.peer, config.allow)
    census.add(guest)
    if (guest.peer !== null && guest.takenUnknown > 0) {
      guest.taker = peers.tookToken(guest.peer, { transport, client: null })
      guest.taker.count += guest.takenUnknown - 1
      guest.takenUnknown = 0
    }
    if (census.isOver(guest, config)) drop(guest, 'too-many-connections')
  }

  /** Connections that came before peers could be known are put where they belong. */
  async function learnPeers(): Promise<void> {
    await peers.load()
    if (!peers.areKnown()) return
    for (const guest of guests) {
      if (guest.peer !== null || guest.isLeaving) continue
      try {
        identify(guest)
      } catch (error) {
        blameUs(guest, error)
      }
    }
  }

  function took(guest: Guest, client: string | null): void {
    reads += 1
    if (guest.taker !== null) guest.taker.count += 1
    else if (guest.peer === null) guest.takenUnknown += 1
    else guest.taker = peers.tookToken(guest.peer, { transport, client })
  }

  const callers = {
    onConnection,
    onFault: (error: Error) => room.tellFault('A connection could not be accepted', error),
  }

  async function run(signal: AbortSignal, { onListening }: { onListening: () => void }): Promise<void> {
    await peers.require(config.allow)
    if (signal.aborted) return
    listening = await (inherited.length === 0 ? standAt(config, callers) : standOn(inherited))
    const learning = setTimeout(() => void learnPeers(), PEERS_AFTER_MS)
    try {
      if (!signal.aborted) onListening()
      await idle(signal)
    } finally {
      clearTimeout(learning)
      listening.close()
      listening = null
      await room.sayFarewell()
    }
  }

  async function reconfigure(next: SocketConfig): Promise<void> {
    await peers.require(next.allow)
    await listening?.move(next)
    config = next
    for (const guest of guests) {
      if (!guest.isLeaving) guest.isAllowed = peers.isAllowed(guest.socket, guest.peer, config.allow)
    }
  }

  async function standOn(fds: readonly number[]): Promise<Standing> {
    return standing(await Promise.all(fds.map(async (fd) => listenOn(fd, callers))))
  }

  return {
    run,
    reconfigure,
    look: async () => listening?.look(options.log),
    config: () => config,
    guests,
    drop,
    blameUs,
    watch: room.watch,
    took,
    async isPrivileged(guest) {
      await learnPeers()
      return guest.peer?.isPrivileged ?? false
    },
    counts: () => ({
      connections: room.connections(),
      subscribers: guests.filter(({ subscriptions }) => subscriptions > 0).length,
      reads,
      dropped: { ...room.dropped },
    }),
  }
}
