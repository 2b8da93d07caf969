// Memory that work has taken is given back to the system once the work is over: V8 and malloc would keep it.
import type { Clock } from './clock.ts'

export interface Thrift {
  /** Has a look whether there was work since the last time, and gives back when it is over. Resolves then. */
  look(signal: AbortSignal): Promise<void>
}

/** So much work, in ms of CPU time, leaves something behind that is worth it: a few refreshes, or a thousand requests. */
const WORTH_IT_MS = 50
/**
 * So little CPU time in so much time is no work, only a look now and then. Who asks every few seconds should find
 * everything warm.
 */
const QUIET = { forMs: 5_000, cpuMs: 20 }

export function createThrift(options: {
  clock: Clock
  /** CPU time of this process, in ms. */
  cpuMs?: () => number
  giveBack?: () => Promise<void>
}): Thrift {
  const { clock, cpuMs = ownCpuMs, giveBack = giveMemoryBack } = options
  let seen = { atMs: -Infinity, cpuMs: 0 }
  let workMs = 0
  let isWaiting = false

  /** Adds what was worked since it was last seen. */
  function see(): void {
    const now = { atMs: clock.now().bootMs, cpuMs: cpuMs() }
    if (now.atMs - seen.atMs < QUIET.forMs) return
    const spentMs = now.cpuMs - seen.cpuMs
    if (spentMs > QUIET.cpuMs) workMs += spentMs
    seen = now
  }

  return {
    async look(signal) {
      if (isWaiting) return
      see()
      if (workMs < WORTH_IT_MS) return
      isWaiting = true
      for (let before = -Infinity; cpuMs() - before > QUIET.cpuMs && !signal.aborted;) {
        before = cpuMs()
        await clock.sleep(QUIET.forMs, signal)
      }
      if (!signal.aborted) await giveBack()
      seen = { atMs: clock.now().bootMs, cpuMs: cpuMs() }
      workMs = 0
      isWaiting = false
    },
  }
}

function ownCpuMs(): number {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1_000
}

async function giveMemoryBack(): Promise<void> {
  const { giveMemoryBack: give } = await import('./give-memory-back.ts')
  await give()
}
