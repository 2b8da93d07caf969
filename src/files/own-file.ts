// A file that only this daemon reads and writes, for its next start or for the operator's command.
import { octal } from '../lib/display-text.ts'
import { onFile, readSmallFile } from './atomic-file.ts'
import { FileError } from './file-error.ts'
import type { Log } from '../lib/log.ts'
import { createManagedFile, type Content } from './managed-file.ts'

/** Well above the size of a token of 16 KiB and the longest detail. */
const MAX_BYTES = 256 * 1024
const STATE_FAILURE = { sentence: 'Cannot save the state for a restart', event: 'state-file-error' }

/**
 * Such a file is 0600, unless `mode` says more. A disk that fails or hangs is logged once, and survived.
 * `mayStay`: an old content may stay if it cannot be replaced.
 */
export function createOwnFile(
  path: string,
  {
    log,
    mode = 0o600,
    failure = STATE_FAILURE,
    mayStay = true,
  }: { log: Log; mode?: number; failure?: typeof STATE_FAILURE; mayStay?: boolean },
) {
  /** What the file should hold. `json`: its value, of which the text is made once, with the time of that. */
  let content: (Content & { readonly json: string }) | null = null
  const desired = (): Content | null => content
  const file = createManagedFile({ path, mode }, { desired, log, failure, mayFormerStay: mayStay })

  function ignore(fault: string): null {
    const sentence = 'A state file cannot be used and is ignored'
    log('warning', sentence, { event: 'state-file-ignored', path, fault })
    return null
  }

  /** Null: there is none, or its owner, mode, size or kind is not as it should be. */
  async function readTrusted(): Promise<string | null> {
    try {
      const { content: text, stats } = await onFile(path, async () => readSmallFile(path, MAX_BYTES))
      if (text === null) return ignore('it is too long, or no regular file')
      if (stats.uid !== process.geteuid!()) return ignore(`it belongs to another user (${stats.uid})`)
      if ((stats.mode & 0o077 & ~mode) !== 0)
        return ignore(`others may read or write it (not ${octal(mode)})`)
      return text
    } catch (error) {
      if (!(error instanceof FileError)) throw error
      const { code, kind } = error
      return code === 'ENOENT' ? null : ignore(`it cannot be read (${code ?? kind})`)
    }
  }

  return {
    /** Removes what a crash left of replacing the file. */
    begin: file.begin,
    /** The parser's result; null if there is no file, or one that cannot be used, which is logged. */
    async read<T>(parser: (text: string) => T | undefined): Promise<T | null> {
      const text = await readTrusted()
      if (text === null) return null
      return parser(text) ?? ignore('it is torn, foreign or of another version')
    },
    /**
     * Writes the value if it differs from the last one, and restores the file if it was removed. Null removes
     * it. If several values wait for the disk, only the newest is written. Never fails.
     */
    async write<T>(value: T | null, format = (each: T) => `${JSON.stringify(each)}\n`): Promise<void> {
      const json = JSON.stringify(value)
      if (value === null) content = null
      else if (json !== content?.json) content = { json, text: format(value), mayStay: () => mayStay }
      await file.reconcile()
    },
    /** Why it cannot be written; null if it can. */
    error: file.error,
    /** Repeats what last failed, or what was undone from outside. */
    async tick(): Promise<void> {
      if (content !== null || file.error() !== null) await file.reconcile()
    },
  }
}
