// Memory that work has taken is given back to the system once the work is over: V8 and malloc would keep it.
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import type { Clock } from './clock.ts'
import { loadLibc } from './libc.ts'

export interface Thrift {
  /** Has a look whether there was work since the last time, and gives back when it is over. Resolves then. */
  look(signal: AbortSignal): Promise<void>
}

/** So much work, in ms of CPU time, leaves something behind that is worth it: a few refreshes, or a thousand requests. */
const WORTH_IT_MS = 50
/** The work is over when so much time passes with no more of it than this. */
const QUIET = { forMs: 2_000, cpuMs: 20 }

export function createThrift(options: {
  clock: Pick<Clock, 'sleep'>
  /** CPU time of this process, in ms. */
  cpuMs?: () => number
  giveBack?: () => Promise<void>
}): Thrift {
  const { clock, cpuMs = ownCpuMs, giveBack = giveMemoryBack } = options
  let givenAtCpuMs = 0
  let isWaiting = false

  return {
    async look(signal) {
      if (isWaiting || cpuMs() - givenAtCpuMs < WORTH_IT_MS) return
      isWaiting = true
      for (let before = -Infinity; cpuMs() - before > QUIET.cpuMs && !signal.aborted;) {
        before = cpuMs()
        await clock.sleep(QUIET.forMs, signal)
      }
      if (!signal.aborted) await giveBack()
      givenAtCpuMs = cpuMs()
      isWaiting = false
    },
  }
}

function ownCpuMs(): number {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1_000
}

/** Takes some 20 ms, in which nothing is answered. */
async function giveMemoryBack(): Promise<void> {
  collectGarbage ??= garbageCollector()
  collectGarbage({ type: 'major', execution: 'sync', flavor: 'last-resort' })
  // What native objects hold is let go of in the next turn.
  await new Promise(setImmediate)
  const libc = loadLibc()
  if (!('error' in libc)) libc.trimHeap()
}

type CollectGarbage = (options: { type: 'major'; execution: 'sync'; flavor: 'last-resort' }) => void
let collectGarbage: CollectGarbage | undefined

/** V8 shows it to new contexts only, and only when it is told to. */
function garbageCollector(): CollectGarbage {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as CollectGarbage
  setFlagsFromString('--no-expose-gc')
  // It would do half the same some seconds later, and wake its threads for it.
  setFlagsFromString('--no-memory-reducer')
  return collect
}
