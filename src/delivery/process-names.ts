// Names of client processes, read from /proc: a few bytes, never synchronously, one at a time.
import { fallbackOnSystemError } from '../lib/error.ts'
import { fs } from '../lib/fs.ts'
import { monotonicMs as systemMonotonicMs } from '../lib/monotonic.ts'

/** A name is reused so long: a program that connects for each request is looked up once in that time. */
const REUSED_FOR_MS = 1_000
/** Names of further processes are not looked up while so many are being waited for. */
const MAX_WAITING = 512
/** The kernel may make a reader wait for the client's memory lock. */
const MAX_READ_MS = 1_000
/** Of the command line so much is read; it may be 2 MB long. */
const MAX_BYTES = 256

/** Resolves with the name of a process, or null where /proc does not show it, or not in time. */
export function createProcessNames(
  options: { monotonicMs?: () => number; read?: (pid: number) => Promise<string | null> } = {},
): (pid: number) => Promise<string | null> {
  const { monotonicMs = systemMonotonicMs, read = readProcessName } = options
  const known = new Map<number, Promise<string | null>>()
  let sinceMs = -Infinity
  let waiting = 0
  // In sequence: a client that keeps the kernel from answering holds up one thread of the pool, not all four.
  let last: Promise<unknown> = Promise.resolve()

  function lookUp(pid: number): Promise<string | null> {
    if (waiting >= MAX_WAITING) return Promise.resolve(null)
    waiting += 1
    const { promise, resolve } = Promise.withResolvers<string | null>()
    const timeout = setTimeout(() => resolve(null), MAX_READ_MS)
    timeout.unref()
    last = last
      .then(() => read(pid).catch(fallbackOnSystemError(null)))
      .then(resolve)
      .finally(() => {
        clearTimeout(timeout)
        waiting -= 1
      })
    return promise
  }

  return (pid) => {
    const nowMs = monotonicMs()
    if (nowMs - sinceMs >= REUSED_FOR_MS) {
      known.clear()
      sinceMs = nowMs
    }
    const name = known.get(pid) ?? lookUp(pid)
    known.set(pid, name)
    return name
  }
}

/**
 * The first word of the command line, because the kernel's own name is that of a thread: `MainThread` for all programs
 * of Node. Rejects where the process belongs to another user and /proc hides it, or is gone.
 */
async function readProcessName(pid: number): Promise<string> {
  return (
    (await firstWord(`/proc/${pid}/cmdline`)) || (await fs.readFile(`/proc/${pid}/comm`, 'utf8')).trimEnd()
  )
}

/** The file name of the program; a string of its own, since a slice would keep what it was cut from. */
async function firstWord(path: string): Promise<string> {
  const fd = await fs.open(path, 'r')
  try {
    const { bytesRead, buffer } = await fs.read(fd, Buffer.alloc(MAX_BYTES), 0, MAX_BYTES, 0)
    const bytes = buffer.subarray(0, bytesRead)
    const end = bytes.findIndex((byte) => byte === 0 || byte === 0x20 || byte === 0x0a || byte === 0x09)
    const word = bytes.subarray(0, end === -1 ? bytesRead : end)
    return word.toString('utf8', word.lastIndexOf('/') + 1)
  } finally {
    await fs.close(fd)
  }
}
