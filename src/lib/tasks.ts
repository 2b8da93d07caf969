// Runs the parts of a program together: the first error stops the others, and a stop is no error.
import { once } from 'node:events'

/** Something that runs until it is stopped. */
interface Task {
  run(signal: AbortSignal): Promise<void>
}

/**
 * Resolves when every part has ended. A part that ends, well or not, stops the others. Throws the first
 * error, once all have ended.
 */
export async function runTasks(parts: readonly Task[], signal: AbortSignal): Promise<void> {
  const stop = new AbortController()
  const until = AbortSignal.any([signal, stop.signal])
  const runs = parts.map(async (part) => part.run(until).finally(() => stop.abort()))
  const all = Promise.all(runs)
  await Promise.allSettled([all, ...runs])
  await all
}

/** The task, started once the promise resolves; if the signal is aborted before, with that aborted signal. */
export const after = (begun: Promise<unknown>, task: Task): Task => ({
  async run(signal) {
    await raceAbort(begun, signal)
    await task.run(signal)
  },
})

/** Resolves when the signal is aborted. */
export async function untilAborted(signal: AbortSignal): Promise<void> {
  if (!signal.aborted) await once(signal, 'abort')
}

/** Resolves when the promise resolves or the signal is aborted. Rejects as the promise does. */
export async function raceAbort(promise: Promise<unknown>, signal: AbortSignal): Promise<void> {
  const ended = new AbortController()
  const aborted = signal.aborted ? undefined : once(signal, 'abort', { signal: ended.signal })
  try {
    await Promise.race([promise, aborted])
  } finally {
    // Leaves no listener.
    ended.abort()
  }
}
