// Runs the parts of a program together: the first fault stops the others, and being stopped is no fault.

/** Something that runs until it is stopped. */
export interface Task {
  (signal: AbortSignal): Promise<void>
}
/** The same as an object. */
export interface TaskObject {
  run(signal: AbortSignal): Promise<void>
}

/**
 * Resolves when every part has ended. A part that ends, well or not, stops the others. Throws the first fault, once
 * all have cleaned up after themselves.
 */
export async function runTasks(parts: readonly (Task | TaskObject)[], signal: AbortSignal): Promise<void> {
  const stop = new AbortController()
  const onAbort = (): void => {
    stop.abort(signal.reason)
  }
  if (signal.aborted) onAbort()
  signal.addEventListener('abort', onAbort)
  const faults: unknown[] = []
  await Promise.all(
    parts.map(async (part) => {
      try {
        await runTask(part, stop.signal)
      } catch (error) {
        faults.push(error)
      } finally {
        stop.abort()
      }
    }),
  )
  signal.removeEventListener('abort', onAbort)
  if (faults.length > 0) throw faults[0]
}

/** The task, begun once the promise resolves, or to end at once what is to be stopped before. */
export function after(begun: Promise<unknown>, task: Task | TaskObject): Task {
  return async (signal) => {
    await raceAbort(begun, signal)
    await runTask(task, signal)
  }
}

function runTask(task: Task | TaskObject, signal: AbortSignal): Promise<void> {
  return typeof task === 'function' ? task(signal) : task.run(signal)
}

/** Resolves when the signal is aborted. */
export function untilAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve()
    else signal.addEventListener('abort', () => resolve(), { once: true })
  })
}

/** Resolves when the promise resolves or the signal is aborted. Rejects as the promise does. */
export async function raceAbort(promise: Promise<unknown>, signal: AbortSignal): Promise<void> {
  const aborted = Promise.withResolvers<void>()
  const onAbort = (): void => aborted.resolve()
  if (signal.aborted) onAbort()
  signal.addEventListener('abort', onAbort)
  try {
    await Promise.race([promise, aborted.promise])
  } finally {
    signal.removeEventListener('abort', onAbort)
  }
}
