// A file with a desired content: written when that changes, restored when something else changes the file.
import type { Stats } from 'node:fs'
import { dirname } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import {
  asFileError,
  clearLeftovers,
  FileError,
  lstatIfAny,
  onFile,
  readSmallFile,
  removeFile,
  replaceFile,
  type FileAttributes,
} from './atomic-file.ts'
import { errorCode, errorMessage, fallbackOnSystemError } from './error.ts'
import { fs } from './fs.ts'
import { DiskError } from './in-directory.ts'
import { createProblemLog, type Log } from './log.ts'
import { nameOf } from './posix-ids.ts'

export type ManagedFile = ReturnType<typeof createManagedFile>
export interface Content {
  readonly text: string
  /** Reports whether the file may go on holding it if it cannot be replaced; else it is removed, which needs no space. */
  readonly mayStay: () => boolean
}
export interface FileCounts {
  /** Count of writes and removals. */
  writes: number
  /** Those that restored what something else had changed. */
  repairs: number
  errors: number
}

/** File times have a grain of a few ms: a file that was changed within this time may change once more and keep its times. */
const SETTLED_MS = 1_000
const FAILURE = { sentence: 'Cannot write a file', event: 'file-error' }
const MODE_BITS = 0o7777
const SETGID = 0o2000
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
  let attributes = attributesOf(file)
  /** What the file was last given; undefined: nothing yet in this run. */
  let written: { readonly content: Content | null; readonly attributes: FileAttributes } | undefined
  /** The file's stats when its content was last compared. */
  let compared: Stats | null = null
  /** The group of a file that is given none. */
  let inheritedGid: number | null = null
  let isPresent = false
  let writtenAt: Date | null = null
  let repairs = 0
  /** The call that has not begun: it will see what is desired then. */
  let waiting: Promise<void> | null = null
  let isBusy = false
  const problem = createProblemLog((error) => {
    if (error === null) log('notice', 'A file is as it should be again', { event: 'file-mended', path })
    else if (isBusy) log('error', 'Other disks hold up a file', { event: 'disk-busy', path, error })
    else log('error', failure.sentence, { event: failure.event, path, error })
  })

  async function isAsDesired(content: Content | null): Promise<boolean> {
    const stats = await lstatIfAny(path)
    isPresent = stats?.isFile() === true
    if (stats === null || content === null) return stats === null && content === null
    return stats.isFile() && (await hasAttributes(stats)) && (await hasText(stats, content.text))
  }

  async function hasText(stats: Stats, text: string): Promise<boolean> {
    if (stats.size !== Buffer.byteLength(text)) return false
    if (compared !== null && text === written?.content?.text && isUnchanged(compared, stats)) return true
    // Another program may have removed or exchanged it since it was looked at.
    const read = await readSmallFile(path, stats.size).catch(fallbackOnSystemError(null))
    if (read?.content?.toString() !== text) return false
    writtenAt ??= stats.mtime
    compared = Date.now() - stats.ctimeMs > SETTLED_MS ? stats : null
    return true
  }

  async function hasAttributes(stats: Stats): Promise<boolean> {
    const { mode, uid, gid } = attributes
    if ((stats.mode & MODE_BITS) !== mode || stats.uid !== (uid ?? process.geteuid!())) return false
    return stats.gid === (gid ?? (inheritedGid ??= await gidIn(directory)))
  }

  /** Compares the file with this content, and replaces or removes it. False: that is to be done once more. */
  async function attempt(content: Content | null): Promise<boolean> {
    const isKnown = written?.content?.text === content?.text && written?.attributes === attributes
    if (!(await isAsDesired(content))) {
      compared = null
      if (!(await (content === null ? remove() : replace(content)))) return false
      isPresent = content !== null
      counts.writes += 1
      if (isKnown) {
        counts.repairs += 1
        repairs += 1
        log('warning', 'Restored a file that was changed externally', { event: 'file-restored', path })
      }
    }
    written = { content, attributes }
    return true
  }

  async function remove(): Promise<boolean> {
    warnUnsynced(await removeFile(path))
    return true
  }

  async function replace(content: Content): Promise<boolean> {
    const isStillDesired = (): boolean => desired()?.text === content.text
    try {
      const replaced = await replaceFile(path, content.text, { ...attributes, isStillDesired })
      if (replaced === null) return false
      warnUnsynced(replaced.unsynced)
      if (attributes.gid === null) inheritedGid = replaced.stats.gid
      writtenAt = new Date()
      return true
    } catch (error) {
      if (await mayOldStay(content)) throw error
      await removeFile(path).catch((other: unknown) => {
        // The first error has the remedy.
        throw other instanceof FileError ? error : other
      })
      // Once more: on a full disk there is space now.
      written = { content: null, attributes }
      return false
    }
  }

  async function mayOldStay(next: Content): Promise<boolean> {
    // Of a former run: it may hold the same, and only its mode or owner is another.
    const former = written === undefined ? await lstatIfAny(path).catch(fallbackOnSystemError(null)) : null
    if (former?.isFile() === true && (await hasText(former, next.text)))
      written = { content: next, attributes: attributesOf(former) }
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
    isBusy = error.cause instanceof DiskError && error.cause.kind === 'disk-busy'
    counts.errors += 1
    problem.set(error.message)
  }

  async function attemptUntilDone(): Promise<void> {
    try {
      while (!(await attempt(desired())));
      problem.set(null)
    } catch (error) {
      fail(asFileError(path, error))
    }
  }

  return {
    /** Uses other attributes at the next `reconcile`. The file is then replaced, if it has not got them already. */
    reconfigure(next: FileAttributes): void {
      const wanted = attributesOf(next)
      if (!isDeepStrictEqual(wanted, attributes)) attributes = wanted
    },
    /** Removes what a crash left behind. Never fails: a problem is logged. */
    begin: async (): Promise<void> => {
      const warning = await onFile(path, async () => clearLeftovers(path)).catch(fail)
      if (typeof warning !== 'string' || warnedOf.shared.has(directory)) return
      warnedOf.shared.add(directory)
      log('warning', 'A group can exchange files of the daemon', { event: 'directory-shared', path, warning })
    },
    /**
     * Compares the file with what it should hold, and writes, restores or removes it. Resolves when that is done, has
     * failed, or the disk has not answered in time: the next call tries it again. Never fails.
     */
    reconcile(): Promise<void> {
      if (waiting !== null) return waiting
      let hasBegun = false
      const begin = async (): Promise<void> => {
        hasBegun = true
        waiting = null
        await attemptUntilDone()
      }
      const call = onFile(path, begin).catch((error: unknown) => {
        waiting = null
        fail(error)
      })
      if (!hasBegun) waiting = call
      return call
    },
    /** Why it is not as it should be: one sentence with the remedy. */
    error: (): string | null => problem.current(),
    /** Reports whether the file existed at the last check. */
    isPresent: () => isPresent,
    /** When the file got its content, on the wall clock. */
    writtenAt: () => writtenAt,
    /** Since the start. */
    repairs: () => repairs,
  }
}

