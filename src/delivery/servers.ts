// The servers of the daemon, `ipc.sock`, `http.sock` and the metrics: peers, audit and turns are common to them.
import type { Config, SocketConfig } from '../config/config.ts'
import { raceAbort, untilAborted } from '../lib/abort.ts'
import type { Log } from '../lib/log.ts'
import { runTasks } from '../lib/run-tasks.ts'
import { descriptorsOf, type InheritedSockets } from '../lib/socket-activation.ts'
import type { StatusResult } from '../protocol.ts'
import type { ConnectionCounts, ConnectionServer, ConnectionServerOptions } from './connections/server.ts'
import type { Metrics } from './http/routes.ts'
import { createIpcServer } from './ipc/server.ts'
import { createDescriptors, createTurns } from './limits.ts'
import type { OperationCounts, TestAlert } from './operations.ts'
import { createPeers, type Peers } from './peers.ts'
import type { Replies } from './replies.ts'
import { createTokenAudit, type TokenAudit } from './token-audit.ts'

/** Rounds of the event loop: until a client is accepted, until its request is read, and one that has begun already. */
const ROUNDS_TO_AN_ANSWER = 3

export type ServerCounts = ConnectionCounts & OperationCounts

export interface DeliveryServer extends ConnectionServer {
  readonly counts: () => ServerCounts
}

/** Common to all servers. */
export interface DeliveryContext extends Pick<
  ConnectionServerOptions,
  'peers' | 'turns' | 'descriptors' | 'log' | 'timeouts'
> {
  readonly replies: Replies
  readonly audit: TokenAudit
  /** Raises a test alert; without it `alert.test` is refused. */
  readonly testAlert?: TestAlert | undefined
}
export type ServerOptions = DeliveryContext & Pick<ConnectionServerOptions, 'socket' | 'inherited'>

export function createDeliveryContext(options: {
  replies: Replies
  testAlert?: TestAlert
  log: Log
  peers?: Peers
}): DeliveryContext {
  const { log, peers = createPeers() } = options
  const audit = createTokenAudit({ log })
  return { ...options, peers, audit, turns: createTurns(), descriptors: createDescriptors() }
}

export interface Servers {
  /** Serves until the signal is aborted. Calls `onListening` once every socket listens. Throws UserError (69, 78). */
  run(signal: AbortSignal, options: { onListening: () => void }): Promise<void>
  /** Both sockets or none. Throws UserError, and then all stays as it was. */
  reconfigure(next: Pick<Config, 'ipc' | 'http'>): Promise<void>
  /** Makes removed sockets again, and logs reads of tokens that are due. Never fails. */
  tick(): Promise<void>
  clients(): StatusResult['clients']
  /** `http` is null where it is off. */
  counts(): { ipc: ServerCounts; http: ServerCounts | null }
}

/** Throws UserError where the daemon's user is that of strangers. */
export function createServers(
  config: Pick<Config, 'ipc' | 'http'>,
  options: {
    inherited: InheritedSockets
    replies: Replies
    metrics: Metrics
    testAlert: TestAlert
    log: Log
  },
): Servers {
  const { inherited, metrics } = options
  const context = createDeliveryContext(options)
  const { audit } = context
  const ipc = createIpcServer({ ...context, socket: config.ipc, inherited: descriptorsOf(inherited, 'ipc') })
  const http = createHttpSwitch(
    { ...context, metrics, inherited: descriptorsOf(inherited, 'http') },
    config.http,
  )
  let running = config

  return {
    async run(signal, { onListening }) {
      const ipcListening = Promise.withResolvers<void>()
      await runTasks(
        [
          (stop) => ipc.run(stop, { onListening: ipcListening.resolve }),
          async (stop) => {
            // Most clients use the other socket, and loading HTTP takes time: those that wait there already come first.
            await raceAbort(ipcListening.promise, stop)
            for (let round = 0; round < ROUNDS_TO_AN_ANSWER; round += 1) await new Promise(setImmediate)
            await http.run(stop, { onListening })
          },
          async (stop) => {
            if (inherited.metrics.length === 0) return untilAborted(stop)
            const { createMetricsServer } = await import('./http/server.ts')
            const server = createMetricsServer({ ...context, inherited: inherited.metrics, metrics })
            await server.run(stop, { onListening: () => undefined })
          },
        ],
        signal,
      )
    },
    async reconfigure(next) {
      await http.reconfigure(next.http)
      await ipc.reconfigure(next.ipc).catch(async (error: unknown) => {
        await http.reconfigure(running.http)
        throw error
      })
      running = next
    },
    async tick() {
      await Promise.all([ipc.tick(), http.tick()])
      audit.flush()
    },
    clients() {
      const httpCounts = http.counts()
      return { ipc: clientsOf(ipc.counts()), http: httpCounts && clientsOf(httpCounts) }
    },
    counts: () => ({ ipc: ipc.counts(), http: http.counts() }),
  }
}

function clientsOf({ connections, subscribers }: ServerCounts): StatusResult['clients']['ipc'] {
  return { connections, subscribers }
}

interface HttpSwitch extends Pick<ConnectionServer, 'run' | 'tick'> {
  /** Other settings, on or off (null). Throws UserError, and then all stays as it was. */
  reconfigure(socket: SocketConfig | null): Promise<void>
  /** null where HTTP is off. */
  counts(): ServerCounts | null
}

/** `http.sock`, which a reload may switch on and off. The HTTP server is loaded when it is needed. */
function createHttpSwitch(
  options: Omit<ServerOptions, 'socket'> & { metrics: Metrics },
  first: SocketConfig | null,
): HttpSwitch {
  let running: { readonly server: DeliveryServer; readonly stop: () => Promise<void> } | null = null
  let isStopped = false
  const failure = Promise.withResolvers<never>()

  async function start(socket: SocketConfig): Promise<void> {
    const { createHttpServer } = await import('./http/server.ts')
    const server = createHttpServer({ ...options, socket })
    const stopping = new AbortController()
    const listening = Promise.withResolvers<void>()
    const serving = server.run(stopping.signal, { onListening: listening.resolve })
    serving.then(listening.resolve, listening.reject)
    await listening.promise
    serving.catch(failure.reject)
    running = {
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
      if (first !== null) await start(first)
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
      else if (running === null) await start(socket)
      else await running.server.reconfigure(socket)
      if (isStopped) await stop()
    },
    tick: async () => running?.server.tick(),
    counts: () => running?.server.counts() ?? null,
  }
}
