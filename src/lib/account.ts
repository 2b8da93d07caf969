// The paths and the units of a daemon, by its user and its account (contract, section 1).
import { readdirSync } from 'node:fs'
import { userInfo } from 'node:os'
import { basename, dirname, isAbsolute, join } from 'node:path'

import { withSystemFallback, UsageError } from './error.ts'

/** Identity of a process: the effective uid and the environment. */
export interface ProcessIdentity {
  readonly env: NodeJS.ProcessEnv
  readonly uid: number
}

const SYSTEM_RUNTIME_DIRECTORY = '/run/kyc-tokend'
const SYSTEM_STATE_DIRECTORY = '/var/lib/kyc-tokend'
export const SYSTEM_CONFIG_DIRECTORY = '/etc/kyc-tokend'
/** Longest path of a Unix socket: `sun_path` without its NUL byte (unix(7)). */
export const MAX_SOCKET_PATH_BYTES = 107
const ACCOUNT_FILE = /^\/etc\/kyc-tokend\/accounts\/([a-z0-9-]+)\.json$/

export const ACCOUNT_VARIABLE = 'KYC_TOKEND_ACCOUNT'
/** The sockets of all accounts are in directories below this one. */
export const ACCOUNTS_DIRECTORY = join(SYSTEM_RUNTIME_DIRECTORY, 'accounts')

/** The runtime directory of a daemon, absolute: systemd's, `/run/kyc-tokend` for root, the person's own otherwise. */
export function runtimeDirectoryOf({ env, uid }: ProcessIdentity): string {
  return firstOf(env['RUNTIME_DIRECTORY']) ?? ownRuntimeDirectory({ env, uid })
}

/** The state directory of a daemon, absolute: systemd's, `/var/lib/kyc-tokend` for root, the person's own otherwise. */
export function stateDirectoryOf({ env, uid }: ProcessIdentity): string {
  const given = firstOf(env['STATE_DIRECTORY'])
  if (given !== undefined) return given
  if (uid === 0) return SYSTEM_STATE_DIRECTORY
  return join(absolute(env['XDG_STATE_HOME']) ?? join(homeOf(env), '.local', 'state'), 'kyc-tokend')
}

/**
 * Paths at which a client looks for the daemon's socket, in this order, without systemd's `$RUNTIME_DIRECTORY`: in a
 * client's unit it is the client's own.
 */
export function socketCandidates({ env, uid }: ProcessIdentity): string[] {
  const directories = new Set([SYSTEM_RUNTIME_DIRECTORY, ownRuntimeDirectory({ env, uid })])
  return [...directories].map((directory) => join(directory, 'ipc.sock'))
}

/** Directories in which a configuration is looked for, in this order: a unit, and root, read what root installed and nothing else. */
export function configDirectories({ env, uid }: ProcessIdentity, workingDirectory: string): string[] {
  const isService = firstOf(env['RUNTIME_DIRECTORY']) !== undefined
  return isService || uid === 0 ? [SYSTEM_CONFIG_DIRECTORY] : [workingDirectory, SYSTEM_CONFIG_DIRECTORY]
}

function ownRuntimeDirectory({ env, uid }: ProcessIdentity): string {
  if (uid === 0) return SYSTEM_RUNTIME_DIRECTORY
  const own = absolute(env['XDG_RUNTIME_DIR'])
  if (own !== undefined) return join(own, 'kyc-tokend')
  return join(absolute(env['TMPDIR']) ?? '/tmp', `kyc-tokend-${uid}`)
}

function homeOf(env: NodeJS.ProcessEnv): string {
  const home = absolute(env['HOME'])
  if (home !== undefined) return home
  try {
    return userInfo().homedir
  } catch {
    // A user without an entry in passwd has no home: where that is not writable, the sentence says what to set.
    return '/'
  }
}

/** systemd gives several directories joined by colons; the first is the one named after the unit. */
function firstOf(list: string | undefined): string | undefined {
  return absolute(list?.split(':')[0])
}

/** Relative paths in these variables are to be ignored (XDG Base Directory Specification). */
function absolute(path: string | undefined): string | undefined {
  return path !== undefined && isAbsolute(path) ? path : undefined
}

// ---- accounts: a host may have a daemon for each of several ---------------------------------------------------------

export function isAccountName(text: string): boolean {
  return /^[a-z0-9][a-z0-9-]{0,31}$/.test(text)
}

/** The accounts that have a directory in this one, by name; none where it cannot be read. */
export function accountNames(directory = ACCOUNTS_DIRECTORY): string[] {
  const names = withSystemFallback([], () => readdirSync(directory))
  // A copy already, and Node 18, on which clients run, has no toSorted.
  // oxlint-disable-next-line unicorn/no-array-sort
  return names.filter(isAccountName).sort()
}

