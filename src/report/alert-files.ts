// alert.json while an alert is raised, and alert-resolved.json once it is over: what the operator's command reads.
import { dirname, join } from 'node:path'
import { onFile, readSmallFile } from '../lib/atomic-file.ts'
import { FileError } from '../lib/file-error.ts'
import type { Log } from '../lib/log.ts'
import { createManagedFile } from '../lib/managed-file.ts'

export interface AlertFiles {
  /** Removes leftovers of a crash and returns what alert.json of a former run says; null: there is none. */
  begin(): Promise<SavedAlert | null>
  /** The content of alert.json; null: it goes, after alert-resolved.json was written. */
  setRaised(alert: object | null): void
  setResolved(resolved: object): void
  /** Writes what is new, and restores what was changed or could not be written. */
  reconcile(): Promise<void>
}
export interface SavedAlert {
  readonly reason: unknown
  readonly since: unknown
  readonly remindedAt: unknown
  readonly noTokenSince: unknown
  readonly askedBy?: unknown
}

/** Readable by all: it holds no secret. */
const MODE = 0o644
const MAX_BYTES = 64 * 1024

/** `path` is that of alert.json, absolute. */
export function createAlertFiles(path: string, log: Log): AlertFiles {
  let raised: string | null = null
  let resolved: string | null = null
  const failure = { sentence: 'An alert file cannot be brought up to date', event: 'alert-file-failed' }
  const raisedFile = createManagedFile({ path, mode: MODE }, { desired: () => raised, log, failure })
  const resolvedPath = join(dirname(path), 'alert-resolved.json')
  const resolvedFile = createManagedFile(
    { path: resolvedPath, mode: MODE },
    { desired: () => resolved, log, failure },
  )
  let work = Promise.resolve()

  async function reconcileAfter(former: Promise<void>): Promise<void> {
    await former
    if (resolved !== null) await resolvedFile.reconcile()
    await raisedFile.reconcile()
  }

  return {
    async begin() {
      await Promise.all([raisedFile.begin(), resolvedFile.begin()])
      return readAlert(path)
    },
    setRaised(alert) {
      raised = alert && `${JSON.stringify(alert)}\n`
    },
    setResolved(alert) {
      resolved = `${JSON.stringify(alert)}\n`
    },
    /** One at a time, so that alert-resolved.json is there before alert.json goes. */
    async reconcile() {
      work = reconcileAfter(work)
      await work
    },
  }
}

async function readAlert(path: string): Promise<SavedAlert | null> {
  try {
    const { content } = await onFile(path, async () => readSmallFile(path, MAX_BYTES))
    const saved: unknown = JSON.parse(String(content))
    return typeof saved === 'object' && saved !== null ? (saved as SavedAlert) : null
  } catch (error) {
    if (error instanceof FileError || error instanceof SyntaxError) return null
    throw error
  }
}
