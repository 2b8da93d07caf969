// An account, of which a host may have several: its name, its files, its units, and the commands about them
// in remedies.
import { readdirSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { withSystemFallback, UsageError } from '../lib/error.ts'
import {
  runtimeDirectoryOf,
  stateDirectoryOf,
  SYSTEM_RUNTIME_DIRECTORY,
  SYSTEM_STATE_DIRECTORY,
  type ProcessIdentity,
} from './paths.ts'

export const ACCOUNT_VARIABLE = 'KYC_TOKEND_ACCOUNT'
/** The sockets of all accounts are in directories below this one. */
export const ACCOUNTS_DIRECTORY = join(SYSTEM_RUNTIME_DIRECTORY, 'accounts')

export function isAccountName(text: string): boolean {
  return /^[a-z0-9][a-z0-9-]{0,31}$/.test(text)
}

/** The names of the accounts that have a directory in this one, sorted; none if it cannot be read. */
export function accountNames(directory = ACCOUNTS_DIRECTORY): string[] {
  const names = withSystemFallback([], () => readdirSync(directory))
  // A copy already, and Node 18, on which clients run, has no toSorted.
  // oxlint-disable-next-line unicorn/no-array-sort
  return names.filter(isAccountName).sort()
}

/** The name itself. Throws UsageError (64) if it cannot be the name of an account. */
export function checkedAccount(name: string): string {
  if (isAccountName(name)) return name
  const message = 'The name of an account is 1 to 32 lower-case letters, digits and hyphens: correct it.'
  throw new UsageError(message)
}

/** The account of a configuration file; undefined for a file elsewhere. */
export function accountOfConfig(path: string): string | undefined {
  const name = basename(path, '.json')
  return isAccountName(name) && path === accountConfigPath(name) ? name : undefined
}

/** The account of a socket by its path; undefined: the default account, or a socket elsewhere. */
export function accountOfSocket(path: string): string | undefined {
  const account = basename(dirname(path))
  return dirname(dirname(path)) === ACCOUNTS_DIRECTORY && isAccountName(account) ? account : undefined
}

export function accountConfigPath(account: string): string {
  return `/etc/kyc-tokend/accounts/${account}.json`
}

/** The units of an account, without their suffix; undefined: of the default account. */
export function unitNames(account: string | undefined) {
  const suffix = account === undefined ? '' : `@${account}`
  return {
    unit: `kyc-tokend${suffix}`,
    httpUnit: `kyc-tokend-http${suffix}`,
    alertUnit: `kyc-tokend-alert${suffix}`,
  }
}

/** The name that systemd gives to the socket of a unit (`FileDescriptorName=`). */
export type SocketName = 'ipc' | 'http' | 'metrics'

/** The one table of socket units of an account; `path`: of a Unix socket below its runtime directory. */
export function socketUnits(account: string | undefined) {
  const { unit, httpUnit } = unitNames(account)
  const directory = socketDirectory(account)
  const rows: readonly { readonly name: SocketName; readonly unit: string; readonly path: string | null }[] =
    [
      { name: 'ipc', unit: `${unit}.socket`, path: join(directory, 'ipc.sock') },
      { name: 'http', unit: `${httpUnit}.socket`, path: join(directory, 'http.sock') },
      // An administrator's own copy serves another account.
      ...(account === undefined
        ? [{ name: 'metrics', unit: 'kyc-tokend-metrics.socket', path: null } as const]
        : []),
    ]
  return rows
}

/** The account of the daemon that runs in this environment, for remedies; undefined: the default account. */
export function accountOfEnvironment(env: NodeJS.ProcessEnv): string | undefined {
  const { [ACCOUNT_VARIABLE]: name = '' } = env
  return isAccountName(name) ? name : undefined
}

/** The `ipc.sock` of the account's units. */
export function systemSocket(account: string | undefined): string {
  return join(socketDirectory(account), 'ipc.sock')
}

/** ` --account NAME` for a command about this account, or nothing. */
export function accountWords(account: string | undefined): string {
  return account === undefined ? '' : ` --account ${account}`
}

/** The environment with the directories of the account's daemon; directories that systemd has set stay. */
export function accountEnvironment(account: string, identity: ProcessIdentity): NodeJS.ProcessEnv {
  const below = (directory: string): string => join(directory, 'accounts', account)
  const { env } = identity
  return {
    ...env,
    [ACCOUNT_VARIABLE]: account,
    RUNTIME_DIRECTORY: env['RUNTIME_DIRECTORY'] ?? below(runtimeDirectoryOf(identity)),
    STATE_DIRECTORY: env['STATE_DIRECTORY'] ?? below(stateDirectoryOf(identity)),
  }
}

/** Root's directory, in which systemd makes the account's sockets; the daemon writes in `files` below it alone. */
export function socketDirectory(account: string | undefined): string {
  return account === undefined ? SYSTEM_RUNTIME_DIRECTORY : join(ACCOUNTS_DIRECTORY, account)
}

/** The environment that the unit gives the daemon; without an account, for the one of the default account. */
export function serviceEnvironment(account: string | undefined) {
  const below = account === undefined ? [] : ['accounts', account]
  const { unit } = unitNames(account)
  return {
    RUNTIME_DIRECTORY: join(socketDirectory(account), 'files'),
    STATE_DIRECTORY: join(SYSTEM_STATE_DIRECTORY, ...below),
    CREDENTIALS_DIRECTORY: `/run/credentials/${unit}.service`,
  }
}
