// Gives back to the system what V8 and malloc keep of memory that is not used any more.
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { loadLibc } from './libc.ts'

/** Takes 40 to 170 ms on a busy machine, in which nothing is answered: hence only after a quiet time. */
export async function giveMemoryBack(): Promise<void> {
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
  // What is compiled is little, and wanted again at the next request.
  setFlagsFromString('--no-flush-bytecode')
  // What is compiled from here on is less, and not worth waking threads for, which Maglev does each time.
  setFlagsFromString('--no-concurrent-sparkplug')
  setFlagsFromString('--no-maglev')
  return collect
}
