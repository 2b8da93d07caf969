// The one rule of waiting: a wait ends by its result, at its deadline, or with the reason of its signal.

export interface Wait<T> {
  readonly resolve: (value: T) => void
  readonly reject: (error: Error) => void
}

/** Begins the wait, whose clean-up `begin` returns. `begin` itself settles nothing. */
export function waitFor<T>(options: {
  /** Time to the deadline. */
  readonly forMs: number
  readonly signal: AbortSignal | undefined
  /** Settles the wait, or returns the time to a later deadline. */
  readonly onDeadline: (wait: Wait<T>) => number | void
  readonly begin: (wait: Wait<T>) => () => void
}): Promise<T> {
  const { signal } = options
  return new Promise((resolve, reject) => {
    if (signal?.aborted === true) return reject(signal.reason as Error)
    const settle = (how: () => void): void => {
      clearTimeout(timer)
      signal?.removeEventListener('abort', onAbort)
      end()
      how()
    }
    const wait: Wait<T> = {
      resolve: (value) => settle(() => resolve(value)),
      reject: (error) => settle(() => reject(error)),
    }
    const onAbort = (): void => wait.reject(signal?.reason as Error)
    const onDeadline = (): void => {
      const moreMs = options.onDeadline(wait)
      if (typeof moreMs === 'number') timer = setTimeout(onDeadline, moreMs)
    }
    let timer = setTimeout(onDeadline, options.forMs)
    signal?.addEventListener('abort', onAbort)
    const end = options.begin(wait)
  })
}
