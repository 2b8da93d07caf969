// Writes lines to a stream that may stop reading or go away: memory stays bounded, and what is lost is counted.

/** What lines are written to: a stream, or what behaves like one. */
export interface LineSink {
  write(line: string, done: (error?: Error | null) => void): unknown
  /** It is no more. */
  on(event: 'error', listener: () => void): unknown
}

export interface BoundedWriter {
  /** Hands the line on, or drops and counts it. Never throws, never blocks. */
  write(line: string): void
  /** How many lines were dropped, or could not be written, since the start. */
  dropped(): number
  /** Resolves when everything is written, or can no longer be. */
  flushed(): Promise<void>
}

/** `onFlow` is called when the sink has taken all that was unsent, with the count of lines dropped since it was last called, if any. */
export function createBoundedWriter(
  sink: LineSink,
  options: { limitBytes: number; onFlow: (dropped: number) => void },
): BoundedWriter {
  let unsentBytes = 0
  let dropped = 0
  let told = 0
  let isBroken = false
  let waiting: (() => void)[] = []

  function onIdle(): void {
    for (const resolve of waiting) resolve()
    waiting = []
  }

  function tellDropped(): void {
    const since = dropped - told
    told = dropped
    if (since > 0) options.onFlow(since)
  }

  /** A reader that went away (EPIPE): the stream is no more, the daemon goes on. */
  sink.on('error', () => {
    isBroken = true
    onIdle()
  })

  return {
    write(line) {
      const bytes = Buffer.byteLength(line)
      if (isBroken || unsentBytes + bytes > options.limitBytes) {
        dropped += 1
        return
      }
      unsentBytes += bytes
      sink.write(line, (error) => {
        unsentBytes -= bytes
        if (error) dropped += 1
        if (unsentBytes > 0) return
        if (!error) tellDropped()
        onIdle()
      })
    },
    dropped: () => dropped,
    flushed: () =>
      unsentBytes === 0 || isBroken
        ? Promise.resolve()
        : new Promise((resolve) => {
            waiting.push(resolve)
          }),
  }
}
