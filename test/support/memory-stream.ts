// A stream that keeps what is written to it, and can stop reading and go on.
import { Writable } from 'node:stream'

export interface MemoryStream extends Writable {
  /** Everything that was written so far, as lines. */
  lines(): string[]
  /** Takes nothing more, until `flow()`. */
  stall(): void
  flow(): void
}

export function createMemoryStream(): MemoryStream {
  let text = ''
  let isStalled = false
  let waiting: (() => void) | undefined
  const stream = new Writable({
    decodeStrings: false,
    highWaterMark: 64 * 1024,
    write(chunk: string, _encoding, done) {
      text += chunk
      if (isStalled) waiting = done
      else done()
    },
  })
  return Object.assign(stream, {
    lines: () => text.split('\n').slice(0, -1),
    stall: () => {
      isStalled = true
    },
    flow: () => {
      isStalled = false
      waiting?.()
    },
  })
}
