// The log: one record per event. Records are queued until winston is loaded, which an error or the end does at once.
import { fstatSync } from 'node:fs'
import type { Writable } from 'node:stream'
import type { Config } from '../config/config.ts'
import { withTimeout, type Clock } from '../lib/clock.ts'
import { logLevels, type Log, type LogLevel } from '../lib/log.ts'
import type { LineOptions, LogRecord } from './log-formats.ts'
import type { WinstonLogger } from './winston-logger.ts'

export type LogSettings = Config['log']
export interface OpenLog {
  readonly log: Log
  /** The start is over: from now on records are written soon, and not only with the first error or at the end. */
  begin(): void
  /** Goes on with other settings. */
  reconfigure(settings: LogSettings): void
  /** Records that were lost since the start: the log was not read, or its disk was full. */
  lost(): number
  /** Resolves when every record is written, or after 1 s: a reader that does not read delays no end. */
  close(): Promise<void>
}

/** Unread bytes of a reader that has stopped. */
const UNSENT_LIMIT_BYTES = 1024 * 1024
const CLOSE_LIMIT_MS = 1_000
/** Readers of a token come first. */
const LOAD_AFTER_MS = 250

/**
 * A log on this stream. `secrets` are read with each record: a last line of defence, behind the rule that no field
 * holds one.
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
  let { level } = options
  let lineOptions = { ...lineOptionsFor(options, { stream, env }), secrets }
  let logger: WinstonLogger | null = null
  let queue: LogRecord[] = []
  let loading: Promise<WinstonLogger> | null = null
  let timer: NodeJS.Timeout | undefined

  function load(): Promise<WinstonLogger> {
    loading ??= import('./winston-logger.ts').then(({ createWinstonLogger }) => {
      logger = createWinstonLogger({
        ...lineOptions,
        stream,
        limitBytes: UNSENT_LIMIT_BYTES,
        onDrain: logLost,
      })
      for (const record of queue) logger.write(record)
      queue = []
      return logger
    })
    return loading
  }

  function log(recordLevel: LogLevel, message: string, fields: LogRecord['fields']): void {
    if (urgency(recordLevel) > urgency(level)) return
    const record = { level: recordLevel, message, fields, wallMs: clock.now().wallMs }
    if (logger !== null) return logger.write(record)
    queue.push(record)
    if (urgency(recordLevel) <= urgency('error')) void load()
  }

  function logLost(dropped: number): void {
    log('warning', 'Records of this log were lost: it was not read, or its disk was full', {
      event: 'log-records-lost',
      dropped,
    })
  }

  return {
    log,
    begin() {
      timer ??= setTimeout(() => void load(), LOAD_AFTER_MS)
    },
    reconfigure(next) {
      level = next.level
      lineOptions = { ...lineOptionsFor(next, { stream, env }), secrets }
      logger?.reconfigure(lineOptions)
    },
    lost: () => logger?.lost() ?? 0,
    async close() {
      clearTimeout(timer)
      const loaded = await load()
      await withTimeout(CLOSE_LIMIT_MS, loaded.flushed(), clock)
    },
  }
}

/** 0 (emerg) to 7 (debug). */
function urgency(level: LogLevel): number {
  return logLevels.indexOf(level)
}

function lineOptionsFor(
  { format }: Pick<LogSettings, 'format'>,
  { stream, env }: { stream: Writable; env: NodeJS.ProcessEnv },
): Omit<LineOptions, 'secrets'> {
  const isTerminal = Reflect.get(stream, 'isTTY') === true
  const isColoured = isTerminal && (env['NO_COLOR'] ?? '') === '' && env['TERM'] !== 'dumb'
  const isJournal = leadsToJournal(stream, env)
  if (format !== 'auto') return { format, isColoured, isJournal }
  return { format: isJournal ? 'journal' : isTerminal ? 'text' : 'json', isColoured, isJournal }
}

/** Reports whether the stream leads to the journal (systemd.exec(5), $JOURNAL_STREAM: device and inode of its socket). */
function leadsToJournal(stream: Writable, env: NodeJS.ProcessEnv): boolean {
  const fd: unknown = Reflect.get(stream, 'fd')
  const journal = env['JOURNAL_STREAM']
  if (typeof fd !== 'number' || journal === undefined) return false
  try {
    const { dev, ino } = fstatSync(fd)
    return journal === `${dev}:${ino}`
  } catch {
    // A closed descriptor leads nowhere.
    return false
  }
}
