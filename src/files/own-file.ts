// A file that only this daemon reads and writes, for its next start or for the operator's command.
import type { Log } from '../lib/log.ts'
import { FileError } from './file-error.ts'
import { createManagedFile, type Content } from './managed-file.ts'
import { readWholeFile } from './replace-file.ts'

/** Well above the size of a token of 16 KiB and the longest detail. */
const MAX_BYTES = 256 * 1024

/**
 * Such a file is 0600, unless `mode` says more. A disk that fails or hangs is logged once, and survived.
 * `mayStay`: an old content may stay if it cannot be replaced.
 */
export function createOwnFile(
  path: string,
  options: { log: Log; mode?: number; event?: string; mayStay?: boolean },
) {
  const { log, mode = 0o600, event = 'state-file-error', mayStay = true } = options
  /** What the file should hold. `json`: its value, of which the text is made once, with the time of that. */
  let content: (Content & { readonly json: string }) | null = null
  const file = createManagedFile(path, { desired: () => content, log, event, mayFormerStay: mayStay })

  function ignore(fault: string): null {
    const sentence = 'A state file cannot be used and is ignored'
    log('warning', sentence, { event: 'state-file-ignored', path, fault })
    return null
  }

  return {
    /** The parser's result; null if there is no file, or one that cannot be used, which is logged. */
    async read<T>(parser: (text: string) => T | undefined): Promise<T | null> {
      try {
        const state = await readWholeFile(path, null, MAX_BYTES)
        if (state === null) return null
        const { text, stats } = state
        if (stats.uid !== process.geteuid!()) return ignore(`it belongs to another user (${stats.uid})`)
        if ((stats.mode & 0o077 & ~mode) !== 0) return ignore('others may read or write it')
        if (text === null) return ignore('it is too long, or may not be read')
        return parser(text) ?? ignore('it is torn, foreign or of another version')
      } catch (error) {
        if (!(error instanceof FileError)) throw error
        return error.code === 'ENOENT' ? null : ignore(`it cannot be read (${error.code ?? error.kind})`)
      }
    },
    /**
     * Writes the value if it differs from the last one, and restores the file if it was removed. Null removes
     * it. If several values wait for the disk, only the newest is written. Never fails; waits 5 s at most.
     */
    async write<T>(value: T | null, format = (each: T) => `${JSON.stringify(each)}\n`): Promise<void> {
      const json = JSON.stringify(value)
      if (value === null) content = null
      else if (json !== content?.json)
        content = { json, text: format(value), attributes: { mode }, mayStay: () => mayStay }
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
