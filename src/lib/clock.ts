// The clock: lives are counted on CLOCK_BOOTTIME, which never jumps; the wall clock is for display.
import { uptime } from 'node:os'
import { raceAbort } from './tasks.ts'

/** One moment on both clocks, in milliseconds. */
export interface Instant {
  /** Since boot, suspend included (CLOCK_BOOTTIME). Only differences mean anything. */
  readonly bootMs: number
  /** Since the Unix epoch, as the host's wall clock shows it; may be wrong and may jump. */
  readonly wallMs: number
}

export interface Clock {
  now(): Instant
  /** Milliseconds on CLOCK_MONOTONIC, which stops while the host is suspended. Only differences mean anything. */
  awakeMs(): number
  /** Calls the function after about `ms`. Returns the function that cancels the call. */
  schedule(ms: number, call: () => void): () => void
  /** Resolves after about `ms`, or as soon as the signal is aborted. Never rejects: a stop is no error. */
  sleep(ms: number, signal: AbortSignal): Promise<void>
}

/** The longest delay of a timer of Node; with a longer one it would fire at once. */
const MAX_TIMER_MS = 2 ** 31 - 1
/** If wall clock and monotonic clock drift apart by more than this, the kernel is asked again. */
const DISAGREEMENT_MS = 50
/** Greatest error of `os.uptime()`: if /proc/uptime is hidden (`ProcSubset=pid`) it is in whole seconds. */
const GRAIN_MS = 1_000

/** A monotonic clock in ms, with fractions. That of `performance` loads ten modules of Node. */
export function monotonicMs(): number {
  return process.uptime() * 1_000
}

function schedule(ms: number, call: () => void): () => void {
  const timer = setTimeout(call, Math.min(Math.max(ms, 0), MAX_TIMER_MS))
  return () => clearTimeout(timer)
}

/** The sleep of a clock with these timers. */
export function sleepBy(timer: Clock['schedule']): Clock['sleep'] {
  return async (ms, signal) => {
    let cancel = (): void => undefined
    const over = new Promise<void>((resolve) => (cancel = timer(ms, resolve)))
    await raceAbort(over, signal).finally(cancel)
  }
}

export const sleep = sleepBy(schedule)

/** Resolves with the work's result, or undefined after `ms`; the work goes on. Rejects as the work does. */
export async function withTimeout<T>(
  ms: number,
  work: Promise<T>,
  clock: Pick<Clock, 'sleep'>,
): Promise<T | undefined> {
  const ended = new AbortController()
  try {
    return await Promise.race([work, clock.sleep(ms, ended.signal).then(() => undefined)])
  } finally {
    ended.abort()
  }
}

/**
 * The clock of this machine. `os.uptime()` costs microseconds and `monotonicMs()` stops during suspend, so a
 * reading is monotonic time plus an offset, and the offset is read again only when the wall clock disagrees
 * with it: after a suspend, a step of the wall clock, or long slewing.
 */
export function createSystemClock(): Clock {
  let bootOffset = 0
  let wallOffset = 0
  /** The lead of the wall clock over the boot clock. */
  let aheadMs = 0
  const now = (): Instant => {
    const wallMs = Date.now()
    const runningMs = monotonicMs()
    if (Math.abs(wallMs - runningMs - wallOffset) > DISAGREEMENT_MS) {
      wallOffset = wallMs - runningMs
      const offset = uptime() * 1000 - runningMs
      if (Math.abs(offset - bootOffset) > GRAIN_MS) bootOffset = offset
      aheadMs = Math.round(wallOffset - bootOffset)
    }
    // Whole milliseconds, and a fixed distance between both clocks: so the text of an instant stays the same.
    const bootMs = Math.round(runningMs + bootOffset)
    return { bootMs, wallMs: bootMs + aheadMs }
  }
  return { now, awakeMs: () => Math.round(monotonicMs()), schedule, sleep }
}

/** An instant of the boot clock as the wall clock shows it (ISO 8601). `known`: any moment on both. */
export function formatInstant(bootMs: number, known: Instant): string {
  return new Date(known.wallMs + bootMs - known.bootMs).toISOString()
}

/** The same; null if the instant is infinite. */
export function formatInstantOrNull(bootMs: number, known: Instant): string | null {
  return Number.isFinite(bootMs) ? formatInstant(bootMs, known) : null
}
