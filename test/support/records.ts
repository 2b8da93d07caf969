// A log that keeps its records for the test to look at.
import type { Log, LogFields, LogLevel } from '../../src/lib/log.ts'

export interface LogRecord {
  readonly level: LogLevel
  readonly sentence: string
  readonly fields: LogFields
}
export type Records = ReturnType<typeof createRecords>

export function createRecords() {
  const records: LogRecord[] = []
  const log: Log = (level, sentence, fields) => {
    records.push({ level, sentence, fields })
  }
  return {
    log,
    records,
    /** The event names in order, `debug` aside. */
    events: () => records.filter(({ level }) => level !== 'debug').map(({ fields }) => fields.event),
    /** The level, sentence and fields of the records of one event. */
    of: (event: string): Record<string, unknown>[] =>
      records
        .filter(({ fields }) => fields.event === event)
        .map(({ level, sentence, fields }) => ({ level, sentence, ...fields })),
  }
}
