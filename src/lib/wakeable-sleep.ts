// A sleep that ends early when it is woken: for loops with one sleep at a time.
import type { Clock } from './clock.ts'

interface WakeableSleep {
  /** Resolves after `ms`, when it is woken, or when the signal is aborted. */
  readonly sleep: (ms: number, signal: AbortSignal) => Promise<void>
  /** Ends the sleep that is under way, if there is one. */
  readonly wake: () => void
}

export function createWakeableSleep(clock: Pick<Clock, 'sleep'>): WakeableSleep {
  let wake = (): void => undefined
  return {
    async sleep(ms, signal) {
      const woken = new AbortController()
      const end = (): void => woken.abort()
      wake = end
      signal.addEventListener('abort', end)
      // Rounded up: a timer that fires a fraction of a millisecond early would only cost another turn.
      await clock.sleep(Math.ceil(ms), woken.signal)
      signal.removeEventListener('abort', end)
    },
    wake: () => wake(),
  }
}
