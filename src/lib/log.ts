// The interface of the log: a record is a constant sentence, an event and fields. A problem is told once, and a
// fault of the program itself with its stack, without secrets.
import { inspect } from 'node:util'
import { HOUR_MS } from './duration.ts'
import { createRedaction } from './secret.ts'

/** Syslog's levels, most urgent first (RFC 5424). */
export const logLevels = ['emerg', 'alert', 'crit', 'error', 'warning', 'notice', 'info', 'debug'] as const
export type LogLevel = (typeof logLevels)[number]

/** `event` names the kind of the record in lower-case words joined by hyphens. Fields never hold a secret. */
export interface LogFields {
  readonly event: string
  readonly [field: string]: unknown
}
/** Writes one record. The sentence is constant: what varies is in the fields. Never throws, never blocks. */
export type Log = (level: LogLevel, sentence: string, fields: LogFields) => void

/**
 * Calls `write` when there is a new problem, another one, or none any more (null). Two are the same if their
 * texts are.
 */
export function createProblemLog<P extends string | Error = string>(write: (problem: P | null) => void) {
  let current: P | null = null
  return {
    /** The problem as it is now; null: there is none. */
    set(problem: P | null): void {
      if (String(problem) === String(current)) return
      current = problem
      write(problem)
    },
    current: (): P | null => current,
  }
}

/**
 * For what clients can cause over and over: a record at the first time, then at most once an hour. The function
 * counts `more` of one kind, and returns the count since the last record of this kind if another one is due,
 * else 0.
 */
export function createHourlyCount(nowMs: () => number): (kind: string | number, more?: number) => number {
  const kinds = new Map<string | number, { count: number; recordedAtMs: number }>()
  return (kind, more = 1) => {
    const { count, recordedAtMs } = kinds.get(kind) ?? { count: 0, recordedAtMs: -Infinity }
    const total = count + more
    const isDue = total > 0 && nowMs() - recordedAtMs >= HOUR_MS
    kinds.set(kind, isDue ? { count: 0, recordedAtMs: nowMs() } : { count: total, recordedAtMs })
    return isDue ? total : 0
  }
}

/** The secrets that the process knows, by who knows them. */
const sources = new Map<string, () => Iterable<string>>()

/** From now on no stack shows these secrets. Those that the same one named before are replaced. */
export function hideInStacks(owner: string, secrets: () => Iterable<string>): void {
  sources.set(owner, secrets)
}

/** The stack of the error and of its causes, without secrets. */
export function stackOf(error: unknown): string {
  const secrets = [...sources.values()].flatMap((source) => [...source()])
  return createRedaction(secrets)(inspect(error))
}

/** Logs a fault of the program itself. */
export function logFault(log: Log, error: unknown): void {
  const sentence = 'A fault of the program itself: please report it with its stack'
  log('crit', sentence, { event: 'internal-fault', stack: stackOf(error) })
}
