// `http.sock` and the metrics: HTTP/1.1 on Node's own server and parser. A client that sends more requests than
// are answered is ended: Node would make requests of all that it has read.
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { Log } from '../lib/log.ts'
import type { Fault } from '../protocol.ts'
import { fail, type Connection, type Protocol } from './guard.ts'
import { MAX_BODY_BYTES, MAX_HEAD_BYTES, MAX_HEAD_FIELDS, MAX_UNANSWERED, WRITE_BYTES } from './limits.ts'
import { problem, problemOf, type Page, type Route } from './routes.ts'
import { allowHalfOpen, checkHeads } from './undocumented.ts'

export function createHttp(parts: {
  route: Route
  /** Counts a request. Returns the fault with which its connection ends; null: it is answered. */
  admit: (client: Connection) => { readonly fault: Fault } | null
  log: Log
}): Protocol {
  const { route, admit, log } = parts
  const sessions = new WeakMap<object, ReturnType<typeof createSession>>()
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
  server.on('clientError', (_error, stream) => sessions.get(stream)?.endBroken())

  function onRequest(request: IncomingMessage, response: ServerResponse): void {
    sessions.get(request.socket)?.answer(request, response)
  }

  function createSession(client: Connection) {
    /** Requests that are not answered to their end. */
    let unanswered = 0
    const onAnswered = (): void => {
      unanswered -= 1
    }

    function begin(): void {
      sessions.set(client.socket, session)
      server.emit('connection', client.socket)
      checkHeads(client.socket, isWanted)
    }

    function isWanted(request: IncomingMessage): boolean {
      client.requests += 1
      if (!isWithinLimits(request)) {
        endBroken()
        return false
      }
      unanswered += 1
      if (unanswered <= MAX_UNANSWERED) return true
      client.drop = 'too-many-requests'
      client.socket.destroy()
      return false
    }

    function answer(request: IncomingMessage, response: ServerResponse): void {
      response.on('close', onAnswered)
      try {
        const refusal = admit(client)
        if (refusal !== null) return give(response.setHeader('Connection', 'close'), problem(refusal))
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

    /** The input is no HTTP from here on. Of requests before it the client loses the answers. */
    function endBroken(): void {
      const { socket } = client
      client.drop = 'broken-framing'
      if (unanswered > 0 || !socket.writable) return void socket.destroy()
      socket.write(BROKEN)
      socket.destroySoon()
    }

    const options = { highWaterMark: WRITE_BYTES }
    const session = { options, begin, push: () => undefined, answer, endBroken }
    return session
  }

  return createSession
}

function give(response: ServerResponse, { status, headers, body }: Page): void {
  // The client has gone.
  if (response.destroyed) return
  response.writeHead(status, headers as string[])
  response.end(body)
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
const BROKEN = `HTTP/1.1 400 Bad Request\r\n${BROKEN_HEAD}Connection: close\r\n\r\n${BROKEN_PAGE.body}`
