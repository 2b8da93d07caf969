// A file with a desired content: written when that changes, restored when something else changes the file.
import type { Stats } from 'node:fs'
import { dirname } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import {
  clearLeftovers,
  lstatIfAny,
  onFile,
  readSmallFile,
  removeFile,
  replaceFile,
  type FileAttributes,
} from './atomic-file.ts'
import { fallbackOnSystemError } from '../lib/error.ts'
import { FileError } from './file-error.ts'
import { fs, MODE_BITS, SETGID } from './fs.ts'
import { createProblemLog, type Log } from '../lib/log.ts'

export type ManagedFile = ReturnType<typeof createManagedFile>
export interface Content {
  readonly text: string
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

/** File times have a grain of a few ms: what was changed within this time may change and keep them. */
const SETTLED_MS = 1_000
const FAILURE = { sentence: 'Cannot write a file', event: 'file-error' }
/** Directories of which a warning was logged: those of several files are often the same. */
const warnedOf = { shared: new Set<string>(), unsynced: new Set<string>() }

export function createManagedFile(
  file: FileAttributes & { readonly path: string },
  {
    desired,
    log,
    mayFormerStay = true,
    failure = FAILURE,
    counts = { writes: 0, repairs: 0, errors: 0 },
  }: {
    /** The content that the file should have now; null: it should not be there. */
    desired: () => Content | null
    log: Log
    /** The content of a former run may stay if it cannot be replaced. */
    mayFormerStay?: boolean
    /** The record of a failure. */
    failure?: { readonly sentence: string; readonly event: string }
    /** Several files may count in the same. */
    counts?: FileCounts
  },
) {
  const { path } = file
  const directory = dirname(path)
  let attributes: FileAttributes = file
  /** What the file was last given; undefined: nothing yet in this run. */
  let written: { readonly content: Content | null; readonly attributes: FileAttributes } | undefined
  /** The file's stats when its content was last compared. */
  let compared: Stats | null = null
  /** The group of a file that is given none. */
  let inheritedGid: number | null = null
  /** What a crash left of replacing the file is removed: at the first call for which its disk answers. */
  let isCleared = false
  let isPresent = false
  let writtenAt: Date | null = null
  let repairs = 0
  /** The call that has not begun yet, and so will see what is desired then. */
  let waiting: Promise<void> | null = null
  const problem = createProblemLog<FileError>((error) => {
    if (error === null) log('notice', 'A file is as it should be again', { event: 'file-mended', path })
    else if (error.kind === 'busy')
      log('error', 'Other disks hold up a file', { event: 'disk-busy', path, error })
    else log('error', failure.sentence, { event: failure.event, path, error })
  })

  async function hasText(stats: Stats | null, text: string): Promise<boolean> {
    if (stats?.isFile() !== true || stats.size !== Buffer.byteLength(text)) return false
    if (compared !== null && text === written?.content?.text && isUnchanged(compared, stats)) return true
    // Another program may have removed or exchanged it meanwhile.
    const read = await readSmallFile(path, stats.size).catch(fallbackOnSystemError(null))
    if (read?.content !== text) return false
    writtenAt ??= stats.mtime
    compared = Date.now() - stats.ctimeMs > SETTLED_MS ? stats : null
    return true
  }

  async function hasAttributes(stats: Stats): Promise<boolean> {
    const { mode, uid, gid } = attributes
    if ((stats.mode & MODE_BITS) !== mode || stats.uid !== (uid ?? process.geteuid!())) return false
    return stats.gid === (gid ?? (inheritedGid ??= await gidIn(directory)))
  }

  /** Compares the file with this content, and replaces or removes it. */
  async function apply(content: Content | null): Promise<void> {
    const wanted = attributes
    const isKnown = isDeepStrictEqual(written?.attributes, wanted) && written?.content?.text === content?.text
    const stats = await lstatIfAny(path)
    isPresent = stats?.isFile() === true
    const isSame = content === null ? stats === null : await hasText(stats, content.text)
    // A file of a former run may have another mode or owner, and stays if it cannot be replaced.
    if (isSame && stats !== null) written ??= { content, attributes: stats }
    if (!isSame || (stats !== null && !(await hasAttributes(stats)))) {
      await change(content)
      if (isKnown) {
        counts.repairs += 1
        repairs += 1
        log('warning', 'Restored a file that was changed externally', { event: 'file-restored', path })
      }
    }
    written = { content, attributes: wanted }
  }

  async function change(content: Content | null): Promise<void> {
    compared = null
    if (content === null) warnUnsynced(await removeFile(path))
    else await replace(content)
    isPresent = content !== null
    counts.writes += 1
  }

  async function replace(content: Content): Promise<void> {
    const replaced = await replaceFile(path, content.text, attributes).catch(async (error: unknown) => {
      if (mayOldStay(content)) throw error
      // On a full disk there is space then.
      await removeFile(path)
      written = { content: null, attributes }
      isPresent = false
      return replaceFile(path, content.text, attributes)
    })
    warnUnsynced(replaced.unsynced)
    if ((attributes.gid ?? null) === null) inheritedGid = replaced.stats.gid
    writtenAt = new Date()
  }

  function mayOldStay(next: Content): boolean {
    if (written === undefined) return mayFormerStay
    return written.content === null || written.content.text === next.text || written.content.mayStay()
  }

  function warnUnsynced(warning: string | null): void {
    if (warning === null || warnedOf.unsynced.has(directory)) return
    warnedOf.unsynced.add(directory)
    const sentence =
      'A directory cannot be synced: what is written there may be lost if the host fails soon after'
    log('warning', sentence, { event: 'directory-unsynced', path: directory, warning })
  }

  function fail(error: unknown): void {
    if (!(error instanceof FileError)) throw error
    if (error.code === 'ENOENT' || error.code === 'ENOTDIR') isPresent = false
    counts.errors += 1
    problem.set(error)
  }

  async function clear(): Promise<void> {
    const warning = await clearLeftovers(path)
    isCleared = true
    if (warning === undefined || warnedOf.shared.has(directory)) return
    warnedOf.shared.add(directory)
    log('warning', 'A group can exchange files of the daemon', { event: 'directory-shared', path, warning })
  }

  async function makeAsDesired(): Promise<void> {
    waiting = null
    // What cannot be cleared holds up no content, but is an error until it is.
    const fault = isCleared ? undefined : await clear().catch((error: unknown) => error)
    await apply(desired())
    if (fault !== undefined) throw fault
    problem.set(null)
  }

  return {
    /** Uses other attributes at the next `reconcile`, which replaces the file unless it has them. */
    reconfigure(next: FileAttributes): void {
      attributes = next
    },
    /** Removes what a crash left behind, as the first `reconcile` does. Never fails: a problem is logged. */
    begin: async (): Promise<void> => onFile(path, clear).catch(fail),
    /**
     * Compares the file with what it should hold, and writes, restores or removes it. Resolves when that is
     * done, has failed, or the disk has not answered in time: the next call tries it again. Never fails.
     */
    reconcile(): Promise<void> {
      waiting ??= onFile(path, makeAsDesired).catch((error: unknown) => {
        waiting = null
        fail(error)
      })
      return waiting
    },
    /** Why it is not as it should be; null: it is. */
    error: (): FileError | null => problem.current(),
    /** Reports whether the file existed at the last check. */
    isPresent: () => isPresent,
    /** When the file got its content, on the wall clock. */
    writtenAt: () => writtenAt,
    /** Since the start. */
    repairs: () => repairs,
  }
}

/** Every change of content, mode or owner sets the change time, which no call sets otherwise. */
function isUnchanged(before: Stats, after: Stats): boolean {
  return (['ino', 'dev', 'ctimeMs', 'size'] as const).every((name) => before[name] === after[name])
}

/** The group of a file that is created in the directory. */
async function gidIn(directory: string): Promise<number> {
  const { mode, gid } = await fs.stat(directory)
  return (mode & SETGID) === 0 ? process.getegid!() : gid
}
