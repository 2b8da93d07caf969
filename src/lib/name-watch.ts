// Reports whether names in a directory may have changed: one look at the directory for all who keep something in it.
import type { Stats } from 'node:fs'
import { onFileSystem } from './disk-queue.ts'
import { fallbackOnSystemError } from './error.ts'
import { fs } from './fs.ts'

/** File times tick every few ms: what was changed so recently may change once more without another time. */
export const SETTLED_MS = 1_000

/** Under way, by directory. A disk that stalls has one of them at most. */
const looks = new Map<string, Promise<Stats | null>>()

/**
 * Stats of the directory itself, a link not followed; null where the system gives none. All who ask at a tick get one
 * look. Rejects with DiskStalledError.
 */
export function lookAt(directory: string): Promise<Stats | null> {
  const look =
    looks.get(directory) ??
    onFileSystem(directory, async () =>
      fs
        .lstat(directory)
        .catch(fallbackOnSystemError(null))
        .finally(() => looks.delete(directory)),
    )
  looks.set(directory, look)
  return look
}

/**
 * Returns a function that does the work if it `isDue`, or if names in the directory may have been made, removed or exchanged
 * since the last work that resolved to true. Rejects as the work does, also where a disk stalls.
 */
export function createNameWatch() {
  /** The version of the directory that the last work saw. */
  let known: string | null = null
  return async (
    directory: string,
    work: () => Promise<boolean>,
    isDue: () => boolean = () => false,
  ): Promise<void> => {
    const version = isDue() ? null : versionOf(await lookAt(directory).catch(() => null))
    if (version !== null && version === known && !isDue()) return
    known = null
    if (await work()) known = version
  }
}

/** null where it is not certain that the next change gives another one. */
function versionOf(stats: Stats | null): string | null {
  if (stats === null || Date.now() - stats.ctimeMs < SETTLED_MS) return null
  return [stats.dev, stats.ino, stats.mtimeMs, stats.ctimeMs].join(' ')
}
