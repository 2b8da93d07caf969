// Runs the parts of a program together: the first fault stops the others, and being stopped is no fault.

export interface Part {
  (signal: AbortSignal): Promise<void>
}

/**
 * Resolves when every part has ended. A part that ends, well or not, stops the others. Throws the first fault, once
 * all have cleaned up after themselves.
 */
export async function runTogether(parts: readonly Part[], signal: AbortSignal): Promise<void> {
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
        await part(stop.signal)
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
