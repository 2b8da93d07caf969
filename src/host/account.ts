// An account, of which a host may have several: its name, and the names of all that the package has for it.
import { readdirSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { withSystemFallback, UsageError } from '../lib/error.ts'
import {
  runtimeDirectoryOf,
  stateDirectoryOf,
  SYSTEM_CONFIG_DIRECTORY,
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

/** The name itself. Throws UsageError (64) if it cannot be the name of an account. */
export function checkedAccount(name: string): string {
  if (isAccountName(name)) return name
  const message = 'The name of an account is 1 to 32 lower-case letters, digits and hyphens: correct it.'
  throw new UsageError(message)
}

/** The names of the accounts that have a directory in this one, sorted; none if it cannot be read. */
export function accountNames(directory = ACCOUNTS_DIRECTORY): string[] {
  const names = withSystemFallback([], () => readdirSync(directory))
  // A copy already, and Node 18, on which clients run, has no toSorted.
  // oxlint-disable-next-line unicorn/no-array-sort
  return names.filter(isAccountName).sort()
}

/** All names of an account on a host with the package; undefined: of the default account. */
export function installationOf(account: string | undefined) {
  const [suffix, below] = account === undefined ? ['', ''] : [`@${account}`, `accounts/${account}`]
  const unit = `kyc-tokend${suffix}`
  /** Root's, in which systemd makes the sockets. The daemon writes in `files` below it alone. */
  const directory = join(SYSTEM_RUNTIME_DIRECTORY, below)
  const ipcSocket = join(directory, 'ipc.sock')
  return {
    /** Without its suffix, like the next one. */
    unit,
    alertUnit: `kyc-tokend-alert${suffix}`,
    sockets: [
      { name: 'ipc', unit: `${unit}.socket`, path: ipcSocket },
      { name: 'http', unit: `kyc-tokend-http${suffix}.socket`, path: join(directory, 'http.sock') },
    ] as const,
    ipcSocket,
    config: join(SYSTEM_CONFIG_DIRECTORY, `${below || 'kyc-tokend.config'}.json`),
    /** ` --account NAME` for a command about it, or nothing. */
    option: account === undefined ? '' : ` --account ${account}`,
    /** The environment that the unit gives the daemon. */
    environment: {
      RUNTIME_DIRECTORY: join(directory, 'files'),
      STATE_DIRECTORY: join(SYSTEM_STATE_DIRECTORY, below),
      CREDENTIALS_DIRECTORY: `/run/credentials/${unit}.service`,
    },
  }
}

/** The account of this configuration or socket; undefined: the default account, or a path elsewhere. */
export function accountOf(path: string): string | undefined {
  return [basename(path, '.json'), basename(dirname(path))].find((name) => {
    const { config, sockets } = installationOf(name)
    return isAccountName(name) && (path === config || sockets.some((socket) => socket.path === path))
  })
}

/** The environment with the directories of the account's daemon; directories that systemd has set stay. */
export function accountEnvironment(account: string, identity: ProcessIdentity): NodeJS.ProcessEnv {
  const { env } = identity
  const below = (directory: string): string => join(directory, 'accounts', account)
  return {
    RUNTIME_DIRECTORY: below(runtimeDirectoryOf(identity)),
    STATE_DIRECTORY: below(stateDirectoryOf(identity)),
    ...env,
    [ACCOUNT_VARIABLE]: account,
  }
}
