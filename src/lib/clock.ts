// The clock: lives are counted on CLOCK_BOOTTIME, which goes on during suspend and never jumps; the wall clock is for telling.
import { uptime } from 'node:os'

/** One moment on both clocks, in milliseconds. */
export interface Instant {
  /** Since boot, suspend included (CLOCK_BOOTTIME). Only differences mean anything. */
  readonly bootMs: number
  /** Since the Unix epoch, as the host's wall clock tells it; may be wrong and may jump. */
  readonly wallMs: number
}

export interface Clock {
  now(): Instant
  /** Resolves after about `ms`, or as soon as the signal is aborted. Never rejects: being stopped is no fault. */
  sleep(ms: number, signal: AbortSignal): Promise<void>
}

/** Longest delay a timer of Node can hold; beyond it, it fires at once. */
const MAX_TIMER_MS = 2 ** 31 - 1
/** Disagreement between wall clock and monotonic clock that makes us ask the kernel again. */
const DISAGREEMENT_MS = 50

export function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve()
    const done = () => {
      clearTimeout(timer)
      signal.removeEventListener('abort', done)
      resolve()
    }
    const timer = setTimeout(done, Math.min(Math.max(ms, 0), MAX_TIMER_MS))
    signal.addEventListener('abort', done)
  })
}

/**
 * The clock of this machine. `os.uptime()` costs microseconds and `performance.now()` stops during suspend, so a
 * reading is monotonic time plus an offset, and the offset is asked anew only when the wall clock disagrees with
 * it: after a suspend, a step of the wall clock, or long slewing.
 */
export function createSystemClock(): Clock {
  let bootOffset = 0
  let wallOffset = 0
  const now = (): Instant => {
    const monotonicMs = performance.now()
    const wallMs = Date.now()
    if (Math.abs(wallMs - monotonicMs - wallOffset) > DISAGREEMENT_MS) {
      wallOffset = wallMs - monotonicMs
      bootOffset = uptime() * 1000 - monotonicMs
    }
    return { bootMs: monotonicMs + bootOffset, wallMs }
  }
  return { now, sleep }
}
