// The winston logger: it redacts the fields, makes one line of each record, and limits the memory of its transport. Loading it
// takes 30 ms.
import { once } from 'node:events'
import type { Writable } from 'node:stream'
import { inspect, styleText } from 'node:util'
import winston, { type Logform } from 'winston'
import Transport from 'winston-transport'
import { escapeUnsafe } from '../lib/display-text.ts'
import { fallbackOnSystemError } from '../lib/error.ts'
import { fs } from '../lib/fs.ts'
import { DiskError, inDirectory } from '../lib/in-directory.ts'
import { logLevels, type LogFields, type LogLevel } from '../lib/log.ts'
import { redact } from '../lib/secret.ts'

export type WinstonLogger = ReturnType<typeof createWinstonLogger>

export interface LogRecord {
  readonly level: LogLevel
  /** The constant sentence. */
  readonly message: string
  readonly fields: LogFields
  /** Since the Unix epoch, in ms. */
  readonly wallMs: number
}
export interface LineOptions {
  readonly format: 'journal' | 'text' | 'json'
  readonly isColoured: boolean
  /** The stream leads to the journal, which takes the priority from the beginning of each line. */
  readonly isJournal: boolean
  /** Called for each record. No line contains one of these, as it is or in a usual encoding. */
  readonly secrets: () => Iterable<string>
}

/** An open file, and its directory. */
interface LogFile {
  readonly fd: number
  readonly directory: string
}

/** Writes a line, and calls `done` with whether it was lost. */
type Send = (line: string, done: (isLost: boolean) => void) => void

/** The symbol under which winston's formats put the finished line. */
const LINE = Symbol.for('message')

/** journald cuts lines at 48 KiB (`LineMax=`), and the rest of such a line would have no level. */
const MAX_LINE_BYTES = 48 * 1024 - 1
/** A longer text is cut. */
const MAX_TEXT_LENGTH = 4096
const MAX_DEPTH = 5
/** The pause before a file is tried again whose disk did not answer. */
const RETRY_MS = 1_000

