// The servers of the daemon: `ipc.sock`, `http.sock`, and the metrics over TCP, with what they share.
import type { Server } from 'node:net'
import type { SocketConfig } from '../config/next/config.ts'
import { nameOf } from '../host/ids.ts'
import { isSocketActivated, type InheritedSockets } from '../host/inherited-sockets.ts'
import type { RemedyOf } from '../host/remedy.ts'
import { monotonicMs, type Clock } from '../lib/clock.ts'
import { HOUR_MS } from '../lib/duration.ts'
import type { Log } from '../lib/log.ts'
import { untilAborted } from '../lib/tasks.ts'
import type { StatusResult } from '../protocol.ts'
import { createGuard, type Guard, type Protocol } from './guard.ts'
import { createHttp } from './http.ts'
import { createIpc } from './ipc.ts'
import { METRICS_CONNECTIONS } from './limits.ts'
import { adopt, openOwn, refuseAll, type Listener } from './listen.ts'
import { createOperations, type Requests } from './operations.ts'
import { createPeers, type Peers } from './peers.ts'
import type { Replies } from './replies.ts'
import { createHealthRoutes, createRoute, createTokenRoutes, type Metrics } from './routes.ts'
import { createTokenAudit, type Transport } from './token-audit.ts'
import { assertMeans } from './undocumented.ts'

/** `http` null: it is off. */
export interface Sockets {
  readonly ipc: SocketConfig
  readonly http: SocketConfig | null
}
type Name = 'ipc' | 'http' | 'metrics'
export type Servers = ReturnType<typeof createServers>

const METRICS: SocketConfig = {
  mode: 0,
  gid: null,
  allow: { uids: [], gids: [] },
  maxConnections: METRICS_CONNECTIONS,
  maxConnectionsPerUser: METRICS_CONNECTIONS,
  maxRequestsPerSecond: null,
}