/** The name itself. Throws UsageError (64) where it is none. */
export function checkedAccount(name: string): string {
  if (isAccountName(name)) return name
  const message = 'The name of an account is 1 to 32 lower-case letters, digits and hyphens: correct it.'
  throw new UsageError(message)
}

/** The account of a configuration file; undefined for a file elsewhere. */
export function accountOfConfig(path: string): string | undefined {
  return ACCOUNT_FILE.exec(path)?.[1]
}

/** The account of a socket by its path; undefined: a daemon without an account, or a socket elsewhere. */
export function accountOfSocket(path: string): string | undefined {
  const account = basename(dirname(path))
  return dirname(dirname(path)) === ACCOUNTS_DIRECTORY && isAccountName(account) ? account : undefined
}

export function accountConfigPath(account: string): string {
  return `/etc/kyc-tokend/accounts/${account}.json`
}

/** Units of an account without their suffix; of the default account without a name. */
export function unitNames(account: string | undefined) {
  const suffix = account === undefined ? '' : `@${account}`
  return {
    unit: `kyc-tokend${suffix}`,
    httpUnit: `kyc-tokend-http${suffix}`,
    alertUnit: `kyc-tokend-alert${suffix}`,
  }
}

/** The account of the daemon that runs in this environment, for remedies; undefined: that without a name. */
export function accountOfEnvironment(env: NodeJS.ProcessEnv): string | undefined {
  const { RUNTIME_DIRECTORY: directory = '', [ACCOUNT_VARIABLE]: named = '' } = env
  const name = directory.startsWith(`${ACCOUNTS_DIRECTORY}/`) ? basename(directory) : named
  return isAccountName(name) ? name : undefined
}

/** The remedy with the account in its commands. */
export function remedyOf(remedy: string, account: string | undefined): string {
  return account === undefined
    ? remedy
    : remedy.replaceAll(/`kyc-tokend (?:check|refresh|status)\b(?! --account)/g, `$& --account ${account}`)
}

/** The `ipc.sock` of the account's units. */
export function systemSocket(account: string | undefined): string {
  return join(serviceEnvironment(account).RUNTIME_DIRECTORY, 'ipc.sock')
}

/** Makes the runtime directory and the sockets of the account's units again: ready to paste into a shell. */
export function socketCure(account: string | undefined): string {
  const { unit, httpUnit, alertUnit } = unitNames(account)
  // The path unit watches a directory that is gone, too.
  return `sudo systemd-tmpfiles --create && sudo systemctl restart ${unit}.socket ${httpUnit}.socket ${alertUnit}.path`
}

/** The same where systemd runs the daemon of this environment and the directory is its runtime directory; else undefined. */
export function cureOf(directory: string, env: NodeJS.ProcessEnv): string | undefined {
  const isOurs =
    env['RUNTIME_DIRECTORY'] === directory && `${directory}/`.startsWith(`${SYSTEM_RUNTIME_DIRECTORY}/`)
  return isOurs ? socketCure(accountOfEnvironment(env)) : undefined
}

/** Adds settings to a drop-in of the unit and has them take effect: ready to paste into a shell. */
export function dropInCure(unit: string, settings: readonly string[]): string {
  const folder = `/etc/systemd/system/${unit}.service.d`
  const lines = ['[Service]', ...settings].map((line) => `${line}\\n`).join('')
  return `sudo mkdir -p ${folder} && printf '${lines}' | sudo tee -a ${folder}/token-files.conf && sudo systemctl daemon-reload && sudo systemctl restart ${unit}`
}

/** ` --account NAME` for a command about this account, or nothing. */
export function accountWords(account: string | undefined): string {
  return account === undefined ? '' : ` --account ${account}`
}

/** The environment with the directories of the account's daemon; those that systemd has set stay. */
export function accountEnvironment(account: string, identity: ProcessIdentity): NodeJS.ProcessEnv {
  const below = (directory: string): string => join(directory, 'accounts', account)
  const { env } = identity
  return {
    ...env,
    RUNTIME_DIRECTORY: env['RUNTIME_DIRECTORY'] ?? below(runtimeDirectoryOf(identity)),
    STATE_DIRECTORY: env['STATE_DIRECTORY'] ?? below(stateDirectoryOf(identity)),
  }
}

/** The environment that systemd sets for the unit; without an account, for the one of the default account. */
export function serviceEnvironment(account: string | undefined) {
  const below = account === undefined ? [] : ['accounts', account]
  const { unit } = unitNames(account)
  return {
    RUNTIME_DIRECTORY: join(SYSTEM_RUNTIME_DIRECTORY, ...below),
    STATE_DIRECTORY: join(SYSTEM_STATE_DIRECTORY, ...below),
    CREDENTIALS_DIRECTORY: `/run/credentials/${unit}.service`,
  }
}
