// The socket a client connects to: the one that was named, an account's, or the first that is there and that no other user could have put there.
import { lstatSync, statSync, type Stats } from 'node:fs'
import { dirname, join } from 'node:path'
import { ACCOUNT_VARIABLE, accountNames, ACCOUNTS_DIRECTORY, checkedAccount } from '../lib/account.ts'
import { directoryAccess } from '../lib/directory-access.ts'
import { errorCode, exitStatus, fallbackOnSystemError, UsageError, UserError } from '../lib/error.ts'
import { socketCandidates, type ProcessIdentity } from '../lib/paths.ts'
import { nameOf } from '../lib/posix-ids.ts'

/** Names the socket for client commands and the client library. */
const SOCKET_VARIABLE = 'KYC_TOKEND_SOCKET'

/** A socket by its path, or by the account that it serves; not both. */
export interface SocketName {
  readonly socketPath?: string | undefined
  readonly account?: string | undefined
}

/**
 * The named one: by the options, else by the environment. Throws UsageError (64) where a socket and an account are
 * named in the same way, and where the account's name is none.
 */
export function socketName(identity: ProcessIdentity, options: SocketName): SocketName {
  const isGiven = (text: string | undefined): boolean => text !== undefined && text !== ''
  const fromEnv = { socketPath: identity.env[SOCKET_VARIABLE], account: identity.env[ACCOUNT_VARIABLE] }
  const isOption = isGiven(options.socketPath) || isGiven(options.account)
  const { socketPath, account } = isOption ? options : fromEnv
  if (isGiven(socketPath) && isGiven(account)) {
    const names = isOption ? 'The socket and the account' : `$${SOCKET_VARIABLE} and $${ACCOUNT_VARIABLE}`
    throw new UsageError(`${names} are both given: leave one of them out.`)
  }
  if (isGiven(socketPath)) return { socketPath }
  return isGiven(account) ? { account: checkedAccount(account ?? '') } : {}
}

/**
 * The path of the daemon's socket: the one that was named, the account's, or the first candidate that is there;
 * undefined where none is. Throws UserError: 69 for an account that is not there; 77 for a candidate that another
 * user could have put there. One that is there but may not be opened counts, and is not passed over in silence.
 */
export function findSocket(
  identity: ProcessIdentity,
  { socketPath, account }: SocketName,
  accountsDirectory = ACCOUNTS_DIRECTORY,
): string | undefined {
  if (socketPath !== undefined) return socketPath
  if (account !== undefined) return accountSocket(account, accountsDirectory)
  const path = socketCandidates(identity).find(isThere)
  const reason = path === undefined ? undefined : untrustedReason(dirname(path), identity.uid)
  if (reason === undefined) return path
  const message = `The socket ${path} is not trusted, because ${reason}, and could answer instead of the daemon: fix that, or name the daemon's socket with --socket or $KYC_TOKEND_SOCKET.`
  throw new UserError(message, exitStatus.noPermission)
}

function accountSocket(account: string, directory: string): string {
  const path = join(directory, account, 'ipc.sock')
  if (isThere(join(directory, account))) return path
  const others = accountNames(directory).map((name) => `\`${name}\``)
  const list = others.length === 0 ? 'there are none' : `there are: ${others.join(', ')}`
  throw new UserError(`There is no account \`${account}\` here; ${list}.`, exitStatus.unavailable)
}

/**
 * Why another user than root and this one could have put a socket into the directory; undefined: none could. In a
 * directory of root's or the user's own (/run, XDG_RUNTIME_DIR) no other user makes names, so a socket there is
 * trusted, whichever user owns it; elsewhere (/tmp) the directory itself must be root's or the user's, and cannot be replaced.
 */
export function untrustedReason(directory: string, uid: number): string | undefined {
  const foreign = (path: string, stats: Stats): string =>
    `${path} belongs to another user (${nameOf('user', stats.uid)})`
  const above = dirname(directory)
  const aboveStats = statOf(() => statSync(above))
  if (aboveStats === undefined) return `${above} cannot be read`
  const { isOwnerTrusted, writers } = directoryAccess(aboveStats, uid)
  if (!isOwnerTrusted) return foreign(above, aboveStats)
  if (writers === 'all' || writers === 'group') return `others can write to ${above}`
  if (writers === 'sticky') {
    const itself = statOf(() => lstatSync(directory))
    if (itself === undefined) return `${directory} cannot be read`
    if (itself.isSymbolicLink()) return `${directory} is a link, which others could have made`
    if (!directoryAccess(itself, uid).isOwnerTrusted) return foreign(directory, itself)
  }
  const target = statOf(() => statSync(directory))
  const isShared = target !== undefined && directoryAccess(target, uid).writers !== 'owner'
  return isShared ? `others can write to ${directory}` : undefined
}

/** This process, as one that looks for a socket. */
export function currentIdentity(): ProcessIdentity {
  return { env: process.env, uid: process.geteuid?.() ?? -1 }
}

function isThere(path: string): boolean {
  try {
    return statSync(path, { throwIfNoEntry: false }) !== undefined
  } catch (error) {
    return errorCode(error) !== 'ENOTDIR'
  }
}

/** The result, or undefined where the system refuses. */
function statOf(read: () => Stats): Stats | undefined {
  try {
    return read()
  } catch (error) {
    return fallbackOnSystemError(undefined)(error)
  }
}
