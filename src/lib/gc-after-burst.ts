// Returns memory to the system once a burst of work is over: V8 would keep what it needed only for a moment.
import type { Clock } from './clock.ts'

/** Shortest time over which work is measured. */
const INTERVAL_MS = 10_000
/** An interval with at most this CPU time is idle. */
const IDLE_MS = 20
/** The CPU time after which there is enough garbage for a collection. */
const BURST_MS = 50

/**
 * Returns the tick, to be called every few seconds or more often. Without `--expose-gc` it collects nothing.
 * A collection blocks the loop for up to a tenth of a second, hence only when it is idle.
 */
export function createGcAfterBurst(clock: Pick<Clock, 'now'>): () => void {
  let last = { atMs: clock.now().bootMs, cpuMs: 0 }
  let burstMs = 0
  return () => {
    const atMs = clock.now().bootMs
    if (atMs - last.atMs < INTERVAL_MS) return
    const spentMs = cpuMs() - last.cpuMs
    if (spentMs > IDLE_MS) {
      burstMs += spentMs
    } else if (burstMs >= BURST_MS) {
      globalThis.gc?.({ type: 'major', execution: 'sync', flavor: 'last-resort' })
      burstMs = 0
    }
    last = { atMs, cpuMs: cpuMs() }
  }
}

function cpuMs(): number {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1_000
}
