// The servers of the daemon: `ipc.sock`, `http.sock`, and the metrics over TCP, with what they share.
import type { SocketConfig } from '../config/config.ts'
import { nameOf } from '../host/ids.ts'
import { descriptorsOf, type InheritedSockets } from '../host/system.ts'
import type { RemedyOf } from '../host/remedy.ts'
import { monotonicMs } from '../lib/clock.ts'
import type { Log } from '../lib/log.ts'
import { untilAborted } from '../lib/tasks.ts'
import type { StatusResult } from '../protocol.ts'
import { createGuard, createReadPeer, type Protocol, type ReadPeer } from './guard.ts'
import { createHttp } from './http.ts'
import { createIpc } from './ipc.ts'
import { listen, refuse, type Listener } from './listen.ts'
import { BACKLOG } from './limits.ts'
import { createOperations, type Requests } from './operations.ts'
import type { Replies } from './replies.ts'
import { createHealthRoutes, createRoute, createTokenRoutes, type Metrics } from './routes.ts'
import { createTokenAudit, type Transport } from './token-audit.ts'

/** `http` null: it is off. */
export interface Sockets {
  readonly ipc: SocketConfig
  readonly http: SocketConfig | null
}

export function createServers(
  initial: Sockets,
  options: {
    /** Paths of the sockets that the daemon opens itself, where systemd hands none over. */
    readonly paths: Readonly<Record<Transport, string>>
    readonly inherited: InheritedSockets
    readonly replies: Replies
    readonly requests: Requests
    readonly metrics: Metrics
    readonly log: Log
    readonly remedyOf: RemedyOf
    /** A clock that stops during suspend, in ms. */
    readonly monotonicMs?: () => number
    readonly readPeer?: ReadPeer
  },
) {
  const { paths, inherited, replies, requests, metrics, log, remedyOf } = options
  const { readPeer = createReadPeer(), monotonicMs: awakeMs = monotonicMs } = options
  let settings = initial
  const hasHttp = initial.http !== null && descriptorsOf(inherited, 'http')?.length !== 0
  const limits = {
    ipc: () => settings.ipc,
    // Off, it listens nowhere.
    http: () => settings.http ?? settings.ipc,
  }
  const audit = createTokenAudit({ log, nowMs: awakeMs })
  const operations = { ipc: operationsOf('ipc'), http: operationsOf('http') }
  const health = createHealthRoutes({ replies, metrics })
  const route = createRoute({ ...createTokenRoutes(operations.http), ...health })
  const guards = {
    ipc: guarded('ipc', createIpc({ operations: operations.ipc, log })),
    http: guarded('http', createHttp({ route, admit: operations.http.admit, log })),
  }
  const metricsHttp = createHttp({ route: createRoute(health), admit: () => null, log })
  // Over TCP the kernel knows no user: all of them count as one.
  const metricsGuard = guarded('ipc', metricsHttp, () => ({ uid: -1, place: 'member' }))
  const allGuards = [...Object.values(guards), metricsGuard]
  const listeners: Partial<Record<Transport, Listener>> = {}

  function operationsOf(transport: Transport) {
    return createOperations({ transport, replies, audit, requests, readers, limits: limits[transport] })
  }

  function guarded(name: Transport, protocol: Protocol, read = readPeer) {
    return createGuard(protocol, { name, limits: limits[name], readPeer: read, log, awakeMs })
  }

  function readers(): NonNullable<StatusResult['readers']> {
    return audit.readers().map((reader) => {
      const connections = guards.ipc.connectionsOf(reader.uid) + guards.http.connectionsOf(reader.uid)
      return { ...reader, name: nameOf('user', reader.uid), connections }
    })
  }

  async function open(name: Transport): Promise<void> {
    const fds = descriptorsOf(inherited, name)
    const { addServer } = guards[name]
    listeners[name] = await listen({ fds, path: paths[name], access: limits[name], addServer, log })
  }

  /** Gives both sockets these modes and groups. Throws UserError. */
  function setAccess({ ipc, http }: Sockets): void {
    listeners.ipc?.setAccess(ipc)
    if (http !== null) listeners.http?.setAccess(http)
  }

  function countsOf(name: Transport) {
    return { ...guards[name].counts(), dropped: guards[name].dropped(), ...operations[name].counts() }
  }

  return {
    /** Serves until the signal is aborted. Calls `onListening` once every socket listens. Throws UserError (69, 78). */
    async run(signal: AbortSignal, { onListening }: { onListening: () => void }): Promise<void> {
      if (signal.aborted) return
      // Before anybody can connect: no subscription misses a token.
      const endListening = replies.onChange(() => guards.ipc.push())
      // `http` is off: a connection to its socket would wait for ever.
      void refuse(initial.http === null ? inherited.http : [], signal)
      try {
        await open('ipc')
        if (hasHttp) await open('http')
        for (const fd of inherited.metrics) metricsGuard.addServer().listen({ fd }, BACKLOG)
        if (!signal.aborted) onListening()
        await untilAborted(signal)
      } finally {
        endListening()
        await Promise.all(allGuards.map((guard) => guard.stop()))
      }
    },
    /**
     * Gives both sockets the modes and groups of other settings, and returns the function that has the rest of
     * them used. Throws UserError; then nothing changes.
     */
    prepare(next: Sockets): () => void {
      try {
        setAccess(next)
      } catch (error) {
        setAccess(settings)
        throw error
      }
      return () => {
        settings = { ipc: next.ipc, http: next.http ?? settings.http }
        for (const guard of allGuards) guard.sweep()
      }
    },
    /** To be called every 15 s. */
    maintain(): void {
      for (const listener of Object.values(listeners)) listener.maintain()
      for (const guard of allGuards) guard.sweep()
      audit.maintain()
    },
    /** Sockets that are opened too wide, each a sentence with its remedy. */
    problems: (): string[] =>
      Object.values(listeners)
        .flatMap((listener) => listener.tooWide())
        .map((path) => remedyOf({ fault: 'open-socket', path })),
    /** `http` is null if it is off. */
    clients: () => ({ ipc: guards.ipc.counts(), http: hasHttp ? guards.http.counts() : null }),
    counts: () => ({ ipc: countsOf('ipc'), http: hasHttp ? countsOf('http') : null }),
  }
}
