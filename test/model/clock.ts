// A clock that goes only when the model says so. Each timer belongs to a process: those of a dead one vanish,
// those of a stopped one fire when it goes on.
import { sleepBy, type Clock } from '../../src/lib/clock.ts'
import { createFakeClock } from '../support/fake-clock.ts'

export interface Process {
  isDead: boolean
  /** The calls that wait for a stopped process to go on; null: it runs. */
  inbox: (() => void)[] | null
}
/** What the clocks of a host show: since when it runs, how long it slept since then, how its wall clock is set. */
export interface HostClock {
  bootedAtMs: number
  sleptMs: number
  wallAheadMs: number
}

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

export function createModelClock() {
  const clock = createFakeClock({ bootMs: 10_000_000, turns: 1 })
  return {
    ...clock,
    /** The clock as a process of this host has it. */
    of(process: Process, host: HostClock): Clock {
      const schedule: Clock['schedule'] = (ms, call) => clock.schedule(ms, () => deliver(process, call))
      return {
        now() {
          const { bootMs, wallMs } = clock.now()
          return { bootMs: bootMs - host.bootedAtMs, wallMs: wallMs + host.wallAheadMs }
        },
        awakeMs: () => clock.now().bootMs - host.bootedAtMs - host.sleptMs,
        schedule,
        sleep: sleepBy(schedule),
      }
    },
  }
}
