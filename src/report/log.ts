// The log: one record per event, as one line on one stream. A record that the stream refuses is lost, and counted.
import { fstatSync } from 'node:fs'
import { Writable } from 'node:stream'
import winston from 'winston'
import { withTimeout, type Clock } from '../lib/clock.ts'
import { escapeUnsafe } from '../lib/display-text.ts'
import { withSystemFallback } from '../lib/error.ts'
import { hideInStacks, type Log, type LogFields, type LogLevel, logLevels } from '../lib/log.ts'
import { createRedaction } from '../lib/secret.ts'

/** The most bytes that wait for a reader; further lines are lost. */
const UNSENT_LIMIT_BYTES = 1024 * 1024
const CLOSE_LIMIT_MS = 1_000

export interface LogSettings {
  readonly level: LogLevel
  readonly format: 'auto' | 'text' | 'json'
}

/**
 * A log on this stream, which may stop reading or go away. `secrets` is called for each record, and what it
 * returns is replaced in the fields: a second measure beside the rule that no field contains a secret.
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
  const isJournal = isJournalOf(stream, env)
  const automatic = isJournal || Reflect.get(stream, 'isTTY') === true ? 'text' : 'json'
  let lost = 0
  let reported = 0
  // EPIPE: the reader has gone; the daemon goes on without it.
  stream.on('error', () => undefined)

  function lineOf(level: LogLevel, message: string, fields: LogFields): string {
    const time = new Date(clock.now().wallMs).toISOString()
    const shown = redacted(fields, secrets())
    const format = settings.format === 'auto' ? automatic : settings.format
    const text = `${message} ${toLogfmt(shown)}`
    // The journal takes the priority from the beginning of a line (sd-daemon(3)), and has the time itself.
    const priority = isJournal ? `<${logLevels.indexOf(level)}>` : ''
    if (format === 'json') return priority + escapeUnsafe(JSON.stringify({ time, level, message, ...shown }))
    return `${isJournal ? priority : `${time} ${level} `}${escapeUnsafe(text)}`
  }

  /** Takes each line at once, so that winston never buffers. */
  const bounded = new Writable({
    write(line: Buffer, _encoding, next) {
      if (stream.destroyed || stream.writableLength + line.length > UNSENT_LIMIT_BYTES) lost += 1
      else stream.write(line, reportLost)
      next()
    },
  })

  /** It is called when the stream has taken a line, or has failed. */
  function reportLost(error?: Error | null): void {
    if (error) lost += 1
    if (error || stream.writableLength > 0 || lost === reported) return
    const dropped = lost - reported
    reported = lost
    log('warning', 'Records of this log were lost: it was not read', { event: 'log-records-lost', dropped })
  }

  const logger = winston.createLogger({
    levels: winston.config.syslog.levels,
    level: settings.level,
    format: winston.format.printf(({ message }) => String(message)),
    transports: [new winston.transports.Stream({ stream: bounded, eol: '\n' })],
  })
  const log: Log = (level, message, fields) => {
    if (logger.isLevelEnabled(level)) logger.log(level, lineOf(level, message, fields))
  }

  return {
    log,
    /** Uses other settings from now on. */
    reconfigure: (next: LogSettings): void => {
      settings = next
      logger.level = next.level
    },
    /** Records that were lost since the start, because the log was not read. */
    lost: () => lost,
    /** Resolves when every record is written, or after 1 s: a reader that has stopped delays no end. */
    close: async (): Promise<void> => {
      const flushed = new Promise((resolve) => stream.write('', resolve))
      await withTimeout(CLOSE_LIMIT_MS, flushed, clock)
    },
  }
}

/** systemd.exec(5), $JOURNAL_STREAM: device and inode of the journal's socket. */
function isJournalOf(stream: Writable, env: NodeJS.ProcessEnv): boolean {
  const fd: unknown = Reflect.get(stream, 'fd')
  if (typeof fd !== 'number') return false
  const stats = withSystemFallback(null, () => fstatSync(fd))
  return stats !== null && env['JOURNAL_STREAM'] === `${stats.dev}:${stats.ino}`
}

/**
 * The fields as JSON has them, without secrets. Others rely on `event`, a constant of this program: only values
 * of the other fields are redacted.
 */
function redacted({ event, ...others }: LogFields, secrets: Iterable<string>): LogFields {
  const redact = createRedaction(secrets)
  const json = JSON.stringify(others, (_, value: unknown) => {
    const text = value instanceof Error ? value.message : value
    return typeof text === 'string' ? redact(text) : text
  })
  return { event, ...(JSON.parse(json) as object) }
}

/** `name=value` for fields that have a value, quoted if it has other than plain characters. */
function toLogfmt(fields: LogFields): string {
  return Object.entries(fields)
    .filter(([, value]) => value !== null)
    .map(([name, value]) => {
      const text = typeof value === 'string' ? value : JSON.stringify(value)
      return `${name}=${/^[\w.:/@+,~*[\]-]+$/.test(text) ? text : JSON.stringify(text)}`
    })
    .join(' ')
}
