// Memory that work has taken is given back to the system once the work is over: V8 and malloc would keep it.
import { setFlagsFromString } from 'node:v8'
import type { Clock } from './clock.ts'

export interface Thrift {
  /** Has a look whether there was work since the last time, and gives back when it is over. Resolves then. */
  look(signal: AbortSignal): Promise<void>
}

/** So much work, in ms of CPU time, leaves something behind that is worth it: a few refreshes, or a thousand requests. */
const WORTH_IT_MS = 50
/**
 * As little CPU time as this between two looks is no work; and the work is over when so much time passes with no more
 * than that: who asks every few seconds should find everything warm.
 */
const QUIET = { forMs: 5_000, cpuMs: 20 }

export function createThrift(options: {
  clock: Pick<Clock, 'sleep'>
  /** CPU time of this process, in ms. */
  cpuMs?: () => number
  giveBack?: () => Promise<void>
}): Thrift {
  const { clock, cpuMs = ownCpuMs, giveBack = giveMemoryBack } = options
  // The threads that compile would keep some MB of what they worked with; there is little to compile here.
  setFlagsFromString('--no-concurrent-recompilation')
  let seenMs = 0
  let workMs = 0
  let isWaiting = false

  return {
    async look(signal) {
      if (isWaiting) return
      const spentMs = cpuMs() - seenMs
      seenMs += spentMs
      if (spentMs > QUIET.cpuMs) workMs += spentMs
      if (workMs < WORTH_IT_MS) return
      isWaiting = true
      for (let before = -Infinity; cpuMs() - before > QUIET.cpuMs && !signal.aborted;) {
        before = cpuMs()
        await clock.sleep(QUIET.forMs, signal)
      }
      if (!signal.aborted) await giveBack()
      seenMs = cpuMs()
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
