// Counts for metrics: outcomes by how they came, stale writes, boxes that do not open, and how late pushes are.
import type { Log } from '../lib/log.ts'

export type OutcomeSource = 'asked' | 'push' | 'look' | 'take' | 'alone'

export interface ShareSample {
  readonly outcomes: Readonly<Record<OutcomeSource, number>>
  readonly staleWrites: number
  readonly unreadable: number
  /** Pushes that came within so many seconds; the last bound is Infinity. */
  readonly lag: {
    readonly bounds: readonly number[]
    readonly counts: readonly number[]
    readonly sum: number
  }
}

export interface ShareCounts {
  sample(): ShareSample
  adopted(source: OutcomeSource): void
  staleWrite(): void
  /** A record that does not open; logged once for each fence. */
  unreadable(fence: number): void
  lag(ms: number): void
}

/** In seconds. */
const LAG_BOUNDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, Infinity] as const

export function createShareCounts(log: Log): ShareCounts {
  const outcomes: Record<OutcomeSource, number> = { asked: 0, push: 0, look: 0, take: 0, alone: 0 }
  const lags = LAG_BOUNDS.map(() => 0)
  let lagSum = 0
  let staleWrites = 0
  let unreadable = 0
  let lastUnreadable = 0
  return {
    sample: () => ({
      outcomes: { ...outcomes },
      staleWrites,
      unreadable,
      lag: { bounds: LAG_BOUNDS, counts: [...lags], sum: lagSum },
    }),
    adopted(source) {
      outcomes[source] += 1
    },
    staleWrite() {
      staleWrites += 1
    },
    unreadable(fence) {
      unreadable += 1
      if (fence === lastUnreadable) return
      lastUnreadable = fence
      log('error', 'A process that does not know the secret writes to the shared store', {
        event: 'share-unreadable',
        fence,
        remedy:
          'Find out which others may write to the server under share.prefix, and take that right away; until the next rotation this host goes by what it has',
      })
    },
    lag(ms) {
      const seconds = Math.max(0, ms) / 1000
      lagSum += seconds
      const index = LAG_BOUNDS.findIndex((bound) => seconds <= bound)
      lags[index] = (lags[index] ?? 0) + 1
    },
  }
}
