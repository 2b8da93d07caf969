// Work that goes on in later turns of the event loop, a little in each: meanwhile others are accepted, read
// and answered.

/** What is done in one turn; and in one in which somebody connects, because Node accepts few in each. */
const IN_A_TURN = 8
const IN_A_TURN_OF_ACCEPTING = 1

export type Turns = ReturnType<typeof createTurns>

export function createTurns() {
  const planned = new Set<() => void>()
  let immediate: NodeJS.Immediate | undefined
  let isAccepting = false

  function run(): void {
    immediate = undefined
    const due: (() => void)[] = []
    const most = isAccepting ? IN_A_TURN_OF_ACCEPTING : IN_A_TURN
    for (const work of planned) if (due.push(work) === most) break
    isAccepting = false
    for (const work of due) if (planned.delete(work)) work()
    if (planned.size > 0) immediate ??= setImmediate(run)
  }

  return {
    /**
     * Calls the function once in a later turn, after those that were planned before. It must not throw. Of
     * what ends, the plan is to be cancelled: more connections may end in a turn than work is done.
     */
    plan(work: () => void): void {
      planned.add(work)
      immediate ??= setImmediate(run)
    },
    cancel(work: () => void): void {
      planned.delete(work)
    },
    /** Somebody has connected: others may be waiting behind him. */
    accepting(): void {
      isAccepting = true
    },
  }
}
