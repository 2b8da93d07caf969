// `http.sock`: the operations over HTTP/1.1; and metrics alone, on a socket of their own.
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { Connection, ConnectionOptions } from '../connections/connection.ts'
import { createConnectionServer, type ConnectionServer, type ServerOptions } from '../connections/server.ts'
import { MAX_HEAD_BYTES } from '../limits.ts'
import { createOperations } from '../operations.ts'
import type { DeliveryContext } from '../servers.ts'
import { HttpConnection, type HttpStream } from './connection.ts'
import { createHealthRoutes, createHttpRoutes, createTokenRoutes, type Metrics } from './routes.ts'

interface HttpOptions extends DeliveryContext, ServerOptions {
  readonly metrics: Metrics
}

export const createHttpServer = (options: HttpOptions): ConnectionServer => serve('http', options)

/**
 * `/metrics`, `/healthz` and `/readyz` alone, never a token, on sockets that were handed over. These may be TCP sockets, whose
 * peers all look like one unknown user. So no connection is kept: each gets one answer, within 10 s.
 */
export function createMetricsServer(options: Omit<HttpOptions, 'socket'>): ConnectionServer {
  return serve('metrics', { ...options, socket: METRICS_SOCKET })
}

/** Limits of a socket that was handed over, if the configuration has none for it; the path is not used. */
export const HANDED_OVER = {
  path: '',
  mode: 0,
  gid: null,
  allow: { uids: [], gids: [] },
  maxConnections: 1_024,
  maxConnectionsPerUser: 128,
  maxRequestsPerSecond: null,
}
const METRICS_SOCKET = { ...HANDED_OVER, maxConnections: 64, maxConnectionsPerUser: 64 }

function serve(transport: 'http' | 'metrics', options: HttpOptions): ConnectionServer {
  const isOneAnswer = transport === 'metrics'
  const operations = createOperations({ ...options, transport: 'http' })
  const routes = { ...(isOneAnswer ? {} : createTokenRoutes(operations)), ...createHealthRoutes(options) }
  const context = { parser: createParser(), serve: createHttpRoutes(routes), isOneAnswer }
  const open = (connection: ConnectionOptions): Connection => new HttpConnection(connection, context)
  return createConnectionServer({ transport, operations, framing: FRAMING, open }, options)
}

/** A server that does not listen and has no timers: it gets streams, whose timeouts are those of connections/. */
function createParser(): Server {
  const parser = createServer({
    maxHeaderSize: MAX_HEAD_BYTES,
    keepAliveTimeout: 0,
    // Any name of the host will do.
    requireHostHeader: false,
    // Requests without a body get no stream for it.
    optimizeEmptyRequests: true,
  })
  parser.timeout = 0
  parser.maxHeadersCount = 0
  const connectionOf = (stream: unknown): HttpConnection => (stream as HttpStream).connection
  const onRequest = (req: IncomingMessage, res: ServerResponse): void =>
    connectionOf(req.socket).onRequest(req, res)
  parser.on('request', onRequest)
  // An `Expect` header does not change the answer.
  parser.on('checkExpectation', onRequest)
  // CONNECT: its answer has no ServerResponse, and the connection is of no more use.
  parser.on('connect', (_req, stream) => connectionOf(stream).onParseError())
  parser.on('clientError', (_error, stream) => connectionOf(stream).onParseError())
  return parser
}

const FRAMING = `This is not a valid HTTP/1.1 request, or its header section is longer than ${MAX_HEAD_BYTES / 1024} KiB`
