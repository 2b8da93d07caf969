// A part that can be exchanged for another while the program runs: the old one ends before the new one begins.
import type { Part } from './run-together.ts'

export interface Replaceable {
  readonly run: Part
  /** Goes on with this part instead; null: with none. Resolves when the former one has ended, however it ended. */
  replace(next: Part | null): Promise<void>
}

export function createReplaceable(first: Part | null): Replaceable {
  let current = first
  let stop = new AbortController()
  let ended: Promise<unknown> = Promise.resolve()

  async function run(signal: AbortSignal): Promise<void> {
    const onAbort = (): void => stop.abort()
    signal.addEventListener('abort', onAbort)
    while (!signal.aborted) {
      const part = current ?? idle
      stop = new AbortController()
      const running = part(stop.signal)
      ended = Promise.allSettled([running])
      await running
      // It ended by itself: so does the program.
      if (!stop.signal.aborted) break
    }
    signal.removeEventListener('abort', onAbort)
  }

  return {
    run,
    async replace(next) {
      current = next
      stop.abort()
      await ended
    },
  }
}

/** Waits until it is stopped. */
export function idle(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve()
    else signal.addEventListener('abort', () => resolve(), { once: true })
  })
}
