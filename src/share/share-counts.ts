// Counts for metrics: outcomes by how they came, stale writes, boxes that do not open, and how late pushes are.
import { createHistogram, type Observations } from '../lib/histogram.ts'
import type { Log } from '../lib/log.ts'

export type OutcomeSource = 'asked' | 'push' | 'look' | 'take' | 'alone'

export interface ShareSample {
  readonly outcomes: Readonly<Record<OutcomeSource, number>>
  readonly staleWrites: number
  readonly unreadable: number
  /** Delay of pushes, in seconds. */
  readonly lag: Observations
}

export interface ShareCounts {
  sample(): ShareSample
  adopted(source: OutcomeSource): void
  staleWrite(): void
  /** A record that does not open; logged once for each fence, and once in 10 min at most. */
  unreadable(fence: number): void
  lag(ms: number): void
}

/** In seconds. */
const LAG_BOUNDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, Infinity]

/** A process that may write to the store can write a thousand records a second. */
const LOG_EVERY_MS = 600_000

/** `bootMs` is the boot clock. */
export function createShareCounts(log: Log, bootMs: () => number): ShareCounts {
  const outcomes: Record<OutcomeSource, number> = { asked: 0, push: 0, look: 0, take: 0, alone: 0 }
  const lag = createHistogram(LAG_BOUNDS)
  let staleWrites = 0
  let unreadable = 0
  let lastUnreadable = { fence: 0, loggedAtMs: -Infinity }
  return {
    sample: () => ({
      outcomes: { ...outcomes },
      staleWrites,
      unreadable,
      lag: lag.observations(),
    }),
    adopted(source) {
      outcomes[source] += 1
    },
    staleWrite() {
      staleWrites += 1
    },
    unreadable(fence) {
      unreadable += 1
      const nowMs = bootMs()
      if (fence === lastUnreadable.fence || nowMs - lastUnreadable.loggedAtMs < LOG_EVERY_MS) return
      lastUnreadable = { fence, loggedAtMs: nowMs }
      log('error', 'A process that does not know the secret writes to the shared store', {
        event: 'share-unreadable',
        fence,
        remedy:
          'Find out which others may write to the server under share.prefix, and take that right away; until the next rotation this host goes by what it has',
      })
    },
    lag(ms) {
      lag.observe(Math.max(0, ms) / 1000)
    },
  }
}
