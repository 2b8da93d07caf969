// One client on `ipc.sock`: its requests in, their answers out, never more of them unsent than it may hold.
import type { SocketConfig } from '../config/config.ts'
import type { Guest } from './guest.ts'
import type { Holdings } from './holdings.ts'
import type { IpcServer, IpcSocket } from './ipc-framing.ts'
import type { IpcClient, IpcRequests } from './ipc-requests.ts'
import { createBucket } from './bucket.ts'
import type { Room } from './room.ts'

export interface IpcConnection {
  /** The token or the phase is another than before. */
  tellChange(): void
  /** Sends what is ready to be sent. */
  flush(): void
  /** Answers what is under way and ends. */
  finish(): void
  forget(): void
}

/** Answers are made only while less than this is unsent. */
export const UNSENT_LIMIT = 256 * 1024
/** Requests of one connection that may wait for a token; further ones are read later. */
const MAX_PENDING = 256
/** About what a request that waits holds, in bytes. */
const PENDING_BYTES = 2048

export function createIpcConnection(
  guest: Guest,
  options: {
    server: IpcServer
    room: Pick<Room, 'drop' | 'blameUs' | 'watch'>
    requests: IpcRequests
    holdings: Holdings
    config: () => SocketConfig
  },
): IpcConnection {
  const { server, room, requests, holdings, config } = options
  const socket = guest.socket as IpcSocket
  const waiting = new AbortController()
  const mayAsk = createBucket()
  const client: IpcClient = {
    guest,
    subscriptions: new Set(),
    signal: waiting.signal,
    isEnding: false,
    say: (frames) => void (out += frames),
    pend,
  }
  /** Answers to the requests of one chunk: sent at once. ASCII. */
  let out = ''
  let isPaused = false
  let isBehind = false
  let isAwaitingSent = false

  server.addSocket(socket)
  socket.ipcDispatch = take
  // The library's own listener, and after it what is to be done with a chunk once all its requests are taken.
  socket.removeAllListeners('data').on('data', (chunk: string) => {
    server.receive(socket, chunk)
    onChunkTaken()
  })
  socket.on('end', () => {
    client.isEnding = true
    client.subscriptions.clear()
    guest.subscriptions = 0
    endIfDone()
  })

  const mustWait = (): boolean =>
    out.length + socket.writableLength >= UNSENT_LIMIT || guest.pending >= MAX_PENDING

  /** Takes one message, or returns false: not now. */
  function take(message: unknown): boolean {
    if (guest.isLeaving) return true
    if (mustWait()) {
      isPaused = true
      socket.pause()
      return false
    }
    guest.idleSweeps = 0
    guest.partialSweeps = 0
    try {
      if (mayAsk(config().maxRequestsPerSecond)) requests.answer(client, message)
      else requests.refuse(client, message)
    } catch (error) {
      room.blameUs(guest, error)
    }
    return true
  }

  /** The answer is said when it is there. */
  function pend(said: Promise<void>): void {
    guest.pending += 1
    void goOnAfter(said)
  }

  async function goOnAfter(said: Promise<void>): Promise<void> {
    try {
      await said
    } catch (error) {
      room.blameUs(guest, error)
    }
    guest.pending -= 1
    guest.idleSweeps = 0
    if (guest.isLeaving) return
    flush()
    goOn()
    endIfDone()
    room.watch()
  }

  /** Who has not read the last change yet gets the newest later, in place of this one. */
  function tellChange(): void {
    if (client.subscriptions.size === 0 || guest.isLeaving) return
    isBehind = socket.writableLength > 0
    if (isBehind) return
    requests.tellChange(client)
    flush()
  }

  function flush(): void {
    if (guest.isLeaving) return
    if (out !== '') {
      const ready = out
      out = ''
      socket.write(ready, 'latin1')
    }
    const unread = isPaused ? socket.ipcBuffer.length : 0
    const held = socket.writableLength + unread + guest.pending * PENDING_BYTES
    if (held !== guest.held) holdings.hold(guest, held)
    if (socket.writableLength > 0) awaitSent()
  }

  /** Node tells by 'drain' only of what goes beyond its own high-water mark; an empty write is behind everything else. */
  function awaitSent(): void {
    room.watch()
    if (isAwaitingSent) return
    isAwaitingSent = true
    socket.write('', onSent)
  }

  function onChunkTaken(): void {
    flush()
    goOn()
    guest.hasPartialRequest = !isPaused && socket.ipcBuffer !== ''
    if (guest.hasPartialRequest) room.watch()
  }

  function onSent(): void {
    isAwaitingSent = false
    if (socket.destroyed) return
    flush()
    if (isBehind) tellChange()
    goOn()
    endIfDone()
  }

  /** Takes what was left for later, and reads on when all of it is taken. */
  function goOn(): void {
    if (!isPaused) return
    while (isPaused && !guest.isLeaving && !mustWait()) {
      isPaused = false
      server.receive(socket, '')
      flush()
    }
    if (!isPaused && !guest.isLeaving) socket.resume()
  }

  /** A client that has said its last still gets the answers to what it asked. */
  function endIfDone(): void {
    if (client.isEnding && !isPaused && guest.pending === 0 && !guest.isLeaving) socket.destroySoon()
  }

  return {
    tellChange,
    flush,
    finish() {
      flush()
      client.isEnding = true
      isPaused = false
      socket.pause()
      waiting.abort()
      endIfDone()
    },
    forget() {
      waiting.abort()
    },
  }
}
