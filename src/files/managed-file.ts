// A file with a desired content: written when that changes, restored when something else changed the file.
import { isDeepStrictEqual } from 'node:util'
import { monotonicMs, sleep, withTimeout } from '../lib/clock.ts'
import { createProblemLog, type Log } from '../lib/log.ts'
import { FileError } from './file-error.ts'
import { readWholeFile, removeFile, replaceFile, type WholeFile } from './replace-file.ts'

export type ManagedFile = ReturnType<typeof createManagedFile>
export interface Content extends WholeFile {
  /** Reports whether it may stay if it cannot be replaced; else it is removed. */
  readonly mayStay: () => boolean
}
/** Counts of writes and removals, of those that restored what something else had changed, and of failures. */
export type FileCounts = Record<'writes' | 'repairs' | 'errors', number>

/** A disk that has not done its work for so long is reported, and no longer waited for. */
const STALLED_AFTER_MS = 5_000

export function createManagedFile(
  path: string,
  options: {
    /** The content that the file should have now; null: it should not be there. */
    desired: () => Content | null
    log: Log
    /** The content of a former run may stay if it cannot be replaced. */
    mayFormerStay?: boolean
    /** Several files may count in the same. */
    counts?: FileCounts
  },
) {
  const { desired, log, mayFormerStay = false } = options
  const { counts = { writes: 0, repairs: 0, errors: 0 } } = options
  /** The content that was last written or seen; undefined: nothing yet in this run. */
  let applied: Content | null | undefined
  /** Null: it was not there at the last check. */
  let writtenAt: Date | null = null
  let repairs = 0
  /** The work that is under way, and since when. */
  let running: Promise<void> | null = null
  let runningSinceMs = 0
  /** It was asked for again meanwhile. */
  let isAskedAgain = false
  const problem = createProblemLog<FileError>((error) => {
    if (error === null) log('notice', 'A file is as it should be again', { event: 'file-mended', path })
    else log('error', 'Cannot write a file', { event: 'file-error', path, error })
  })

  /** Compares the file with this content, and replaces or removes it. */
  async function apply(content: Content | null): Promise<void> {
    const there = await readWholeFile(path, content)
    writtenAt = there?.stats.mtime ?? null
    if (there?.text === content?.text && there?.hasAttributes !== false) {
      // A crash may have left something of replacing it.
      if (there === null && applied === undefined) await removeFile(path)
      applied = content
      return
    }
    const isRepair = applied !== undefined && isSame(applied, content)
    await put(content).catch(async (error: unknown) => {
      const mayStay = applied === undefined ? mayFormerStay : applied?.mayStay() !== false
      if (there !== null && content !== null && there.text !== content.text && !mayStay) await put(null)
      throw error
    })
    if (!isRepair) return
    counts.repairs += 1
    repairs += 1
    log('warning', 'Restored a file that was changed externally', { event: 'file-restored', path })
  }

  async function put(content: Content | null): Promise<void> {
    await (content === null ? removeFile(path) : replaceFile(path, content))
    applied = content
    writtenAt = content && new Date()
    counts.writes += 1
  }

  function fail(error: unknown): void {
    if (!(error instanceof FileError)) throw error
    if (error.code === 'ENOENT' || error.code === 'ENOTDIR') writtenAt = null
    counts.errors += 1
    problem.set(error)
  }

  async function work(): Promise<void> {
    try {
      do {
        isAskedAgain = false
        runningSinceMs = monotonicMs()
        await apply(desired()).then(() => problem.set(null), fail)
      } while (isAskedAgain)
    } finally {
      // With the last look at `isAskedAgain`: nothing comes between.
      running = null
    }
  }

  function stalled(): FileError | null {
    const forMs = running === null ? 0 : monotonicMs() - runningSinceMs
    const seconds = Math.floor(forMs / 1_000)
    return forMs < STALLED_AFTER_MS ? null : new FileError({ path, kind: 'stalled', seconds })
  }

  return {
    /**
     * Compares the file with what it should hold, and writes, restores or removes it. Resolves when that is
     * done or has failed, or after 5 s; the next call tries it again. A file has one operation at a time.
     */
    async reconcile(): Promise<void> {
      isAskedAgain = true
      if (stalled() !== null) return
      running ??= work()
      await withTimeout(STALLED_AFTER_MS, running, { sleep })
      const late = stalled()
      if (late !== null) fail(late)
    },
    /** Why it is not as it should be; null: it is. */
    error: (): FileError | null => stalled() ?? problem.current(),
    /** When it got its content; null: it was not there at the last check. `repairs`: since the start. */
    status: () => ({ writtenAt, repairs }),
  }
}

function isSame(one: Content | null, other: Content | null): boolean {
  return one?.text === other?.text && isDeepStrictEqual(one?.attributes, other?.attributes)
}

/** The longest own file: well above a token of 16 KiB and the longest detail. */
const MAX_BYTES = 256 * 1024

/** A file that this daemon alone reads and writes. `mayStay`: an old content may stay if it cannot be replaced. */
export function createOwnFile(path: string, log: Log, { mayStay = true } = {}) {
  let content: Content | null = null
  const file = createManagedFile(path, { desired: () => content, log, mayFormerStay: mayStay })

  return {
    /** The parser's result; null if there is no file, or none that is whole and this user's alone. */
    async read<T>(parser: (text: string) => T | undefined): Promise<T | null> {
      const there = await readWholeFile(path, null, MAX_BYTES).catch((error: unknown) => {
        if (error instanceof FileError) return null
        throw error
      })
      if (there === null || there.text === null) return null
      const isOwn = there.stats.uid === process.geteuid!() && (there.stats.mode & 0o077) === 0
      const found = (isOwn ? parser(there.text) : null) ?? null
      const sentence = 'A state file is torn, foreign or of another version, and is ignored'
      if (found === null) log('warning', sentence, { event: 'state-file-ignored', path })
      return found
    },
    /** Gives it this text, or removes it. Never fails; waits 5 s at most. */
    async write(text: string | null): Promise<void> {
      content = text === null ? null : { text, attributes: { mode: 0o600 }, mayStay: () => mayStay }
      await file.reconcile()
    },
    /** Why it cannot be written; null if it can. */
    error: file.error,
    /** Repeats what last failed, or what was undone from outside. */
    async maintain(): Promise<void> {
      if (content !== null || file.error() !== null) await file.reconcile()
    },
  }
}
