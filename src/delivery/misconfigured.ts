// Answers for clients that wait at sockets handed over by systemd while the configuration is faulty, before the daemon ends.
import { createSystemClock, type Clock } from '../lib/clock.ts'
import type { Log } from '../lib/log.ts'
import type { InheritedSockets } from '../lib/socket-activation.ts'
import type { Fault } from '../protocol.ts'
import { createHttpServer, HANDED_OVER } from './http/server.ts'
import { createIpcServer } from './ipc/server.ts'
import type { Replies } from './replies.ts'
import { createDeliveryContext } from './servers.ts'

/** An operator who starts the daemon sees its end so soon where no client asks. */
const FIRST_MS = 2_000
/** Time after the last request: clients that ask more often start the daemon no more than once a minute. */
const QUIET_MS = 15_000
const MOST_MS = 60_000

/**
 * Answers every request at the inherited sockets with the fault `misconfigured`: for 2 s, and on while clients ask, for
 * `forMs` (by default a minute) at most, or until the signal is aborted.
 */
export async function serveMisconfigured(
  inherited: InheritedSockets,
  options: { message: string; log: Log; signal: AbortSignal; forMs?: number },
): Promise<void> {
  const { message, log, signal, forMs = MOST_MS } = options
  const clock = createSystemClock()
  let askedAtMs: number | null = null
  const onRequest = (): void => void (askedAtMs = clock.now().bootMs)
  const metrics = () => ({ contentType: 'text/plain; charset=utf-8', body: '' })
  const replies = createMisconfiguredReplies(message, onRequest)
  const common = { ...createDeliveryContext({ replies, log }), socket: HANDED_OVER }
  const servers = [
    ...(inherited.ipc.length === 0 ? [] : [createIpcServer({ ...common, inherited: inherited.ipc })]),
    ...(inherited.http.length === 0
      ? []
      : [createHttpServer({ ...common, metrics, inherited: inherited.http })]),
  ]
  if (servers.length === 0) return
  await Promise.all(servers.map(async (server) => server.open()))
  await whileAsked(() => askedAtMs, { forMs, clock, signal })
  await Promise.all(servers.map(async (server) => server.close()))
}

/** Resolves when no request has come for a while, after `forMs`, or when the signal is aborted. */
export async function whileAsked(
  askedAtMs: () => number | null,
  { forMs, clock, signal }: { forMs: number; clock: Clock; signal: AbortSignal },
): Promise<void> {
  const begunMs = clock.now().bootMs
  const latestMs = begunMs + forMs
  for (
    let untilMs = begunMs + FIRST_MS;
    !signal.aborted && clock.now().bootMs < Math.min(untilMs, latestMs);
  ) {
    await clock.sleep(Math.min(untilMs, latestMs) - clock.now().bootMs, signal)
    untilMs = Math.max(untilMs, (askedAtMs() ?? -Infinity) + QUIET_MS)
  }
}

function createMisconfiguredReplies(message: string, onRequest: () => void): Replies {
  const fault: Fault = { code: 'misconfigured', message }
  const reply = (): { fault: Fault } => {
    onRequest()
    return { fault }
  }
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
