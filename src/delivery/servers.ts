// The servers of the daemon, `ipc.sock`, `http.sock` and the metrics: peers, audit and memory budget are common to them.
import type { Config } from '../config/config.ts'
import { raceAbort } from '../lib/abort.ts'
import type { Log } from '../lib/log.ts'
import { runTasks } from '../lib/run-tasks.ts'
import { descriptorsOf, type InheritedSockets } from '../lib/socket-activation.ts'
import type { StatusResult } from '../protocol.ts'
import { createMemoryBudget } from './connections/limits.ts'
import type { ServerCounts } from './delivery-server.ts'
import type { Metrics } from './http/routes.ts'
import { createHttpService, serveMetrics } from './http/service.ts'
import { createIpcServer } from './ipc/server.ts'
import type { TestAlert } from './operations.ts'
import { createPeerCredentials } from './peer-credentials.ts'
import type { Replies } from './replies.ts'
import { createTokenAudit } from './token-audit.ts'

/** Rounds of the event loop: until a client is accepted, until its request is read, and one that has begun already. */
const ROUNDS_TO_AN_ANSWER = 3

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

/** Throws UserError where `allow` is set and peers cannot be known. */
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
  const { inherited, metrics, log } = options
  const peers = createPeerCredentials({ log })
  for (const socket of [config.ipc, config.http]) if (socket !== null) peers.require(socket.allow)
  const audit = createTokenAudit({ log })
  const context = { ...options, peers, audit, memory: createMemoryBudget() }
  const ipc = createIpcServer({ ...context, socket: config.ipc, inherited: descriptorsOf(inherited, 'ipc') })
  const http = createHttpService({
    ...context,
    socket: config.http,
    inherited: descriptorsOf(inherited, 'http'),
  })
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
          (stop) => serveMetrics({ ...context, inherited: inherited.metrics, metrics }, stop),
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
      await Promise.all([ipc.repair(), http.repair()])
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
