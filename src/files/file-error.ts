// Why a file could not be read, written or removed: facts alone. Whoever shows it makes the sentence.
import { dirname } from 'node:path'
import { errorCode } from '../lib/error.ts'

/**
 * `system`: the system refused a call. `stalled`: the disk did not answer in time. `odd-target`: something else than
 * a regular file has the path. `unsafe-directory`: others can exchange what is made in the directory. `attributes`: the file system does not keep owner, group or mode.
 */
type FileErrorKind = 'system' | 'stalled' | 'odd-target' | 'unsafe-directory' | 'attributes'

interface FileFacts {
  readonly path: string
  /** The one that the error is about; by default that of the path. */
  readonly directory?: string | undefined
  readonly kind: FileErrorKind
  /** The system's, such as `ENOSPC`; of an odd target `EISDIR`, or `ELOOP` for a symbolic link. */
  readonly code?: string | undefined
  /** The call that failed, such as `fsync`. */
  readonly syscall?: string | undefined
  /** Of a stalled disk: for how long it has not done its work. */
  readonly seconds?: number | undefined
  /** Of an unsafe directory: who beside this user can exchange what is in it. */
  readonly writers?: Writers | undefined
}

export type Writers = 'all' | { readonly kind: 'user' | 'group'; readonly id: number }

/** The message names the facts, for a stack trace: it is no sentence for people. */
export class FileError extends Error {
  override readonly name = 'FileError'
  readonly path: string
  readonly directory: string
  readonly kind: FileErrorKind
  readonly code: string | undefined
  readonly syscall: string | undefined
  readonly seconds: number | undefined
  readonly writers: Writers | undefined

  constructor(facts: FileFacts, options?: ErrorOptions) {
    const { path, directory = dirname(path), kind, code, syscall, seconds, writers } = facts
    super([kind, code, syscall, path].filter((word) => word !== undefined).join(' '), options)
    this.path = path
    this.directory = directory
    this.kind = kind
    this.code = code
    this.syscall = syscall
    this.seconds = seconds
    this.writers = writers
  }
}

/** Reports whether a disk has not done its work in time: it may do it later. */
export function isLate(error: unknown): error is FileError {
  return error instanceof FileError && error.kind === 'stalled'
}

/** An error of the system, or of a disk that is late, as a FileError of this path; any other as it is. */
export function asFileError(path: string, error: unknown, directory?: string): unknown {
  if (isLate(error)) {
    const { directory: late, kind } = error
    return new FileError({ path, directory: late, kind }, { cause: error })
  }
  const code = errorCode(error)
  if (error instanceof FileError || code === undefined) return error
  const { syscall } = error as { syscall?: string }
  return new FileError({ path, directory, kind: 'system', code, syscall }, { cause: error })
}
