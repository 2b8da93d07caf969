// `written-files.json` in the state directory: paths of token files that exist, for the removal of the package.
import { join } from 'node:path'
import { onFile, readSmallFile } from '../../lib/atomic-file.ts'
import { FileError } from '../../lib/file-error.ts'
import type { Log } from '../../lib/log.ts'
import { createManagedFile } from '../../lib/managed-file.ts'

export interface WrittenFiles {
  /** Reads the list of former runs and returns it; from here on it is written. Never fails. */
  begin(): Promise<readonly string[]>
  /** A token file was written. */
  add(path: string): void
  /** A token file is no longer configured, and gone. */
  remove(path: string): void
  /** Writes what has changed. Never fails: a problem is logged. */
  reconcile(): Promise<void>
}

const MAX_FILE_BYTES = 1024 * 1024

export function createWrittenFiles(stateDirectory: string, log: Log): WrittenFiles {
  const path = join(stateDirectory, 'written-files.json')
  const paths = new Set<string>()
  let isRead = false
  const file = createManagedFile(
    { path, mode: 0o600 },
    {
      desired: () => (paths.size === 0 ? null : `${JSON.stringify([...paths].toSorted())}\n`),
      log,
      failure: { sentence: 'Cannot keep the list of token files', event: 'state-file-error' },
    },
  )

  return {
    async begin() {
      await file.begin()
      const former = await readList(path)
      for (const each of former) paths.add(each)
      isRead = true
      return former
    },
    add: (added) => void paths.add(added),
    remove: (removed) => void paths.delete(removed),
    async reconcile() {
      if (isRead) await file.reconcile()
    },
  }
}

async function readList(path: string): Promise<string[]> {
  try {
    const { content } = await onFile(path, async () => readSmallFile(path, MAX_FILE_BYTES))
    const list: unknown = JSON.parse(content?.toString() ?? '[]')
    return Array.isArray(list) ? list.filter((item) => typeof item === 'string') : []
  } catch (error) {
    // Absent, or not written by this program: then nothing is known of former runs.
    if (error instanceof FileError || error instanceof SyntaxError) return []
    throw error
  }
}
