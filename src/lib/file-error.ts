// Errors about files: one sentence each, with the remedy.
import { dirname } from 'node:path'
import { accountOfEnvironment, cureOf, dropInCure, unitNames } from './account.ts'
import { errorCode, errorMessage } from './error.ts'
import { nameOf } from './posix-ids.ts'
import { DiskStalledError } from './disk-queue.ts'

/** Why a file could not be replaced or removed: one sentence with the remedy. `code` is the system's, where there is one. */
export class FileError extends Error {
  override readonly name = 'FileError'
  readonly code: string | undefined
  constructor(message: string, options?: ErrorOptions) {
    super(message, options)
    this.code = errorCode(options?.cause)
  }
}

/** The error as FileError with its remedy where the system made it, else itself. The message begins with `failure`. */
export function asFileError(path: string, error: unknown, failure = cannotWrite(path)): unknown {
  if (error instanceof DiskStalledError)
    return new FileError(`${failure}: ${error.message}`, { cause: error })
  if (error instanceof FileError || errorCode(error) === undefined) return error
  return new FileError(`${failure}: ${remedyFor(dirname(path), error)}`, { cause: error })
}

export function cannotWrite(path: string): string {
  return `Cannot write ${path}`
}

function remedyFor(directory: string, error: unknown): string {
  const isChown = (error as { syscall?: unknown }).syscall === 'fchown'
  if (isChown) {
    return `kyc-tokend may not give it this owner or group (${errorMessage(error)}): leave out owner, and for the group make the directory setgid (chgrp GROUP ${directory} && chmod g+s ${directory}) and leave out group`
  }
  switch (errorCode(error)) {
    case 'ENOENT':
      return `the directory ${directory} is not there: ${cureOf(directory, process.env) ?? 'create it'}`
    case 'ENOTDIR':
    case 'ELOOP':
      return `${directory} is a symbolic link or no directory: choose the directory itself`
    case 'EACCES':
    case 'EPERM':
      return `kyc-tokend may not write in ${directory}: let the user ${nameOf('user', process.geteuid!())} write there (chown or chmod)`
    case 'EROFS':
      return `${directory} is read-only, under systemd for this service alone: ${dropInCure(unitNames(accountOfEnvironment(process.env)).unit, [`ReadWritePaths=-${directory}`])}`
    case 'ENOSPC':
    case 'EDQUOT':
      return `no space is left in ${directory}: free some`
    case undefined:
    default:
      return errorMessage(error)
  }
}
