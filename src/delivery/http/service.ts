// `http.sock` as a component that a reload may switch on and off. The HTTP server is loaded when it is needed.
import type { SocketConfig } from '../../config/config.ts'
import { raceAbort, untilAborted } from '../../lib/abort.ts'
import type { DeliveryServer, ServerOptions } from '../delivery-server.ts'
import type { createMetricsServer } from './server.ts'
import type { Metrics } from './routes.ts'

export interface HttpService {
  /** Serves until the signal is aborted. Calls `onListening` at once where HTTP is off. Throws UserError (69, 78). */
  run(signal: AbortSignal, options: { onListening: () => void }): Promise<void>
  /** Other settings, on or off (null). Throws UserError, and then all stays as it was. */
  reconfigure(socket: SocketConfig | null): Promise<void>
  /** Makes a removed socket again. Never fails. */
  repair(): Promise<void>
  /** null where HTTP is off. */
  counts(): ReturnType<DeliveryServer['counts']> | null
}

interface Running {
  readonly server: DeliveryServer
  stop(): Promise<void>
}

export function createHttpService(
  options: Omit<ServerOptions, 'socket'> & { socket: SocketConfig | null; metrics: Metrics },
): HttpService {
  let running: Running | null = null
  let isStopped = false
  const failure = Promise.withResolvers<never>()

  async function start(socket: SocketConfig): Promise<Running> {
    const { createHttpServer } = await import('./server.ts')
    const server = createHttpServer({ ...options, socket })
    const stopping = new AbortController()
    const listening = Promise.withResolvers<void>()
    const serving = server.run(stopping.signal, { onListening: listening.resolve })
    serving.then(listening.resolve, listening.reject)
    await listening.promise
    serving.catch(failure.reject)
    return {
      server,
      stop() {
        stopping.abort()
        return serving
      },
    }
  }

  async function stop(): Promise<void> {
    const stopped = running
    running = null
    await stopped?.stop()
  }

  return {
    async run(signal, { onListening }) {
      if (options.socket !== null) running = await start(options.socket)
      onListening()
      try {
        await raceAbort(failure.promise, signal)
      } finally {
        isStopped = true
        await stop()
      }
    },
    async reconfigure(socket) {
      if (socket === null) await stop()
      else if (running === null) running = await start(socket)
      else await running.server.reconfigure(socket)
      if (isStopped) await stop()
    },
    repair: async () => running?.server.repair(),
    counts: () => running?.server.counts() ?? null,
  }
}

/** Serves the metrics on sockets that were handed over for them, until the signal is aborted. */
export async function serveMetrics(
  options: Parameters<typeof createMetricsServer>[0],
  signal: AbortSignal,
): Promise<void> {
  if (options.inherited.length === 0) return untilAborted(signal)
  const server = await import('./server.ts')
  await server.createMetricsServer(options).run(signal, { onListening: () => undefined })
}
