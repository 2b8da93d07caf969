// A clock that goes only when the model says so. Each timer belongs to a process: those of a dead one vanish,
// those of a stopped one fire when it goes on.
export interface Process {
  isDead: boolean
  /** The calls that wait for a stopped process to go on; null: it runs. */
  inbox: (() => void)[] | null
}
interface Timer {
  readonly atMs: number
  readonly of: Process
  readonly call: () => void
}
const MAX_WAKES_AT_ONCE = 300

/** Everything is in memory: one turn of the event loop lets every promise settle. */
export async function settle(turns = 1): Promise<void> {
  for (let turn = 0; turn < turns; turn += 1) await new Promise<void>((resolve) => void setImmediate(resolve))
}

/** Runs it now, or once the process goes on; never, if that is dead. */
export function deliver(to: Process, call: () => void): void {
  if (to.isDead) return
  if (to.inbox === null) call()
  else to.inbox.push(call)
}

export type ModelClock = ReturnType<typeof createModelClock>

export function createModelClock(bootMs = 10_000_000, wallMs = 1_800_000_000_000) {
  const timers = new Set<Timer>()
  function schedule(of: Process, ms: number, call: () => void): () => void {
    const timer = { atMs: bootMs + Math.max(0, ms), of, call }
    timers.add(timer)
    return () => timers.delete(timer)
  }
  function pass(ms: number): void {
    bootMs += ms
    wallMs += ms
  }
  function nextTimer(untilMs: number): Timer | undefined {
    let next: Timer | undefined
    for (const timer of timers) {
      if (timer.of.isDead) timers.delete(timer)
      else if (timer.atMs <= untilMs && (next === undefined || timer.atMs < next.atMs)) next = timer
    }
    return next
  }
  return {
    now: () => ({ bootMs, wallMs }),
    awakeMs: () => bootMs,
    schedule,
    /** The clock as this process has it; `bootedAtMs`: its boot clock began then. */
    of: (process: Process, bootedAtMs: () => number) => ({
      now: () => ({ bootMs: bootMs - bootedAtMs(), wallMs }),
      awakeMs: () => bootMs - bootedAtMs(),
      schedule: (ms: number, call: () => void) => schedule(process, ms, call),
      sleep: (ms: number, signal: AbortSignal) =>
        new Promise<void>((resolve) => {
          if (signal.aborted) return resolve()
          const done = (): void => {
            cancel()
            signal.removeEventListener('abort', done)
            resolve()
          }
          const cancel = schedule(process, ms, done)
          signal.addEventListener('abort', done)
        }),
    }),
    async advance(ms: number): Promise<void> {
      const untilMs = bootMs + ms
      let wakes = 0
      for (let next = nextTimer(untilMs); next !== undefined; next = nextTimer(untilMs)) {
        timers.delete(next)
        wakes = next.atMs > bootMs ? 0 : wakes + 1
        if (wakes > MAX_WAKES_AT_ONCE) throw new Error('There is a sleep of no time, over and over')
        pass(Math.max(0, next.atMs - bootMs))
        deliver(next.of, next.call)
        await settle()
      }
      pass(untilMs - bootMs)
      await settle()
    },
  }
}
