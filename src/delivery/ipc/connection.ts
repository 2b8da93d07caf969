// One client of `ipc.sock`: its requests in, their answers out, never more of them unsent than it may hold.
import { answerTypes, type Fault, type RequestType } from '../../protocol.ts'
import type { Connection, ConnectionHandler, DropReason } from '../connections/connection.ts'
import { MAX_UNSENT_BYTES, REQUESTS_PER_TURN } from '../connections/limits.ts'
import { PacedReader } from '../connections/paced-reader.ts'
import type { ConnectionServer } from '../connections/server.ts'
import { isRequestType, type Operations, type Reply } from '../operations.ts'
import type { CachedToken } from '../replies.ts'
import { isRecord, readId } from '../requests.ts'
import {
  ANSWERED,
  closeFaults,
  ID_SHAPE,
  isAccepted,
  MAX_SUBSCRIPTIONS,
  TOO_MANY_SUBSCRIPTIONS,
  TOO_OFTEN,
  TYPES,
} from './faults.ts'
import type { createTokenFrames, TokenFrameType } from './frames.ts'
import { FRAME_END_BYTE, type IpcServer, type IpcSocket } from './framing.ts'
import { latin1Text, MAX_PLAIN_LENGTH, plainTokenGetId, repeatedTokenGetId } from './plain-token-get.ts'

/** Shared by all connections. */
export interface IpcContext {
  readonly framing: IpcServer
  readonly server: ConnectionServer
  readonly operations: Operations
  readonly tokenFrame: ReturnType<typeof createTokenFrames>
  /** Recognises plain requests before they are parsed. */
  readonly isDirect: boolean
  /** Sends ASCII. False: some of it is unsent. */
  readonly send: (connection: Connection, text: string) => boolean
}

/** Requests of one connection that may wait for a token; further ones are read later. */
const MAX_PENDING = 256
/** Held by one of them, in bytes. */
const PENDING_BYTES = 2048

export class IpcConnection extends PacedReader implements ConnectionHandler {
  protected override readonly perTurn = REQUESTS_PER_TURN
  private readonly context: IpcContext
  private readonly ipcSocket: IpcSocket
  /** Answers that are sent together, in ASCII. */
  private out = ''
  private subscriptions: Set<string> | null = null
  private waiting: AbortController | null = null
  private isEnding = false
  /** Gets the newest token later. */
  private isLagging = false

  constructor(connection: Connection, context: IpcContext) {
    super(connection, context.server)
    this.context = context
    this.ipcSocket = connection.socket as IpcSocket
    this.ipcSocket.ipcBuffer = ''
    this.ipcSocket.ipcDispatch = (message) => this.answer(message)
    this.ipcSocket.ipcViolation = () => context.server.drop(connection, 'broken-framing')
  }

  // ---- reading ------------------------------------------------------------------------------------------------------

  receive(buffer: Buffer, length: number): void {
    if (!this.isUnread && this.isPlain(buffer, length)) this.flush()
    else this.take(buffer.subarray(0, length))
  }

  /** Answers the request, if all that was received is one plain request and nothing waits before it. */
  private isPlain(buffer: Buffer, length: number): boolean {
    const { ipcSocket, context } = this
    if (!context.isDirect || length > MAX_PLAIN_LENGTH || this.unsentBytes > 0) return false
    if (ipcSocket.ipcBuffer !== '') return false
    const id = repeatedTokenGetId(buffer, length) ?? plainTokenGetId(latin1Text(buffer, 0, length))
    if (id !== null) this.answerPlain(id)
    return id !== null
  }

  protected override parseNext(bytes: Buffer, at: number): number {
    const { context, ipcSocket } = this
    const end = bytes.indexOf(FRAME_END_BYTE, at)
    const next = end === -1 ? bytes.length : end + 1
    const text = latin1Text(bytes, at, next)
    const id = context.isDirect && ipcSocket.ipcBuffer === '' ? plainTokenGetId(text) : null
    if (id === null) context.framing.receive(ipcSocket, text)
    else this.answerPlain(id)
    return next
  }

  protected override mayParse(): boolean {
    return this.out.length + this.unsentBytes < MAX_UNSENT_BYTES && this.connection.pending < MAX_PENDING
  }

  protected override afterTurn(): void {
    this.connection.hasPartialRequest = !this.isUnread && this.ipcSocket.ipcBuffer !== ''
    this.flush()
    this.endIfDone()
  }

  // ---- answering ----------------------------------------------------------------------------------------------------

  /** A plain `token.get`. */
  private answerPlain(id: string): void {
    const { connection, context } = this
    if (!this.server.acceptRequest(connection)) return this.refuse(id)
    const token = context.operations.plainToken(connection)
    if (token === null) this.perform('token.get', id, {})
    else this.out += context.tokenFrame('token.result', id, token)
  }

