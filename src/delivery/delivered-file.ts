// One file that is kept equal to what it should hold: written when that changes, restored when somebody else changes it.
import type { Stats } from 'node:fs'
import { dirname } from 'node:path'
import {
  clearLeftovers,
  FileError,
  onFile,
  removeFile,
  replaceFile,
  type FileAttributes,
} from '../lib/atomic-file.ts'
import type { Instant } from '../lib/clock.ts'
import { call, lstatIfAny, readSmallFile, type FileSteps } from '../lib/file-calls.ts'
import type { Log } from '../lib/log.ts'

export interface DeliveredFile {
  /** Removes what a crash left behind. What the system says against it is told in the log. */
  begin(): Promise<void>
  /** Compares the file with what it should hold and mends it. One at a time: where one is under way, it looks once more. */
  look(): Promise<void>
  /** Why it is not as it should be: one sentence with the remedy. */
  error(): string | null
  /** When it last changed, wall clock. */
  writtenAt(): Date | null
  /** How often it was written or removed, how often because somebody else had changed it, and how often that failed. */
  counts(): FileCounts
}
export interface FileCounts {
  readonly writes: number
  readonly repairs: number
  readonly errors: number
}

const MODE_BITS = 0o7777
const SETGID = 0o2000
/** File times tick every few ms: a file changed so recently may change once more without another time. */
const SETTLED_MS = 1_000

export function createDeliveredFile(
  file: FileAttributes & { readonly path: string },
  options: {
    /** What the file should hold now; null: it should not be there. */
    wanted: () => string | null
    now: () => Instant
    log: Log
  },
): DeliveredFile {
  const { path } = file
  const { wanted, now, log } = options
  /** What was last brought about; undefined: what is there is a former run's. */
  let brought: string | null | undefined
  /** What lstat said when the content was last compared. */
  let compared: Stats | null = null
  /** The group the file got where none is configured. */
  let givenGid: number | undefined
  let problem: string | null = null
  let writtenAt: Date | null = null
  let counts: FileCounts = { writes: 0, repairs: 0, errors: 0 }
  let looking: Promise<void> | null = null
  let isLookedForAgain = false

  async function isAsWanted(content: string | null): Promise<boolean> {
    const stats = await onFile(path, lstatIfAny(path))
    if (stats === null || content === null) return stats === null && content === null
    if (!stats.isFile() || !(await isDressed(stats)) || stats.size !== Buffer.byteLength(content))
      return false
    if (compared !== null && content === brought && isUntouched(compared, stats)) return true
    const found = await onFile(path, readSmallFile(path, stats.size))
    if (found.content?.toString() !== content) return false
    writtenAt ??= stats.mtime
    const isSettled = now().wallMs - stats.ctimeMs > SETTLED_MS
    compared = isSettled && isUntouched(stats, found.stats) ? stats : null
    return true
  }

  async function isDressed({ mode, uid, gid }: Stats): Promise<boolean> {
    if ((mode & MODE_BITS) !== file.mode || uid !== (file.uid ?? process.geteuid?.())) return false
    givenGid ??= file.gid ?? (await onFile(path, naturalGid(dirname(path))))
    return gid === givenGid
  }

  async function bring(content: string | null): Promise<void> {
    // Where we brought another content, there is nothing to be looked at.
    const isRotated = typeof brought === 'string' && content !== null && content !== brought
    if (!isRotated && (await isAsWanted(content))) return
    const isRepair = content === brought
    compared = null
    if (content === null) await removeFile(path)
    else givenGid = (await replaceFile(path, content, file)).gid
    writtenAt = new Date(now().wallMs)
    counts = {
      ...counts,
      writes: counts.writes + 1,
      repairs: counts.repairs + (isRepair ? 1 : 0),
    }
    if (isRepair) log('warning', 'Restored a file that was changed behind our back', fields('file-restored'))
  }

  async function pass(): Promise<void> {
    const content = wanted()
    try {
      await bring(content)
      brought = content
      // Where nothing is to be there, nothing was tried: the directory may be as bad as before.
      if (content !== null) tell(null)
    } catch (error) {
      if (!(error instanceof FileError)) throw error
      counts = { ...counts, errors: counts.errors + 1 }
      tell(error.message)
    }
  }

  /** One record when it goes wrong, one when it goes wrong otherwise, one when it is well again. */
  function tell(next: string | null): void {
    if (next === problem) return
    problem = next
    if (next === null) log('notice', 'A file is written again', fields('file-mended'))
    else log('error', 'A file cannot be kept', { ...fields('file-error'), error: next })
  }

  function fields(event: string): { event: string; path: string } {
    return { event, path }
  }

  async function lookUntilSeen(): Promise<void> {
    do {
      isLookedForAgain = false
      await pass()
    } while (isLookedForAgain)
    looking = null
  }

  return {
    async begin() {
      try {
        await clearLeftovers(path)
      } catch (error) {
        if (!(error instanceof FileError)) throw error
        tell(error.message)
      }
    },
    look() {
      isLookedForAgain = true
      looking ??= lookUntilSeen()
      return looking
    },
    error: () => problem,
    writtenAt: () => writtenAt,
    counts: () => counts,
  }
}

/** The change time cannot be set by anybody, and every change of content, mode or owner sets it. */
function isUntouched(before: Stats, after: Stats): boolean {
  return (
    before.ino === after.ino &&
    before.dev === after.dev &&
    before.ctimeMs === after.ctimeMs &&
    before.mtimeMs === after.mtimeMs &&
    before.size === after.size
  )
}

/** The group of a file that is created in the directory. */
function* naturalGid(directory: string): FileSteps<number | undefined> {
  const { mode, gid } = yield* call('stat', directory)
  return (mode & SETGID) === 0 ? process.getegid?.() : gid
}
