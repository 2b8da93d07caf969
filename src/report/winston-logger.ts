// The winston logger: syslog's levels, one line format, one transport of bounded memory. Loading it takes 30 ms.
import { once } from 'node:events'
import { writeSync } from 'node:fs'
import type { Writable } from 'node:stream'
import winston from 'winston'
import Transport from 'winston-transport'
import { lineFormat, type LineOptions, type LogRecord } from './log-formats.ts'

export type WinstonLogger = ReturnType<typeof createWinstonLogger>

/** Writes a line, and calls `done` with whether it was lost. */
type Send = (line: string, done: (isLost: boolean) => void) => void

/** The symbol under which winston's formats put the finished line. */
const LINE = Symbol.for('message')

/** Logs to a stream that may stop reading or go away: memory stays bounded, and lost lines are counted. */
export function createWinstonLogger(
  options: LineOptions & {
    readonly stream: Writable
    /** The descriptor of the stream, if it leads to a file. */
    readonly fileDescriptor: number | null
    /** Unsent bytes; lines beyond them are dropped. */
    readonly limitBytes: number
    /** Called when the stream has taken all that was unsent, with the count of lines lost since, if any. */
    readonly onDrain: (lost: number) => void
  },
) {
  const { stream, fileDescriptor, limitBytes, onDrain } = options
  const send = fileDescriptor === null ? sendTo(stream) : appendTo(fileDescriptor)
  let lost = 0
  let reported = 0
  let unsentBytes = 0
  let isBroken = false

  const transport = new Transport({
    /** Takes the line at once, so that winston never buffers. */
    log(info: Record<symbol, unknown>, next: () => void) {
      write(`${String(info[LINE])}\n`)
      next()
    },
  })
  // EPIPE: the reader went away; the daemon works on without it.
  stream.on('error', () => {
    isBroken = true
    transport.emit('idle')
  })

  function write(line: string): void {
    const bytes = Buffer.byteLength(line)
    if (isBroken || unsentBytes + bytes > limitBytes) {
      lost += 1
      return
    }
    unsentBytes += bytes
    send(line, (isLost) => {
      unsentBytes -= bytes
      if (isLost) lost += 1
      if (unsentBytes > 0) return
      if (!isLost) reportLost()
      transport.emit('idle')
    })
  }

  function reportLost(): void {
    const since = lost - reported
    reported = lost
    if (since > 0) onDrain(since)
  }

  const logger = winston.createLogger({
    levels: winston.config.syslog.levels,
    level: 'debug',
    format: lineFormat(options),
    transports: [transport],
  })
  return {
    write: (record: LogRecord): void => void logger.log({ ...record }),
    reconfigure(next: LineOptions): void {
      logger.format = lineFormat(next)
    },
    /** Lines that were dropped, or could not be written, since the start. */
    lost: (): number => lost,
    /** Resolves when every line is written, or can no longer be. */
    async flushed(): Promise<void> {
      if (unsentBytes > 0 && !isBroken) await once(transport, 'idle')
    },
  }
}

function sendTo(stream: Writable): Send {
  return (line, done) => stream.write(line, (error) => done(Boolean(error)))
}

/** A file is written directly: Node's own stream to a file ends for good at the first error, such as a full disk. */
function appendTo(fd: number): Send {
  /** The last line was cut, as the disk was full: the next one begins with the line end that it lacks. */
  let isCut = false
  return (line, done) => {
    const bytes = Buffer.from(isCut ? `\n${line}` : line)
    let written = 0
    try {
      written = writeSync(fd, bytes)
    } catch {
      // The reason does not matter: the line is lost.
    }
    if (written > 0) isCut = written < bytes.length
    done(written < bytes.length)
  }
}
