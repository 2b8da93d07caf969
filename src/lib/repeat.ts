// Repeats an attempt until it is final. How long to wait in between is the caller's decision, and so is the clock.

/** Thrown by an attempt that is to be made again. */
export class TryAgain extends Error {
  override readonly name = 'TryAgain'
}

/**
 * Makes the attempt until it returns; whenever it throws TryAgain, awaits `between` and makes it again, for ever.
 * Any other error ends it. p-retry repeats and counts; its own timers are switched off, because they are deaf to
 * suspend, to a reload and to an operator, and have no jitter at the cap.
 */
export async function repeat<T>(
  attempt: () => Promise<T>,
  options: { between: () => Promise<void>; signal: AbortSignal },
): Promise<T> {
  const { default: pRetry } = await import('p-retry')
  return pRetry(attempt, {
    retries: Infinity,
    minTimeout: 0,
    signal: options.signal,
    shouldRetry: ({ error }) => error instanceof TryAgain,
    onFailedAttempt: async ({ error }) => {
      if (error instanceof TryAgain) await options.between()
    },
  })
}
