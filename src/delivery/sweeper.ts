// The ends of connections that nobody asks for: timeouts, and the stop of the daemon.
import type { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { monotonicMs } from '../lib/clock.ts'
import { CONNECTION_IDLE_MS } from '../protocol.ts'
import type { Client, Protocol } from './client.ts'
import type { DropReason, Timeouts } from './limits.ts'
import type { Peers } from './peers.ts'

export const TIMEOUTS: Timeouts = {
  sweepMs: 15_000,
  idle: CONNECTION_IDLE_MS,
  stalled: 30_000,
  'incomplete-request': 30_000,
}
/** The time for pending answers when the daemon stops, in ms. */
const DRAIN_MS = 2_500
/** The time for which a stop waits for the first request of a new connection, in ms. */
const FIRST_REQUEST_MS = 500
/** Ends connections whose timeout is over, as long as there are any. */
export function createSweeper<State>({
  protocol,
  clients,
  drop,
}: {
  protocol: Protocol<State>
  clients: ReadonlyMap<Socket, Client & State>
  drop: (client: Client, reason: DropReason) => void
}) {
  const timeouts = { ...TIMEOUTS, ...protocol.timeouts }
  let timer: NodeJS.Timeout | undefined

  function sweep(): void {
    for (const client of clients.values()) {
      const { socket, watch } = client
      const timeout = socket.writableLength > 0 ? 'stalled' : protocol.timeoutOf(client)
      const progress = timeout === 'stalled' ? socket.bytesWritten - socket.writableLength : client.requests
      const isSame = timeout === watch.timeout && progress === watch.progress
      const sweeps = isSame ? watch.sweeps + 1 : 0
      client.watch = { timeout, progress, sweeps }
      if (timeout === null || sweeps * timeouts.sweepMs < timeouts[timeout]) continue
      const isRefused = timeout === 'incomplete-request' && protocol.refuseLate !== undefined
      if (isRefused && !client.isClosing) protocol.refuseLate?.(client)
      else drop(client, timeout)
    }
    if (clients.size === 0) stop()
  }

  function stop(): void {
    clearInterval(timer)
    timer = undefined
  }

  return {
    start(): void {
      timer ??= setInterval(sweep, timeouts.sweepMs)
    },
    stop,
  }
}

/**
 * Ends the waits, and each connection once it is answered: what has arrived can still be read, and nothing
 * comes after it. What is left after 2.5 s is closed.
 */
export async function drain(clients: ReadonlyMap<Socket, Client>, peers: Peers): Promise<void> {
  const begunAtMs = monotonicMs()
  for (const client of clients.values()) client.waits.abort()
  while (clients.size > 0 && monotonicMs() - begunAtMs < DRAIN_MS) {
    for (const { socket, madeAtMs, hasEnded } of clients.values()) {
      const isFresh = socket.bytesRead === 0 && monotonicMs() - madeAtMs < FIRST_REQUEST_MS
      if (!hasEnded && !isFresh) peers.endInput(socket)
    }
    await sleep(1)
  }
  for (const socket of clients.keys()) socket.destroy()
}
