// `http.sock` and the metrics: HTTP/1.1 on Node's own server and parser. A client that sends more requests than
// are answered is ended: Node would make requests of all that it has read.
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { Duplex } from 'node:stream'
import type { Log } from '../lib/log.ts'
import type { Fault } from '../protocol.ts'
import { fail, type Connection, type Protocol } from './guard.ts'
import { MAX_BODY_BYTES, MAX_HEAD_BYTES, MAX_HEAD_FIELDS, MAX_UNANSWERED, WRITE_BYTES } from './limits.ts'
import { problem, problemOf, type Page } from './pages.ts'
import type { Route } from './routes.ts'
import { allowHalfOpen, checkHeads } from './undocumented.ts'

interface HttpState {
  /** Requests that are not answered to their end. */
  unanswered: number
}
type Client = Connection & HttpState

export function createHttp({
  route,
  admit,
  log,
}: {
  route: Route
  /** Counts a request. Returns the fault with which its connection ends; null: it is answered. */
  admit: (client: Connection) => { readonly fault: Fault } | null
  log: Log
}): Protocol<HttpState> {
  /** By the socket, and by the answer, whose `req.socket` is gone once the connection is. */
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
    server.emit('connection', socket)
    checkHeads(socket, (request) => {
      client.requests += 1
      const { 'transfer-encoding': encoding } = request.headers
      if (encoding !== undefined || request.rawHeaders.length > 2 * MAX_HEAD_FIELDS) {
        endWith(client, encoding === undefined ? TOO_MANY_FIELDS : NO_LENGTH)
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
    clients.set(response, client)
    response.on('close', onAnswered)
    try {
      const refusal = admit(client)
      if (refusal !== null) return give(response, { ...problem(refusal), isLast: true })
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

  function onAnswered(this: ServerResponse): void {
    const client = clients.get(this)
    if (client !== undefined) client.unanswered -= 1
  }

  function give(response: ServerResponse, page: Page | null): void {
    // The client has gone.
    if (page === null || response.destroyed) return
    const { req } = response
    const isBodyLeft = !req.complete && req.headers['content-length'] !== undefined
    if (page.isLast === true || isBodyLeft) response.setHeader('Connection', 'close')
    response.writeHead(page.status, page.headers as string[])
    response.end(page.body)
  }

  /** The input is no HTTP from here on. Of requests before it the client loses the answers. */
  function onClientError(_error: Error, stream: Duplex): void {
    const client = clients.get(stream)
    if (client === undefined) stream.destroy()
    else endWith(client, BAD_HEAD)
  }

  function endWith(client: Client, { status, headers, body }: Page): void {
    const { socket } = client
    client.drop = 'broken-framing'
    if (client.unanswered > 0 || !socket.writable) return void socket.destroy()
    const fields = headers.map((text, index) => (index % 2 === 0 ? `${text}: ` : `${text}\r\n`)).join('')
    socket.write(`HTTP/1.1 ${status} Bad Request\r\n${fields}Connection: close\r\n\r\n${String(body)}`)
    socket.destroySoon()
  }

  return {
    createState: () => ({ unanswered: 0 }),
    optionsOf: () => ({ highWaterMark: WRITE_BYTES }),
    begin,
    push: () => undefined,
  }
}

const badRequest = (message: string): Page => problemOf('bad-request', message)
const BAD_HEAD = badRequest(
  `This is not a valid HTTP/1.1 request, or its header section is longer than ${MAX_HEAD_BYTES / 1024} KiB`,
)
const TOO_MANY_FIELDS = badRequest(`The head of a request has at most ${MAX_HEAD_FIELDS} fields`)
const NO_LENGTH = badRequest(
  `A body comes with \`Content-Length\`, and has at most ${MAX_BODY_BYTES / 1024} KiB`,
)
