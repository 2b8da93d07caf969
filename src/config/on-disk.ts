// The configuration on disk. It is loaded again only when one of its files has changed.
import { dirname } from 'node:path'
import { errorMessage, exitStatus, UserError } from '../lib/error.ts'
import { isLate } from '../files/file-error.ts'
import { fs } from '../files/fs.ts'
import { inDirectory } from '../files/in-directory.ts'
import { fileRemedy } from '../host/file-remedy.ts'
import { placeOf, rendered } from '../host/place-commands.ts'
import type { Config } from './config.ts'

/** `problem` is a sentence with the remedy. */
export type OnDisk =
  | { readonly kind: 'loaded'; readonly config: Config }
  | { readonly kind: 'faulty'; readonly problem: string }
  /** A disk does not answer: what is on it is not known. */
  | { readonly kind: 'stalled'; readonly problem: string }

/**
 * Returns the function that reads the disk. It gives the same object until a file of the running
 * configuration changes; a faulty one is loaded each time, because its fault may go by itself: a
 * group is made, a directory is closed. Calls at the same time share one reading. `load` throws nothing
 * but UserError.
 */
export function createDiskReader(load: () => Promise<Config>, running: () => Config): () => Promise<OnDisk> {
  let last: { readonly version: string; readonly found: OnDisk } | null = null
  let reading: Promise<OnDisk> | null = null

  async function read(): Promise<OnDisk> {
    const { file, inputs } = running()
    try {
      const version = await versionOf([file, ...inputs])
      if (last?.version !== version) last = { version, found: { kind: 'loaded', config: await load() } }
      return last.found
    } catch (error) {
      if (isLate(error))
        return { kind: 'stalled', problem: rendered(fileRemedy(error, placeOf(process.env))) }
      if (!(error instanceof UserError)) throw error
      if (error.status === exitStatus.tryAgain) return { kind: 'stalled', problem: error.message }
      last = null
      return { kind: 'faulty', problem: error.message }
    }
  }

  return () => (reading ??= read().finally(() => (reading = null)))
}

/**
 * A text that changes when a file is written or replaced, or when a link to it is replaced. One call for
 * each directory. Throws FileError.
 */
async function versionOf(paths: readonly string[]): Promise<string> {
  const versions = await Promise.all(
    [...new Set(paths.map(dirname))].map(async (directory) => {
      const files = paths.filter((path) => dirname(path) === directory)
      return inDirectory(directory, async () => Array.fromAsync(files, versionOfFile))
    }),
  )
  return versions.flat().join(' ')
}

async function versionOfFile(path: string): Promise<string> {
  try {
    const { dev, ino, size, mtimeNs, ctimeNs } = await fs.stat(path, { bigint: true })
    return [dev, ino, size, mtimeNs, ctimeNs].join(':')
  } catch (error) {
    return errorMessage(error)
  }
}
