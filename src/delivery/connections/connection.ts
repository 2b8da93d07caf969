// One connection of any protocol: its input is parsed in turns with other connections, its buffers are small, and the daemon
// closes it for a named reason only.
import type { Socket } from 'node:net'
import { monotonicMs } from '../../lib/clock.ts'
import type { Fault } from '../../protocol.ts'
import {
  AT_ONCE_BYTES,
  MAX_UNSENT_BYTES,
  READ_BYTES,
  REQUESTS_PER_TURN,
  type RequestRate,
  type TimeoutReason,
  type Timeouts,
} from '../limits.ts'
import type { Caller, Operations } from '../operations.ts'
import type { Peer } from '../peers.ts'
import type { Reader } from '../token-audit.ts'

/** Reasons for which a client loses its connection. */
export const dropReasons = [
  'too-many-connections',
  'too-many-requests',
  'too-many-subscriptions',
  'denied',
  'stalled',
  'idle',
  'incomplete-request',
  'broken-framing',
  'fault-of-ours',
] as const
export type DropReason = (typeof dropReasons)[number]

/** The server as a connection sees it. */
export interface Host {
  readonly operations: Operations
  /** The faults that a client gets when it loses its connection. */
  readonly faults: Readonly<Partial<Record<DropReason, Fault>>>
  /** Counts a request that has arrived. Returns the reason to close the connection for it; null: the request is answered. */
  refusalOf(connection: Connection): DropReason | null
  /** Calls the function when it is the connection's turn again. */
  whenItsTurn(connection: Connection, work: () => void): void
  /** Others connect: only the first input of a connection is parsed at once. */
  isAccepting(): boolean
  drop(connection: Connection, reason: DropReason): void
  /** The connection ends, after this last message; null: at once. */
  close(connection: Connection, message: string | null): void
  /** An internal error while serving a connection: costs that connection, not the process. */
  fail(connection: Connection, error: unknown): void
  hasHungUp(socket: Socket): boolean
}
export interface ConnectionOptions {
  readonly host: Host
  readonly socket: Socket
  /** null: the peer cannot be known. */
  readonly peer: Peer | null
  readonly isAllowed: boolean
}

const NOTHING = Buffer.alloc(0)

/** A class, because there may be thousands of idle connections. */
export abstract class Connection implements Caller {
  readonly socket: Socket
  readonly peer: Peer | null
  isAllowed: boolean
  reads: Reader['reads'] = null
  readonly madeAtMs = monotonicMs()
  readonly rate: RequestRate = { left: 0, refilledAtMs: -Infinity }
  /** Being closed; further input is ignored. */
  isClosing = false
  /** Requests that wait for their answers. */
  waiting = 0
  /** By id, whether the newest token was sent. A connection that subscribes to something may be silent. */
  readonly subscriptions = new Map<string, boolean>()
  protected readonly host: Host
  /** The client has ended its side: the connection ends with the last answer. */
  protected isEnding = false
  /** Received and not parsed yet. */
  private unread: Buffer = NOTHING
  /** `unread` is empty, or the beginning of a request. */
  private needsMore = true
  private isTurnDue = false
  private isAwaitingSent = false
  /** Answers that are made once the client has read others. */
  private readonly held: (() => void)[] = []
  private abort: AbortController | null = null
  /** The timeout that ran at the last sweep, and the number of sweeps without progress. */
  private timeout: TimeoutReason | null = null
  private sweeps = 0
  private sentAtSweep = 0

  constructor({ host, socket, peer, isAllowed }: ConnectionOptions) {
    this.host = host
    this.socket = socket
    this.peer = peer
    this.isAllowed = isAllowed
    socket.on('data', (chunk: Buffer) => this.receive(chunk))
    socket.on('end', () => this.onEnd())
  }

  /** Parses one request, or a part of one, that begins at `at`. Returns where it ends; `at` itself if more input has to come. */
  protected abstract parseNext(bytes: Buffer, at: number): number
  protected afterTurn(): void {}
  protected abstract pushToken(id: string): void
  /** The last message before the connection is closed for this reason; null if none fits. */
  abstract closeMessage(reason: DropReason): string | null
  /** Reports whether another request may be parsed; `proceed` is called when that changes. */
  protected abstract mayParse(): boolean
  protected hasSpace(): boolean {
    return this.unsentBytes() < MAX_UNSENT_BYTES
  }
  protected isAnswering(): boolean {
    return this.waiting > 0
  }
  /** Bytes of answers that the kernel has not taken yet. */
  protected unsentBytes(): number {
    return this.socket.writableLength
  }

  /** Does work for the client. An internal error closes this connection only. */
  guard(work: () => void): void {
    try {
      work()
    } catch (error) {
      this.host.fail(this, error)
    }
  }

  /** Aborted when the client goes, and when the daemon stops: a client that waits then gets what there is. */
  get signal(): AbortSignal {
    this.abort ??= new AbortController()
    return this.abort.signal
  }

  private receive(chunk: Buffer): void {
    const { socket } = this
    // `take` has it.
    if (this.isClosing || socket.isPaused()) return
    const isAtOnce = !this.host.isAccepting() || socket.bytesRead === chunk.length
    if (isAtOnce && chunk.length <= AT_ONCE_BYTES) {
      this.unread = joined(this.unread, chunk)
      return this.guard(() => this.read())
    }
    // While the stream holds it Node reads no more: taken now, as much again would be read and held.
    socket.pause()
    socket.unshift(chunk)
    this.proceed()
  }

