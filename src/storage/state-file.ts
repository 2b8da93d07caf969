// A file that only this daemon reads and writes. A disk that fails or hangs is logged once, and survived: with a spare file
// elsewhere, if there is one, nothing is lost with it.
import { onFile, readSmallFile } from '../lib/atomic-file.ts'
import { errorCode } from '../lib/error.ts'
import { FileError } from '../lib/file-error.ts'
import type { Log } from '../lib/log.ts'
import { createManagedFile, type ManagedFile, type ManagedFileOptions } from '../lib/managed-file.ts'

export interface StateFile {
  /** Removes what a crash left of replacing the file. */
  clear(): Promise<void>
  /** The parser's result; null where there is no file or it cannot be trusted. `valueOf` it is what `write` writes. */
  read<T>(parser: (text: string) => T | undefined, valueOf: (parsed: T) => unknown): Promise<T | null>
  /** Writes it where `value` is another than last time. Of several that wait for the disk only the newest is written. */
  write<T>(value: T, format: (value: T) => string): Promise<void>
  remove(): Promise<void>
  /** Why it cannot be written: one sentence with the remedy; null where it can. */
  error(): string | null
  /** Repeats what last failed, or what was undone from outside. */
  repair(): Promise<void>
}

const PRIVATE = { mode: 0o600 }
/** Well above the size of a token of 16 KiB and the longest detail. */
const MAX_FILE_BYTES = 256 * 1024

/** The spare holds the text while the file itself cannot be written, and then alone counts. */
export function createStateFile(path: string, log: Log, sparePath?: string): StateFile {
  let text: string | null = null
  /** The value in the text; undefined: not known. */
  let held: string | null | undefined
  const file = managed(path, { desired: () => text, log })
  // Quietly: the failure of the file itself is logged.
  const desiredOfSpare = (): string | null => (file.error() === null ? null : text)
  const spare =
    sparePath === undefined ? null : managed(sparePath, { desired: desiredOfSpare, log: () => undefined })

  async function reconcile(): Promise<void> {
    await file.reconcile()
    await spare?.reconcile()
  }

  function desire(value: string | null, next: () => string | null): Promise<void> {
    if (value !== held) text = next()
    held = value
    return reconcile()
  }

  async function readFrom<T>(at: string, parser: (text: string) => T | undefined): Promise<T | null> {
    const found = await readTrusted(at)
    const value = found.text === null ? null : (parser(found.text) ?? null)
    if (value !== null) text = found.text
    else if (at === path && (found.fault !== null || found.text !== null)) {
      log('warning', 'A state file cannot be used and counts as not there', {
        event: 'state-file-ignored',
        path,
        fault: found.fault ?? 'it is torn, foreign or of another version',
      })
    }
    return value
  }

  return {
    async clear() {
      await Promise.all([file.begin(), spare?.begin()])
    },
    async read(parser, valueOf) {
      const spared = sparePath === undefined ? null : await readFrom(sparePath, parser)
      const value = spared ?? (await readFrom(path, parser))
      if (value !== null) held = JSON.stringify(valueOf(value))
      return value
    },
    write: async (value, format) => desire(JSON.stringify(value), () => format(value)),
    remove: async () => desire(null, () => null),
    error: () => file.error(),
    async repair() {
      if (typeof held === 'string' || file.isPresent() || file.error() !== null) await reconcile()
    },
  }
}

function managed(path: string, options: Pick<ManagedFileOptions, 'desired' | 'log'>): ManagedFile {
  const failure = { sentence: 'Cannot keep what a restart must know', event: 'state-file-error' }
  return createManagedFile({ path, ...PRIVATE }, { ...options, failure })
}

/** The text of a file of this daemon's; null where there is none, or where its owner, mode, size or kind speak against it. */
async function readTrusted(path: string): Promise<{ text: string | null; fault: string | null }> {
  try {
    const { content, stats } = await onFile(path, async () => readSmallFile(path, MAX_FILE_BYTES))
    if (content === null) return { text: null, fault: 'it is too long, or no regular file' }
    if (stats.uid !== process.geteuid!()) {
      return { text: null, fault: `it belongs to another user (${stats.uid})` }
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
