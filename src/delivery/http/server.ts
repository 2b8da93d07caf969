// `http.sock`: the operations over HTTP/1.1; and metrics alone, on a socket of their own.
import {
  createConnectionServer,
  type ConnectionServer,
  type ConnectionServerOptions,
} from '../connections/server.ts'
import {
  HANDED_OVER,
  type DeliveryContext,
  type DeliveryServer,
  type ServerOptions,
} from '../delivery-server.ts'
import { createOperations, type Operations } from '../operations.ts'
import { HttpConnection, type HttpContext } from './connection.ts'
import { createParser } from './parser.ts'
import {
  createHealthRoutes,
  createHttpRoutes,
  createTokenRoutes,
  type Metrics,
  type Routes,
} from './routes.ts'

export function createHttpServer(options: ServerOptions & { readonly metrics: Metrics }): DeliveryServer {
  const { isDirect = true } = options
  const operations = createOperations({ ...options, transport: 'http' })
  const routes = { ...createTokenRoutes(operations), ...createHealthRoutes(options) }
  const server = serveRoutes({ ...options, transport: 'http', isDirect }, { routes, operations })
  const { run, reconfigure, repair } = server
  return { run, reconfigure, repair, counts: () => ({ ...server.statistics(), ...operations.counts() }) }
}

/**
 * `/metrics`, `/healthz` and `/readyz` on sockets that were handed over, which may be TCP: never a token, and nothing
 * else. Peers are not known there.
 */
export function createMetricsServer(
  options: Pick<DeliveryContext, 'replies' | 'memory' | 'log'> & {
    readonly inherited: readonly number[]
    readonly metrics: Metrics
  },
): Pick<DeliveryServer, 'run'> {
  const operations = { changedToken: () => options.replies.current(), denial: () => null }
  const routes = createHealthRoutes(options)
  const common = { transport: 'metrics', socket: METRICS_SOCKET, peers: null, isDirect: true } as const
  return serveRoutes({ ...options, ...common }, { routes, operations })
}

const METRICS_SOCKET = { ...HANDED_OVER, maxConnections: 64, maxConnectionsPerUser: 64 }

function serveRoutes(
  options: Omit<ConnectionServerOptions, 'open'>,
  { routes, operations }: { routes: Routes; operations: Pick<Operations, 'changedToken' | 'denial'> },
): ConnectionServer {
  const server = createConnectionServer({
    ...options,
    open: (connection) => new HttpConnection(connection, context),
  })
  const parser = createParser()
  const context: HttpContext = { parser, server, operations, serve: createHttpRoutes(routes, operations) }
  return server
}
