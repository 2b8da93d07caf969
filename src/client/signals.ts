// AbortSignals, of which one may end any number of calls.
import { badRequest } from './errors.ts'

/** What one listener calls, for all who wait for the signal. */
interface Listening {
  readonly callbacks: Set<() => void>
  readonly listener: () => void
}
/**
 * One listener for each signal, because a signal compares a new listener with all that it has: with ten
 * thousand of them that takes seconds.
 */
const listenings = new WeakMap<AbortSignal, Listening>()

/** Calls back when the signal is aborted. Returns the function that ends that, and leaves nothing behind. */
export function onAbort(signal: AbortSignal, callback: () => void): () => void {
  const listening = listenings.get(signal) ?? listenTo(signal)
  const { callbacks, listener } = listening
  callbacks.add(callback)
  return () => {
    if (!callbacks.delete(callback) || callbacks.size > 0) return
    signal.removeEventListener('abort', listener)
    listenings.delete(signal)
  }
}

function listenTo(signal: AbortSignal): Listening {
  const callbacks = new Set<() => void>()
  const listener = (): void => {
    for (const callback of callbacks) callback()
  }
  signal.addEventListener('abort', listener)
  const listening = { callbacks, listener }
  listenings.set(signal, listening)
  return listening
}

/** As the promise, unless one of the signals is aborted before: then it rejects with that one's reason. */
export async function unlessAborted<T>(
  promise: Promise<T>,
  ...ends: readonly (AbortSignal | undefined)[]
): Promise<T> {
  const signals = ends.filter((signal) => signal !== undefined)
  const leaves: (() => void)[] = []
  const aborted = new Promise<never>((_, reject) => {
    const end = (): void => reject(signals.find((signal) => signal.aborted)?.reason)
    if (signals.some((signal) => signal.aborted)) end()
    else for (const signal of signals) leaves.push(onAbort(signal, end))
  })
  try {
    return await Promise.race([promise, aborted])
  } finally {
    for (const leave of leaves) leave()
  }
}

/** The signal, null being none. Throws `bad-request` for anything else. */
export function checkedSignal(signal: AbortSignal | null | undefined): AbortSignal | undefined {
  if (signal === undefined || signal === null) return undefined
  if (typeof signal.throwIfAborted === 'function') return signal
  throw badRequest('signal must be an AbortSignal.')
}
