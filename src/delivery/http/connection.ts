// One client of `http.sock`: one request at a time is parsed and answered, the others wait unparsed.
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Connection, ConnectionHandler, DropReason } from '../connections/connection.ts'
import { PacedReader } from '../connections/paced-reader.ts'
import type { ConnectionServer } from '../connections/server.ts'
import type { Operations, Reply } from '../operations.ts'
import { takeOverReading, type ParserEvents } from './parser.ts'
import { closingAnswer, sendProblem } from './responses.ts'
import type { Serve } from './routes.ts'

/** Shared by all connections. */
export interface HttpContext {
  readonly parser: Server
  readonly server: ConnectionServer
  readonly serve: Serve
  readonly operations: Pick<Operations, 'changedToken'>
}
/** About what a request holds beside its bytes, in bytes. */
const REQUEST_BYTES = 2048
/** Heads and parts of a body that are parsed in one turn. */
const PARTS_PER_TURN = 8
const HEAD_END = '\r\n\r\n'
/** The end of a body is known to the parser only: it is given so much at a time, and so few requests after it. */
const BODY_PART_BYTES = 512
/** No further request is parsed while more than this of the answers is unsent, in bytes. */
const UNSENT_BEFORE_NEXT = 32 * 1024

/** Node's HTTP server is given the connection, but reads only what it is handed here. */
export class HttpConnection extends PacedReader implements ConnectionHandler, ParserEvents {
  protected override readonly perTurn = PARTS_PER_TURN
  private readonly context: HttpContext
  private readonly waiting = new AbortController()
  /** Has Node's parser parse these bytes. It costs more than all else of a connection: one that sends nothing has none. */
  private parse: ((bytes: Buffer) => void) | null = null
  /** The last request, and the answer to it. */
  private request: IncomingMessage | null = null
  private response: ServerResponse | null = null
  /** Requests that wait for the answer before theirs: some that follow a body. */
  private queued = 0
  /** Bytes parsed since the last request, and those of it. */
  private parsedBytes = 0
  private requestBytes = 0
  private isAwaitingAnswer = false
  /** An event stream: the answer that goes on. */
  private stream: ServerResponse | null = null
  /** It has not read the last change yet, and gets the newest later. */
  private isLagging = false
  /** The last answer said why the connection is closed. */
  private isAnswered = false

  constructor(connection: Connection, context: HttpContext) {
    super(connection, context.server)
    this.context = context
  }

  // ---- reading ------------------------------------------------------------------------------------------------------

  receive(buffer: Buffer, length: number): void {
    // Nothing can be answered after an event stream, which has no end.
    if (this.stream === null) this.take(buffer.subarray(0, length))
    else this.onParseError()
  }

  /** Has one request parsed. What follows it is parsed when it is answered. */
  protected override parseNext(bytes: Buffer, at: number): number {
    const end = this.endOfPart(bytes, at)
    this.parsedBytes += end - at
    this.parse ??= takeOverReading(this.context.parser, this.socket, this)
    this.parse(bytes.subarray(at, end))
    return end
  }

  /** While requests are unparsed nothing more is read. */
  mayResume(): boolean {
    return !this.isUnread || this.connection.isClosing
  }

  protected override mayParse(): boolean {
    if (this.stream !== null) return false
    if (this.isBodyUnfinished()) return true
    return this.queued === 0 && !this.isAnswering() && this.socket.writableLength < UNSENT_BEFORE_NEXT
  }

  protected override afterTurn(): void {
    this.notePartialRequest()
    if (!this.isUnread) return
    if (this.stream !== null) this.onParseError()
    else if (this.isAnswering()) this.awaitAnswer()
  }

  private isBodyUnfinished(): boolean {
    return this.request !== null && !this.request.complete
  }

  private endOfPart(bytes: Buffer, at: number): number {
    if (this.isBodyUnfinished()) return Math.min(at + BODY_PART_BYTES, bytes.length)
    const end = bytes.indexOf(HEAD_END, at, 'latin1')
    return end === -1 ? bytes.length : end + HEAD_END.length
  }

  private notePartialRequest(): void {
    const hasBegun = this.parsedBytes > 0 || this.isBodyUnfinished()
    this.connection.hasPartialRequest = hasBegun && !this.isUnread
  }

  get caller(): Connection {
    return this.connection
  }

  // ---- answering ----------------------------------------------------------------------------------------------------

