// `http.sock` and the metrics: HTTP/1.1 on Node's own server and parser. A client that sends more requests than
// are answered is ended: Node would make requests of all that it has read.
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { Duplex } from 'node:stream'
import type { Log } from '../lib/log.ts'
import type { Fault } from '../protocol.ts'
import { fail, type Connection, type Protocol } from './guard.ts'
import { MAX_BODY_BYTES, MAX_HEAD_BYTES, MAX_HEAD_FIELDS, MAX_UNANSWERED, WRITE_BYTES } from './limits.ts'
import { problem, problemOf, type Page, type Route } from './routes.ts'
import { allowHalfOpen, checkHeads } from './undocumented.ts'

interface HttpState {
  /** Requests that are not answered to their end, and what counts one less. */
  unanswered: number
  onAnswered: () => void
}
type Client = Connection & HttpState

export function createHttp(options: {
  route: Route
  /** Counts a request. Returns the fault with which its connection ends; null: it is answered. */
  admit: (client: Connection) => { readonly fault: Fault } | null
  log: Log
}): Protocol<HttpState> {
  const { route, admit, log } = options
  /** By the socket. */
  const clients = new WeakMap<object, Client>()
  // It listens nowhere, and its timers are off: the guard sees who is idle, slow or does not read.
  const server = createServer(
    {
      maxHeaderSize: MAX_HEAD_BYTES,
      keepAliveTimeout: 0,
      headersTimeout: 0,
      requestTimeout: 0,
      // Any name of the host will do.
      requireHostHeader: false,
      // Requests without a body get no stream for it.
      optimizeEmptyRequests: true,
    },
    onRequest,
  )
  allowHalfOpen(server)
  // An unknown expectation may be ignored (RFC 9110, section 10.1.1). Node's own 417 would pass by all limits.
  server.on('checkExpectation', onRequest)
  server.on('clientError', onClientError)

  function begin(client: Client): void {
    const { socket } = client
    clients.set(socket, client)
    client.onAnswered = () => {
      client.unanswered -= 1
    }
    server.emit('connection', socket)
    checkHeads(socket, (request) => {
      client.requests += 1
      if (!isWithinLimits(request)) {
        closeBroken(client)
        return false
      }
      client.unanswered += 1
      if (client.unanswered <= MAX_UNANSWERED) return true
      client.drop = 'too-many-requests'
      socket.destroy()
      return false
    })
  }

  function onRequest(request: IncomingMessage, response: ServerResponse): void {
    const client = clients.get(request.socket)
    if (client === undefined) return
    response.on('close', client.onAnswered)
    try {
      const refusal = admit(client)
      if (refusal !== null) {
        response.setHeader('Connection', 'close')
        return give(response, problem(refusal))
      }
      const page = route(request, client)
      if (!(page instanceof Promise)) return give(response, page)
      page.then(
        (late) => give(response, late),
        (error: unknown) => fail(client, log, error),
      )
    } catch (error) {
      fail(client, log, error)
    }
  }

  function give(response: ServerResponse, { status, headers, body }: Page): void {
    // The client has gone.
    if (response.destroyed) return
    response.writeHead(status, headers as string[])
    response.end(body)
  }

  function onClientError(_error: Error, stream: Duplex): void {
    const client = clients.get(stream)
    if (client === undefined) stream.destroy()
    else closeBroken(client)
  }

  /** The input is no HTTP from here on. Of requests before it the client loses the answers. */
  function closeBroken(client: Client): void {
    const { socket } = client
    client.drop = 'broken-framing'
    if (client.unanswered > 0 || !socket.writable) return void socket.destroy()
    socket.write(BROKEN)
    socket.destroySoon()
  }

  return {
    createState: () => ({ unanswered: 0, onAnswered: () => undefined }),
    optionsOf: () => ({ highWaterMark: WRITE_BYTES }),
    begin,
    push: () => undefined,
  }
}

/** A longer head than Node's own limit does not get here. */
function isWithinLimits({ headers, rawHeaders }: IncomingMessage): boolean {
  const { 'transfer-encoding': encoding, 'content-length': length = '0' } = headers
  return (
    encoding === undefined && Number(length) <= MAX_BODY_BYTES && rawHeaders.length <= 2 * MAX_HEAD_FIELDS
  )
}

const kib = (bytes: number): string => `${bytes / 1024} KiB`
const BROKEN_PAGE = problemOf(
  'bad-request',
  `A request is HTTP/1.1, with a head of at most ${kib(MAX_HEAD_BYTES)} and ${MAX_HEAD_FIELDS} fields, and a body ` +
    `of at most ${kib(MAX_BODY_BYTES)} with \`Content-Length\``,
)
const BROKEN_HEAD = BROKEN_PAGE.headers
  .map((text, index) => text + (index % 2 === 0 ? ': ' : '\r\n'))
  .join('')
const BROKEN = `HTTP/1.1 400 Bad Request\r\n${BROKEN_HEAD}Connection: close\r\n\r\n${String(BROKEN_PAGE.body)}`
