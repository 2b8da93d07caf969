// Opens when it was counted down, and stays open.

export interface Latch {
  /** One less to wait for. */
  count(): void
  /** Resolves when there is nothing more to wait for, or when the signal is aborted. */
  reached(signal: AbortSignal): Promise<void>
}

export function createLatch(times: number): Latch {
  let left = times
  let open = (): void => undefined
  const opened = new Promise<void>((resolve) => {
    open = resolve
  })
  return {
    count() {
      left -= 1
      if (left <= 0) open()
    },
    async reached(signal) {
      if (signal.aborted) return
      await new Promise<void>((resolve) => {
        signal.addEventListener('abort', () => resolve(), { once: true })
        void opened.then(resolve)
      })
    },
  }
}
