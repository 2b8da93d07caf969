// A file that a person names, or standard input (`-`): read up to a limit, and until a signal.
import { createReadStream } from 'node:fs'
import { escapeUnsafe } from '../lib/display-text.ts'
import { errorMessage, UsageError } from '../lib/error.ts'
import { readLimited } from '../lib/input.ts'
import { raceAbort } from '../lib/tasks.ts'
import type { Invocation } from './command.ts'

/** After this silence it is said what is awaited: a pipe that nobody writes to, or a disk that hangs. */
const SILENCE_MS = 3_000

/**
 * The bytes of the file; undefined if they are more than the limit. `by` is what names it, such as `--from`.
 * Throws UsageError (64) if it cannot be read, and the signal's reason.
 */
export async function readNamed(
  { by, path, maxBytes }: { by: string; path: string; maxBytes: number },
  { stdin, stderr, signal }: Pick<Invocation, 'stdin' | 'stderr' | 'signal'>,
): Promise<Buffer | undefined> {
  const stream = path === '-' ? stdin : createReadStream(path)
  const reading = readLimited(stream as AsyncIterable<Buffer>, { maxBytes })
  const notice = `Waiting for the file of ${by}: ${path === '-' ? 'standard input' : escapeUnsafe(path)}\n`
  const timer = setTimeout(() => stderr.write(notice), SILENCE_MS)
  try {
    // Not by the stream's own signal: to open a named pipe waits for its writer, and cannot be ended.
    await raceAbort(reading, signal)
    signal.throwIfAborted()
    return await reading
  } catch (cause) {
    signal.throwIfAborted()
    const message = `The file of ${by} cannot be read (${errorMessage(cause)}): name one that can.`
    throw new UsageError(message, { cause })
  } finally {
    clearTimeout(timer)
  }
}
