// The log: one record per event, on a stream that may do what it wants. winston takes the records, once it has loaded.
import { fstatSync } from 'node:fs'
import type { Writable } from 'node:stream'
import { Writable as WritableStream } from 'node:stream'
import type { LogFormat } from '../config/config.ts'
import type { Clock } from '../lib/clock.ts'
import { errorMessage } from '../lib/error.ts'
import { logLevels, type Log, type LogLevel } from '../lib/log.ts'
import { createBoundedWriter } from './bounded-writer.ts'
import { sinkOf } from './file-sink.ts'
import { renderLine, type LogRecord, type Rendering } from './render.ts'

export interface LogSettings {
  /** Records that are less urgent are not written. */
  readonly level: LogLevel
  readonly format: LogFormat
}
export interface OpenLog {
  readonly log: Log
  /** Goes on with other settings. */
  reconfigure(settings: LogSettings): void
  /** How many records were lost, because nobody read the log or there was no room for it. */
  lost(): number
  /** Resolves when every record is written, or after 1 s: a reader that does not read holds nobody up. */
  close(): Promise<void>
}

/** What a reader that has stopped may leave unread. */
const UNSENT_LIMIT_BYTES = 1024 * 1024
const CLOSE_LIMIT_MS = 1_000
/** Readers of a token come first. */
const WINSTON_AFTER_MS = 250

/**
 * A log on this stream. `secrets` are asked for with each record: a last line of defence, behind the rule that no
 * field holds one. winston takes 30 ms to load, so that is done when the start is over; what is logged until then
 * goes the same way without it.
 */
export function createLog(
  options: LogSettings & {
    stream: Writable
    env: NodeJS.ProcessEnv
    clock: Clock
    secrets: () => Iterable<string>
  },
): OpenLog {
  const { stream, env, clock, secrets } = options
  let settings = renderingOf(options, { stream, env })
  let level: LogLevel = options.level
  let pass = (record: LogRecord): void => writer.write(`${lineOf(record)}\n`)

  const writer = createBoundedWriter(sinkOf(stream), { limitBytes: UNSENT_LIMIT_BYTES, onFlow: tellLost })

  function tellLost(dropped: number): void {
    log('warning', 'Records of this log were lost: nobody read it, or there was no room', {
      event: 'log-records-lost',
      dropped,
    })
  }

  /** Writing never waits for anything, and so the sink takes every line at once. */
  const sink = new WritableStream({
    decodeStrings: false,
    write(line: string, _encoding, done) {
      writer.write(line)
      done()
    },
  })
  const lineOf = (record: LogRecord): string => renderLine(record, { ...settings, secrets: secrets() })

  function log(recordLevel: LogLevel, sentence: string, fields: LogRecord['fields']): void {
    // Judged here, so that a record that is not wanted costs nothing.
    if (logLevels.indexOf(recordLevel) > logLevels.indexOf(level)) return
    pass({ level: recordLevel, sentence, fields, wallMs: clock.now().wallMs })
  }

  async function passThroughWinston(): Promise<void> {
    try {
      pass = await loadWinston(sink, lineOf)
    } catch (error) {
      log('error', 'winston cannot be loaded; the log goes on without it: run `npm ci`', {
        event: 'log-degraded',
        error: errorMessage(error),
      })
    }
  }
  const loading = setTimeout(() => void passThroughWinston(), WINSTON_AFTER_MS)

  return {
    log,
    reconfigure(next) {
      level = next.level
      settings = renderingOf(next, { stream, env })
    },
    lost: () => writer.dropped(),
    async close() {
      clearTimeout(loading)
      const limit = new AbortController()
      await Promise.race([writer.flushed(), clock.sleep(CLOSE_LIMIT_MS, limit.signal)])
      limit.abort()
    },
  }
}

/** A winston logger that hands each record, as one line, to the sink before it returns. */
async function loadWinston(
  sink: Writable,
  lineOf: (record: LogRecord) => string,
): Promise<(record: LogRecord) => void> {
  const { default: winston } = await import('winston')
  const logger = winston.createLogger({
    levels: winston.config.syslog.levels,
    level: 'debug',
    format: winston.format.printf((entry) => lineOf(entry['record'] as LogRecord)),
    transports: [new winston.transports.Stream({ stream: sink, eol: '\n' })],
  })
  return (record) => {
    logger.log({ level: record.level, message: record.sentence, record })
  }
}

function renderingOf(
  { format }: LogSettings,
  { stream, env }: { stream: Writable; env: NodeJS.ProcessEnv },
): Omit<Rendering, 'secrets'> {
  const isTerminal = Reflect.get(stream, 'isTTY') === true
  const isColoured = isTerminal && (env['NO_COLOR'] ?? '') === '' && env['TERM'] !== 'dumb'
  if (format !== 'auto') return { format, isColoured }
  if (isJournal(stream, env)) return { format: 'journal', isColoured: false }
  return { format: isTerminal ? 'text' : 'json', isColoured }
}

/** Whether the stream leads to the journal (systemd.exec(5), $JOURNAL_STREAM: device and inode of that socket). */
function isJournal(stream: Writable, env: NodeJS.ProcessEnv): boolean {
  const fd: unknown = Reflect.get(stream, 'fd')
  const journal = env['JOURNAL_STREAM']
  if (typeof fd !== 'number' || journal === undefined) return false
  try {
    const { dev, ino } = fstatSync(fd, { bigint: true })
    return journal === `${dev}:${ino}`
  } catch {
    // A descriptor that is closed leads nowhere.
    return false
  }
}
