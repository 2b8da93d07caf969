// Returns memory to the operating system once the process is idle: V8 and malloc would keep it.
import type { Session } from 'node:inspector'
import type { Clock } from './clock.ts'
import { hasJit } from './jit.ts'
import { loadLibc } from './libc.ts'

interface IdleGc {
  /** To be called every few seconds: collects once enough work was done and is over. Resolves then. */
  tick(signal: AbortSignal): Promise<void>
}

/** CPU time that leaves enough garbage to be worth a collection, in ms: a few refreshes, or a thousand requests. */
const WORK_MS = 50
/** CPU time after which V8 has made so much machine code that it is worth dropping, in ms. */
const MACHINE_CODE_MS = 1_000
/** Below this CPU time per interval, the process counts as idle. */
const IDLE = { intervalMs: 5_000, cpuMs: 20 }
/** V8's memory reducer collects twice more afterwards, which is no work of the daemon. */
const V8_FINISHES = { withinMs: 10_000, cpuMs: 300 }

export function createIdleGc(options: {
  clock: Clock
  /** CPU time of this process, in ms. */
  cpuMs?: () => number
  collect?: (options: { dropsMachineCode: boolean }) => Promise<void>
}): IdleGc {
  const { clock, cpuMs = ownCpuMs, collect = collectGarbage } = options
  // Not at the first tick: after it the daemon reads its configuration once more.
  let last = { atMs: clock.now().bootMs, cpuMs: 0 }
  let workMs = 0
  /** CPU time at which machine code was last dropped. */
  let droppedAtMs = 0
  let isWaiting = false

  function measure(): void {
    const now = { atMs: clock.now().bootMs, cpuMs: cpuMs() }
    if (now.atMs - last.atMs < IDLE.intervalMs) return
    const spentMs = now.cpuMs - last.cpuMs
    if (spentMs > IDLE.cpuMs) workMs += spentMs
    last = now
  }

  async function collectWhenIdle(signal: AbortSignal): Promise<void> {
    isWaiting = true
    for (let before = -Infinity; cpuMs() - before > IDLE.cpuMs && !signal.aborted;) {
      before = cpuMs()
      await clock.sleep(IDLE.intervalMs, signal)
    }
    const dropsMachineCode = cpuMs() - droppedAtMs >= MACHINE_CODE_MS
    if (!signal.aborted) await collect({ dropsMachineCode })
    last = { atMs: clock.now().bootMs + V8_FINISHES.withinMs, cpuMs: cpuMs() + V8_FINISHES.cpuMs }
    workMs = 0
    if (dropsMachineCode) droppedAtMs = cpuMs()
    isWaiting = false
  }

  return {
    async tick(signal) {
      if (isWaiting) return
      measure()
      if (workMs >= WORK_MS) await collectWhenIdle(signal)
    },
  }
}

function ownCpuMs(): number {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1_000
}

/**
 * Full collections, asked for by the inspector's protocol, because V8's flags may not be set at run time; and malloc's
 * free pages back to the kernel. Blocks the loop twice for 25 ms, or 85 ms on a busy machine: hence only when idle.
 */
async function collectGarbage({ dropsMachineCode }: { dropsMachineCode: boolean }): Promise<void> {
  // V8 takes a process that never allocates a native object for a busy one: its memory reducer would look again every 8 s
  // for minutes. With a script, which is such an object, it finishes within 20 s.
  const { Script } = await import('node:vm')
  void new Script('')
  const { Session } = await import('node:inspector')
  const session = new Session()
  session.connect()
  if (dropsMachineCode && hasJit) dropMachineCode(session)
  // Twice: native objects release their memory in the next turn, and V8 moves together what the first has left.
  for (let time = 0; time < 2; time += 1) {
    await new Promise((resolve) => {
      session.post('HeapProfiler.collectGarbage', resolve)
    })
    await new Promise(setImmediate)
  }
  session.disconnect()
  const libc = loadLibc()
  if (!('error' in libc)) libc.trimHeap()
}

/**
 * The machine code that V8 has made of what was called often: 2 to 4 MiB after a thousand refreshes, and it would keep it for
 * ever. Precise coverage "prevents running optimized code", as the protocol says; what is called often later is compiled again.
 */
function dropMachineCode(session: Session): void {
  session.post('Profiler.enable')
  session.post('Profiler.startPreciseCoverage')
  session.post('Profiler.stopPreciseCoverage')
  session.post('Profiler.disable')
}