  /** The parser has read the head of a request. */
  onRequest(req: IncomingMessage, res: ServerResponse): void {
    if (this.connection.isClosing) return
    this.request = req
    this.requestBytes = this.parsedBytes
    this.parsedBytes = 0
    if (res.socket !== null) return this.serve(req, res)
    // Its answer is made when the one before has been sent.
    this.queued += 1
    res.once('socket', () => {
      this.queued -= 1
      this.server.whenItsTurn(this.connection, () => {
        this.serve(req, res)
        this.afterTurn()
        this.readOn()
      })
    })
  }

  private serve(req: IncomingMessage, res: ServerResponse): void {
    const { connection, context } = this
    this.response = res
    if (!this.server.acceptRequest(connection)) return this.rejectBusy(res)
    const later = context.serve(this, { req, res, signal: this.waiting.signal })
    if (later instanceof Promise) void this.settle(later)
  }

  private async settle(later: Promise<void>): Promise<void> {
    const { connection } = this
    connection.pending += 1
    await later.catch((error: unknown) => connection.isClosing || this.server.fail(connection, error))
    connection.pending -= 1
    connection.idleSweeps = 0
    this.server.update(connection)
  }

  /** Goes on with what is unread when the present answer has ended. */
  private awaitAnswer(): void {
    if (this.isAwaitingAnswer || this.response === null) return
    this.isAwaitingAnswer = true
    this.response.once('close', () => {
      this.isAwaitingAnswer = false
      if (this.connection.isClosing) return
      this.server.update(this.connection)
      this.readOn()
      if (this.isUnread && this.isAnswering()) this.awaitAnswer()
    })
  }

  private rejectBusy(res: ServerResponse): void {
    const message = 'More requests per second than `maxRequestsPerSecond` allows: send fewer'
    sendProblem(res, { code: 'busy', message }, ['Connection', 'close'])
    this.closeAnswered('too-many-requests')
  }

  /** Closes the connection after an answer with the reason. */
  closeAnswered(reason: DropReason): void {
    this.isAnswered = true
    // Node's HTTP would destroy the socket as soon as the answer is sent, and a client that still sends would lose it.
    this.socket.destroySoon = () => void this.socket.end()
    this.server.drop(this.connection, reason)
  }

  /** The bytes are no HTTP, or follow a stream. */
  onParseError(): void {
    this.server.drop(this.connection, 'broken-framing')
  }

  private isAnswering(): boolean {
    return this.stream !== null || (this.response !== null && !this.response.writableFinished)
  }

  // ---- event streams ------------------------------------------------------------------------------------------------

  /** The answer goes on: one event for each change of the token. Its head is sent at once. */
  startStream(res: ServerResponse, first: Reply<'token.subscribe'>): void {
    if ('fault' in first && first.fault.code === 'denied') return sendProblem(res, first.fault)
    res.writeHead(200, ['Content-Type', 'text/event-stream', 'Cache-Control', 'no-store'])
    if (res.req.method === 'HEAD') return void res.end()
    res.flushHeaders()
    this.stream = res
    this.connection.subscriptions = 1
    // Without a token yet, the first event is its arrival.
    if ('value' in first) this.writeEvent(first)
  }

  private writeEvent(reply: Reply<'token.subscribe'>): void {
    if ('fault' in reply) this.stream?.write(`event: fault\ndata: ${JSON.stringify(reply.fault)}\n\n`)
    else this.stream?.write(`event: token.changed\ndata: {${reply.value.jsonTail}\n\n`)
  }

  onTokenChange(): void {
    this.isLagging = this.socket.writableLength > 0
    if (this.isLagging) return
    this.writeEvent(this.context.operations.changedToken(this.connection))
    this.server.update(this.connection)
  }

  // ---- sending and ending -------------------------------------------------------------------------------------------

  flush(): void {}

  onSent(): void {
    if (this.isLagging) this.onTokenChange()
    this.readOn()
  }

  keptBytes(): number {
    const requests = this.queued + Number(this.response !== null && !this.response.writableEnded)
    // A character of a head may take two bytes.
    return this.unreadBytes + requests * (REQUEST_BYTES + 2 * this.requestBytes)
  }

  onHalfClose(): void {
    this.stream?.end()
    // Later Node's HTTP does it.
    if (this.parse === null) this.socket.end()
  }

  drain(): void {
    const { response, socket } = this
    this.forgetUnread()
    this.waiting.abort()
    this.stream?.end()
    if (response === null || response.writableFinished) socket.destroySoon()
    else response.once('close', () => socket.destroySoon())
  }

  closeMessage(reason: DropReason): string | null {
    if (this.isAnswered) return ''
    // An answer that has begun leaves no space for another.
    return this.isAnswering() && this.response?.headersSent === true ? null : closingAnswer(reason)
  }

  onClose(): void {
    this.waiting.abort()
  }
}
