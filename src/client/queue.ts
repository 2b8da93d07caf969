// How many calls are few requests: those that ask for the same share one, and waits of which the daemon takes
// no more form a queue.
import { onAbort, unlessAborted } from './signals.ts'

/** `ask` begins the request; its signal ends it when nobody waits for it any more. */
type Share<T> = (
  key: string,
  ask: (end: AbortSignal) => Promise<T>,
  signal: AbortSignal | undefined,
) => Promise<T>

/** Callers with the same key share the request that is under way. */
export function createSharing<T>(): Share<T> {
  const underWay = new Map<string, { answer: Promise<T>; end: AbortController; callers: number }>()
  return async (key, ask, signal) => {
    signal?.throwIfAborted()
    let shared = underWay.get(key)
    if (shared === undefined) {
      const end = new AbortController()
      shared = { answer: ask(end.signal), end, callers: 0 }
      underWay.set(key, shared)
    }
    const { answer, end } = shared
    const remove = (): void => {
      if (underWay.get(key)?.end === end) underWay.delete(key)
    }
    shared.callers += 1
    try {
      return await unlessAborted(answer.finally(remove), signal)
    } finally {
      shared.callers -= 1
      if (shared.callers === 0) {
        remove()
        end.abort()
      }
    }
  }
}

/** Few requests of a connection may wait at the daemon: more than `max` wait for one of these places. */
export function createPlaces(max: number) {
  let free = max
  /** Each ends its wait: with a place, or without. */
  const queue = new Set<(hasPlace: boolean) => void>()
  return {
    isFull: (): boolean => free === 0,
    /** Resolves with the function that leaves the place; undefined: there is none before the time is over. */
    async take(ms: number, signals: readonly AbortSignal[]): Promise<(() => void) | undefined> {
      if (free > 0) free -= 1
      else if (!(await isCalled(ms, signals))) return undefined
      return () => {
        const [next] = queue
        if (next === undefined) free += 1
        else next(true)
      }
    },
    /** Whoever waits for a place has none: what all wait for may have come. */
    dismissAll(): void {
      for (const end of queue) end(false)
    },
  }

  /** False: it is dismissed, the time is over, or a signal is aborted. */
  function isCalled(ms: number, signals: readonly AbortSignal[]): Promise<boolean> {
    return new Promise((resolve) => {
      const end = (hasPlace: boolean): void => {
        clearTimeout(timer)
        queue.delete(end)
        for (const leave of leaves) leave()
        resolve(hasPlace)
      }
      const abandon = (): void => end(false)
      const timer = setTimeout(abandon, ms)
      const leaves = signals.map((signal) => onAbort(signal, abandon))
      queue.add(end)
      if (signals.some((signal) => signal.aborted)) abandon()
    })
  }
}
