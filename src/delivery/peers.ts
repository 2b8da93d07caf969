// Peers of Unix sockets as the kernel knows them, and whether they may use a socket.
import { readFileSync } from 'node:fs'
import type { DuplexOptions } from 'node:stream'
import { Socket, type SocketConstructorOpts } from 'node:net'
import type { SocketConfig } from '../config/config.ts'
import { exitStatus, withSystemFallback, UserError } from '../lib/error.ts'
import { loadLibc, type Libc, type PeerIds } from '../lib/libc.ts'

/** The kernel then keeps 37 KiB at most for a peer that does not read; 218 KiB by its own default. */
const SEND_BUFFER_BYTES = 16 * 1024

export interface Peer extends PeerIds {
  /** Root or the daemon's own user. */
  readonly isPrivileged: boolean
}

export type Peers = ReturnType<typeof createPeers>

/**
 * Throws UserError (78) if the daemon itself runs as the overflow user: every unknown user would look like
 * the daemon's own.
 */
export function createPeers(options: { loadLibc?: () => Libc; ownUid?: number } = {}) {
  const { ownUid = process.geteuid!() } = options
  const overflow = { uid: readOverflowId('overflowuid'), gid: readOverflowId('overflowgid') }
  const libc = (options.loadLibc ?? loadLibc)()
  if (ownUid === overflow.uid) {
    const message =
      `The daemon runs as the user ${ownUid}, whose id the kernel shows for all users that it does not ` +
      `know here: run it as a user of its own`
    throw new UserError(message, exitStatus.configuration)
  }

  function isGroupAllowed(socket: Socket, { gid }: Peer, gids: readonly number[]): boolean {
    const groups =
      gids.length === 0 ? [] : [gid, ...(onDescriptor(socket, (fd) => libc.peerGroups(fd)) ?? [])]
    return groups.some((each) => each !== overflow.gid && gids.includes(each))
  }

  return {
    /** The peer as the kernel noted it at connect; null once the connection is gone. */
    of(socket: Socket): Peer | null {
      const ids = onDescriptor(socket, (fd) => libc.peerOf(fd))
      return ids === null ? null : { ...ids, isPrivileged: ids.uid === 0 || ids.uid === ownUid }
    },
    /** Reports whether the peer may use a socket: with an empty `allow` the socket's mode alone decides. */
    isAllowed(socket: Socket, peer: Peer | null, allow: SocketConfig['allow']): boolean {
      if (allow.uids.length + allow.gids.length === 0) return true
      if (peer === null) return false
      const isUserAllowed = peer.uid !== overflow.uid && allow.uids.includes(peer.uid)
      return peer.isPrivileged || isUserAllowed || isGroupAllowed(socket, peer, allow.gids)
    },
    /**
     * The accepted connection as a socket with these options of `net.Socket`, which a server of Node cannot
     * set; the accepted one is closed. With a small send buffer: what a peer does not read is charged to the
     * daemon's cgroup. Null: the connection is gone. Throws if there is no descriptor left.
     */
    reopen(accepted: Socket, settings: SocketConstructorOpts & DuplexOptions): Socket | null {
      const socket = onDescriptor(accepted, (fd) => {
        libc.limitSendBuffer(fd, SEND_BUFFER_BYTES)
        return new Socket({ ...settings, fd: libc.duplicate(fd) })
      })
      accepted.destroy()
      return socket
    },
    /**
     * The bytes that the peer has read so far, as exactly as the kernel says it: a part of a write is none.
     */
    readByPeer(socket: Socket): number {
      const sent = socket.bytesWritten - socket.writableLength
      return sent - (onDescriptor(socket, (fd) => libc.unreadByPeer(fd)) ?? 0)
    },
    /** Reports whether the peer has closed both directions of the connection. */
    hasHungUp: (socket: Socket): boolean => onDescriptor(socket, libc.isHungUp) === true,
    /**
     * Has the kernel refuse what the peer sends from now on; what has arrived can still be read, and then the
     * input ends.
     */
    endInput: (socket: Socket) => onDescriptor(socket, libc.endInput),
  }
}

/** The id that the kernel shows for every user or group that is unknown in this user namespace. */
function readOverflowId(name: string): number {
  return withSystemFallback(USUAL_OVERFLOW_ID, () => Number(readFileSync(`/proc/sys/kernel/${name}`, 'utf8')))
}
/** The kernel's default; `ProtectKernelTunables=` leaves the file readable, `ProcSubset=pid` hides it. */
const USUAL_OVERFLOW_ID = 65_534

/**
 * Calls the function with the descriptor of a connection; null once it is destroyed. Node has no public name
 * for it: see src/README.md.
 */
function onDescriptor<T>(socket: Socket, call: (fd: number) => T): T | null {
  const { _handle: handle } = socket as Socket & { _handle?: { fd?: number } | null }
  const fd = handle?.fd ?? -1
  return fd < 0 ? null : call(fd)
}
