// Which socket a client connects to: the one that was named, or the first that is there, where nobody else could have put it.
import { lstatSync, statSync, type Stats } from 'node:fs'
import { dirname } from 'node:path'
import { errorCode, exitStatus, UserError } from './error.ts'
import { socketCandidates, type Asker } from './places.ts'

/** Names the socket for client commands and the client library. */
const SOCKET_VARIABLE = 'KYC_TOKEND_SOCKET'

/**
 * The path of the daemon's socket: `named`, `$KYC_TOKEND_SOCKET`, or the first candidate that is there; undefined
 * where none is. One that is there but may not be looked at counts: it is not passed over in silence. Nor is one
 * that another user could have put there: throws UserError (77). What was named is trusted.
 */
export function findSocket(asker: Asker, named?: string): string | undefined {
  const told = named ?? asker.env[SOCKET_VARIABLE]
  if (told !== undefined && told !== '') return told
  const path = socketCandidates(asker).find(isThere)
  const distrust = path === undefined ? undefined : distrustOf(dirname(path), asker.uid)
  if (distrust === undefined) return path
  const message = `The socket ${path} is not trusted, because ${distrust}, and could answer in the daemon's place: mend that, or name the daemon's socket with --socket or $KYC_TOKEND_SOCKET.`
  throw new UserError(message, exitStatus.noPermission)
}

/**
 * Who else than root and this user could have put a socket into the directory; undefined: nobody. In a directory of
 * root's or the user's own (/run, XDG_RUNTIME_DIR) nobody else makes names, so what is there was meant, whoever has
 * it; elsewhere (/tmp) the directory itself must be root's or the user's, and stay where it is.
 */
export function distrustOf(directory: string, uid: number): string | undefined {
  const isTrusted = (owner: number): boolean => owner === 0 || owner === uid
  const canBeWritten = ({ mode }: Stats): boolean => (mode & WRITABLE_BY_OTHERS) !== 0
  const above = dirname(directory)
  const stats = { above: look(() => statSync(above)), itself: look(() => lstatSync(directory)) }
  if (stats.above === undefined) return `${above} cannot be looked at`
  if (canBeWritten(stats.above) || !isTrusted(stats.above.uid)) {
    if (!isTrusted(stats.above.uid)) return `${above} belongs to another user (uid ${stats.above.uid})`
    if ((stats.above.mode & STICKY) === 0) return `others can write to ${above}`
    if (stats.itself === undefined) return `${directory} cannot be looked at`
    if (stats.itself.isSymbolicLink()) return `${directory} is a link, which others could have made`
    if (!isTrusted(stats.itself.uid)) return `${directory} belongs to another user (uid ${stats.itself.uid})`
  }
  const target = look(() => statSync(directory))
  return target !== undefined && canBeWritten(target) ? `others can write to ${directory}` : undefined
}

const WRITABLE_BY_OTHERS = 0o022
const STICKY = 0o1000

/** Where it is looked for, for people. */
export function socketPlaces(asker: Asker): string {
  return socketCandidates(asker).join(' and ')
}

/** This process, as one who looks for a socket. */
export function thisAsker(): Asker {
  return { env: process.env, uid: process.geteuid?.() ?? -1 }
}

function isThere(path: string): boolean {
  try {
    return statSync(path, { throwIfNoEntry: false }) !== undefined
  } catch (error) {
    return errorCode(error) !== 'ENOTDIR'
  }
}

/** What it gives, or undefined where the system refuses. */
function look(how: () => Stats): Stats | undefined {
  try {
    return how()
  } catch (error) {
    if (errorCode(error) === undefined) throw error
    return undefined
  }
}
