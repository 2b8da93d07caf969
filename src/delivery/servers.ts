// The servers of the daemon: `ipc.sock`, `http.sock`, and metrics, which share peers, audit and
// descriptors.
import type { Config, SocketConfig } from '../config/config.ts'
import { untilAborted } from '../lib/tasks.ts'
import type { Clock } from '../lib/clock.ts'
import type { Log } from '../lib/log.ts'
import { loadLibc } from '../lib/libc.ts'
import { descriptorsOf, isSocketActivated, type InheritedSockets } from '../host/inherited-sockets.ts'
import type { StatusResult } from '../protocol.ts'
import type { ConnectionServer, DeliveryContext } from './connections.ts'
import type { Metrics } from './http/routes.ts'
import { createIpcServer } from './ipc/server.ts'
import { createLimitedUsers } from './limited.ts'
import { fitConnections, METRICS_CONNECTIONS, PRIVILEGED_CONNECTIONS } from './limits.ts'
import { createMemory, type Memory } from './memory.ts'
import type { ListeningSocket, Reload, TestAlert } from './operations.ts'
import { createPeers, type Peers } from './peers.ts'
import type { Replies } from './replies.ts'
import { createTokenAudit } from './token-audit.ts'
import { createTurns } from './turns.ts'

interface ContextOptions {
  readonly replies: Replies
  readonly testAlert: TestAlert
  readonly reload: Reload
  readonly log: Log
  readonly clock: Pick<Clock, 'now' | 'sleep'>
  readonly peers?: Peers
  readonly memory?: Memory
}

export function createDeliveryContext(options: ContextOptions): DeliveryContext {
  const { replies, testAlert, reload, log, peers = createPeers(), memory = createMemory() } = options
  const audit = createTokenAudit(options)
  const limited = createLimitedUsers(options)
  return { replies, testAlert, reload, log, peers, audit, limited, memory, turns: createTurns() }
}

type Sockets = Pick<Config, 'ipc' | 'http'>

/** The sockets with as many connections as the descriptors of this process allow; fewer are logged. */
function createFitting({ inherited, log }: { inherited: InheritedSockets; log: Log }) {
  const others = {
    metrics: inherited.metrics.length > 0 ? METRICS_CONNECTIONS : 0,
  }
  return ({ ipc, http }: Sockets) => {
    const wanted = { ipc: ipc.maxConnections, http: http?.maxConnections ?? 0, ...others }
    const { share, openFiles } = fitConnections(wanted)
    const fit = <T extends SocketConfig | null>(name: 'ipc' | 'http', socket: T): T => {
      if (socket === null || share >= 1) return socket
      const maxConnections = Math.max(1, Math.floor(socket.maxConnections * share))
      log(
        'warning',
        'A socket has room for fewer connections than configured: raise LimitNOFILE= (ulimit -n)',
        {
          event: 'connections-clamped',
          setting: `${name}.maxConnections`,
          configured: socket.maxConnections,
          limit: maxConnections,
          openFiles,
        },
      )
      return { ...socket, maxConnections }
    }
    const room = (most: number): number => Math.max(2, Math.floor((most + PRIVILEGED_CONNECTIONS) * share))
    return {
      ipc: fit('ipc', ipc),
      http: fit('http', http),
      room: { ipc: room(wanted.ipc), http: room(wanted.http) },
    }
  }
}

/** Throws UserError (78) if the daemon runs as the overflow user. */
export function createServers(
  config: Sockets,
  options: ContextOptions & { readonly inherited: InheritedSockets; readonly metrics: Metrics },
) {
  const { inherited, metrics } = options
  const fit = createFitting(options)
  let running = fit(config)
  // Read while they are open: a client that is still connected asks during the stop, too.
  const handedOver = handedOverSockets(inherited)
  const listening = (): ListeningSocket[] => handedOver ?? ownSockets(running)
  const context = { ...createDeliveryContext(options), sockets: listening }
  const { audit, limited } = context
  const ipc = createIpcServer({
    ...context,
    socket: running.ipc,
    room: running.room.ipc,
    inherited: descriptorsOf(inherited, 'ipc'),
  })
  /** null: `http` is off. The HTTP server is loaded when it is needed. */
  let http: ConnectionServer | null = null

  async function openHttp(socket: SocketConfig, room: number): Promise<void> {
    const { createHttpServer } = await import('./http/server.ts')
    http = createHttpServer({
      ...context,
      metrics,
      inherited: descriptorsOf(inherited, 'http'),
      socket,
      room,
    })
    await http.open()
  }

  return {
    /**
     * Serves until the signal is aborted. Calls `onListening` once every socket listens. Throws UserError
     * (69, 78).
     */
    async run(signal: AbortSignal, { onListening }: { onListening: () => void }): Promise<void> {
      if (signal.aborted) return
      let metricsServer: ConnectionServer | null = null
      try {
        await ipc.open()
        if (running.http !== null) await openHttp(running.http, running.room.http)
        if (inherited.metrics.length > 0) {
          const { createMetricsServer } = await import('./http/server.ts')
          metricsServer = createMetricsServer({ ...context, metrics, inherited: inherited.metrics })
          await metricsServer.open()
        }
        if (!signal.aborted) onListening()
        await untilAborted(signal)
      } finally {
        await Promise.all([ipc.close(), http?.close(), metricsServer?.close()])
      }
    },
    /**
     * Gives both sockets the modes and groups of other settings, or none, and returns the function that has
     * the settings used. Throws UserError; then nothing changes.
     */
    async prepare(sockets: Sockets): Promise<() => void> {
      const next = fit(sockets)
      const uses = [await ipc.prepare(next.ipc, next.room.ipc)]
      if (http !== null && next.http !== null)
        uses.push(
          await http.prepare(next.http, next.room.http).catch(async (error: unknown) => {
            await ipc.prepare(running.ipc)
            throw error
          }),
        )
      return () => {
        running = next
        for (const use of uses) use()
      }
    },
    /** Makes removed sockets again, and logs what is due of reads and limits. Never fails. */
    async tick(): Promise<void> {
      await Promise.all([ipc.tick(), http?.tick()])
      audit.flush()
      limited.flush()
    },
    clients: (): StatusResult['clients'] => ({
      ipc: clientsOf(ipc.counts()),
      http: http && clientsOf(http.counts()),
    }),
    /** `http` is null if it is off. */
    counts: () => ({ ipc: ipc.counts(), http: http?.counts() ?? null }),
  }
}

/** The sockets of systemd; null: there are none, and the daemon opens its own. */
function handedOverSockets(inherited: InheritedSockets): ListeningSocket[] | null {
  if (!isSocketActivated(inherited)) return null
  const { unknown: _, ...served } = inherited
  return Object.entries(served).flatMap(([name, fds]) =>
    fds.map((fd) => ({ name, path: loadLibc().socketPath(fd) })),
  )
}

function ownSockets({ ipc, http }: Pick<Config, 'ipc' | 'http'>): ListeningSocket[] {
  return Object.entries({ ipc, http }).flatMap(([name, socket]) =>
    socket === null ? [] : [{ name, path: socket.path }],
  )
}

function clientsOf({ connections, subscribers }: StatusResult['clients']['ipc']) {
  return { connections, subscribers }
}
