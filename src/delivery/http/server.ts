// `http.sock`: the operations over HTTP/1.1, on Node's own server with its own limits; and metrics alone, on
// a socket of their own.
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { CONNECTION_IDLE_MS } from '../../protocol.ts'
import {
  createConnections,
  subscribe,
  type Client,
  type ConnectionServer,
  type DeliveryContext,
  type ServerOptions,
} from '../connections.ts'
import { HANDED_OVER, MAX_HEAD_BYTES, MAX_HEAD_FIELDS, MAX_WAITING } from '../limits.ts'
import { createOperations, type Reply } from '../operations.ts'
import { closingText, problem, send } from './answers.ts'
import {
  closingFault,
  createHealthRoutes,
  createHttpRoutes,
  createTokenRoutes,
  type Metrics,
  type Outcome,
} from './routes.ts'

interface HttpOptions extends DeliveryContext, ServerOptions {
  readonly metrics: Metrics
  readonly times?: typeof TIMES
}
interface Own {
  /** The answer to the last request, which is its `req`. */
  last: ServerResponse | null
  /** The answer that is an event stream. */
  events: ServerResponse | null
  /** Answers that were not sent as a whole yet. */
  unsent: number
  /** The connection ends with the answer that was given last: further requests get none. */
  isEnding: boolean
}
type HttpClient = Client & Own

/** Node's own limits, in ms: for a whole head, a whole request, the pause between two; and their checks. */
export const timesOf = (limit: number, interval: number) => ({
  headersTimeout: limit,
  requestTimeout: limit,
  keepAliveTimeout: limit,
  connectionsCheckingInterval: interval,
})
/** A client that has sent no whole request has as long as one that is idle between two. */
const TIMES = timesOf(CONNECTION_IDLE_MS, 15_000)
/** Connections to the metrics, which may come from the network, end within 10 s. */
const METRICS_TIMES = timesOf(6_000, 2_000)
const METRICS_TIMEOUTS = { sweepMs: 2_000, stalled: 8_000 }

/**
 * Node reads 64 KiB at once and makes a request, of about 6 KB, of each head in it, even if the client reads
 * no answer. With more unsent answers than this in all, each connection with over 16 of them is closed. The
 * memory of its requests is free only after this turn of the event loop: nothing more is read in it.
 */
const MAX_UNSENT = 5_000

const METRICS_SOCKET = { ...HANDED_OVER, maxConnections: 256, maxConnectionsPerUser: 256 }

export function createHttpServer(options: HttpOptions): ConnectionServer {
  return serve('http', options)
}

/**
 * `/metrics`, `/healthz` and `/readyz` alone, never a token, on sockets that were handed over. These may be
 * TCP sockets, whose peers all look like one unknown user. So no connection is kept: each gets one answer,
 * within 10 s.
 */
export function createMetricsServer(options: Omit<HttpOptions, 'socket'>): ConnectionServer {
  return serve('metrics', { times: METRICS_TIMES, ...options, socket: METRICS_SOCKET })
}