/** Throws UserError (78) if this process, or this Node, cannot guard a socket. */
export function createServers(
  initial: Sockets,
  options: {
    /** Paths of the sockets that the daemon opens itself, where systemd hands none over. */
    readonly paths: Readonly<Record<'ipc' | 'http', string>>
    readonly inherited: InheritedSockets
    readonly replies: Replies
    readonly requests: Requests
    readonly metrics: Metrics
    readonly log: Log
    readonly clock: Pick<Clock, 'now'>
    readonly remedyOf: RemedyOf
    /** A clock that stops during suspend, in ms. */
    readonly monotonicMs?: () => number
    readonly peers?: Peers
  },
) {
  const { paths, inherited, replies, requests, metrics, log, clock, remedyOf } = options
  const { peers = createPeers(), monotonicMs: awakeMs = monotonicMs } = options
  assertMeans()
  let settings = initial
  const isActivated = isSocketActivated(inherited)
  const http = initial.http !== null && (!isActivated || inherited.http.length > 0)
  const limitsOf = (name: Name) => (): SocketConfig => (name === 'metrics' ? null : settings[name]) ?? METRICS
  const audit = createTokenAudit({ log, clock })
  const operations = { ipc: createOperationsOf('ipc'), http: createOperationsOf('http') }
  const health = createHealthRoutes({ replies, metrics })
  const noteExcess = createExcessLog({ log, clock })
  const routes = { ...createTokenRoutes(operations.http), ...health }
  const guards = {
    ipc: guarded(createIpc({ operations: operations.ipc, limits: limitsOf('ipc'), log })),
    http: guarded(createHttpOf('http', createRoute(routes, operations.http.denied))),
    metrics: guarded(createHttpOf('metrics', createRoute(health, null))),
  }
  const listeners: Partial<Record<Name, Listener>> = {}

  function createOperationsOf(transport: Transport) {
    return createOperations({ transport, replies, audit, requests, readers })
  }

  function createHttpOf(name: 'http' | 'metrics', route: ReturnType<typeof createRoute>) {
    return createHttp(name, { route, limits: limitsOf(name), log })
  }

  function guarded<State extends object>(protocol: Protocol<State>): Guard {
    const { name } = protocol
    return createGuard(protocol, {
      limits: limitsOf(name),
      peers: name === 'metrics' ? null : peers,
      log,
      onExcess: (uid, setting) => noteExcess(name, uid, { setting, limit: limitsOf(name)()[setting] }),
    })
  }

  function readers(): NonNullable<StatusResult['readers']> {
    return audit.readers((uid) => ({
      name: nameOf('user', uid),
      connections: guards.ipc.connectionsOf(uid) + guards.http.connectionsOf(uid),
    }))
  }

  async function listen(name: Name): Promise<void> {
    const addServer = (): Server => guards[name].addServer()
    const config = limitsOf(name)()
    listeners[name] =
      isActivated || name === 'metrics'
        ? await adopt(inherited[name], { addServer, remedyOf })
        : await openOwn({ path: paths[name], ...config }, { addServer, remedyOf, log })
  }

  function countsOf(name: 'ipc' | 'http') {
    return { ...guards[name].counts(), ...operations[name].counts() }
  }

  return {
    /** Serves until the signal is aborted. Calls `onListening` once every socket listens. Throws UserError (69, 78). */
    async run(signal: AbortSignal, { onListening }: { onListening: () => void }): Promise<void> {
      if (signal.aborted) return
      const endRefusing = refuseAll(initial.http === null ? inherited.http : [])
      // Before anybody can connect: no subscription misses a token.
      const endListening = replies.onChange(() => guards.ipc.push())
      try {
        await listen('ipc')
        if (http) await listen('http')
        if (inherited.metrics.length > 0) await listen('metrics')
        if (!signal.aborted) onListening()
        await untilAborted(signal)
      } finally {
        endListening()
        endRefusing()
        for (const listener of Object.values(listeners)) listener.hide()
        await Promise.all(Object.values(guards).map((guard) => guard.stop()))
      }
    },
    /**
     * Gives both sockets the modes and groups of other settings, and returns the function that has the rest of
     * them used. Throws UserError; then nothing changes.
     */
    prepare(next: Sockets): () => void {
      listeners.ipc?.setAccess(next.ipc)
      try {
        if (next.http !== null) listeners.http?.setAccess(next.http)
      } catch (error) {
        listeners.ipc?.setAccess(settings.ipc)
        throw error
      }
      return () => {
        settings = { ipc: next.ipc, http: next.http ?? settings.http }
        guards.ipc.recheck()
        guards.http.recheck()
      }
    },
    /** To be called every 15 s. */
    tick(): void {
      for (const listener of Object.values(listeners)) listener.tick()
      for (const guard of Object.values(guards)) guard.sweep(awakeMs())
      audit.tick()
    },
    /** Sockets that are opened too wide, each a sentence with its remedy. */
    problems: (): string[] =>
      (['ipc', 'http'] as const).flatMap((name) => {
        const { uids, gids } = limitsOf(name)().allow
        return listeners[name]?.problems(uids.length + gids.length === 0) ?? []
      }),
    clients(): StatusResult['clients'] {
      const describe = (name: 'ipc' | 'http') => {
        const { connections, subscribers } = guards[name].counts()
        return { connections, subscribers }
      }
      return { ipc: describe('ipc'), http: http ? describe('http') : null }
    },
    /** `http` is null if it is off. */
    counts: () => ({ ipc: countsOf('ipc'), http: http ? countsOf('http') : null }),
  }
}

/** One record an hour for each user that had too many connections. */
function createExcessLog({ log, clock }: { log: Log; clock: Pick<Clock, 'now'> }) {
  const users = new Map<number, { atMs: number; count: number }>()
  return (socket: Name, uid: number, excess: { readonly setting: string; readonly limit: number }): void => {
    const nowMs = clock.now().bootMs
    const last = users.get(uid) ?? { atMs: -Infinity, count: 0 }
    last.count += 1
    users.set(uid, last)
    if (nowMs - last.atMs < HOUR_MS) return
    const setting = `${socket}.${excess.setting}`
    log('warning', 'Connections of a user were closed, because there are too many: it may keep fewer open', {
      event: 'clients-limited',
      uid: uid === -1 ? null : uid,
      setting,
      limit: excess.limit,
      count: last.count,
    })
    users.set(uid, { atMs: nowMs, count: 0 })
  }
}
