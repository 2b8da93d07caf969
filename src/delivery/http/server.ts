// `http.sock`: the operations over HTTP/1.1, on Node's own server with its own limits; and metrics alone, on
// a socket of their own.
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { Duplex } from 'node:stream'
import { CONNECTION_IDLE_MS } from '../../protocol.ts'
import { copyOf, type Client } from '../client.ts'
import {
  createConnections,
  type ConnectionServer,
  type DeliveryContext,
  type ServerOptions,
} from '../connections.ts'
import {
  HANDED_OVER,
  MAX_HEAD_BYTES,
  MAX_HEAD_FIELDS,
  METRICS_CONNECTIONS,
  type TimeoutReason,
  type Timeouts,
} from '../limits.ts'
import { createOperations } from '../operations.ts'
import { closingText, problem, send } from './answers.ts'
import {
  closingFault,
  createHealthRoutes,
  createHttpRoutes,
  createTokenRoutes,
  type Metrics,
  type Outcome,
} from './routes.ts'
import { HttpStream } from './stream.ts'

interface HttpOptions extends DeliveryContext, ServerOptions {
  readonly metrics: Metrics
}
interface HttpState {
  /** The connection as Node's HTTP server sees it. */
  readonly stream: HttpStream
  /** The answer to the last request, which is its `req`. */
  last: ServerResponse | null
  /** Requests that are not answered to their end. */
  unanswered: number
  /** Received, and not given to Node yet. */
  unread: Buffer | null
  /** A head has begun, and not ended. */
  isPartial: boolean
  /** The connection ends with the answer that was given last: further requests get none. */
  isEnding: boolean
}
type HttpClient = Client & HttpState

/** A client that has sent no whole request has as long as one that is idle between two. */
export const HTTP_TIMEOUTS = { 'incomplete-request': CONNECTION_IDLE_MS }
/** Connections to the metrics, which may come from the network, end within 10 s. */
export const METRICS_TIMEOUTS = { sweepMs: 1_000, idle: 5_000, 'incomplete-request': 5_000, stalled: 5_000 }

const READ_BYTES = 4 * 1024
/**
 * Node's parser makes a request of each head. A request takes about 6 KB until it is answered, even if the
 * client reads no answer. So the parser is given the next head when the request before it is answered.
 */
const REQUEST_BYTES = 8 * 1024
const HEAD_END = '\r\n\r\n'

const METRICS_SOCKET = {
  ...HANDED_OVER,
  maxConnections: METRICS_CONNECTIONS,
  maxConnectionsPerUser: METRICS_CONNECTIONS,
}

export function createHttpServer(options: HttpOptions): ConnectionServer {
  return createServing('http', options, HTTP_TIMEOUTS)
}

/**
 * `/metrics`, `/healthz` and `/readyz` alone, never a token, on sockets that were handed over. These may be
 * TCP sockets, whose peers all look like one unknown user. So no connection is kept: each gets one answer,
 * within 10 s.
 */
export function createMetricsServer(options: Omit<HttpOptions, 'socket'>): ConnectionServer {
  return createServing('metrics', { ...options, socket: METRICS_SOCKET }, METRICS_TIMEOUTS)
}

function createServing(
  transport: 'http' | 'metrics',
  options: HttpOptions,
  timeouts: Partial<Timeouts>,
): ConnectionServer {
  const isOneAnswer = transport === 'metrics'
  const operations = createOperations({ ...options, transport: 'http' })
  const connections = createConnections(
    {
      transport,
      operations,
      createState,
      readBytes: READ_BYTES,
      begin,
      receive,
      endInput,
      proceed,
      heldBy,
      push: () => undefined,
      timeoutOf,
      timeouts,
      refuseLate: (client) => refuse(client, TOO_LATE),
      onStop,
    },
    options,
  )
  const routes = { ...(isOneAnswer ? {} : createTokenRoutes(operations)), ...createHealthRoutes(options) }
  const route = createHttpRoutes(routes)
  const parsing = createParsing(onRequest, onClientError)
  /** By what Node takes for the socket. */
  const clients = new WeakMap<Duplex, HttpClient>()
  let isStopping = false

  function begin(client: HttpClient): void {
    clients.set(client.stream, client)
    client.stream.attach(() => proceed(client))
    parsing.emit('connection', client.stream)
  }

  function receive(client: HttpClient, input: Buffer, length: number): void {
    const received = input.subarray(0, length)
    feed(client, client.unread === null ? received : Buffer.concat([client.unread, received]))
    settle(client)
  }

  /** Goes on with what has arrived, as far as it is answered. */
  function proceed(client: HttpClient): void {
    if (client.isClosing) return
    if (client.unread !== null) feed(client, client.unread)
    settle(client)
    if (client.hasEnded) endInput(client)
  }

  function settle(client: HttpClient): void {
    connections.settle(client, client.unread === null)
  }

  /** Node ends the connection at once, so it learns of the end when it has given all the answers. */
  function endInput(client: HttpClient): void {
    if (client.unread === null && !isHeldUp(client) && client.waiting === 0 && client.stream.readable)
      client.stream.push(null)
  }

  /** All of the answer was sent, or the client has gone. */
  function onClose(this: ServerResponse): void {
    const client = clients.get(this.req.socket)
    if (client === undefined) return
    client.unanswered -= 1
    if (client.unread !== null || client.hasEnded) connections.plan(client)
    else settle(client)
  }

  function onRequest(req: IncomingMessage, res: ServerResponse): void {
    const client = clients.get(req.socket)
    if (client === undefined || client.isEnding || client.isClosing) return
    client.last = res
    client.unanswered += 1
    connections.recount(client)
    res.on('close', onClose)
    // While the daemon stops, the last request that has arrived is known a turn later: its answer ends the
    // connection.
    if (isStopping) setImmediate(handle, client, req, res)
    else handle(client, req, res)
  }

  function handle(client: HttpClient, req: IncomingMessage, res: ServerResponse): void {
    try {
      const closing = connections.closingFaultOf(client)
      if (isOneAnswer || (isStopping && isLast(client, res))) res.setHeader('Connection', 'close')
      if (closing !== null) return give(client, res, problem(closing))
      if (req.rawHeaders.length > 2 * MAX_HEAD_FIELDS) return give(client, res, problem(TOO_MANY_FIELDS))
      const outcome = route(client, req)
      if (!(outcome instanceof Promise)) return give(client, res, outcome)
      void connections.whenReady(client, outcome, (late) => give(client, res, late))
    } catch (error) {
      connections.fail(client, error)
    }
  }

  /** Before an answer that ends the connection (`drop`), the requests that wait get what there is. */
  function give(client: HttpClient, res: ServerResponse, outcome: Outcome): void {
    // One that waited may have its answer: its body was at fault.
    if (outcome === null || res.destroyed || res.headersSent) return
    if (outcome.drop === undefined) return send(res, outcome)
    if (client.isEnding) return
    client.isEnding = true
    connections.noteDrop(client.peer, outcome.drop)
    res.setHeader('Connection', 'close')
    send(res, outcome)
    client.waits.abort()
  }

  function onClientError(_error: NodeJS.ErrnoException, stream: Duplex): void {
    const client = clients.get(stream)
    const canRead = client !== undefined && !client.isEnding && stream.writable
    if (canRead) refuse(client, FRAMING)
    else stream.destroy()
  }

  /** What has come after the last whole request is none. */
  function refuse(client: HttpClient, closing: typeof TOO_LATE | typeof FRAMING): void {
    const { last } = client
    // The body of the last request is at fault.
    if (last !== null && !last.headersSent && !last.req.complete) return give(client, last, problem(closing))
    const end = (): void => connections.end(client, closing.drop, closingText(problem(closing)))
    // The last request is answered first.
    if (last === null || last.writableFinished) end()
    else last.once('finish', end)
  }

  function onStop(): void {
    isStopping = true
    for (const client of connections.clients()) prepareStop(client)
  }

  return connections.server
}

