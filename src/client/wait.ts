// The one rule of waiting: a wait ends by its result, at its deadline, or with the reason of its signal.

export interface Wait<T> {
  readonly resolve: (value: T) => void
  readonly reject: (error: Error) => void
}

/** Begins the wait, whose clean-up `begin` returns. `begin` itself settles nothing; `onDeadline` has to. */
export function waitFor<T>(options: {
  /** Time to the deadline. */
  readonly forMs: number
  readonly signal: AbortSignal | undefined
  readonly onDeadline: (wait: Wait<T>) => void
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
    const timer = setTimeout(() => options.onDeadline(wait), options.forMs)
    signal?.addEventListener('abort', onAbort)
    const end = options.begin(wait)
  })
}
