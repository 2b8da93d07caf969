// One client on `ipc.sock`: its requests in, their answers out, never more of them unsent than it may hold.
import type { SocketConfig } from '../config/config.ts'
import type { Guest } from './guest.ts'
import type { Holdings } from './holdings.ts'
import type { IpcServer, IpcSocket } from './ipc-framing.ts'
import type { IpcClient, IpcRequests } from './ipc-requests.ts'
import { createBucket } from './bucket.ts'
import type { PreparedToken } from './replies.ts'
import type { Room } from './room.ts'
import type { FrameId, TokenFrames, TokenFrameType } from './token-frame.ts'

/** What all connections share. */
export interface IpcHouse {
  readonly server: IpcServer
  readonly room: Pick<Room, 'drop' | 'blameUs' | 'watch'>
  readonly requests: IpcRequests
  readonly holdings: Holdings
  readonly frames: TokenFrames
  readonly config: () => SocketConfig
}

/** Answers are made only while less than this is unsent. */
export const UNSENT_LIMIT = 256 * 1024
/** Requests of one connection that may wait for a token; further ones are read later. */
const MAX_PENDING = 256
/** About what a request that waits holds, in bytes. */
const PENDING_BYTES = 2048
const NONE: ReadonlySet<string> = new Set()
const NOTHING = Buffer.alloc(0)

/** A class, because there may be ten thousand of them, idle: each holds what it must, and the functions are there once. */
export class IpcConnection implements IpcClient {
  readonly guest: Guest
  isEnding = false
  private readonly house: IpcHouse
  private readonly socket: IpcSocket
  private readonly mayAsk = createBucket()
  private subscribed: Set<string> | null = null
  private waiting: AbortController | null = null
  /** Answers to the requests of one chunk: sent at once. ASCII. One frame with the token alone is there as bytes. */
  private out: string | Buffer = ''
  /** What is said now is sent before anybody else says anything, so bytes that all connections share may be used. */
  private isUndisturbed = false
  private isPaused = false
  private isBehind = false
  private isAwaitingSent = false

  constructor(guest: Guest, house: IpcHouse) {
    this.guest = guest
    this.house = house
    this.socket = guest.socket as IpcSocket
    this.socket.ipcBuffer = ''
    this.socket.ipcDispatch = (message) => this.take(message)
    this.socket.on('data', (chunk: Buffer) => this.receive(chunk))
    this.socket.on('end', () => this.hearTheLast())
  }

  // ---- for the requests ---------------------------------------------------------------------------------------------

  get subscriptions(): ReadonlySet<string> {
    return this.subscribed ?? NONE
  }

  subscribe(id: string): void {
    this.subscribed ??= new Set()
    this.subscribed.add(id)
    this.guest.subscriptions = this.subscribed.size
  }

  get signal(): AbortSignal {
    this.waiting ??= new AbortController()
    return this.waiting.signal
  }

  say(frames: string): void {
    this.out = this.said() + frames
  }

  sayToken(type: TokenFrameType, id: FrameId, token: PreparedToken): void {
    // As text before the next frame is written into the same bytes.
    const before = this.said()
    const frame = this.house.frames.frame(type, id, token)
    this.out = before === '' && this.isUndisturbed ? frame : before + frame.toString('latin1')
  }

  pend(said: Promise<void>): void {
    this.guest.pending += 1
    void this.goOnAfter(said)
  }

  // ---- for the server -----------------------------------------------------------------------------------------------

  /** The token or the phase is another than before. Who has not read the last change yet gets the newest later. */
  tellChange(): void {
    if (this.subscribed === null || this.guest.isLeaving) return
    this.isBehind = this.socket.writableLength > 0
    if (this.isBehind) return
    this.isUndisturbed = true
    this.house.requests.tellChange(this)
    this.flush()
  }