  /** One message, whatever it is: called by node-ipc. */
  private answer(message: unknown): void {
    const { connection, context } = this
    if (connection.isClosing) return
    const { type, data } = isRecord(message) ? message : { type: undefined, data: undefined }
    const id = readId(data)
    if (!this.server.acceptRequest(connection)) this.refuse(id)
    else if (id === null || !isRecord(data)) this.writeFault(id, { code: 'bad-request', message: ID_SHAPE })
    else if (isRequestType(type)) this.perform(type, id, data)
    else this.writeFault(id, context.operations.denial(connection) ?? { code: 'bad-request', message: TYPES })
  }

  private perform(type: RequestType, id: string, data: Record<string, unknown>): void {
    const { connection, context } = this
    if (type === 'token.subscribe' && !this.maySubscribe(id)) return
    const reply = context.operations.perform(type, data, { caller: connection, signal: this.signal })
    if (reply instanceof Promise) void this.writeLater(type, id, reply)
    else this.write(answerTypes[type], id, reply)
    if (type === 'token.subscribe' && isAccepted(reply)) this.subscribe(id)
  }

  private async writeLater(type: RequestType, id: string, later: Promise<Reply>): Promise<void> {
    const { connection, context } = this
    connection.pending += 1
    try {
      const reply = await later
      if (!connection.isClosing) this.write(answerTypes[type], id, reply)
    } catch (error) {
      context.server.fail(connection, error)
    }
    connection.pending -= 1
    connection.idleSweeps = 0
    this.flush()
    context.server.update(connection)
    this.readOn()
    this.endIfDone()
  }

  private write(type: string, id: string, reply: Reply): void {
    if ('fault' in reply) this.writeFault(id, reply.fault)
    else if (isToken(reply.value)) {
      this.out += this.context.tokenFrame(type as TokenFrameType, id, reply.value)
    } else this.out += this.context.framing.encode(type, { id, ...reply.value })
  }

  private writeFault(id: string | null, fault: Fault): void {
    this.out += this.context.framing.encode('fault', { id, ...fault })
  }

  private refuse(id: string | null): void {
    this.writeFault(id, { code: 'busy', message: TOO_OFTEN })
    this.server.drop(this.connection, 'too-many-requests')
  }

  // ---- subscriptions ------------------------------------------------------------------------------------------------

  private maySubscribe(id: string): boolean {
    const { subscriptions } = this
    if (subscriptions === null || subscriptions.size < MAX_SUBSCRIPTIONS || subscriptions.has(id)) return true
    this.writeFault(id, { code: 'busy', message: TOO_MANY_SUBSCRIPTIONS })
    this.server.drop(this.connection, 'too-many-subscriptions')
    return false
  }

  private subscribe(id: string): void {
    if (this.isEnding) return
    this.subscriptions ??= new Set()
    this.subscriptions.add(id)
    this.connection.subscriptions = this.subscriptions.size
  }

  onTokenChange(): void {
    const { connection, context } = this
    this.isLagging = this.unsentBytes > 0
    if (this.isLagging || this.subscriptions === null) return
    for (const id of this.subscriptions)
      this.write('token.changed', id, context.operations.changedToken(connection))
    this.flush()
  }

  // ---- sending and ending -------------------------------------------------------------------------------------------

  flush(): void {
    const { connection, context, out } = this
    if (out === '' || connection.isClosing) return
    this.out = ''
    if (!context.send(connection, out)) this.server.update(connection)
  }

  onSent(): void {
    if (this.isLagging) this.onTokenChange()
    this.readOn()
    this.endIfDone()
  }

  keptBytes(): number {
    return this.unreadBytes + this.connection.pending * PENDING_BYTES
  }

  /** After a half-close, pending answers are still sent. */
  onHalfClose(): void {
    this.isEnding = true
    this.subscriptions = null
    this.connection.subscriptions = 0
    this.endIfDone()
  }

  drain(): void {
    this.flush()
    this.isEnding = true
    this.forgetUnread()
    this.socket.pause()
    this.waiting?.abort()
    this.endIfDone()
  }

  private endIfDone(): void {
    const { connection } = this
    const isDone = !this.isUnread && connection.pending === 0 && !connection.isClosing
    if (this.isEnding && isDone) this.socket.destroySoon()
  }

  closeMessage(reason: DropReason): string | null {
    const fault = closeFaults[reason]
    if (fault === undefined) return null
    return fault === ANSWERED ? '' : this.context.framing.encode('fault', { id: null, ...fault })
  }

  onClose(): void {
    this.waiting?.abort()
  }

  private get signal(): AbortSignal {
    this.waiting ??= new AbortController()
    return this.waiting.signal
  }
}

const isToken = (value: object): value is CachedToken => 'jsonTail' in value
