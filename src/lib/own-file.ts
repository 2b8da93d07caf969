// A file that only this daemon reads and writes, for its next start. A disk that fails or hangs is logged once, and survived.
import { onFile, readSmallFile } from './atomic-file.ts'
import { errorCode } from './error.ts'
import { FileError } from './file-error.ts'
import { createManagedFile } from './managed-file.ts'
import { nameOf } from './posix-ids.ts'

/** Well above the size of a token of 16 KiB and the longest detail. */
const MAX_BYTES = 256 * 1024
const FAILURE = { sentence: 'Cannot keep what a restart must know', event: 'state-file-error' }

/** For `mode` (0600), `failure` and `isRevocable` see createManagedFile. */
export function createOwnFile(
  path: string,
  {
    mode = 0o600,
    failure = FAILURE,
    ...options
  }: { mode?: number } & Omit<Parameters<typeof createManagedFile>[1], 'desired'>,
) {
  let text: string | null = null
  /** The value in the text, as JSON; undefined: not known. */
  let held: string | null | undefined
  const file = createManagedFile({ path, mode }, { desired: () => text, failure, ...options })
  return {
    /** Removes what a crash left of replacing the file. */
    begin: file.begin,
    /**
     * The parser's result; null where there is no file or it cannot be trusted, which is logged. `valueOf` it is what
     * `write` writes.
     */
    async read<T>(
      parser: (text: string) => T | undefined,
      valueOf: (parsed: T) => unknown = (parsed) => parsed,
    ): Promise<T | null> {
      const found = await readTrusted(path, mode)
      const value = found.text === null ? undefined : parser(found.text)
      if (value !== undefined) {
        text = found.text
        held = JSON.stringify(valueOf(value))
      } else if (found.fault !== null || found.text !== null) {
        options.log('warning', 'A state file cannot be used and counts as not there', {
          event: 'state-file-ignored',
          path,
          fault: found.fault ?? 'it is torn, foreign or of another version',
        })
      }
      return value ?? null
    },
    /**
     * Writes the value where it is another than last time, and restores the file where it was removed; null: removes it. Of
     * several values that wait for the disk only the newest is written. Never fails.
     */
    async write<T>(value: T | null, format: (value: T) => string = formatJson): Promise<void> {
      const next = value && JSON.stringify(value)
      if (next !== held) text = value && format(value)
      held = next
      await file.reconcile()
    },
    /** Why it cannot be written: one sentence with the remedy; null where it can. */
    error: (): string | null => file.error(),
    /** Repeats what last failed, or what was undone from outside. */
    async tick(): Promise<void> {
      if (text !== null || file.error() !== null) await file.reconcile()
    },
  }
}

/** undefined where the text is no JSON. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    // Torn or foreign: `read` logs it.
    return undefined
  }
}

function formatJson(value: unknown): string {
  return `${JSON.stringify(value)}\n`
}

/** The text of a file of this daemon's; null where there is none, or where its owner, mode, size or kind speak against it. */
async function readTrusted(
  path: string,
  mode: number,
): Promise<{ text: string | null; fault: string | null }> {
  const untrusted = (fault: string | null) => ({ text: null, fault })
  try {
    const { content, stats } = await onFile(path, async () => readSmallFile(path, MAX_BYTES))
    if (content === null) return untrusted('it is too long, or no regular file')
    if (stats.uid !== process.geteuid!())
      return untrusted(`it belongs to another user (${nameOf('user', stats.uid)})`)
    if ((stats.mode & 0o077 & ~mode) !== 0)
      return untrusted(`others may read or write it (not 0${mode.toString(8)})`)
    return { text: content.toString('utf8'), fault: null }
  } catch (error) {
    if (!(error instanceof FileError)) throw error
    return untrusted(
      error.code === 'ENOENT' ? null : `it cannot be read (${errorCode(error.cause) ?? error.message})`,
    )
  }
}
