// Where the configurations are that the units read, and which of them there are.
import { lstatSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { accountOfConfig } from './account.ts'
import { errorCode } from '../lib/error.ts'
import { SYSTEM_CONFIG_DIRECTORY } from './paths.ts'

/** The directory of the configuration that the unit of an account reads. */
export function configDirectory(account: string | undefined): string {
  return account === undefined ? SYSTEM_CONFIG_DIRECTORY : join(SYSTEM_CONFIG_DIRECTORY, 'accounts')
}

/** The configuration for commands that do not find it by themselves; undefined: they do. */
export function configWord(file: string | undefined): string | undefined {
  const isFound =
    file === undefined || accountOfConfig(file) !== undefined || dirname(file) === SYSTEM_CONFIG_DIRECTORY
  return isFound ? undefined : file
}

/** False if this user may not see it. */
export function isAbsent(path: string): boolean {
  try {
    lstatSync(path)
    return false
  } catch (error) {
    return errorCode(error) === 'ENOENT'
  }
}
