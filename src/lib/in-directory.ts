// Work on files: one call under way in each directory, eight in all, so that a disk that hangs costs itself.
import { exitStatus, UserError } from './error.ts'

/** Half of libuv's threads, of which `run` asks for 16: the others are for name look-ups. */
const MAX_RUNNING = 8
/** A call is given up after 5 steps of 1 s. A process that gets no processor for long loses one step. */
const STEPS = 5
const STEP_MS = 1_000
/** The longest time that the daemon's end waits for a file. */
export const STOP_WAIT_MS = 1_000

/** A disk has not done its work in time (status 75). */
export class DiskError extends UserError {
  /** `disk-stalled`: it does not answer. `disk-busy`: the work has not begun, because others do not. */
  readonly kind: 'disk-stalled' | 'disk-busy'
  constructor(directory: string, kind: DiskError['kind']) {
    const message =
      kind === 'disk-stalled'
        ? `the disk of ${directory} has not answered for ${STEPS} s: check the disk or its server`
        : `${directory} has not had its turn for ${STEPS} s, because other disks are waited for: check those`
    super(message, exitStatus.tryAgain)
    this.kind = kind
  }
}

/** `givenUp` is aborted once its caller waits no longer. It goes on: no call to a disk can be ended. */
type Work<T> = (givenUp: AbortSignal) => Promise<T>

interface Call {
  readonly directory: string
  readonly begin: () => Promise<void>
  readonly fail: (kind: DiskError['kind']) => void
}

/** Those that have begun and not ended; `isStalled`: given up. */
const running = new Map<string, { isStalled: boolean }>()
let waiting: Call[] = []

/**
 * Does the work once no other is under way in the directory, and gives its result. Rejects as the work does,
 * or with DiskError: if the work has not ended 5 s after it began, or has not begun within 5 s; then it is
 * never begun. Work must not wait for other work in the same directory.
 */
export function inDirectory<T>(directory: string, work: Work<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const givenUp = new AbortController()
    const fail: Call['fail'] = (kind) => {
      givenUp.abort()
      reject(new DiskError(directory, kind))
    }
    if (running.get(directory)?.isStalled === true) return fail('disk-stalled')
    const leave = afterSteps(() => {
      waiting = waiting.filter((other) => other !== call)
      fail('disk-busy')
    })
    const call: Call = {
      directory,
      fail(kind) {
        leave()
        fail(kind)
      },
      async begin() {
        leave()
        const end = afterSteps(() => {
          running.get(directory)!.isStalled = true
          fail('disk-stalled')
          failWaiting(directory)
        })
        await work(givenUp.signal).then(resolve, reject)
        end()
      },
    }
    waiting.push(call)
    beginNext()
  })
}

function beginNext(): void {
  for (const call of waiting) {
    if (running.size >= MAX_RUNNING) return
    if (!running.has(call.directory)) void run(call)
  }
}

async function run(call: Call): Promise<void> {
  waiting = waiting.filter((other) => other !== call)
  running.set(call.directory, { isStalled: false })
  await call.begin()
  running.delete(call.directory)
  beginNext()
}

function failWaiting(directory: string): void {
  const behind = waiting.filter((call) => call.directory === directory)
  waiting = waiting.filter((call) => call.directory !== directory)
  for (const call of behind) call.fail('disk-stalled')
}

/** Calls the function once all steps are over and the loop has read what ended. Returns its cancellation. */
function afterSteps(call: () => void): () => void {
  let steps = 0
  let last: NodeJS.Immediate | undefined
  const timer = setInterval(() => {
    steps += 1
    if (steps < STEPS) return
    clearInterval(timer)
    last = setImmediate(call)
  }, STEP_MS).unref()
  return () => {
    clearInterval(timer)
    clearImmediate(last)
  }
}