/**
 * Node's HTTP server, which does not listen: it is given each connection, and parses what it is given of it.
 * Its own timeouts are those of servers that listen.
 */
function createParsing(
  onRequest: (req: IncomingMessage, res: ServerResponse) => void,
  onClientError: (error: NodeJS.ErrnoException, stream: Duplex) => void,
): Server {
  const server = createServer(
    {
      maxHeaderSize: MAX_HEAD_BYTES,
      keepAliveTimeout: CONNECTION_IDLE_MS,
      // Any name of the host will do.
      requireHostHeader: false,
      // Requests without a body get no stream for it.
      optimizeEmptyRequests: true,
    },
    onRequest,
  )
  // An unknown expectation may be ignored (RFC 9110, section 10.1.1). Node's own 417 would pass by `allow`
  // and all limits.
  server.on('checkExpectation', onRequest)
  server.on('clientError', onClientError)
  return server
}

function createState(socket: Client['socket']): HttpState {
  return {
    stream: new HttpStream(socket),
    last: null,
    unanswered: 0,
    unread: null,
    isPartial: false,
    isEnding: false,
  }
}

function heldBy({ stream, unread, unanswered }: HttpClient): number {
  return unanswered * REQUEST_BYTES + (unread?.length ?? 0) + stream.readableLength + stream.writableLength
}

/** Nothing that has arrived comes after this answer. */
function isLast({ last, unread, isReading }: HttpClient, res: ServerResponse): boolean {
  return last === res && unread === null && isReading
}

/**
 * Gives Node one head after the other, until something holds the client up. A body may have what looks like
 * the end of a head: no harm is done, because Node's parser takes a stream, in whatever pieces.
 */
function feed(client: HttpClient, input: Buffer): void {
  let from = 0
  while (from < input.length && !isHeldUp(client)) {
    const { last } = client
    const isBody = last !== null && !last.req.complete
    const end = input.indexOf(HEAD_END, from)
    const to = end === -1 ? input.length : end + HEAD_END.length
    client.stream.push(Buffer.from(input.subarray(from, to)))
    client.isPartial = !isBody && client.last === last
    from = to
  }
  client.unread = from < input.length && !client.isClosing ? copyOf(input.subarray(from)) : null
}

/** The answer that comes last, as far as is known, ends the connection. */
function prepareStop(client: HttpClient): void {
  const { last } = client
  if (last?.headersSent === false && isLast(client, last)) last.setHeader('Connection', 'close')
}

/** Requests that wait for a token hold nobody up. */
function isHeldUp({ stream, last, unanswered, waiting }: HttpClient): boolean {
  if (stream.isPaused() || stream.readableLength > 0) return true
  return unanswered > waiting && last?.req.complete === true
}

function timeoutOf({ last, unanswered, isPartial }: HttpClient): TimeoutReason | null {
  if (unanswered > 0) return last?.req.complete === false ? 'incomplete-request' : null
  return isPartial ? 'incomplete-request' : 'idle'
}

const TOO_LATE = {
  fault: { code: 'bad-request', message: 'The request did not end in time' },
  drop: 'incomplete-request',
  status: 408,
} as const
const FRAMING = closingFault(
  `This is not a valid HTTP/1.1 request, or its header section is longer than ${MAX_HEAD_BYTES / 1024} KiB`,
)
const TOO_MANY_FIELDS = closingFault(`The head of a request has at most ${MAX_HEAD_FIELDS} fields`)