  /** Returns the unread input. If it has no whole request, the next part of what the stream holds is added. */
  private take(): Buffer {
    const { socket, unread } = this
    if (!this.needsMore || socket.readableLength === 0) return unread
    return joined(unread, socket.read(Math.min(socket.readableLength, READ_BYTES)) as Buffer)
  }

  /** Parses as many requests as fit in one turn. The socket is read from again once no whole one is left. */
  private read(): void {
    const unread = this.take()
    let at = 0
    this.needsMore = false
    for (let left = REQUESTS_PER_TURN; left > 0 && !this.needsMore; left -= 1) {
      if (this.isClosing || !this.mayParse()) break
      const next = this.parseNext(unread, at)
      this.needsMore = next === at || next === unread.length
      at = next
    }
    if (at === unread.length) this.unread = NOTHING
    // The beginning of a request may wait long: as a part of a larger buffer it would keep all of that in memory.
    else this.unread = this.needsMore ? Buffer.from(unread.subarray(at)) : unread.subarray(at)
    this.afterTurn()
    this.proceed()
  }

  /** Reports whether there is input that can be parsed. */
  protected get isUnread(): boolean {
    return !this.needsMore || this.socket.readableLength > 0
  }

  /** Call it when an answer was made or sent: parses further input in the next turn, or ends the connection. */
  protected proceed(): void {
    if (this.isClosing || this.isTurnDue) return
    if (this.isUnread) this.socket.pause()
    else this.socket.resume()
    if (this.isEnding && this.hasAnsweredAll()) this.socket.destroySoon()
    if (!this.isUnread || !this.mayParse()) return
    this.isTurnDue = true
    this.host.whenItsTurn(this, () => {
      this.isTurnDue = false
      this.read()
    })
  }

  /** Call it for each request. Returns the reason to close the connection for it; null: the request is answered. */
  protected noteRequest(): DropReason | null {
    this.timeout = null
    return this.host.refusalOf(this)
  }

  /** Call it after each write. Node emits 'drain' only above its own limit, so an empty write shows that all before it is sent. */
  protected awaitSent(): void {
    if (this.isAwaitingSent || this.socket.writableLength === 0) return
    this.isAwaitingSent = true
    this.socket.write('', () => {
      this.isAwaitingSent = false
      this.host.whenItsTurn(this, () => this.release())
    })
  }

  /** The token or the phase has changed. A client that has not read the last change yet gets the newest one later. */
  onTokenChange(): void {
    for (const id of this.subscriptions.keys()) this.subscriptions.set(id, false)
    if (this.unsentBytes() === 0) this.release()
  }

  /** Makes the answers and changes that fit; the others when these are sent. */
  private release(): void {
    while (this.held.length > 0 && this.hasSpace()) this.held.shift()!()
    for (const [id, hasNewest] of this.subscriptions) {
      if (hasNewest) continue
      if (!this.hasSpace()) break
      this.subscriptions.set(id, true)
      this.pushToken(id)
    }
    this.afterTurn()
    this.proceed()
  }

  /** Does the work in a turn of its own once there is a reply: many replies come at once, with the next token. */
  protected later<T>(reply: Promise<T>, work: (reply: T) => void): void {
    this.waiting += 1
    reply.then(
      (value) =>
        this.host.whenItsTurn(this, () => {
          this.held.push(() => {
            this.waiting -= 1
            work(value)
          })
          this.release()
        }),
      (error: unknown) => this.isClosing || this.host.fail(this, error),
    )
  }

  private onEnd(): void {
    if (this.isClosing || this.host.hasHungUp(this.socket)) this.socket.destroy()
    else this.guard(() => this.onHalfClose())
  }

  /** A client that has ended its side still gets the answers for which it waits. */
  protected onHalfClose(): void {
    this.isEnding = true
    this.subscriptions.clear()
    this.proceed()
  }

  /** The daemon stops: requests that wait are answered with what there is. */
  drain(): void {
    this.subscriptions.clear()
    this.abort ??= new AbortController()
    this.abort.abort()
  }

  hasAnsweredAll(): boolean {
    return !this.isAnswering() && !this.isUnread
  }

  onClose(): void {
    this.isClosing = true
    this.unread = NOTHING
    this.abort?.abort()
  }

  /** Call it every `sweepMs`. Returns the timeout that has passed; null: the connection may stay. */
  sweep(timeouts: Timeouts): TimeoutReason | null {
    const timeout = this.runningTimeout()
    const sent = this.socket.bytesWritten - this.socket.writableLength
    const hasProgress = timeout !== this.timeout || sent !== this.sentAtSweep
    this.sweeps = hasProgress ? 0 : this.sweeps + 1
    this.timeout = timeout
    this.sentAtSweep = sent
    return timeout !== null && this.sweeps >= Math.ceil(timeouts[timeout] / timeouts.sweepMs) ? timeout : null
  }

  /** The timeout that runs now; null: none does. */
  private runningTimeout(): TimeoutReason | null {
    // While a client leaves answers unread nothing is read from it, so its request cannot end.
    if (this.unsentBytes() > 0) return 'stalled'
    if (this.isPartialRequest()) return 'incomplete-request'
    return this.isAnswering() || this.subscriptions.size > 0 ? null : 'idle'
  }

  protected isPartialRequest(): boolean {
    return this.needsMore && this.unread.length > 0
  }
}

/** Both in one. A copy only where it has to be: of what a thousand clients send at once, copies would take memory for long. */
function joined(unread: Buffer, part: Buffer): Buffer {
  return unread.length === 0 ? part : Buffer.concat([unread, part])
}
