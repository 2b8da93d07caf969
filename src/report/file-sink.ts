// A log file that was full goes on as soon as there is room: Node's own stream to a file ends at the first error, for good.
import { fstatSync, writeSync } from 'node:fs'
import type { Writable } from 'node:stream'
import type { LineSink } from './bounded-writer.ts'

/** Where the lines for this stream go: to the file behind it, where there is one, as Node writes it, else to itself. */
export function sinkOf(stream: Writable): LineSink {
  const fd: unknown = Reflect.get(stream, 'fd')
  return typeof fd === 'number' && isFile(fd) ? createFileSink(fd) : stream
}

function isFile(fd: number): boolean {
  try {
    return fstatSync(fd).isFile()
  } catch {
    // A descriptor that is closed is none.
    return false
  }
}

function createFileSink(fd: number): LineSink {
  /** The last line was cut: the next one begins with the line end that it lacks. */
  let isCut = false

  function append(bytes: Buffer): Error | null {
    let length = 0
    try {
      while (length < bytes.length) length += writeSync(fd, bytes, length)
      isCut = false
      return null
    } catch (error) {
      isCut ||= length > 0
      return error as Error
    }
  }

  return {
    write: (line, done) => done(append(Buffer.from(isCut ? `\n${line}` : line))),
    on: () => undefined,
  }
}
