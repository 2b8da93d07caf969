// The socket of a client: the one that was named, an account's, or the first of the usual places that is there.
import { lstatSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { ACCOUNT_VARIABLE, accountNames, ACCOUNTS_DIRECTORY, isAccountName } from '../host/account.ts'
import { socketCandidates, SYSTEM_RUNTIME_DIRECTORY, type ProcessIdentity } from '../host/paths.ts'
import { remedyWithoutPlace } from '../host/remedy.ts'
import { withSystemFallback } from '../lib/error.ts'
import { badRequest, TokenClientError, type TokenClientOptions } from './token-source.ts'

/** Names the socket for client commands and the client library. */
const SOCKET_VARIABLE = 'KYC_TOKEND_SOCKET'
const NAME_SOCKET = `name the daemon's socket with --socket or $${SOCKET_VARIABLE}`

/** A daemon, by its socket or its account; neither: the one of the host or the person. */
type NamedDaemon = Pick<TokenClientOptions, 'socketPath' | 'account'>

/** The daemon that the options name, else the one that the environment names. */
export function namedDaemon(env: NodeJS.ProcessEnv, options: NamedDaemon): NamedDaemon {
  if (options.socketPath || options.account) return options
  return { socketPath: env[SOCKET_VARIABLE], account: env[ACCOUNT_VARIABLE] }
}

/**
 * Returns the function that finds the socket, which throws TokenClientError: `daemon-unreachable` if there is no
 * socket or no such account, `denied` for a person's directory that another user could have made. This throws
 * `bad-request` if socket and account are named together, or the account's name is none.
 */
export function socketFinder(
  identity: () => ProcessIdentity,
  options: NamedDaemon,
  accountsDirectory = ACCOUNTS_DIRECTORY,
): () => string {
  const { socketPath, account } = namedDaemon(identity().env, options)
  if (socketPath && account)
    throw badRequest(
      `The socket ($${SOCKET_VARIABLE}) and the account ($${ACCOUNT_VARIABLE}) are both given: leave one of them out.`,
    )
  if (socketPath) return () => socketPath
  if (!account) return () => usualSocket(identity())
  if (!isAccountName(account))
    throw badRequest('The name of an account is 1 to 32 lower-case letters, digits and hyphens: correct it.')
  return () => accountSocket(account, accountsDirectory)
}

function accountSocket(account: string, directory: string): string {
  if (isThere(join(directory, account))) return join(directory, account, 'ipc.sock')
  const names = accountNames(directory)
  const others =
    names.length === 0 ? ' none that this user sees' : `: ${names.map((name) => `\`${name}\``).join(', ')}`
  const remedy = remedyWithoutPlace({ fault: 'no-account', account })
  const message = `There is no account \`${account}\` here; there are${others}: ${remedy}.`
  throw new TokenClientError(message, 'daemon-unreachable')
}

function usualSocket(identity: ProcessIdentity): string {
  const candidates = socketCandidates(identity)
  const path = candidates.find(isThere)
  if (path === undefined) {
    const problem = `No kyc-tokend is running here (no socket at ${candidates.join(' and ')})`
    const remedy = remedyWithoutPlace('no-daemon')
    throw new TokenClientError(`${problem}: ${remedy}, or ${NAME_SOCKET}.`, 'daemon-unreachable')
  }
  if (isTrusted(dirname(path), identity.uid)) return path
  const remedy = `remove ${dirname(path)} and start your daemon again, or ${NAME_SOCKET}`
  const message = `Another user could have made the directory of ${path}, and answer at it: ${remedy}.`
  throw new TokenClientError(message, 'denied')
}

/** Only root makes directories in /run. In a temp directory everybody may have made the person's own. */
function isTrusted(directory: string, uid: number): boolean {
  if (directory === SYSTEM_RUNTIME_DIRECTORY) return true
  const stats = withSystemFallback(undefined, () => lstatSync(directory))
  return stats?.isDirectory() === true && [0, uid].includes(stats.uid) && (stats.mode & 0o022) === 0
}

/** Reports whether there is a file, or one may be that this user cannot see. */
function isThere(path: string): boolean {
  return withSystemFallback(true, () => statSync(path, { throwIfNoEntry: false }) !== undefined)
}
