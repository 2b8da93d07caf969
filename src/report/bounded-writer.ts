// Writes lines to a stream that may stop reading or go away: memory stays bounded, and what is lost is counted.
import type { Writable } from 'node:stream'

export interface BoundedWriter {
  /** Hands the line on, or drops and counts it. Never throws, never blocks. */
  write(line: string): void
  /** How many lines were dropped, or could not be written, since the start. */
  dropped(): number
  /** Resolves when everything is written, or can no longer be. */
  flushed(): Promise<void>
}

/** `onFlow` is called when the stream has taken all that was unsent, with the count of lines dropped since it was last called, if any. */
export function createBoundedWriter(
  stream: Writable,
  options: { limitBytes: number; onFlow: (dropped: number) => void },
): BoundedWriter {
  let unsentBytes = 0
  let dropped = 0
  let told = 0
  let isBroken = false
  let waiting: (() => void)[] = []

  function onIdle(): void {
    const since = dropped - told
    told = dropped
    if (since > 0 && !isBroken) options.onFlow(since)
    for (const resolve of waiting) resolve()
    waiting = []
  }

  /** A reader that went away (EPIPE), a full disk: the stream is no more, the daemon goes on. */
  function onBreak(): void {
    isBroken = true
    onIdle()
  }
  stream.on('error', onBreak)

  return {
    write(line) {
      const bytes = Buffer.byteLength(line)
      if (isBroken || unsentBytes + bytes > options.limitBytes) {
        dropped += 1
        return
      }
      unsentBytes += bytes
      stream.write(line, (error) => {
        unsentBytes -= bytes
        if (error) {
          dropped += 1
          onBreak()
        } else if (unsentBytes === 0) onIdle()
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
