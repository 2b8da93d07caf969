// Where the configurations are that the units read, and which of them there are.
import { globSync, lstatSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { accountConfigPath, accountOfConfig } from './account.ts'
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

/** Whether the unit of an account has a configuration; true if this user may not read it. */
export function isConfigured(account: string | undefined): boolean {
  const defaults = ['json', 'yaml', 'yml'].map((ending) =>
    join(SYSTEM_CONFIG_DIRECTORY, `kyc-tokend.config.${ending}`),
  )
  return !(account === undefined ? defaults : [accountConfigPath(account)]).every(isAbsent)
}

/** The names of the accounts that have a configuration; none if this user may not read them. */
export function configuredAccounts(): string[] {
  const paths = globSync(accountConfigPath('*'))
  return paths.map((path) => accountOfConfig(path)).filter((name) => name !== undefined)
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
