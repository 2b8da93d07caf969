// `http.sock`: the operations over HTTP/1.1; and metrics alone, on a socket of their own.
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import {
  createConnectionServer,
  type ConnectionServer,
  type ConnectionServerOptions,
} from '../connections/server.ts'
import { MAX_HEAD_BYTES } from '../limits.ts'
import { createOperations, type Operations } from '../operations.ts'
import type { DeliveryContext, DeliveryServer, ServerOptions } from '../servers.ts'
import { HttpConnection, type HttpStream } from './connection.ts'
import {
  createHealthRoutes,
  createHttpRoutes,
  createTokenRoutes,
  type Metrics,
  type Routes,
} from './routes.ts'

export function createHttpServer(options: ServerOptions & { readonly metrics: Metrics }): DeliveryServer {
  const operations = createOperations({ ...options, transport: 'http' })
  const routes = { ...createTokenRoutes(operations), ...createHealthRoutes(options) }
  const server = serveRoutes({ ...options, transport: 'http' }, { routes, operations })
  return { ...server, counts: () => ({ ...server.counts(), ...operations.counts() }) }
}

/**
 * `/metrics`, `/healthz` and `/readyz` on sockets that were handed over, which may be TCP: never a token, and nothing
 * else. Peers are not known there, so no connection is kept: each gets one answer, and has 10 s for it.
 */
export function createMetricsServer(
  options: DeliveryContext & { readonly inherited: readonly number[]; readonly metrics: Metrics },
): ConnectionServer {
  const { replies } = options
  const operations = { changedToken: () => replies.current(), denial: () => null }
  const common = {
    transport: 'metrics',
    socket: METRICS_SOCKET,
    timeouts: METRICS_TIMEOUTS,
    ...options,
  } as const
  return serveRoutes(common, { routes: createHealthRoutes(options), operations })
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
/** A connection ends at the sweep after its time is up. */
export const METRICS_TIMEOUTS = { sweepMs: 2_000, idle: 8_000, stalled: 8_000, 'incomplete-request': 6_000 }
const METRICS_SOCKET = { ...HANDED_OVER, maxConnections: 64, maxConnectionsPerUser: 64 }

function serveRoutes(
  options: ConnectionServerOptions,
  { routes, operations }: { routes: Routes; operations: Pick<Operations, 'changedToken' | 'denial'> },
): ConnectionServer {
  const isOneAnswer = options.transport === 'metrics'
  const context = { parser: createParser(), operations, serve: createHttpRoutes(routes), isOneAnswer }
  return createConnectionServer(options, (connection) => new HttpConnection(connection, context))
}

/** It does not listen, and has no timers: it is given streams, which have the timeouts of connections/. */
function createParser(): Server {
  const parser = createServer({
    maxHeaderSize: MAX_HEAD_BYTES,
    keepAliveTimeout: 0,
    // There is one host here, whatever it is called.
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
  // No expectation of a client changes the answer.
  parser.on('checkExpectation', onRequest)
  // CONNECT: its answer has no ServerResponse, and the connection is of no more use.
  parser.on('connect', (_req, stream) => connectionOf(stream).onParseError())
  parser.on('clientError', (_error, stream) => connectionOf(stream).onParseError())
  return parser
}
