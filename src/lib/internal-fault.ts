// A fault of the program itself: its stack, without secrets, for whoever has to find it.
import { inspect } from 'node:util'
import { createHourlyCount, type Log, type LogFields } from './log.ts'
import { createRedaction } from './redaction.ts'

const SENTENCE = 'A fault of the program itself: please report it with its stack'
const MAX_CAUSES = 5

/** The secrets that the process knows, by who knows them. */
const sources = new Map<string, () => Iterable<string>>()

/** From now on no stack shows these secrets. Those that the same one named before are replaced. */
export function hideInStacks(owner: string, secrets: () => Iterable<string>): void {
  sources.set(owner, secrets)
}

/** The stack of the error and of its causes, without secrets. */
export function stackOf(error: unknown): string {
  const stacks: string[] = []
  let cause = error
  while (cause !== undefined && stacks.length < MAX_CAUSES) {
    stacks.push((cause instanceof Error && cause.stack) || inspect(cause))
    cause = cause instanceof Error ? cause.cause : undefined
  }
  const secrets = [...sources.values()].flatMap((source) => [...source()])
  return createRedaction(secrets)(stacks.join('\ncaused by '))
}

/** Logs the fault, if the log is one of `limitFaults`, once for each place and hour. */
export function logFault(log: Log, error: unknown, fields: Readonly<Record<string, unknown>> = {}): void {
  log('crit', SENTENCE, { event: 'internal-fault', ...fields, stack: stackOf(error) })
}

/**
 * The log, in which a fault of one place is one record an hour, because clients could cause it over and over.
 * `count`: how often it came since the last record.
 */
export function limitFaults(log: Log, nowMs: () => number): Log {
  /** By the first frames, which are places in the program: so there are few. */
  const countAt = createHourlyCount(nowMs)
  return (level, sentence, fields) => {
    if (fields.event !== 'internal-fault') return log(level, sentence, fields)
    const count = countAt(placeOf(fields))
    if (count > 0) log(level, sentence, { ...fields, count })
  }
}

/** The first frame, or what there is instead of one. */
function placeOf({ stack }: LogFields): string {
  const text = String(stack)
  return /^ +at .*$/m.exec(text)?.[0] ?? text.split('\n', 1)[0] ?? ''
}
