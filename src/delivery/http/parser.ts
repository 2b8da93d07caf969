// Node's HTTP parser and answers, on connections that are accepted and read elsewhere.
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { headerOf, MAX_HEAD_BYTES } from './responses.ts'

/** Events of one connection. */
export interface ParserEvents {
  /** The head of a request has been read. */
  onRequest(req: IncomingMessage, res: ServerResponse): void
  /** The bytes are no HTTP, or ask for a tunnel. */
  onParseError(): void
  /** Node's HTTP resumes the socket after each request, where this is true. */
  mayResume(): boolean
}
interface HttpSocket extends Socket {
  httpEvents: ParserEvents
}

/** It has no timers: those of connections/ apply. */
export function createParser(): Server {
  const parser = createServer({
    maxHeaderSize: MAX_HEAD_BYTES,
    keepAliveTimeout: 0,
    noDelay: false,
    // There is one host here, whatever it is called.
    requireHostHeader: false,
    // Requests without a body get no stream for it.
    optimizeEmptyRequests: true,
  })
  parser.timeout = 0
  const eventsOf = (socket: unknown): ParserEvents => (socket as HttpSocket).httpEvents
  const onRequest = (req: IncomingMessage, res: ServerResponse): void => {
    // Another protocol is declined by an answer in this one; Node's parser reports no errors after such an offer.
    if (headerOf(req, 'upgrade') !== undefined) res.shouldKeepAlive = false
    eventsOf(req.socket).onRequest(req, res)
  }
  parser.on('request', onRequest)
  // No expectation of a client changes the answer.
  parser.on('checkExpectation', onRequest)
  // CONNECT: its answer has no ServerResponse, and the connection is of no more use.
  parser.on('connect', (_req, socket) => eventsOf(socket).onParseError())
  parser.on('clientError', (_error, socket) => eventsOf(socket).onParseError())
  // A client that half-closes after its request gets its answer. Node has it since 2011, and no name for it in its types.
  return Object.assign(parser, { httpAllowHalfOpen: true })
}

/**
 * Gives the connection to Node's HTTP server, and returns the function with which that parses bytes. Node reads by a
 * listener for 'data', or past JavaScript while it has the only one; here it gets its bytes from this daemon, which
 * can thus stop between two requests.
 */
export function takeOverReading(
  parser: Server,
  socket: Socket,
  events: ParserEvents,
): (bytes: Buffer) => void {
  ;(socket as HttpSocket).httpEvents = events
  const resume = socket.resume.bind(socket)
  socket.resume = () => (events.mayResume() ? resume() : socket)
  const before = new Set(socket.listeners('data'))
  parser.emit('connection', socket)
  const listener = socket.listeners('data').find((each) => !before.has(each))
  if (listener === undefined) throw new Error('Node no longer reads HTTP requests by a listener for data')
  socket.removeListener('data', listener as () => void)
  // A listener of any kind ends Node's reading past JavaScript.
  socket.on('data', () => undefined)
  return listener as (bytes: Buffer) => void
}
