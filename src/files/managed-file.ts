// A file with a desired content: written when that changes, restored when something else changed the file.
import { isDeepStrictEqual } from 'node:util'
import { monotonicMs, sleep, withTimeout } from '../lib/clock.ts'
import { createProblemLog, type Log } from '../lib/log.ts'
import { FileError } from './file-error.ts'
import { readWholeFile, removeFile, replaceFile, type WholeFile } from './replace-file.ts'

export type ManagedFile = ReturnType<typeof createManagedFile>
export interface Content extends WholeFile {
  /** Reports whether it may stay if it cannot be replaced; else it is removed, which needs no space. */
  readonly mayStay: () => boolean
}
export interface FileCounts {
  /** Count of writes and removals. */
  writes: number
  /** Those that restored what something else had changed. */
  repairs: number
  errors: number
}

/** A disk that has not done its work for so long is reported, and no longer waited for. */
const STALLED_AFTER_MS = 5_000

export function createManagedFile(
  path: string,
  options: {
    /** The content that the file should have now; null: it should not be there. */
    desired: () => Content | null
    log: Log
    /** The record of a failure. */
    failure?: { readonly sentence: string; readonly event: string }
    /** The content of a former run may stay if it cannot be replaced. */
    mayFormerStay?: boolean
    /** Several files may count in the same. */
    counts?: FileCounts
    /** Begins the work once it has its turn. */
    inTurn?: (work: () => Promise<void>) => Promise<void>
  },
) {
  const { desired, log, mayFormerStay = false, inTurn = async (each) => each() } = options
  const { counts = { writes: 0, repairs: 0, errors: 0 } } = options
  const { failure = { sentence: 'Cannot write a file', event: 'file-error' } } = options
  /** What the file was last given, or had; undefined: nothing yet in this run. */
  let applied: Content | null | undefined
  let isPresent = false
  let writtenAt: Date | null = null
  let repairs = 0
  /** The work that is under way, and since when, and the work that begins after it. */
  let running: Promise<void> | null = null
  let runningSinceMs = 0
  let next: Promise<void> | null = null
  const problem = createProblemLog<FileError>((error) => {
    if (error === null) log('notice', 'A file is as it should be again', { event: 'file-mended', path })
    else log('error', failure.sentence, { event: failure.event, path, error })
  })

  /** Compares the file with this content, and replaces or removes it. */
  async function apply(content: Content | null): Promise<void> {
    const state = await readWholeFile(path, content)
    isPresent = state !== null
    const isSame = content === null ? state === null : state?.text === content.text
    if (isSame && state?.hasAttributes !== false) {
      if (state !== null) writtenAt ??= state.stats.mtime
      // A crash may have left something of replacing it.
      else if (applied === undefined) await removeFile(path)
      applied = content
      return
    }
    // The same under another mode may stay, whoever wrote it.
    if (isSame && state !== null) applied ??= content && { ...content, attributes: state.stats }
    const isRepair = isDeepStrictEqual(factsOf(applied), factsOf(content))
    if (content === null) await remove()
    else await replace(content)
    if (!isRepair) return
    counts.repairs += 1
    repairs += 1
    log('warning', 'Restored a file that was changed externally', { event: 'file-restored', path })
  }

  async function remove(): Promise<void> {
    await removeFile(path)
    applied = null
    isPresent = false
    counts.writes += 1
  }

  async function replace(content: Content): Promise<void> {
    try {
      await replaceFile(path, content)
    } catch (error) {
      if (!isPresent || mayOldStay(content)) throw error
      // On a full disk there is space then.
      await remove()
      await replaceFile(path, content)
    }
    applied = content
    isPresent = true
    writtenAt = new Date()
    counts.writes += 1
  }

  function mayOldStay({ text }: Content): boolean {
    if (applied === undefined) return mayFormerStay
    return applied === null || applied.text === text || applied.mayStay()
  }

  function fail(error: unknown): void {
    if (!(error instanceof FileError)) throw error
    if (error.code === 'ENOENT' || error.code === 'ENOTDIR') isPresent = false
    counts.errors += 1
    problem.set(error)
  }

  async function work(): Promise<void> {
    next = null
    await apply(desired())
    problem.set(null)
  }

  async function begin(): Promise<void> {
    runningSinceMs = monotonicMs()
    running = inTurn(work)
      .catch(fail)
      .finally(() => (running = null))
    return running
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
      if (stalled() !== null) return
      next ??= running?.then(begin) ?? null
      await withTimeout(STALLED_AFTER_MS, next ?? begin(), { sleep })
      const late = stalled()
      if (late !== null) fail(late)
    },
    /** Why it is not as it should be; null: it is. */
    error: (): FileError | null => stalled() ?? problem.current(),
    /** Reports whether the file existed at the last check. */
    isPresent: () => isPresent,
    /** When the file got its content, on the wall clock. */
    writtenAt: () => writtenAt,
    /** Since the start. */
    repairs: () => repairs,
  }
}

function factsOf(content: Content | null | undefined) {
  return content && { text: content.text, ...content.attributes }
}
