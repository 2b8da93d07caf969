// The socket of a client: the one that was named, an account's, or the first of the usual places that is there.
import { lstatSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { ACCOUNT_VARIABLE, accountNames, ACCOUNTS_DIRECTORY, checkedAccount } from '../host/account.ts'
import { socketCandidates, SYSTEM_RUNTIME_DIRECTORY, type ProcessIdentity } from '../host/paths.ts'
import { clientRemedyOf } from '../host/remedy.ts'
import { errorCode, errorMessage, withSystemFallback } from '../lib/error.ts'
import { badRequest, TokenClientError } from './errors.ts'

/** Names the socket for client commands and the client library. */
const SOCKET_VARIABLE = 'KYC_TOKEND_SOCKET'
const NAME_SOCKET = `name the daemon's socket with --socket or $${SOCKET_VARIABLE}`

/** A daemon, by its socket or its account; neither: the one of the host or the person. */
interface NamedDaemon {
  readonly socketPath?: string | undefined
  readonly account?: string | undefined
}

/** The daemon that the options name, else the one that the environment names. */
export function namedDaemon(env: NodeJS.ProcessEnv, options: NamedDaemon): NamedDaemon {
  if (options.socketPath || options.account) return options
  return { socketPath: env[SOCKET_VARIABLE], account: env[ACCOUNT_VARIABLE] }
}

/**
 * Returns the function that finds the socket: as the options name it, else as the environment does, else the
 * first that is there, even if it may not be opened. That throws TokenClientError: `daemon-unreachable` if there
 * is no socket or no such account, `denied` for a person's directory that another user could have made. This
 * throws `bad-request` if socket and account are named together, or the account's name is none.
 */
export function socketFinder(
  identity: () => ProcessIdentity,
  options: NamedDaemon,
  accountsDirectory = ACCOUNTS_DIRECTORY,
): () => string {
  const named = namedDaemon(identity().env, options)
  const { socketPath, account } = named
  if (socketPath && account) {
    const isInOptions = named === options
    const names = isInOptions ? 'The socket and the account' : `$${SOCKET_VARIABLE} and $${ACCOUNT_VARIABLE}`
    throw badRequest(`${names} are both given: leave one of them out.`)
  }
  if (socketPath) return () => socketPath
  if (!account) return () => usualSocket(identity())
  try {
    checkedAccount(account)
  } catch (error) {
    throw badRequest(errorMessage(error))
  }
  return () => accountSocket(account, accountsDirectory)
}

function accountSocket(account: string, directory: string): string {
  if (isThere(join(directory, account))) return join(directory, account, 'ipc.sock')
  const names = accountNames(directory)
  const there = names.length === 0 ? ' none' : `: ${names.map((name) => `\`${name}\``).join(', ')}`
  throw new TokenClientError(`There is no account \`${account}\` here; there are${there}`, {
    code: 'daemon-unreachable',
    remedy: clientRemedyOf({ kind: 'no-account', account, hasOthers: names.length > 0 }),
  })
}

function usualSocket(identity: ProcessIdentity): string {
  const candidates = socketCandidates(identity)
  const path = candidates.find(isThere)
  if (path === undefined)
    throw new TokenClientError(`No kyc-tokend is running here (no socket at ${candidates.join(' and ')})`, {
      code: 'daemon-unreachable',
      remedy: `${clientRemedyOf({ kind: 'no-daemon', socket: undefined })}, or ${NAME_SOCKET}`,
    })
  if (isTrusted(dirname(path), identity.uid)) return path
  throw new TokenClientError(
    `The socket ${path} is not trusted, because another user could have made its directory, and could answer ` +
      'instead of the daemon',
    { code: 'denied', remedy: `remove ${dirname(path)} and start your daemon again, or ${NAME_SOCKET}` },
  )
}

/** Only root makes directories in /run. In a temp directory everybody may have made the person's own. */
function isTrusted(directory: string, uid: number): boolean {
  if (directory === SYSTEM_RUNTIME_DIRECTORY) return true
  const stats = withSystemFallback(undefined, () => lstatSync(directory))
  return stats?.isDirectory() === true && [0, uid].includes(stats.uid) && (stats.mode & 0o022) === 0
}

function isThere(path: string): boolean {
  try {
    return statSync(path, { throwIfNoEntry: false }) !== undefined
  } catch (error) {
    return errorCode(error) !== 'ENOTDIR'
  }
}
