// A stream that keeps what is written to it, can stop reading and go on, and can lose its reader.
import { Writable } from 'node:stream'

export type MemoryStream = ReturnType<typeof createMemoryStream>

export function createMemoryStream() {
  let text = ''
  let isStalled = false
  let isGone = false
  let waiting: (() => void) | undefined
  const stream = new Writable({
    decodeStrings: false,
    highWaterMark: 64 * 1024,
    write(chunk: string, _encoding, done) {
      if (isGone) return done(Object.assign(new Error('write EPIPE'), { code: 'EPIPE' }))
      text += chunk
      if (isStalled) waiting = done
      else done()
    },
  })
  return Object.assign(stream, {
    /** Everything that was written so far, as lines. */
    lines: () => text.split('\n').slice(0, -1),
    /** Takes nothing more, until `flow()`. */
    stall: () => {
      isStalled = true
    },
    /** The reader goes away: what is written from here on fails. */
    leave: () => {
      isGone = true
    },
    flow: () => {
      isStalled = false
      waiting?.()
    },
  })
}