  /** Sends what is ready to be sent. */
  flush(): void {
    const { guest, socket } = this
    this.isUndisturbed = false
    if (guest.isLeaving) return
    if (this.out !== '') {
      const ready = this.out
      this.out = ''
      if (typeof ready === 'string') socket.write(ready, 'latin1')
      else if (!socket.write(ready) || socket.writableLength > 0) this.house.frames.keep(ready)
    }
    const unsent = socket.writableLength
    const unread = this.isPaused ? socket.ipcBuffer.length : 0
    const held = unsent + unread + guest.pending * PENDING_BYTES
    if (held !== guest.held) this.house.holdings.hold(guest, held)
    if (unsent > 0) this.awaitSent()
  }

  /** Answers what is under way and ends. */
  finish(): void {
    this.flush()
    this.isEnding = true
    this.isPaused = false
    this.socket.pause()
    this.forget()
    this.endIfDone()
  }

  forget(): void {
    this.waiting?.abort()
  }

  // ---- reading ------------------------------------------------------------------------------------------------------

  private receive(chunk: Buffer): void {
    const { guest, socket, house } = this
    this.isUndisturbed = true
    house.server.receive(socket, chunk)
    this.flush()
    this.goOn()
    guest.hasPartialRequest = !this.isPaused && socket.ipcBuffer !== ''
    if (guest.hasPartialRequest) house.room.watch()
  }

  /** Takes one message, or returns false: not now. */
  private take(message: unknown): boolean {
    const { guest, house } = this
    if (guest.isLeaving) return true
    if (this.mustWait()) {
      this.isPaused = true
      this.socket.pause()
      return false
    }
    guest.idleSweeps = 0
    guest.partialSweeps = 0
    try {
      if (this.mayAsk(house.config().maxRequestsPerSecond)) house.requests.answer(this, message)
      else house.requests.refuse(this, message)
    } catch (error) {
      house.room.blameUs(guest, error)
    }
    return true
  }

  /** What is ready to be sent, as text. */
  private said(): string {
    return typeof this.out === 'string' ? this.out : this.out.toString('latin1')
  }

  private mustWait(): boolean {
    return this.out.length + this.socket.writableLength >= UNSENT_LIMIT || this.guest.pending >= MAX_PENDING
  }

  /** Takes what was left for later, and reads on when all of it is taken. */
  private goOn(): void {
    if (!this.isPaused) return
    const { guest, socket } = this
    while (this.isPaused && !guest.isLeaving && !this.mustWait()) {
      this.isPaused = false
      this.isUndisturbed = true
      this.house.server.receive(socket, NOTHING)
      this.flush()
    }
    if (!this.isPaused && !guest.isLeaving) socket.resume()
  }

  private hearTheLast(): void {
    this.isEnding = true
    this.subscribed = null
    this.guest.subscriptions = 0
    this.endIfDone()
  }

  // ---- sending later ------------------------------------------------------------------------------------------------

  /** The answer is said when it is there. */
  private async goOnAfter(said: Promise<void>): Promise<void> {
    const { guest, house } = this
    try {
      await said
    } catch (error) {
      house.room.blameUs(guest, error)
    }
    guest.pending -= 1
    guest.idleSweeps = 0
    if (guest.isLeaving) return
    this.flush()
    this.goOn()
    this.endIfDone()
    house.room.watch()
  }

  /** Node tells by 'drain' only of what goes beyond its own high-water mark; an empty write is behind everything else. */
  private awaitSent(): void {
    this.house.room.watch()
    if (this.isAwaitingSent) return
    this.isAwaitingSent = true
    this.socket.write('', () => this.onSent())
  }

  private onSent(): void {
    this.isAwaitingSent = false
    if (this.socket.destroyed) return
    this.flush()
    if (this.isBehind) this.tellChange()
    this.goOn()
    this.endIfDone()
  }

  /** A client that has said its last still gets the answers to what it asked. */
  private endIfDone(): void {
    const { guest } = this
    if (this.isEnding && !this.isPaused && guest.pending === 0 && !guest.isLeaving) this.socket.destroySoon()
  }
}