function serve(transport: 'http' | 'metrics', options: HttpOptions): ConnectionServer {
  const { times = TIMES } = options
  const isOneAnswer = transport === 'metrics'
  const operations = createOperations({ ...options, transport: 'http' })
  const connections = createConnections(
    {
      transport,
      operations,
      own: (): Own => ({ last: null, events: null, unsent: 0, isEnding: false }),
      push,
      timeoutOf: () => null,
      createServer: createNodeServer,
      onStop,
      endAnswered,
      ...(isOneAnswer && { timeouts: METRICS_TIMEOUTS }),
    },
    options,
  )
  const route = createHttpRoutes({
    ...(isOneAnswer ? {} : createTokenRoutes(operations)),
    ...createHealthRoutes(options),
  })
  /** Several only after a reload has moved the socket. */
  const servers: Server[] = []
  let isStopping = false
  /** Requests so far, and unsent answers now. */
  let requests = 0
  let unsent = 0

  function readNoMoreInThisTurn(): void {
    const reading = connections.clients().filter(({ socket }) => !socket.isPaused())
    for (const { socket } of reading) socket.pause()
    setImmediate(() => {
      for (const { socket } of reading) socket.resume()
    })
  }

  function createNodeServer(): Server {
    const server = createServer(
      {
        ...times,
        maxHeaderSize: MAX_HEAD_BYTES,
        // Any name of the host will do.
        requireHostHeader: false,
        // Requests without a body get no stream for it.
        optimizeEmptyRequests: true,
      },
      onRequest,
    )
    server.on('connection', onConnection)
    // An unknown expectation may be ignored (RFC 9110, section 10.1.1). Node's own 417 would pass by `allow`
    // and all limits.
    server.on('checkExpectation', onRequest)
    server.on('clientError', (error: NodeJS.ErrnoException, stream) => onClientError(error, stream as Socket))
    servers.push(server)
    return server
  }

  function onConnection(socket: Socket): void {
    const client = connections.accept(socket)
    if (client === null) return
    socket.on('drain', () => connections.pushTo(client))
    socket.once('close', () => {
      unsent -= client.unsent
    })
  }

  /** All of the answer was sent. */
  function onSent(this: ServerResponse): void {
    const client = connections.of(this.req.socket)
    if (client === undefined) return
    client.unsent -= 1
    unsent -= 1
  }

  function onRequest(req: IncomingMessage, res: ServerResponse): void {
    const client = connections.of(req.socket)
    if (client === undefined || client.isEnding || client.isClosing) return
    client.last = res
    requests += 1
    client.unsent += 1
    unsent += 1
    res.on('finish', onSent)
    if (unsent > MAX_UNSENT && client.unsent > MAX_WAITING) {
      readNoMoreInThisTurn()
      return connections.end(client, 'stalled')
    }
    // While the daemon stops, the last request that has arrived is known a turn later: its answer ends the
    // connection.
    if (isStopping) setImmediate(handle, client, req, res)
    else handle(client, req, res)
  }

  function handle(client: HttpClient, req: IncomingMessage, res: ServerResponse): void {
    try {
      const closing = connections.closingFaultOf(client)
      if (isOneAnswer || (isStopping && client.last === res)) res.setHeader('Connection', 'close')
      if (closing !== null) return give(client, res, problem(closing))
      if (req.rawHeaders.length > 2 * MAX_HEAD_FIELDS) return give(client, res, problem(TOO_MANY_FIELDS))
      // Nothing can be answered after an event stream, which has no end.
      if (client.events !== null) return connections.end(client, 'broken-framing')
      const outcome = route(client, req)
      if (!(outcome instanceof Promise)) return give(client, res, outcome)
      void connections.later(client, outcome, (late) => give(client, res, late))
    } catch (error) {
      connections.fail(client, error)
    }
  }

  /** Before an answer that ends the connection (`drop`), the requests that wait get what there is. */
  function give(client: HttpClient, res: ServerResponse, outcome: Outcome): void {
    // One that waited may have its answer: its body was at fault.
    if (outcome === null || res.destroyed || res.headersSent) return
    if ('events' in outcome) return startEvents(client, res, outcome.events)
    if (outcome.drop === undefined) return send(res, outcome)
    if (client.isEnding) return
    client.isEnding = true
    connections.noteDrop(client.peer, outcome.drop)
    res.setHeader('Connection', 'close')
    send(res, outcome)
    client.waits.abort()
  }

  /** The head is sent at once. Without a token, the first event comes with the first token. */
  function startEvents(client: HttpClient, res: ServerResponse, first: Reply<'token.subscribe'>): void {
    res.writeHead(200, ['Content-Type', 'text/event-stream', 'Cache-Control', 'no-store'])
    if (res.req.method === 'HEAD' || isStopping) return void res.end()
    res.flushHeaders()
    client.events = res
    subscribe({ client, id: '' })
    if ('value' in first) writeEvent(res, first)
  }

  function push(client: HttpClient): void {
    const { events, subscriptions, socket } = client
    if (events === null || client.pushed === subscriptions.length || socket.writableNeedDrain) return
    client.pushed = subscriptions.length
    writeEvent(events, operations.changedToken(client))
  }

  function onClientError({ code }: NodeJS.ErrnoException, socket: Socket): void {
    const client = connections.of(socket)
    if (client === undefined || client.isEnding || client.events !== null || !socket.writable)
      return void socket.destroy()
    const { last } = client
    const closing = code === 'ERR_HTTP_REQUEST_TIMEOUT' ? TOO_LATE : FRAMING
    // The body of the last request is at fault.
    if (last !== null && !last.headersSent && !last.req.complete) return give(client, last, problem(closing))
    const end = (): void => connections.end(client, closing.drop, closingText(problem(closing)))
    // What comes after the last request is, which is answered first.
    if (last === null || last.writableFinished) end()
    else last.once('finish', end)
  }

  /** Two turns of the event loop without a request: all that had arrived was read. */
  async function endAnswered(isFresh: (client: Client) => boolean): Promise<void> {
    const before = requests
    await nextTurn()
    await nextTurn()
    if (requests !== before) return
    for (const server of servers) server.closeIdleConnections()
    // Node does not count those as idle that have never sent a request.
    for (const client of connections.clients())
      if (client.last === null && !isFresh(client)) client.socket.destroy()
  }

  function onStop(): void {
    isStopping = true
    for (const { events, last } of connections.clients()) {
      events?.end()
      if (last?.headersSent === false) last.setHeader('Connection', 'close')
    }
  }

  return connections.server
}

function writeEvent(events: ServerResponse, reply: Reply<'token.subscribe'>): void {
  const [event, data] =
    'fault' in reply ? ['fault', JSON.stringify(reply.fault)] : ['token.changed', reply.value.json]
  events.write(`event: ${event}\ndata: ${data}\n\n`)
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
