// A clock that goes only when the test says so: time passes, the host is suspended, the wall clock is set.
import { sleepBy } from '../../src/lib/clock.ts'

export type FakeClock = ReturnType<typeof createFakeClock>

/** More than any test here wakes at one moment: ends a loop that sleeps for no time at all. */
const MAX_WAKES_AT_ONCE = 1_000

/** Requests to the file system, as process.getActiveResourcesInfo names them. */
const FILE_REQUESTS = new Set(['FSReqPromise', 'FSReqCallback', 'FileHandleCloseReq', 'CloseReq'])

/** Reports whether this process waits for the file system: then a fake clock must stand still. */
export const filesAreBusy = (): boolean =>
  process.getActiveResourcesInfo().some((name) => FILE_REQUESTS.has(name))

/** Without the checks of node:timers/promises, a million times. */
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

/**
 * `turns`: those of the event loop in which what a sleeper does on waking must be done. `isBusy`: whether real I/O is
 * under way, for which the clock must stand still.
 */
export function createFakeClock({
  wallMs = 1_800_000_000_000,
  bootMs = 1_000_000,
  turns: most = 8,
  isBusy = () => false,
}: { wallMs?: number; bootMs?: number; turns?: number; isBusy?: () => boolean } = {}) {
  const timers = new Set<{ readonly dueMs: number; readonly wake: () => void }>()
  let monotonicMs = 0
  let boot = bootMs
  let wall = wallMs

  /** Lets promises settle, and what they start, in no time. Real I/O may take longer: wait for it. */
  async function settle(): Promise<void> {
    for (let turns = 0; turns < most; turns = isBusy() ? 0 : turns + 1) await turn()
  }

  function pass(ms: number): void {
    monotonicMs += ms
    boot += ms
    wall += ms
  }

  function nextTimer(untilMs: number): { dueMs: number; wake: () => void } | undefined {
    let next: { dueMs: number; wake: () => void } | undefined
    for (const timer of timers)
      if (timer.dueMs <= untilMs && (next === undefined || timer.dueMs < next.dueMs)) next = timer
    return next
  }

  function schedule(ms: number, call: () => void): () => void {
    const timer = { dueMs: monotonicMs + Math.max(0, ms), wake: call }
    timers.add(timer)
    return () => timers.delete(timer)
  }

  return {
    now: () => ({ bootMs: boot, wallMs: wall }),
    awakeMs: () => bootMs + monotonicMs,
    schedule,
    sleep: sleepBy(schedule),
    /** Time passes. Sleepers wake in order, and what each does is done before the next wakes. */
    async advance(ms: number) {
      await settle()
      const untilMs = monotonicMs + ms
      let wakes = 0
      for (let timer = nextTimer(untilMs); timer !== undefined; timer = nextTimer(untilMs)) {
        wakes = timer.dueMs > monotonicMs ? 0 : wakes + 1
        if (wakes > MAX_WAKES_AT_ONCE) throw new Error('There is a sleep of no time, over and over')
        pass(Math.max(0, timer.dueMs - monotonicMs))
        timers.delete(timer)
        timer.wake()
        await settle()
      }
      pass(untilMs - monotonicMs)
      await settle()
    },
    /** The host is suspended: boot clock and wall clock go on, and timers fire that much later. */
    suspend(ms: number) {
      boot += ms
      wall += ms
    },
    jumpWall(ms: number) {
      wall += ms
    },
    /** Number of sleeps under way. */
    sleepers: () => timers.size,
    settle,
  }
}
