// The servers of the daemon: `ipc.sock`, `http.sock`, metrics and credentials, which share peers, audit and
// descriptors. At sockets of systemd they also run while the configuration is faulty, and answer that.
import type { Config, SocketConfig } from '../config/config.ts'
import { untilAborted } from '../lib/tasks.ts'
import type { Clock } from '../lib/clock.ts'
import type { Log } from '../lib/log.ts'
import { loadLibc } from '../lib/libc.ts'
import { descriptorsOf, isSocketActivated, type InheritedSockets } from '../lib/socket-activation.ts'
import type { Fault, StatusResult } from '../protocol.ts'
import type { ConnectionServer, DeliveryContext } from './connections.ts'
import { createCredentialServer } from './credential-server.ts'
import type { Metrics } from './http/routes.ts'
import { createIpcServer } from './ipc/server.ts'
import { createDescriptors, HANDED_OVER } from './limits.ts'
import type { ListeningSocket, TestAlert } from './operations.ts'
import { createPeers, type Peers } from './peers.ts'
import type { Replies } from './replies.ts'
import { createTokenAudit } from './token-audit.ts'

interface ContextOptions {
  readonly replies: Replies
  readonly testAlert: TestAlert
  readonly log: Log
  readonly clock: Pick<Clock, 'now' | 'sleep'>
  readonly peers?: Peers
}

export function createDeliveryContext(options: ContextOptions): DeliveryContext {
  const { replies, testAlert, log, peers = createPeers() } = options
  const audit = createTokenAudit(options)
  return { replies, testAlert, log, peers, audit, descriptors: createDescriptors() }
}

/** Throws UserError (78) if the daemon runs as the overflow user. */
export function createServers(
  config: Pick<Config, 'ipc' | 'http'>,
  options: ContextOptions & { readonly inherited: InheritedSockets; readonly metrics: Metrics },
) {
  const { inherited, metrics } = options
  let running = config
  const context = { ...createDeliveryContext(options), sockets: () => listeningSockets(running, inherited) }
  const { audit } = context
  const ipc = createIpcServer({ ...context, socket: config.ipc, inherited: descriptorsOf(inherited, 'ipc') })
  /** null: `http` is off. The HTTP server is loaded when it is needed. */
  let http: ConnectionServer | null = null
  const credentials = createCredentialServer(inherited.credential, { ...context, clock: options.clock })
  let isStopped = false

  async function openHttp(socket: SocketConfig): Promise<void> {
    const { createHttpServer } = await import('./http/server.ts')
    const server = createHttpServer({
      ...context,
      metrics,
      inherited: descriptorsOf(inherited, 'http'),
      socket,
    })
    await server.open()
    http = server
    if (isStopped) await closeHttp()
  }

  async function closeHttp(): Promise<void> {
    const former = http
    http = null
    await former?.close()
  }

  /** Opens, changes or closes it. */
  async function reconfigureHttp(socket: SocketConfig | null): Promise<void> {
    if (socket === null) await closeHttp()
    else if (http === null) await openHttp(socket)
    else await http.reconfigure(socket)
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
        await reconfigureHttp(config.http)
        if (inherited.metrics.length > 0) {
          const { createMetricsServer } = await import('./http/server.ts')
          metricsServer = createMetricsServer({ ...context, metrics, inherited: inherited.metrics })
          await metricsServer.open()
        }
        await credentials.open()
        if (!signal.aborted) onListening()
        await untilAborted(signal)
      } finally {
        isStopped = true
        await Promise.all([ipc.close(), closeHttp(), metricsServer?.close(), credentials.close()])
      }
    },
    /** Changes both sockets or none. Throws UserError; then nothing changes. */
    async reconfigure(next: Pick<Config, 'ipc' | 'http'>): Promise<void> {
      await reconfigureHttp(next.http)
      await ipc.reconfigure(next.ipc).catch(async (error: unknown) => {
        await reconfigureHttp(running.http)
        throw error
      })
      running = next
    },
    /** Makes removed sockets again, and logs reads of tokens that are due. Never fails. */
    async tick(): Promise<void> {
      await Promise.all([ipc.tick(), http?.tick()])
      audit.flush()
    },
    clients: (): StatusResult['clients'] => ({
      ipc: clientsOf(ipc.counts()),
      http: http && clientsOf(http.counts()),
    }),
    /** `http` is null if it is off. */
    counts: () => ({ ipc: ipc.counts(), http: http?.counts() ?? null }),
  }
}

/** At sockets of systemd the daemon opens no other. */
function listeningSockets(
  { ipc, http }: Pick<Config, 'ipc' | 'http'>,
  inherited: InheritedSockets,
): ListeningSocket[] {
  if (isSocketActivated(inherited)) {
    const { unknown: _, ...served } = inherited
    return Object.entries(served).flatMap(([name, fds]) =>
      fds.map((fd) => ({ name, path: loadLibc().socketPath(fd) })),
    )
  }
  return Object.entries({ ipc, http }).flatMap(([name, socket]) =>
    socket === null ? [] : [{ name, path: socket.path }],
  )
}

function clientsOf({ connections, subscribers }: StatusResult['clients']['ipc']) {
  return { connections, subscribers }
}

/**
 * Long enough for the clients that wait, and short, so that an operator who started the daemon soon sees the
 * error.
 */
const MISCONFIGURED_MS = 2_000

/** Answers requests with the fault `misconfigured` for 2 s, or until the signal is aborted. */
export async function serveMisconfigured(
  inherited: InheritedSockets,
  options: { message: string; log: Log; clock: Clock; signal: AbortSignal },
): Promise<void> {
  const { message, log, clock, signal } = options
  const fault: Fault = { code: 'misconfigured', message }
  const reply = (): { fault: Fault } => ({ fault })
  const servers = createServers(
    { ipc: HANDED_OVER, http: HANDED_OVER },
    {
      replies: repliesOf(reply, clock),
      testAlert: reply,
      log,
      clock,
      inherited: { ...inherited, metrics: [] },
      metrics: () => ({ contentType: 'text/plain; charset=utf-8', body: '' }),
    },
  )
  const stop = new AbortController()
  const timedOut = clock.sleep(MISCONFIGURED_MS, signal).then(() => stop.abort())
  await Promise.all([servers.run(stop.signal, { onListening: () => undefined }), timedOut])
}

function repliesOf(reply: () => { fault: Fault }, clock: Pick<Clock, 'now'>): Replies {
  return {
    now: () => clock.now(),
    current: reply,
    token: reply,
    need: () => undefined,
    reject: reply,
    refresh: () => Promise.resolve(reply()),
    status: () => Promise.resolve(reply()),
    isAlive: () => true,
    onChange: () => () => undefined,
  }
}
