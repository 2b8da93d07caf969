// A log that keeps its records, for tests.
import type { Log, LogFields, LogLevel } from '../../src/lib/log.ts'

export interface LogRecorder {
  readonly log: Log
  readonly records: { readonly level: LogLevel; readonly sentence: string; readonly fields: LogFields }[]
  /** The event names in order, `debug` aside. */
  readonly events: () => string[]
  /** The fields and level of the records of one event. */
  readonly of: (event: string) => Record<string, unknown>[]
}

export function createLogRecorder(): LogRecorder {
  const records: LogRecorder['records'] = []
  return {
    records,
    log: (level, sentence, fields) => {
      records.push({ level, sentence, fields })
    },
    events: () => records.filter(({ level }) => level !== 'debug').map(({ fields }) => fields.event),
    of: (event) =>
      records
        .filter(({ fields }) => fields.event === event)
        .map(({ level, sentence, fields }) => ({ level, sentence, ...fields })),
  }
}