function attributesOf({ mode, uid = null, gid = null }: FileAttributes): Required<FileAttributes> {
  return { mode, uid, gid }
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

/** Well above the size of a token of 16 KiB and the longest detail. */
const MAX_BYTES = 256 * 1024
const STATE_FAILURE = { sentence: 'Cannot save the state for a restart', event: 'state-file-error' }

/**
 * A file that only this daemon reads and writes, for its next start: 0600, unless `mode` says more. A disk that fails or
 * hangs is logged once, and survived. `mayStay`: an old content may stay if it cannot be replaced.
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
  /** The value as JSON, and the text that the file should hold for it. */
  let current: { readonly json: string; readonly text: string } | null = null
  const desired = (): Content | null => current && { text: current.text, mayStay: () => mayStay }
  const file = createManagedFile({ path, mode }, { desired, log, failure, mayFormerStay: mayStay })
  return {
    /** Removes what a crash left of replacing the file. */
    begin: file.begin,
    /**
     * The parser's result; null if there is no file, or one that cannot be trusted, which is logged. `valueOf` returns the part
     * of the result that a later `write` would get.
     */
    async read<T>(
      parser: (text: string) => T | undefined,
      valueOf: (parsed: T) => unknown = (parsed) => parsed,
    ): Promise<T | null> {
      const { text, fault } = await readTrusted(path, mode)
      const value = text === null ? undefined : parser(text)
      if (text !== null && value !== undefined) {
        current = { json: JSON.stringify(valueOf(value)), text }
        return value
      }
      if (fault !== null || text !== null) {
        log('warning', 'A state file cannot be used and is ignored', {
          event: 'state-file-ignored',
          path,
          fault: fault ?? 'it is torn, foreign or of another version',
        })
      }
      return null
    },
    /**
     * Writes the value if it differs from the last one, and restores the file if it was removed. Null removes it. If several
     * values wait for the disk, only the newest is written. Never fails.
     */
    async write<T>(value: T | null, format = (given: T) => `${JSON.stringify(given)}\n`): Promise<void> {
      const json = JSON.stringify(value)
      if (value === null) current = null
      else if (json !== current?.json) current = { json, text: format(value) }
      await file.reconcile()
    },
    /** Why it cannot be written: one sentence with the remedy; null if it can. */
    error: (): string | null => file.error(),
    /** Repeats what last failed, or what was undone from outside. */
    async tick(): Promise<void> {
      if (current !== null || file.error() !== null) await file.reconcile()
    },
  }
}

/** The text of a file of this daemon; null if there is none, or if its owner, mode, size or kind is not as it should be. */
async function readTrusted(path: string, mode: number) {
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
    const code = errorCode(error)
    return untrusted(code === 'ENOENT' ? null : `it cannot be read (${code ?? errorMessage(error)})`)
  }
}
