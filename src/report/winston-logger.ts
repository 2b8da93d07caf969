// The winston logger: syslog's levels, one line format, one bounded transport. Loading it takes 30 ms.
import winston from 'winston'
import { lineFormat, type LineOptions, type LogRecord } from './log-formats.ts'
import { BoundedTransport } from './log-transport.ts'

export interface WinstonLogger {
  write(record: LogRecord): void
  reconfigure(options: LineOptions): void
  lost(): number
  /** Resolves when every line is written, or can no longer be. */
  flushed(): Promise<void>
}

export function createWinstonLogger(
  options: LineOptions & ConstructorParameters<typeof BoundedTransport>[1] & { stream: BoundedStream },
): WinstonLogger {
  const transport = new BoundedTransport(options.stream, options)
  const logger = winston.createLogger({
    levels: winston.config.syslog.levels,
    level: 'debug',
    format: lineFormat(options),
    transports: [transport],
  })
  return {
    write: (record) => void logger.log({ ...record }),
    reconfigure(next) {
      logger.format = lineFormat(next)
    },
    lost: () => transport.lost,
    flushed: () => transport.flushed(),
  }
}

type BoundedStream = ConstructorParameters<typeof BoundedTransport>[0]
