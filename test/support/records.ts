// A log that keeps its records for the test to look at.
import type { Log, LogFields, LogLevel } from '../../src/lib/log.ts'

export interface LogRecord {
  readonly level: LogLevel
  readonly sentence: string
  readonly fields: LogFields
}

export function createRecords(): { log: Log; records: LogRecord[]; events: () => string[] } {
  const records: LogRecord[] = []
  return {
    log: (level, sentence, fields) => {
      records.push({ level, sentence, fields })
    },
    records,
    events: () => records.map(({ fields }) => fields.event),
  }
}
