// Work on files: one call under way in each directory, eight in all, so that a disk that hangs costs itself.
import { FileError } from './file-error.ts'

/** Half of libuv's threads, of which `run` asks for 16: the others are for name look-ups. */
const MAX_RUNNING = 8
/**
 * Work is given up after 50 steps of 0.1 s. A turn of the loop, however long it takes, is one step: work of
 * several calls needs as many turns, and the disk is not to blame for them.
 */
const STEPS = 50
const STEP_MS = 100
/** The longest time for which a disk is waited for. */
export const STALLED_AFTER_MS = STEPS * STEP_MS
/** The longest time that the daemon's end waits for a file. */
export const STOP_WAIT_MS = 1_000

/** `givenUp` is aborted once its caller waits no longer. It goes on: no call to a disk can be ended. */
type Work<T> = (givenUp: AbortSignal) => Promise<T>

/** A call that waits for its turn. */
interface Waiting {
  readonly directory: string
  readonly begin: () => void
}

/** Directories with a call under way, and whether that was given up. */
const running = new Map<string, { isStalled: boolean }>()
/** In the order in which they came. */
const waiting = new Set<Waiting>()

/**
 * Does the work once no other is under way in the directory, and gives its result. Rejects as the work does,
 * or with FileError: `stalled` if the work has not ended 5 s after it began, or `busy` if it has not begun
 * within 5 s; then it is never begun. Work must not wait for other work in the same directory.
 */
export async function inDirectory<T>(directory: string, work: Work<T>): Promise<T> {
  await turnIn(directory)
  const givenUp = new AbortController()
  const ended = work(givenUp.signal).finally(() => {
    running.delete(directory)
    beginNext()
  })
  return withinSteps(ended, () => {
    running.set(directory, { isStalled: true })
    givenUp.abort()
    return lateIn(directory, 'stalled')
  })
}

function lateIn(directory: string, kind: 'stalled' | 'busy'): FileError {
  return new FileError({ path: directory, directory, kind })
}

/** Resolves when the call may begin, and counts as under way. Rejects with FileError. */
async function turnIn(directory: string): Promise<void> {
  if (running.get(directory)?.isStalled === true) throw lateIn(directory, 'stalled')
  const { promise, resolve: begin } = Promise.withResolvers<void>()
  const call = { directory, begin }
  waiting.add(call)
  beginNext()
  await withinSteps(promise, () => {
    waiting.delete(call)
    return lateIn(directory, running.has(directory) ? 'stalled' : 'busy')
  })
}

function beginNext(): void {
  for (const call of waiting) {
    if (running.size >= MAX_RUNNING) return
    if (running.has(call.directory)) continue
    waiting.delete(call)
    running.set(call.directory, { isStalled: false })
    call.begin()
  }
}

/**
 * Resolves or rejects as the promise does; rejects with the error of `giveUp` once all steps are over. Each ends
 * after the loop has read what came meanwhile.
 */
function withinSteps<T>(promise: Promise<T>, giveUp: () => FileError): Promise<T> {
  return new Promise((resolve, reject) => {
    let steps = 0
    let end: NodeJS.Immediate | undefined
    const timer = setInterval(() => {
      end ??= setImmediate(() => {
        end = undefined
        steps += 1
        if (steps < STEPS) return
        clearInterval(timer)
        reject(giveUp())
      })
    }, STEP_MS).unref()
    const stop = (): void => {
      clearInterval(timer)
      clearImmediate(end)
    }
    promise.finally(stop).then(resolve, reject)
  })
}
