// The socket of a client: the one that was named, an account's, or the first candidate that is there, which
// is refused if another user could have made it.
import { lstatSync, statSync, type Stats } from 'node:fs'
import { dirname, join } from 'node:path'
import { ACCOUNT_VARIABLE, accountNames, ACCOUNTS_DIRECTORY, checkedAccount } from '../host/account.ts'
import { nameOf } from '../host/ids.ts'
import { socketCandidates, type ProcessIdentity } from '../host/paths.ts'
import { clientRemedyOf } from '../host/remedy.ts'
import { directoryAccess } from '../lib/directory-access.ts'
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
 * first candidate that is there, even if it may not be opened. That throws TokenClientError:
 * `daemon-unreachable` if there is no socket or no such account, `denied` for a candidate that another user
 * could have made. This throws `bad-request` if socket and account are named together, or the account's name
 * is none.
 */
export function socketFinder(
  identity: () => ProcessIdentity,
  options: NamedDaemon,
  accountsDirectory = ACCOUNTS_DIRECTORY,
): () => string {
  const named = namedDaemon(identity().env, options)
  const { socketPath, account } = named
  if (socketPath && account) {
    const names =
      named === options ? 'The socket and the account' : `$${SOCKET_VARIABLE} and $${ACCOUNT_VARIABLE}`
    throw badRequest(`${names} are both given: leave one of them out.`)
  }
  if (socketPath) return () => socketPath
  if (!account) return () => trustedSocket(identity())
  try {
    checkedAccount(account)
  } catch (error) {
    throw badRequest(errorMessage(error))
  }
  return () => accountSocket(account, accountsDirectory)
}

function accountSocket(account: string, directory: string): string {
  const path = join(directory, account, 'ipc.sock')
  if (isThere(join(directory, account))) return path
  const names = accountNames(directory)
  const there = names.length === 0 ? ' none' : `: ${names.map((name) => `\`${name}\``).join(', ')}`
  throw new TokenClientError(`There is no account \`${account}\` here; there are${there}`, {
    code: 'daemon-unreachable',
    remedy: clientRemedyOf({ kind: 'no-account', account, hasOthers: names.length > 0 }),
  })
}

function trustedSocket(identity: ProcessIdentity): string {
  const candidates = socketCandidates(identity)
  const path = candidates.find(isThere)
  if (path === undefined)
    throw new TokenClientError(`No kyc-tokend is running here (no socket at ${candidates.join(' and ')})`, {
      code: 'daemon-unreachable',
      remedy: `${clientRemedyOf({ kind: 'no-daemon', socket: undefined })}, or ${NAME_SOCKET}`,
    })
  const reason = untrustedReason(dirname(path), identity.uid)
  if (reason === undefined) return path
  const why = `because ${reason}, and could answer instead of the daemon`
  throw new TokenClientError(`The socket ${path} is not trusted, ${why}`, {
    code: 'denied',
    remedy: `fix that, or ${NAME_SOCKET}`,
  })
}

/**
 * Why a user other than root and this one could have made a socket in the directory; undefined: none could.
 * Others must not be able to write in it, or root has chosen who may. If only root or this user can write in the directory above (/run,
 * XDG_RUNTIME_DIR), no other can have made it, and its owner does not matter. If that is sticky (/tmp), the
 * directory must be no link and belong to root or this user: then no other can replace it.
 */
export function untrustedReason(directory: string, uid: number): string | undefined {
  const above = dirname(directory)
  const access = (stats: Stats) => directoryAccess(stats, uid)
  const foreign = (path: string, stats: Stats): string | undefined =>
    access(stats).isOwnerTrusted
      ? undefined
      : `${path} belongs to another user (${nameOf('user', stats.uid)})`
  const open = (path: string, stats: Stats): string | undefined =>
    access(stats).writers === 'owner' || isOfRootForSome(stats) ? undefined : `others can write to ${path}`
  const parent = withSystemFallback(undefined, () => statSync(above))
  if (parent === undefined) return `${above} cannot be read`
  if (access(parent).writers !== 'sticky') {
    const target = withSystemFallback(undefined, () => statSync(directory))
    return foreign(above, parent) ?? open(above, parent) ?? (target && open(directory, target))
  }
  const itself = withSystemFallback(undefined, () => lstatSync(directory))
  if (itself === undefined) return `${directory} cannot be read`
  if (itself.isSymbolicLink()) return `${directory} is a link, which others could have made`
  return foreign(above, parent) ?? foreign(directory, itself) ?? open(directory, itself)
}

/**
 * Whom root lets write beside himself, and not all users: by an access list, whose mask the group's bits then
 * are, the daemon's user. What was made there nobody else can exchange.
 */
function isOfRootForSome({ uid, mode }: Stats): boolean {
  return uid === 0 && (mode & 0o1000) !== 0 && (mode & 0o002) === 0
}

function isThere(path: string): boolean {
  try {
    return statSync(path, { throwIfNoEntry: false }) !== undefined
  } catch (error) {
    return errorCode(error) !== 'ENOTDIR'
  }
}
