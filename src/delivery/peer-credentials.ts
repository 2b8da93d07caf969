// Peers of Unix sockets as the kernel knows them, and whether they may use a socket.
import type { Socket } from 'node:net'
import type { SocketConfig } from '../config/config.ts'
import { exitStatus, UserError } from '../lib/error.ts'
import { loadLibc, type Libc, type LibcMissing } from '../lib/libc.ts'
import type { Log } from '../lib/log.ts'

export interface Peer {
  readonly pid: number
  readonly uid: number
  readonly gid: number
  /** Root or the daemon's own user. */
  readonly isPrivileged: boolean
}

export interface PeerCredentials {
  /** null: peers cannot be known on this host. */
  readonly libc: Libc | null
  /** Throws UserError (78) where `allow` is set and peers cannot be known. */
  require(allow: SocketConfig['allow']): void
  /** The peer as the kernel noted it at connect; null where that cannot be known. */
  of(socket: Socket): Peer | null
  /** Reports whether the peer may use a socket: with an empty `allow` the socket's mode alone decides. */
  isAllowed(socket: Socket, peer: Peer | null, allow: SocketConfig['allow']): boolean
  /** Reports whether a peer that sends no more receives no more either. False where that cannot be known. */
  hasHungUp(socket: Socket): boolean
}

/** Loads libc, which takes about 4 ms: to be called before anything listens. */
export function createPeerCredentials(options: {
  log: Log
  /** By default libc through koffi. */
  loadLibc?: () => Libc | LibcMissing
}): PeerCredentials {
  const loaded = (options.loadLibc ?? loadLibc)()
  const libc = 'error' in loaded ? null : loaded
  const ownUid = process.geteuid?.()
  if ('error' in loaded) {
    options.log('warning', 'Peers cannot be known: refresh.request is denied to every client', {
      event: 'peers-unknown',
      detail: loaded.error,
    })
  }

  function isGroupAllowed(socket: Socket, gids: readonly number[]): boolean {
    const fd = descriptorOf(socket)
    if (libc === null || fd === null || gids.length === 0) return false
    return libc.peerGroups(fd).some((gid) => gids.includes(gid))
  }

  return {
    libc,
    require(allow) {
      if (isOpen(allow) || !('error' in loaded)) return
      throw new UserError(
        `\`allow\` is set, but peers cannot be known. ${loaded.error}, or leave \`allow\` empty and use \`mode\` and \`group\``,
        exitStatus.configuration,
      )
    },
    of(socket) {
      const fd = descriptorOf(socket)
      if (libc === null || fd === null) return null
      const { pid, uid, gid } = libc.peerOf(fd)
      return { pid, uid, gid, isPrivileged: uid === 0 || uid === ownUid }
    },
    isAllowed(socket, peer, allow) {
      if (isOpen(allow)) return true
      if (peer === null) return false
      const { uids, gids } = allow
      if (peer.isPrivileged || uids.includes(peer.uid) || gids.includes(peer.gid)) return true
      return isGroupAllowed(socket, gids)
    },
    hasHungUp(socket) {
      const fd = descriptorOf(socket)
      return libc !== null && fd !== null && libc.isHungUp(fd)
    },
  }
}

/** Reports whether the socket's mode alone decides who may use it. */
export function isOpen({ uids, gids }: SocketConfig['allow']): boolean {
  return uids.length === 0 && gids.length === 0
}

/** The descriptor of a connection; null once it is destroyed. Node has no public name for it. */
function descriptorOf(socket: Socket): number | null {
  const { _handle: handle } = socket as Socket & { _handle?: { fd?: number } | null }
  const fd = handle?.fd
  return fd === undefined || fd < 0 ? null : fd
}
