// The log: one record per event, as one line. What is not taken is lost, and counted.
import { fstatSync } from 'node:fs'
import type { Writable } from 'node:stream'
import winston from 'winston'
import Transport from 'winston-transport'
import type { Config } from '../config/config.ts'
import { withTimeout, type Clock } from '../lib/clock.ts'
import { allowsColour } from '../lib/display-text.ts'
import { fallbackOnSystemError, withSystemFallback } from '../lib/error.ts'
import { fs } from '../files/fs.ts'
import { hideInStacks } from '../lib/internal-fault.ts'
import type { Log } from '../lib/log.ts'
import { formatLine, type LogRecord } from './log-line.ts'

export type LogSettings = Config['log']

/** Writes a line, after those before it; reports whether it did. */
type Send = (line: string) => Promise<boolean>

/** The most bytes that wait for a reader or a disk; further lines are lost. */
const UNSENT_LIMIT_BYTES = 1024 * 1024
const CLOSE_LIMIT_MS = 1_000
/** The symbol under which winston's formats put what is written. */
const LINE = Symbol.for('message')

/**
 * A log on this stream, which may stop reading or go away. `secrets` is called for each record, and what it returns is redacted: a second measure
 * beside the rule that no field contains a secret.
 */
export function createLog(
  options: LogSettings & {
    stream: Writable
    env: NodeJS.ProcessEnv
    clock: Clock
    secrets: () => Iterable<string>
  },
) {
  const { stream, env, clock, secrets } = options
  hideInStacks('log', secrets)
  let settings: LogSettings = options
  const target = targetOf(stream)
  const isTerminal = Reflect.get(stream, 'isTTY') === true
  const isColoured = isTerminal && allowsColour(env)
  // systemd.exec(5), $JOURNAL_STREAM: device and inode of its socket.
  const isJournal = target !== null && env['JOURNAL_STREAM'] === `${target.dev}:${target.ino}`
  const automatic = isJournal || isTerminal ? 'text' : 'json'
  const send = target?.isFile === true ? appendTo(target.fd) : streamTo(stream)

  function lineOf(record: LogRecord): string {
    const format = settings.format === 'auto' ? automatic : settings.format
    return `${formatLine(record, { format, isColoured, isJournal, secrets: secrets() })}\n`
  }

  const writer = createWriter({
    send,
    onLost(dropped) {
      const sentence = 'Records of this log were lost: it was not read, or its disk was full'
      log('warning', sentence, { event: 'log-records-lost', dropped })
    },
  })
  const logger = winston.createLogger({
    levels: winston.config.syslog.levels,
    level: settings.level,
    format: winston.format((info) => Object.assign(info, { [LINE]: lineOf(info as unknown as LogRecord) }))(),
    transports: [
      new Transport({
        /** Takes it at once, so that winston never buffers. */
        log(info: Record<typeof LINE, string>, next: () => void) {
          writer.write(info[LINE])
          next()
        },
      }),
    ],
  })
  const log: Log = (level, message, fields) => {
    if (logger.isLevelEnabled(level)) logger.log({ level, message, fields, wallMs: clock.now().wallMs })
  }

  return {
    log,
    /** Uses other settings from now on. */
    reconfigure: (next: LogSettings): void => {
      settings = next
      logger.level = next.level
    },
    /** Records that were lost since the start: the log was not read, or its disk was full. */
    lost: writer.lost,
    /** Resolves when every record is written, or after 1 s: a reader that has stopped delays no end. */
    close: async (): Promise<void> => {
      await withTimeout(CLOSE_LIMIT_MS, writer.flushed(), clock)
    },
  }
}

/** Bounds what is unsent. Once nothing is, `onLost` gets the count of lines lost since it was called last. */
function createWriter({ send, onLost }: { send: Send; onLost: (count: number) => void }) {
  let lost = 0
  let reported = 0
  let unsentBytes = 0
  let last = Promise.resolve()

  async function sendCounted(line: string, bytes: number): Promise<void> {
    unsentBytes += bytes
    const isSent = await send(line)
    unsentBytes -= bytes
    if (!isSent) lost += 1
    if (!isSent || unsentBytes > 0 || lost === reported) return
    const count = lost - reported
    reported = lost
    onLost(count)
  }

  return {
    write(line: string): void {
      const bytes = Buffer.byteLength(line)
      if (unsentBytes + bytes > UNSENT_LIMIT_BYTES) lost += 1
      else last = sendCounted(line, bytes)
    },
    lost: () => lost,
    /** Resolves when everything is written, or cannot be. */
    flushed: async (): Promise<void> => last,
  }
}

function streamTo(stream: Writable): Send {
  // EPIPE: the reader has gone; the daemon continues without it.
  stream.on('error', () => undefined)
  return async (line) => new Promise((resolve) => stream.write(line, (error) => resolve(!error)))
}

/**
 * A file is written directly: Node's own stream to a file blocks, and ends for good at the first error, such
 * as a full disk. One line is under way at a time, so that a disk that hangs takes one thread, and the lines
 * wait.
 */
function appendTo(fd: number): Send {
  /** The last line was cut, as the disk was full: the next one begins with the line end that it lacks. */
  let isCut = false
  let last: Promise<unknown> = Promise.resolve()

  async function append(line: string): Promise<boolean> {
    const bytes = Buffer.from(isCut ? `\n${line}` : line)
    const { bytesWritten } = await fs.write(fd, bytes).catch(fallbackOnSystemError({ bytesWritten: 0 }))
    if (bytesWritten > 0) isCut = bytesWritten < bytes.length
    return bytesWritten === bytes.length
  }

  return async (line) => {
    const appended = last.then(async () => append(line))
    last = appended
    return appended
  }
}

/** The descriptor of the stream, and the file or socket behind it; null: it has none that is open. */
function targetOf(stream: Writable): { fd: number; isFile: boolean; dev: number; ino: number } | null {
  const fd: unknown = Reflect.get(stream, 'fd')
  if (typeof fd !== 'number') return null
  const stats = withSystemFallback(null, () => fstatSync(fd))
  return stats && { fd, isFile: stats.isFile(), dev: stats.dev, ino: stats.ino }
}
