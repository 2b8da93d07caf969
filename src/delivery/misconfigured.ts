// Answers for clients that wait at sockets handed over by systemd while the configuration is faulty, before the daemon ends.
import { createSystemClock } from '../lib/clock.ts'
import type { Log } from '../lib/log.ts'
import { runTasks } from '../lib/run-tasks.ts'
import type { InheritedSockets } from '../lib/socket-activation.ts'
import type { Fault } from '../protocol.ts'
import { createHttpServer, HANDED_OVER } from './http/server.ts'
import { createIpcServer } from './ipc/server.ts'
import type { Replies } from './replies.ts'
import { createDeliveryContext } from './servers.ts'

const ANSWER_FOR_MS = 2_000

/** Answers every request at the inherited sockets with the fault `misconfigured` for 2 s, or until the signal is aborted. */
export async function serveMisconfigured(
  inherited: InheritedSockets,
  options: { message: string; log: Log; signal: AbortSignal; forMs?: number },
): Promise<void> {
  const { message, log, signal, forMs = ANSWER_FOR_MS } = options
  const metrics = () => ({ contentType: 'text/plain; charset=utf-8', body: '' })
  const context = createDeliveryContext({ replies: createMisconfiguredReplies(message), log })
  const common = { ...context, socket: HANDED_OVER }
  const servers = [
    ...(inherited.ipc.length === 0 ? [] : [createIpcServer({ ...common, inherited: inherited.ipc })]),
    ...(inherited.http.length === 0
      ? []
      : [createHttpServer({ ...common, metrics, inherited: inherited.http })]),
  ]
  if (servers.length === 0) return
  await runTasks(
    servers.map((server) => (stop) => server.run(stop, { onListening: () => undefined })),
    AbortSignal.any([signal, AbortSignal.timeout(forMs)]),
  )
}

function createMisconfiguredReplies(message: string): Replies {
  const clock = createSystemClock()
  const reply: { fault: Fault } = { fault: { code: 'misconfigured', message } }
  return {
    now: () => clock.now(),
    cached: () => null,
    current: () => reply,
    token: () => reply,
    need: () => undefined,
    reject: () => reply,
    refresh: () => Promise.resolve(reply),
    status: () => Promise.resolve(reply),
    isAlive: () => true,
    onChange: () => () => undefined,
  }
}
