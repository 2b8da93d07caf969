// Who connects, as the kernel tells it, and whether that user may use a socket.
import type { SocketConfig } from '../config/config.ts'
import { exitStatus, UserError } from '../lib/error.ts'
import { loadLibc, type Libc, type PeerIds } from '../lib/libc.ts'

export interface Peer extends PeerIds {
  /** Root or the daemon's own user. */
  readonly isOperator: boolean
}
export type Peers = ReturnType<typeof createPeers>

/** Of TCP, where the kernel knows no user. */
export const UNKNOWN_PEER: Peer = { pid: 0, uid: -1, gid: -1, isOperator: false }
/** The id that the kernel shows for every user or group that this user namespace does not have (user_namespaces(7)). */
const OVERFLOW_ID = 65_534

/** Throws UserError (78) if the daemon runs as that user: every unknown user would be taken for an operator. */
export function createPeers({
  libc = loadLibc(),
  ownUid = process.geteuid!(),
}: { libc?: Libc; ownUid?: number } = {}) {
  if (ownUid === OVERFLOW_ID) {
    const message =
      `The daemon runs as the user ${ownUid}, whose id the kernel shows for all users that it does not ` +
      `know here: run it as a user of its own`
    throw new UserError(message, exitStatus.configuration)
  }
  return {
    /** The peer as the kernel noted it at connect (unix(7), SO_PEERCRED). */
    of(fd: number): Peer {
      const ids = libc.peerOf(fd)
      return { ...ids, isOperator: ids.uid === 0 || ids.uid === ownUid }
    },
    /** Reports whether the peer may use a socket: with an empty `allow` the socket's mode alone decides. */
    isAllowed(fd: number, { uid, gid, isOperator }: Peer, { uids, gids }: SocketConfig['allow']): boolean {
      if (isOperator || uids.length + gids.length === 0) return true
      if (uid !== OVERFLOW_ID && uids.includes(uid)) return true
      const groups = gids.length === 0 ? [] : [gid, ...libc.peerGroups(fd)]
      return groups.some((group) => group !== OVERFLOW_ID && gids.includes(group))
    },
  }
}
