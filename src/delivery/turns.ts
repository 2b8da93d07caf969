// Work that goes on in later turns of the event loop, a little in each: meanwhile others are accepted, read
// and answered.

/** What is done in one turn; and in one in which somebody connects, because Node accepts few in each. */
const IN_A_TURN = 8
const IN_A_TURN_OF_ACCEPTING = 1

export type Turns = ReturnType<typeof createTurns>

export function createTurns() {
  const planned: (() => void)[] = []
  let immediate: NodeJS.Immediate | undefined
  let isAccepting = false

  function run(): void {
    immediate = undefined
    const due = planned.splice(0, isAccepting ? IN_A_TURN_OF_ACCEPTING : IN_A_TURN)
    isAccepting = false
    for (const work of due) work()
    if (planned.length > 0) immediate ??= setImmediate(run)
  }

  return {
    /** Calls the function in a later turn, after those that were planned before. It must not throw. */
    plan(work: () => void): void {
      planned.push(work)
      immediate ??= setImmediate(run)
    },
    /** Somebody has connected: others may be waiting behind him. */
    accepting(): void {
      isAccepting = true
    },
  }
}
