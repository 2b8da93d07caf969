// The log: one record per event. Records are queued until winston is loaded, which an error or the end does at once.
import { fstatSync, readlinkSync } from 'node:fs'
import { dirname } from 'node:path'
import type { Writable } from 'node:stream'
import type { Config } from '../config/config.ts'
import { withTimeout, type Clock } from '../lib/clock.ts'
import { allowsColour } from '../lib/display-text.ts'
import { withSystemFallback } from '../lib/error.ts'
import { logLevels, type LogLevel } from '../lib/log.ts'
import type { LineOptions, LogRecord, WinstonLogger } from './winston-logger.ts'

export type LogSettings = Config['log']

/** The most bytes that wait for a reader; further records are lost. */
const UNSENT_LIMIT_BYTES = 1024 * 1024
const CLOSE_LIMIT_MS = 1_000
/** winston is loaded this long after the start: clients that want a token come first. */
const LOAD_AFTER_MS = 250

/**
 * A log on this stream. `secrets` is called for each record, and what it returns is redacted: a second measure beside the rule
 * that no field contains a secret.
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
  const target = targetOf(stream)
  const lineOptions = ({ format }: LogSettings): LineOptions => {
    const isTerminal = Reflect.get(stream, 'isTTY') === true
    const isColoured = isTerminal && allowsColour(env)
    // systemd.exec(5), $JOURNAL_STREAM: device and inode of its socket.
    const isJournal = target !== null && env['JOURNAL_STREAM'] === `${target.dev}:${target.ino}`
    const automatic = isJournal ? 'journal' : isTerminal ? 'text' : 'json'
    return { format: format === 'auto' ? automatic : format, isColoured, isJournal, secrets }
  }
  let settings: LogSettings = options
  let logger: WinstonLogger | null = null
  let queue: LogRecord[] = []
  let loading: Promise<WinstonLogger> | null = null
  let timer: NodeJS.Timeout | undefined

  function load(): Promise<WinstonLogger> {
    loading ??= import('./winston-logger.ts').then(({ createWinstonLogger }) => {
      logger = createWinstonLogger({
        ...lineOptions(settings),
        stream,
        file: target?.isFile === true ? { fd: target.fd, directory: directoryOf(target.fd) } : null,
        limitBytes: UNSENT_LIMIT_BYTES,
        onDrain: logLost,
      })
      for (const record of queue) logger.write(record)
      queue = []
      return logger
    })
    return loading
  }

  function log(level: LogLevel, message: string, fields: LogRecord['fields']): void {
    if (urgency(level) > urgency(settings.level)) return
    const record = { level, message, fields, wallMs: clock.now().wallMs }
    if (logger !== null) return logger.write(record)
    queue.push(record)
    if (urgency(level) <= urgency('error')) void load()
  }

  function logLost(dropped: number): void {
    log('warning', 'Records of this log were lost: it was not read, or its disk was full', {
      event: 'log-records-lost',
      dropped,
    })
  }

  return {
    log,
    /** Call it after the start: from now on records are written soon, and not only with the first error or at the end. */
    begin(): void {
      timer ??= setTimeout(() => void load(), LOAD_AFTER_MS)
    },
    /** Uses other settings from now on. */
    reconfigure: (next: LogSettings): void => {
      settings = next
      logger?.reconfigure(lineOptions(next))
    },
    /** Records that were lost since the start: the log was not read, or its disk was full. */
    lost: (): number => logger?.lost() ?? 0,
    /** Resolves when every record is written, or after 1 s, so that a reader that has stopped does not delay the end. */
    close: async (): Promise<void> => {
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

/** The descriptor of the stream, and the file or socket behind it; null: it has none that is open. */
function targetOf(stream: Writable): { fd: number; isFile: boolean; dev: number; ino: number } | null {
  const fd: unknown = Reflect.get(stream, 'fd')
  if (typeof fd !== 'number') return null
  const stats = withSystemFallback(null, () => fstatSync(fd))
  return stats && { fd, isFile: stats.isFile(), dev: stats.dev, ino: stats.ino }
}

/** The kernel gives it without a look at the disk. */
function directoryOf(fd: number): string {
  return dirname(withSystemFallback('/', () => readlinkSync(`/proc/self/fd/${fd}`)))
}
