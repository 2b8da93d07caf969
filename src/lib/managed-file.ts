// A file with a desired content: written when that changes, restored when something else changes the file.
import type { Stats } from 'node:fs'
import { dirname } from 'node:path'
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
import { DiskError } from './in-directory.ts'
import { errorCode, errorMessage, fallbackOnSystemError } from './error.ts'
import { fs } from './fs.ts'
import { createProblemLog, type Log } from './log.ts'
import { nameOf } from './posix-ids.ts'

export type ManagedFile = ReturnType<typeof createManagedFile>
export interface FileCounts {
  /** Count of writes and removals. */
  writes: number
  /** Those that restored what something else had changed. */
  repairs: number
  errors: number
}

/** File times have a grain of a few ms: a file that was changed within this time may change once more and keep its times. */
const SETTLED_MS = 1_000
const FAILURE = { sentence: 'A file cannot be kept', event: 'file-error' }
const MODE_BITS = 0o7777
const SETGID = 0o2000
/** Directories of which a warning was logged: those of several files are often the same. */
const warnedOf = new Set<string>()

export function createManagedFile(
  file: FileAttributes & { readonly path: string },
  {
    desired,
    log,
    isRevocable = false,
    failure = FAILURE,
    counts = { writes: 0, repairs: 0, errors: 0 },
  }: {
    /** The content that the file should have now; null: it should not be there. */
    desired: () => string | null
    log: Log
    /** A content that is no longer desired, and cannot be overwritten, is removed: that needs no space. */
    isRevocable?: boolean
    /** The record of a failure. */
    failure?: { readonly sentence: string; readonly event: string }
    /** Several files may count in the same. */
    counts?: FileCounts
  },
) {
  const { path, mode, uid = null, gid = null } = file
  const directory = dirname(path)
  /** The content that the file was last given; undefined: none yet in this run. */
  let written: string | null | undefined
  /** The file's stats when its content was last compared. */
  let lastStat: Stats | null = null
  let expectedGid: number | null | undefined = gid
  let isPresent = false
  let writtenAt: Date | null = null
  let repairs = 0
  let working: Promise<void> | null = null
  let isRequestedAgain = false
  let isStalled = false
  const problem = createProblemLog((error) => {
    if (error === null) log('notice', 'A file is written again', { event: 'file-mended', path })
    else log('error', failure.sentence, { event: failure.event, path, error })
  })

  async function isAsDesired(content: string | null): Promise<boolean> {
    const stats = await lstatIfAny(path)
    isPresent = stats?.isFile() === true
    if (stats === null || content === null) return stats === null && content === null
    if (!stats.isFile() || !(await hasAttributes(stats)) || stats.size !== Buffer.byteLength(content))
      return false
    if (lastStat !== null && isUnchanged(lastStat, stats)) return true
    // Another program may have removed or exchanged it since it was looked at.
    const read = await readSmallFile(path, stats.size).catch(fallbackOnSystemError(null))
    if (read?.content?.toString() !== content) return false
    writtenAt ??= stats.mtime
    lastStat = Date.now() - stats.ctimeMs > SETTLED_MS ? stats : null
    return true
  }

  async function hasAttributes(stats: Stats): Promise<boolean> {
    if ((stats.mode & MODE_BITS) !== mode || stats.uid !== (uid ?? process.geteuid!())) return false
    expectedGid ??= await inheritedGid(directory)
    return stats.gid === expectedGid
  }

  /** Removes what should have been replaced, and throws why that failed. */
  async function revoke(cause: unknown): Promise<never> {
    const isReplaced = isRevocable && written !== desired()
    // The first error has the remedy, also if the removal fails.
    if (isReplaced)
      await removeFile(path).then(
        () => (isPresent = false),
        () => undefined,
      )
    throw cause
  }

  async function attempt(content: string | null): Promise<void> {
    // A new content is written, and a former one removed, without a look at the file.
    const isRotation = typeof written === 'string' && content !== written
    if (isRotation || !(await isAsDesired(content))) {
      lastStat = null
      if (content === null) await removeFile(path)
      else {
        const isStillDesired = (): boolean => desired() === content
        const stats = await replaceFile(path, content, { mode, uid, gid, isStillDesired }).catch(revoke)
        if (stats === null) {
          isRequestedAgain = true
          return
        }
        expectedGid = stats.gid
        writtenAt = new Date()
      }
      isPresent = content !== null
      counts.writes += 1
      if (content === written) {
        counts.repairs += 1
        repairs += 1
        log('warning', 'Restored a file that was changed externally', { event: 'file-restored', path })
      }
    }
    written = content
    // That a file is absent does not show that it could be written, only that the disk answers.
    if (content !== null || isStalled) problem.set(null)
  }

  function fail(error: unknown): void {
    if (!(error instanceof FileError)) throw error
    if (error.code === 'ENOENT' || error.code === 'ENOTDIR') isPresent = false
    isStalled = error.cause instanceof DiskError
    counts.errors += 1
    problem.set(error.message)
  }

  async function attemptUntilDone(): Promise<void> {
    do {
      isRequestedAgain = false
      await attempt(desired()).catch((error: unknown) => fail(asFileError(path, error)))
      isStalled = false
    } while (isRequestedAgain)
    working = null
  }

  return {
    /** Removes what a crash left behind. Never fails: a problem is logged. */
    begin: async (): Promise<void> => {
      const warning = await onFile(path, async () => clearLeftovers(path)).catch(fail)
      if (typeof warning === 'string' && !warnedOf.has(directory)) {
        warnedOf.add(directory)
        log('warning', 'A group can exchange files of the daemon', {
          event: 'directory-shared',
          path,
          warning,
        })
      }
    },
    /**
     * Compares the file with what it should hold, and writes, restores or removes it. Resolves when that is done, has
     * failed, or the disk has not answered for 5 s: what is then desired is written once it answers again. Never fails.
     */
    async reconcile(): Promise<void> {
      isRequestedAgain = true
      working ??= onFile(path, attemptUntilDone).catch((error: unknown) => {
        working = null
        fail(error)
      })
      await working
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

/** Every change of content, mode or owner sets the change time, which no call sets otherwise. */
function isUnchanged(before: Stats, after: Stats): boolean {
  return (['ino', 'dev', 'ctimeMs', 'size'] as const).every((name) => before[name] === after[name])
}

/** The group of a file that is created in the directory. */
async function inheritedGid(directory: string): Promise<number> {
  const { mode, gid } = await fs.stat(directory)
  return (mode & SETGID) === 0 ? process.getegid!() : gid
}

/** Well above the size of a token of 16 KiB and the longest detail. */
const MAX_BYTES = 256 * 1024
const STATE_FAILURE = { sentence: 'Cannot keep what a restart must know', event: 'state-file-error' }

/**
 * A file that only this daemon reads and writes, for its next start: 0600, unless `mode` says more. A disk that fails or
 * hangs is logged once, and survived.
 */
export function createOwnFile(
  path: string,
  {
    mode = 0o600,
    failure = STATE_FAILURE,
    ...options
  }: { mode?: number } & Omit<Parameters<typeof createManagedFile>[1], 'desired'>,
) {
  let content: string | null = null
  /** The JSON of the value that `content` was made from; undefined: not known. */
  let valueJson: string | null | undefined
  const file = createManagedFile({ path, mode }, { desired: () => content, failure, ...options })
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
      const found = await readTrusted(path, mode)
      const value = found.text === null ? undefined : parser(found.text)
      if (value !== undefined) {
        content = found.text
        valueJson = JSON.stringify(valueOf(value))
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
     * Writes the value if it differs from the last one, and restores the file if it was removed. Null removes it. If several
     * values wait for the disk, only the newest is written. Never fails.
     */
    async write<T>(value: T | null, format = (given: T) => `${JSON.stringify(given)}\n`): Promise<void> {
      const next = value && JSON.stringify(value)
      if (next !== valueJson) content = value && format(value)
      valueJson = next
      await file.reconcile()
    },
    /** Why it cannot be written: one sentence with the remedy; null if it can. */
    error: (): string | null => file.error(),
    /** Repeats what last failed, or what was undone from outside. */
    async tick(): Promise<void> {
      if (content !== null || file.error() !== null) await file.reconcile()
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
