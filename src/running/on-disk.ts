// The configuration on disk. It is loaded again only when one of its files has changed.
import type { Config } from '../config/config.ts'
import { versionOf } from '../config/read.ts'
import { UserError } from '../lib/error.ts'

/** `problem` is a sentence with the remedy. */
export type OnDisk =
  { readonly kind: 'loaded'; readonly config: Config } | { readonly kind: 'faulty'; readonly problem: string }

/**
 * Returns the function that reads the disk. It gives the same object until a file of the running configuration
 * changes; a faulty one is loaded each time, because its fault may go by itself: a group is made, a directory is
 * opened. Calls at the same time share one reading, which ends when the disk answers. `load` throws nothing but
 * UserError.
 */
export function createDiskReader(load: () => Promise<Config>, running: () => Config): () => Promise<OnDisk> {
  let last: { readonly version: string; readonly found: OnDisk } | null = null
  let reading: Promise<OnDisk> | null = null

  async function read(): Promise<OnDisk> {
    const version = await versionOf(running().read.files)
    if (last?.version === version) return last.found
    try {
      last = { version, found: { kind: 'loaded', config: await load() } }
      return last.found
    } catch (error) {
      if (!(error instanceof UserError)) throw error
      last = null
      return { kind: 'faulty', problem: error.message }
    }
  }

  return () => (reading ??= read().finally(() => (reading = null)))
}
