// A file that only this daemon reads and writes. A disk that fails or hangs is logged once, and survived.
import { onFile, readSmallFile } from '../lib/atomic-file.ts'
import { errorCode } from '../lib/error.ts'
import { FileError } from '../lib/file-error.ts'
import type { Log } from '../lib/log.ts'
import { createManagedFile } from '../lib/managed-file.ts'
import { nameOf } from '../lib/posix-ids.ts'

export interface StateFile {
  /** Removes what a crash left of replacing the file. */
  begin(): Promise<void>
  /** The parser's result; null where there is no file or it cannot be trusted. `valueOf` it is what `write` writes. */
  read<T>(parser: (text: string) => T | undefined, valueOf: (parsed: T) => unknown): Promise<T | null>
  /** Writes it where `value` is another than last time. Of several that wait for the disk only the newest is written. */
  write<T>(value: T, format: (value: T) => string): Promise<void>
  remove(): Promise<void>
  /** Why it cannot be written: one sentence with the remedy; null where it can. */
  error(): string | null
  /** Repeats what last failed, or what was undone from outside. */
  tick(): Promise<void>
}

/** Well above the size of a token of 16 KiB and the longest detail. */
const MAX_FILE_BYTES = 256 * 1024

/** `isRevocable`: a content that was replaced and cannot be overwritten is removed. */
export function createStateFile(
  path: string,
  { log, isRevocable = false }: { log: Log; isRevocable?: boolean },
): StateFile {
  let text: string | null = null
  /** The value in the text; undefined: not known. */
  let held: string | null | undefined
  const failure = { sentence: 'Cannot keep what a restart must know', event: 'state-file-error' }
  const file = createManagedFile({ path, mode: 0o600 }, { desired: () => text, log, failure, isRevocable })

  function desire(value: string | null, next: () => string | null): Promise<void> {
    if (value !== held) text = next()
    held = value
    return file.reconcile()
  }

  return {
    begin: async () => file.begin(),
    async read(parser, valueOf) {
      const found = await readTrusted(path)
      const value = found.text === null ? null : (parser(found.text) ?? null)
      if (value !== null) {
        text = found.text
        held = JSON.stringify(valueOf(value))
      } else if (found.fault !== null || found.text !== null) {
        log('warning', 'A state file cannot be used and counts as not there', {
          event: 'state-file-ignored',
          path,
          fault: found.fault ?? 'it is torn, foreign or of another version',
        })
      }
      return value
    },
    write: async (value, format) => desire(JSON.stringify(value), () => format(value)),
    remove: async () => desire(null, () => null),
    error: () => file.error(),
    async tick() {
      if (typeof held === 'string' || file.isPresent() || file.error() !== null) await file.reconcile()
    },
  }
}

/** The text of a file of this daemon's; null where there is none, or where its owner, mode, size or kind speak against it. */
async function readTrusted(path: string): Promise<{ text: string | null; fault: string | null }> {
  try {
    const { content, stats } = await onFile(path, async () => readSmallFile(path, MAX_FILE_BYTES))
    if (content === null) return { text: null, fault: 'it is too long, or no regular file' }
    if (stats.uid !== process.geteuid!()) {
      return { text: null, fault: `it belongs to another user (${nameOf('user', stats.uid)})` }
    }
    if ((stats.mode & 0o077) !== 0) return { text: null, fault: 'others may read or write it (not 0600)' }
    return { text: content.toString('utf8'), fault: null }
  } catch (error) {
    if (!(error instanceof FileError)) throw error
    return error.code === 'ENOENT'
      ? { text: null, fault: null }
      : { text: null, fault: `it cannot be read (${errorCode(error.cause) ?? error.message})` }
  }
}