/** Logs to a stream that may stop reading or go away: memory stays bounded, and lost lines are counted. */
export function createWinstonLogger(
  options: LineOptions & {
    readonly stream: Writable
    /** The file to which the stream leads; null: to something else. */
    readonly file: LogFile | null
    /** Unsent bytes; lines beyond them are dropped. */
    readonly limitBytes: number
    /** Called when the stream has taken all that was unsent, with the count of lines lost since, if any. */
    readonly onDrain: (lost: number) => void
  },
) {
  const { stream, file, limitBytes, onDrain } = options
  const toStream: Send = (line, done) => stream.write(line, (error) => done(Boolean(error)))
  const send = file === null ? toStream : appendTo(file)
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
  // EPIPE: the reader has gone; the daemon continues without it.
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

/**
 * A file is written directly: Node's own stream to a file blocks, and ends for good at the first error, such as a full disk.
 * Lines wait while the disk hangs.
 */
function appendTo({ fd, directory }: LogFile): Send {
  /** The last line was cut, as the disk was full: the next one begins with the line end that it lacks. */
  let isCut = false
  let waiting: Parameters<Send>[] = []
  let isBusy = false

  async function writeLine([line, done]: Parameters<Send>): Promise<void> {
    const bytes = Buffer.from(isCut ? `\n${line}` : line)
    const { bytesWritten } = await fs.write(fd, bytes).catch(fallbackOnSystemError({ bytesWritten: 0 }))
    if (bytesWritten > 0) isCut = bytesWritten < bytes.length
    done(bytesWritten < bytes.length)
  }

  async function writeWaiting(): Promise<void> {
    const lines = waiting
    waiting = []
    for (const each of lines) await writeLine(each)
    isBusy = false
    if (waiting.length > 0) begin()
  }

  function begin(): void {
    if (isBusy) return
    isBusy = true
    let hasBegun = false
    const work = async (): Promise<void> => {
      hasBegun = true
      await writeWaiting()
    }
    inDirectory(directory, work).catch((error: unknown) => {
      if (!(error instanceof DiskError)) throw error
      // What has begun goes on when the disk answers again.
      if (!hasBegun) setTimeout(begin, RETRY_MS).unref()
      if (!hasBegun) isBusy = false
    })
  }

  return (line, done) => {
    waiting.push([line, done])
    begin()
  }
}

/** Each record becomes one line of at most 48 KiB without control characters, and without secrets in its fields. */
export function lineFormat(options: LineOptions): Logform.Format {
  const write = { journal: journalLine, text: textLine, json: jsonLine }[options.format]
  const toLine = (record: LogRecord): string => {
    const line = write(record, options)
    const bytes = Buffer.byteLength(line)
    if (bytes <= MAX_LINE_BYTES) return line
    return write({ ...record, fields: { event: record.fields.event, omittedBytes: bytes } }, options)
  }
  return winston.format.printf((info) => toLine(redacted(info as unknown as LogRecord, options.secrets())))
}

/** Names, event and sentence are constants of this program that others rely on, so only values are redacted. */
function redacted(record: LogRecord, secrets: Iterable<string>): LogRecord {
  const { event, ...others } = record.fields
  return { ...record, fields: { event, ...(toLoggable(others, { secrets, depth: 0 }) as object) } }
}

function journalLine({ level, message, fields }: LogRecord): string {
  return escapeUnsafe(`${priority(level)}${message} ${toLogfmt(fields)}`)
}

/** As sd-daemon(3) has it. */
function priority(level: LogLevel): string {
  return `<${logLevels.indexOf(level)}>`
}

function jsonLine({ level, message, fields, wallMs }: LogRecord, { isJournal }: LineOptions): string {
  const json = JSON.stringify({ time: new Date(wallMs).toISOString(), level, message, ...fields })
  return escapeUnsafe(isJournal ? `${priority(level)}${json}` : json)
}

/** More urgent levels are red. */
const colours: Partial<Record<LogLevel, 'yellow' | 'green' | 'blue' | 'gray'>> = {
  warning: 'yellow',
  notice: 'green',
  info: 'blue',
  debug: 'gray',
}

function textLine({ level, message, fields, wallMs }: LogRecord, { isColoured }: LineOptions): string {
  const { event: _event, ...others } = fields
  const paint = (colour: Parameters<typeof styleText>[0], text: string): string =>
    isColoured && text !== '' ? styleText(colour, text, { validateStream: false }) : text
  const parts = [
    paint('gray', localTime(wallMs)),
    paint(colours[level] ?? 'red', level.padEnd(7)),
    paint('bold', escapeUnsafe(message)),
    paint('gray', escapeUnsafe(toLogfmt(others))),
  ]
  return parts.join(' ').trimEnd()
}

function localTime(wallMs: number): string {
  const aheadMs = -60_000 * new Date(wallMs).getTimezoneOffset()
  return new Date(wallMs + aheadMs).toISOString().slice(0, 19).replace('T', ' ')
}

/** `name=value`, quoted if a value has other than plain characters. */
function toLogfmt(fields: Readonly<Record<string, unknown>>): string {
  return Object.entries(fields)
    .filter(([, value]) => value !== undefined && value !== null)
    .map(([name, value]) => `${name}=${toLogfmtValue(value)}`)
    .join(' ')
}

function toLogfmtValue(value: unknown): string {
  const text = typeof value === 'string' ? value : JSON.stringify(value)
  return /^[\w.:/@+,~*[\]-]+$/.test(text) ? text : JSON.stringify(text)
}

/** The value as JSON can show it: errors as their message, secrets as [secret], with a limited depth. */
function toLoggable(
  value: unknown,
  { secrets, depth }: { secrets: Iterable<string>; depth: number },
): unknown {
  if (typeof value === 'string') return clean(value, secrets)
  if (value === null || value === undefined || typeof value === 'boolean' || typeof value === 'number')
    return value
  if (value instanceof Error) return clean(value.message, secrets)
  if (typeof value !== 'object') return clean(inspect(value), secrets)
  if (depth >= MAX_DEPTH) return '…'
  const deeper = { secrets, depth: depth + 1 }
  const toJSON: unknown = Reflect.get(value, 'toJSON')
  if (typeof toJSON === 'function') return toLoggable(toJSON.call(value), deeper)
  if (Array.isArray(value)) return value.map((item) => toLoggable(item, deeper))
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, toLoggable(item, deeper)]))
}

/** Redacts before it cuts: half of a secret would not be recognized. */
function clean(text: string, secrets: Iterable<string>): string {
  const shown = redact(text, secrets)
  return shown.length <= MAX_TEXT_LENGTH ? shown : `${shown.slice(0, MAX_TEXT_LENGTH)}…`
}
