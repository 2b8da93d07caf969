// Why a file could not be read, written or removed: facts alone, of which `host/remedy.ts` makes the sentence.
import { dirname } from 'node:path'
import { errorCode } from '../lib/error.ts'

/** The message names the facts, for a stack trace: it is no sentence for people. */
export class FileError extends Error {
  override readonly name = 'FileError'
  declare readonly path: string
  /** The one that the error is about; by default that of the path. */
  declare readonly directory: string
  /**
   * `system`: the system refused a call. `stalled`: the disk did not answer in time. `odd-target`: a link or something
   * else than a regular file has the path. `unsafe-directory`: others can exchange what is made in the directory.
   * `attributes`: the file system does not keep owner, group or mode.
   */
  declare readonly kind: 'system' | 'stalled' | 'odd-target' | 'unsafe-directory' | 'attributes'
  /** The system's, such as `ENOSPC`. */
  declare readonly code?: string | undefined
  /** The call that failed, such as `fsync`. */
  declare readonly syscall?: string | undefined
  /** Of a stalled disk: for how long it has not done its work. */
  declare readonly seconds?: number | undefined

  constructor(
    facts: Omit<Partial<FileError>, keyof Error> & Pick<FileError, 'path' | 'kind'>,
    options?: ErrorOptions,
  ) {
    const { path, kind, code, syscall } = facts
    super([kind, code, syscall, path].filter((word) => word !== undefined).join(' '), options)
    Object.assign(this, { directory: dirname(path), ...facts })
  }
}

/** An error of the system as a FileError of this path; any other as it is. */
export function asFileError(path: string, error: unknown, directory = dirname(path)): unknown {
  const code = errorCode(error)
  if (error instanceof FileError || code === undefined) return error
  const { syscall } = error as { syscall?: string }
  return new FileError({ path, directory, kind: 'system', code, syscall }, { cause: error })
}
