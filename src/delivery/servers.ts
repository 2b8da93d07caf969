// The servers of the daemon: `ipc.sock`, `http.sock`, and the metrics over TCP, with what they share.
import type { SocketConfig } from '../config/config.ts'
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
import { adopt, openOwn, type Listener } from './listen.ts'
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

const METRICS: SocketConfig = {
  mode: 0,
  gid: null,
  allow: { uids: [], gids: [] },
  maxConnections: METRICS_CONNECTIONS,
  maxConnectionsPerUser: METRICS_CONNECTIONS,
  maxRequestsPerSecond: null,
}

/** `http` is off: each connection to a socket of systemd is closed at once. */
const OFF: SocketConfig = { ...METRICS, maxConnections: 0 }

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
  const hasHttp = initial.http !== null && (!isActivated || inherited.http.length > 0)
  const limitsOf = (name: Name) => (): SocketConfig => (name === 'metrics' ? METRICS : settings[name]) ?? OFF
  const audit = createTokenAudit({ log, clock })
  const noteExcess = createExcessLog({ log, clock })
  const operations = { ipc: operationsOf('ipc'), http: operationsOf('http') }
  const health = createHealthRoutes({ replies, metrics })
  const route = createRoute({ ...createTokenRoutes(operations.http), ...health })
  const guards: Readonly<Record<Name, Guard>> = {
    ipc: guarded('ipc', createIpc({ operations: operations.ipc, log })),
    http: guarded('http', createHttp({ route, admit: operations.http.admit, log })),
    metrics: guarded('metrics', createHttp({ route: createRoute(health), admit: () => null, log })),
  }
  const listeners: Partial<Record<Name, Listener>> = {}

  function operationsOf(transport: Transport) {
    const limits = limitsOf(transport)
    return createOperations({ transport, replies, audit, requests, readers, limits })
  }

  function guarded<State extends object>(name: Name, protocol: Protocol<State>): Guard {
    const limits = limitsOf(name)
    return createGuard(protocol, {
      limits,
      peers: name === 'metrics' ? null : peers,
      log,
      awakeMs,
      onExcess: (uid, setting) => {
        const limit = limits()
        if (limit !== OFF) noteExcess(uid, { setting: `${name}.${setting}`, limit: limit[setting] })
      },
    })
  }

  function readers(): NonNullable<StatusResult['readers']> {
    return audit.readers((uid) => ({
      name: nameOf('user', uid),
      connections: guards.ipc.connectionsOf(uid) + guards.http.connectionsOf(uid),
    }))
  }

  async function listen(name: Name): Promise<void> {
    const { addServer } = guards[name]
    const common = { access: limitsOf(name)(), addServer, remedyOf, log }
    listeners[name] =
      isActivated || name === 'metrics'
        ? await adopt(inherited[name], common)
        : await openOwn(paths[name], common)
  }

  function countsOf(name: Transport) {
    return { ...guards[name].counts(), ...operations[name].counts() }
  }

  return {
    /**
     * Serves until the signal is aborted. Calls `onListening` once every socket listens. Throws UserError (69,
     * 78).
     */
    async run(signal: AbortSignal, { onListening }: { onListening: () => void }): Promise<void> {
      if (signal.aborted) return
      // Before anybody can connect: no subscription misses a token.
      const endListening = replies.onChange(() => guards.ipc.push())
      try {
        await listen('ipc')
        if (hasHttp || inherited.http.length > 0) await listen('http')
        if (inherited.metrics.length > 0) await listen('metrics')
        if (!signal.aborted) onListening()
        await untilAborted(signal)
      } finally {
        endListening()
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
        for (const guard of Object.values(guards)) guard.recheck()
      }
    },
    /** To be called every 15 s. */
    tick(): void {
      for (const listener of Object.values(listeners)) listener.tick()
      for (const guard of Object.values(guards)) guard.sweep()
      audit.tick()
    },
    /** Sockets that are opened too wide, each a sentence with its remedy. */
    problems: (): string[] =>
      [listeners.ipc, listeners.http]
        .flatMap((listener) => listener?.tooWide() ?? [])
        .map((path) => remedyOf({ kind: 'open-socket', path })),
    clients(): StatusResult['clients'] {
      const describe = ({ counts }: Guard) => {
        const { connections, subscribers } = counts()
        return { connections, subscribers }
      }
      return { ipc: describe(guards.ipc), http: hasHttp ? describe(guards.http) : null }
    },
    /** `http` is null if it is off. */
    counts: () => ({ ipc: countsOf('ipc'), http: hasHttp ? countsOf('http') : null }),
  }
}

/** One record an hour for each user that had too many connections. */
function createExcessLog({ log, clock }: { log: Log; clock: Pick<Clock, 'now'> }) {
  const users = new Map<number, { atMs: number; count: number }>()
  return (uid: number, excess: { readonly setting: string; readonly limit: number }): void => {
    const nowMs = clock.now().bootMs
    const last = users.get(uid) ?? { atMs: -Infinity, count: 0 }
    const count = last.count + 1
    const isDue = nowMs - last.atMs >= HOUR_MS
    users.set(uid, isDue ? { atMs: nowMs, count: 0 } : { ...last, count })
    if (!isDue) return
    const sentence = 'Connections of a user were closed, because there are too many: it may keep fewer open'
    log('warning', sentence, { event: 'clients-limited', uid: uid < 0 ? null : uid, ...excess, count })
  }
}
