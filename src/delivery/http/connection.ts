// One client of `http.sock`: Node's HTTP server gets one request at a time, the others wait unparsed.
//
// Node's parser would parse all that has arrived, and make a request of each head, even while the first request still waits:
// 64 KiB of small pipelined requests would become 3,000 requests and take megabytes. So the parser reads from a stream (Node
// documents that any Duplex can be passed to the event `connection` of an http.Server), which gets one whole head, or one
// piece of a body, at a time.
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import { Duplex } from 'node:stream'
import { Connection, type ConnectionOptions, type DropReason } from '../connections/connection.ts'
import { MAX_HEAD_BYTES, MAX_HEAD_FIELDS } from '../limits.ts'
import type { Reply } from '../operations.ts'
import { bodyLengthOf, closingAnswer, headerOf, sendProblem, type Route } from './routes.ts'

/** Shared by all connections. */
interface HttpContext {
  readonly parser: Server
  readonly serve: Route
  /** Each connection ends with its first answer. */
  readonly isOneAnswer: boolean
}
const HEAD_END = '\r\n\r\n'
/** The parser gets so much of a body at a time. */
const BODY_PART_BYTES = 256
const [CARRIAGE_RETURN, LINE_FEED, LETTER_A, LETTER_Z] = [0x0d, 0x0a, 0x41, 0x5a]

/** A connection as Node's HTTP server sees it. */
export class HttpStream extends Duplex {
  readonly connection: HttpConnection

  constructor(connection: HttpConnection) {
    super()
    this.connection = connection
  }
  override _read(): void {}
  override _write(chunk: Buffer, _encoding: string, callback: () => void): void {
    this.connection.socket.write(chunk, callback)
  }
  override _final(callback: () => void): void {
    callback()
    this.connection.onLastAnswer()
  }
}

export class HttpConnection extends Connection {
  private readonly context: HttpContext
  /** Null before the first whole head: a parser takes more memory than all else of a connection. */
  private stream: HttpStream | null = null
  /** The answer to the last request, which is its `req`. */
  private response: ServerResponse | null = null
  /** The parser has parsed every head that it was given. */
  private isHeadParsed = true
  /** The answer that is an event stream. */
  private events: ServerResponse | null = null
  /** The connection ends with the answer to the last request that has arrived. */
  private isDraining = false
  /** Length of the input after what the parser has. */
  private restLength = 0
  /** Bytes of the body that the parser does not have yet; Infinity: only the parser knows its end. */
  private bodyLeft = 0
  /** The present answer is the last one; then the connection is complete, or is dropped for this reason. Null: it is not. */
  private end: 'complete' | DropReason | null = null

  constructor(options: ConnectionOptions, context: HttpContext) {
    super(options)
    this.context = context
  }

  protected override parseNext(bytes: Buffer, at: number): number {
    // Nothing can be answered after an event stream, which has no end.
    if (this.events !== null) return this.refuseBytes(at)
    if (this.isBodyUnfinished()) {
      const most = Math.min(at + BODY_PART_BYTES, at + this.bodyLeft, bytes.length)
      const end = this.bodyLeft === Infinity ? endOfChunks(bytes, at, most) : most
      this.bodyLeft -= end - at
      return end === at ? at : this.push(bytes, at, end)
    }
    const start = afterEmptyLines(bytes, at)
    if (start > at) return start
    // The parser would take the preface of HTTP/2 for two requests.
    if (this.stream === null && bytes.toString('latin1', at, at + 4) === 'PRI ') return this.refuseBytes(at)
    const end = bytes.indexOf(HEAD_END, at, 'latin1')
    if (end === -1) return mayBeHead(bytes, at) ? at : this.refuseBytes(at)
    this.isHeadParsed = false
    return this.push(bytes, at, end + HEAD_END.length)
  }

  private push(bytes: Buffer, start: number, end: number): number {
    if (this.stream === null) {
      this.stream = new HttpStream(this)
      this.context.parser.emit('connection', this.stream)
    }
    this.restLength = bytes.length - end + this.socket.readableLength
    this.stream.push(bytes.subarray(start, end))
    return end
  }

  private refuseBytes(at: number): number {
    this.host.drop(this, 'broken-framing')
    return at
  }

  protected override mayParse(): boolean {
    if (!this.isHeadParsed) return false
    if (this.events !== null || this.isBodyUnfinished()) return true
    return this.end === null && !this.isAnswering() && this.hasSpace()
  }

  protected override isPartialRequest(): boolean {
    return super.isPartialRequest() || (this.isBodyUnfinished() && !this.isUnread)
  }

  private isBodyUnfinished(): boolean {
    return this.bodyLeft > 0 && this.response?.req.complete === false
  }

