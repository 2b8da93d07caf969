// A clock that goes only when the model says so. Each timer belongs to a process: those of a dead one vanish,
// those of a stopped one fire when it goes on.
export interface Process {
  isDead: boolean
  /** The calls that wait for a stopped process to go on; null: it runs. */
  inbox: (() => void)[] | null
}
interface Timer {
  atMs: number
  readonly of: Process
  readonly call: () => void
}
/** What the clocks of a host show: since when it runs, how long it slept since then, how its wall clock is set. */
export interface HostClock {
  bootedAtMs: number
  sleptMs: number
  wallAheadMs: number
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
    /** The clock as a process of this host has it. */
    of: (process: Process, host: HostClock) => ({
      now: () => ({ bootMs: bootMs - host.bootedAtMs, wallMs: wallMs + host.wallAheadMs }),
      awakeMs: () => bootMs - host.bootedAtMs - host.sleptMs,
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
    /** All hosts are suspended: timers fire so much later. */
    suspend(ms: number): void {
      pass(ms)
      for (const timer of timers) timer.atMs += ms
    },
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
