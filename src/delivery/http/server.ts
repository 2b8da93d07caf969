// `http.sock`: the operations over HTTP/1.1; and metrics alone, on a socket of their own.
import { tmpdir } from 'node:os'
import type { SocketConfig } from '../../config/config.ts'
import {
  createConnectionServer,
  type ConnectionServer,
  type ConnectionServerOptions,
} from '../connections/server.ts'
import type { DeliveryContext, DeliveryServer, ServerOptions } from '../delivery-server.ts'
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
  const { isDirect = true, inherited = null } = options
  const operations = createOperations({ ...options, transport: 'http' })
  const routes = { ...createTokenRoutes(operations), ...createHealthRoutes(options) }
  const server = serveRoutes({ ...options, transport: 'http', inherited, isDirect }, { routes, operations })
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

/** Limits of the metrics socket; its path is not used. */
const METRICS_SOCKET: SocketConfig = {
  path: tmpdir(),
  mode: 0,
  gid: null,
  allow: { uids: [], gids: [] },
  maxConnections: 64,
  maxConnectionsPerUser: 64,
  maxRequestsPerSecond: null,
}

function serveRoutes(
  options: Omit<ConnectionServerOptions, 'open'>,
  { routes, operations }: { routes: Routes; operations: Pick<Operations, 'changedToken' | 'denial'> },
): ConnectionServer {
  const server = createConnectionServer({
    ...options,
    open: (connection) => new HttpConnection(connection, context),
  })
  const parser = createParser()
  const context: HttpContext = { parser, server, operations, routes: createHttpRoutes(routes, operations) }
  return server
}