  /** The parser has read the head of a request. */
  onRequest(req: IncomingMessage, res: ServerResponse): void {
    this.bodyLeft = bodyLengthOf(req)
    res.once('close', () => this.proceed())
    this.isHeadParsed = true
    this.response = res
    const isRestKnown = this.isDraining && this.bodyLeft !== Infinity
    const isLast = this.context.isOneAnswer || (isRestKnown && this.restLength <= this.bodyLeft)
    // A client that wants another protocol gets an answer in this one.
    if (isLast || headerOf(req, 'upgrade') !== undefined) {
      this.end = 'complete'
      res.setHeader('Connection', 'close')
    }
    const refusal = this.noteRequest()
    if (refusal !== null) this.refuse(res, refusal)
    // Node's own limit would drop the fields beyond it silently, `Origin` too.
    else if (req.rawHeaders.length > 2 * MAX_HEAD_FIELDS) this.refuseRequest(res, TOO_MANY_FIELDS)
    else this.guard(() => this.context.serve({ client: this, req, res }))
    this.proceed()
  }

  /** Sends the reply at once, or in a later turn if it is a promise. A request that waits keeps nothing of its head in memory. */
  answer<T>(reply: T | Promise<T>, send: (reply: T) => void): void {
    if (!(reply instanceof Promise)) return send(reply)
    this.response!.req.rawHeaders.length = 0
    this.later(reply, send)
  }

  protected override isAnswering(): boolean {
    return this.response?.writableFinished === false
  }

  protected override unsentBytes(): number {
    return this.stream?.writableLength ?? 0
  }

  /** The last answer says why the connection ends; what the client still sends is not parsed. */
  private refuse(res: ServerResponse, reason: DropReason, fault = this.host.faults[reason]!): void {
    this.end = reason
    res.setHeader('Connection', 'close')
    sendProblem(res, fault)
  }

  /** The request is of a kind that is not served; what comes after it may be a part of it. */
  refuseRequest(res: ServerResponse, message: string): void {
    this.refuse(res, 'broken-framing', { code: 'bad-request', message })
  }

  /** Node has ended the stream after the last answer. */
  onLastAnswer(): void {
    if (this.end === null || this.end === 'complete') this.host.close(this, '')
    else this.host.drop(this, this.end)
  }

  onParseError(): void {
    this.host.drop(this, 'broken-framing')
  }

  /** Begins an event stream, with one event for each change of the token. Its head is sent at once. */
  startEvents(res: ServerResponse, first: Reply<'token.subscribe'>): void {
    res.writeHead(200, ['Content-Type', 'text/event-stream', 'Cache-Control', 'no-store'])
    if (res.req.method === 'HEAD') return void res.end()
    res.flushHeaders()
    this.events = res
    this.subscriptions.set('', true)
    // Without a token, the first event comes with the first token.
    if ('value' in first) this.writeEvent(first)
    if (this.isEnding) this.onHalfClose()
  }

  protected override pushToken(): void {
    this.writeEvent(this.host.operations.changedToken(this))
  }

  private writeEvent(reply: Reply<'token.subscribe'>): void {
    const [event, data] =
      'fault' in reply
        ? ['fault', JSON.stringify(reply.fault)]
        : ['token.changed', `{${reply.value.jsonTail}`]
    this.events!.write(`event: ${event}\ndata: ${data}\n\n`)
    this.awaitSent()
  }

  private endEvents(): void {
    this.events?.end()
    this.events = null
  }

  protected override onHalfClose(): void {
    this.endEvents()
    super.onHalfClose()
    this.afterTurn()
  }

  protected override afterTurn(): void {
    // The parser finds that the body is incomplete, and reports an error.
    if (this.isEnding && !this.isUnread && this.isBodyUnfinished()) this.stream!.push(null)
  }

  override drain(): void {
    this.isDraining = true
    this.endEvents()
    super.drain()
  }

  override closeMessage(reason: DropReason): string | null {
    const fault = this.host.faults[reason]
    if (reason === this.end) return ''
    // No other answer can follow one that has begun.
    if (this.response?.headersSent === true && !this.response.writableFinished) return null
    return fault === undefined ? null : closingAnswer(reason, fault)
  }

  override onClose(): void {
    super.onClose()
    this.stream?.destroy()
  }
}

/** The end of a part of a body in chunks: the body ends with an empty line, so no part goes beyond one, or ends within one. */
function endOfChunks(bytes: Buffer, at: number, most: number): number {
  const line = bytes.subarray(at, most).indexOf(HEAD_END, 0, 'latin1')
  return line === -1 ? Math.max(at, most - HEAD_END.length + 1) : at + line + HEAD_END.length
}

/** Empty lines before a request are skipped (RFC 9112, section 2.2). */
function afterEmptyLines(bytes: Buffer, at: number): number {
  let start = at
  while (bytes[start] === CARRIAGE_RETURN || bytes[start] === LINE_FEED) start += 1
  return start
}

/** Reports whether this may become a head: it is not too long, and begins as HTTP does. */
function mayBeHead(bytes: Buffer, at: number): boolean {
  const first = bytes[at]!
  return bytes.length - at <= MAX_HEAD_BYTES && first >= LETTER_A && first <= LETTER_Z
}

const TOO_MANY_FIELDS = `The head of a request has at most ${MAX_HEAD_FIELDS} fields`
