// A faulty configuration, and clients that wait at sockets handed over by systemd: they are told, before the daemon ends.
import { tmpdir } from 'node:os'
import { runTogether } from '../lib/run-together.ts'
import type { Log } from '../lib/log.ts'
import type { SocketConfig } from '../config/config.ts'
import type { Fault } from '../protocol.ts'
import { createHoldings } from './holdings.ts'
import { createHttpServer } from './http-server.ts'
import { createIpcServer } from './ipc-server.ts'
import type { InheritedSockets } from './listen.ts'
import { createPeers } from './peer.ts'
import type { Replies } from './replies.ts'

const TELL_FOR_MS = 2_000

/** Answers every request at the inherited sockets with the fault `misconfigured` for 2 s, or until the signal is aborted. */
export async function tellMisconfigured(
  inherited: InheritedSockets,
  options: { message: string; log: Log; signal: AbortSignal; forMs?: number },
): Promise<void> {
  const { message, log, signal, forMs = TELL_FOR_MS } = options
  const replies = createMisconfiguredReplies(message)
  const metrics = () => Promise.resolve({ contentType: 'text/plain; charset=utf-8', body: '' })
  const common = { replies, log, peers: createPeers({ log }), holdings: createHoldings(), socket: ANY_SOCKET }
  const servers = [
    ...(inherited.ipc.length === 0 ? [] : [createIpcServer({ ...common, inherited: inherited.ipc })]),
    ...(inherited.http.length === 0
      ? []
      : [createHttpServer({ ...common, metrics, inherited: inherited.http })]),
  ]
  if (servers.length === 0) return
  await runTogether(
    servers.map((server) => (stop) => server.run(stop, { onListening: () => undefined })),
    AbortSignal.any([signal, AbortSignal.timeout(forMs)]),
  )
}

/** The limits of the configuration that could not be read; its path is not used. */
const ANY_SOCKET: SocketConfig = {
  path: tmpdir(),
  mode: 0,
  gid: null,
  allow: { uids: [], gids: [] },
  maxConnections: 4096,
  maxConnectionsPerUser: 1024,
  maxRequestsPerSecond: null,
}

function createMisconfiguredReplies(message: string): Replies {
  const told: { fault: Fault } = { fault: { code: 'misconfigured', message } }
  return {
    prepared: () => null,
    current: () => told,
    token: () => told,
    need: () => undefined,
    reject: () => told,
    refresh: () => Promise.resolve(told),
    status: () => told,
    isAlive: () => true,
    onChange: () => () => undefined,
  }
}
