// The winston logger: syslog's levels, one line format, one transport of bounded memory. Loading it takes 30 ms.
import { fstatSync, writeSync } from 'node:fs'
import type { Writable } from 'node:stream'
import winston from 'winston'
import Transport from 'winston-transport'
import { lineFormat, type LineOptions, type LogRecord } from './log-formats.ts'

interface TransportOptions {
  /** Unsent bytes; lines beyond them are dropped. */
  readonly limitBytes: number
  /** Called when the stream has taken all that was unsent, with the count of lines lost since, if any. */
  readonly onDrain: (lost: number) => void
}
export type WinstonLogger = ReturnType<typeof createWinstonLogger>

export function createWinstonLogger(options: LineOptions & TransportOptions & { stream: Writable }) {
  const transport = new BoundedTransport(options.stream, options)
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
    lost: (): number => transport.lost,
    flushed: async (): Promise<void> => transport.flushed(),
  }
}

/** The symbol under which winston's formats put the finished line. */
const LINE = Symbol.for('message')

/** A transport to a stream that may stop reading or go away: memory stays bounded, and lost lines are counted. */
class BoundedTransport extends Transport {
  /** Lines that were dropped, or could not be written, since the start. */
  lost = 0
  readonly #sink: LineSink
  readonly #limitBytes: number
  readonly #onDrain: (lost: number) => void
  #unsentBytes = 0
  #reported = 0
  #isBroken = false

  constructor(stream: Writable, options: TransportOptions) {
    super()
    this.#sink = sinkOf(stream)
    this.#limitBytes = options.limitBytes
    this.#onDrain = options.onDrain
    // EPIPE: the reader went away; the daemon works on without it.
    this.#sink.on('error', () => {
      this.#isBroken = true
      this.emit('idle')
    })
  }

  /** Takes the line at once, so that winston never buffers. */
  override log(info: Record<symbol, unknown>, next: () => void): void {
    this.#write(`${String(info[LINE])}\n`)
    next()
  }

  /** Resolves when every line is written, or can no longer be. */
  async flushed(): Promise<void> {
    if (this.#unsentBytes > 0 && !this.#isBroken) await new Promise((resolve) => this.once('idle', resolve))
  }

  #write(line: string): void {
    const bytes = Buffer.byteLength(line)
    if (this.#isBroken || this.#unsentBytes + bytes > this.#limitBytes) {
      this.lost += 1
      return
    }
    this.#unsentBytes += bytes
    this.#sink.write(line, (error) => {
      this.#unsentBytes -= bytes
      if (error) this.lost += 1
      if (this.#unsentBytes > 0) return
      if (!error) this.#reportLost()
      this.emit('idle')
    })
  }

  #reportLost(): void {
    const since = this.lost - this.#reported
    this.#reported = this.lost
    if (since > 0) this.#onDrain(since)
  }
}

interface LineSink {
  write(line: string, done: (error?: Error | null) => void): unknown
  on(event: 'error', listener: () => void): unknown
}

/** A file is written directly: Node's own stream to a file ends for good at the first error, such as a full disk. */
function sinkOf(stream: Writable): LineSink {
  const fd: unknown = Reflect.get(stream, 'fd')
  return typeof fd === 'number' && isFile(fd) ? fileSink(fd) : stream
}

function isFile(fd: number): boolean {
  try {
    return fstatSync(fd).isFile()
  } catch {
    // A closed descriptor is no file.
    return false
  }
}

function fileSink(fd: number): LineSink {
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
