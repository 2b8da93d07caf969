// Answers for clients that wait at sockets handed over by systemd while the configuration is faulty, before the daemon ends.
import type { Clock } from '../lib/clock.ts'
import type { Log } from '../lib/log.ts'
import type { InheritedSockets } from '../lib/socket-activation.ts'
import type { Fault } from '../protocol.ts'
import { createHttpServer, HANDED_OVER } from './http/server.ts'
import { createIpcServer } from './ipc/server.ts'
import { createPeers, type Peers } from './peers.ts'
import type { Replies } from './replies.ts'
import { createDeliveryContext } from './servers.ts'

/** An operator who starts the daemon sees its end so soon where no client connects. */
const FIRST_MS = 2_000
/** After the end the next client starts the daemon again: this is the time between two such starts. */
const MOST_MS = 60_000

/**
 * Answers every request at the inherited sockets with the fault `misconfigured`: for 2 s, and where a client has
 * connected by then for a minute, or until the signal is aborted.
 */
export async function serveMisconfigured(
  inherited: InheritedSockets,
  options: { message: string; log: Log; clock: Clock; signal: AbortSignal },
): Promise<void> {
  const { message, log, clock, signal } = options
  let isAwaited = false
  const known = createPeers()
  const peers: Peers = {
    ...known,
    of(socket) {
      isAwaited = true
      return known.of(socket)
    },
  }
  const fault: Fault = { code: 'misconfigured', message }
  const reply = (): { fault: Fault } => ({ fault })
  const context = createDeliveryContext({ replies: repliesOf(reply), testAlert: reply, log, clock, peers })
  const common = { ...context, socket: HANDED_OVER }
  const metrics = () => ({ contentType: 'text/plain; charset=utf-8', body: '' })
  const servers = [
    createIpcServer({ ...common, inherited: inherited.ipc }),
    createHttpServer({ ...common, metrics, inherited: inherited.http }),
  ]
  await Promise.all(servers.map(async (server) => server.open()))
  await clock.sleep(FIRST_MS, signal)
  if (isAwaited) await clock.sleep(MOST_MS - FIRST_MS, signal)
  await Promise.all(servers.map(async (server) => server.close()))
}

function repliesOf(reply: () => { fault: Fault }): Replies {
  return {
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
