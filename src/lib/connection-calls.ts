// Calls of libc about connections of a Unix socket: identify the peer, ask whether it is gone, limit what it leaves unread.

/** A call of libc. */
export type Call = (...args: unknown[]) => number

export interface Peer {
  readonly pid: number
  readonly uid: number
  readonly gid: number
}
export interface ConnectionCalls {
  /**
   * The process at the other end of a connected Unix socket, as the kernel noted it at connect (unix(7), SO_PEERCRED).
   * The descriptor is `socket._handle.fd`, gone once the socket is destroyed. Throws a SystemCallError.
   */
  peerOf(fd: number): Peer
  /** The supplementary groups of that peer (SO_PEERGROUPS, Linux 4.13). Throws a SystemCallError. */
  peerGroups(fd: number): number[]
  /** Reports whether the other end is closed in both directions (poll(2), POLLHUP). */
  isHungUp(fd: number): boolean
  /** Has the kernel keep about twice this of what was sent and not read (socket(7), SO_SNDBUF). Throws a SystemCallError. */
  setSendBuffer(fd: number, bytes: number): void
}

/** Numbers of the Linux ABI in include/uapi/asm-generic. */
const ABI = {
  SOL_SOCKET: 1,
  SO_SNDBUF: 7,
  SO_PEERCRED: 17,
  SO_PEERGROUPS: 59,
  POLLHUP: 16,
} as const
/** Most users have fewer supplementary groups; where there are more the kernel says how many. */
const USUAL_GROUPS = 32

export function createConnectionCalls(options: {
  func: (definition: string) => Call
  eventsOf: (fd: number) => number
  /** The result, or a throw where it says that the call by this name failed. */
  checked: (call: string, result: number) => number
}): ConnectionCalls {
  const { func, eventsOf, checked } = options
  const getsockopt = func('int getsockopt(int, int, int, void *, void *)')
  const setsockopt = func('int setsockopt(int, int, int, void *, uint32_t)')
  // Reused: this is asked at each connection.
  const credentials = new Int32Array(3)
  const length = new Int32Array(1)

  function readGroups(fd: number, groups: Uint32Array): { result: number; neededGroups: number } {
    length[0] = groups.byteLength
    const result = getsockopt(fd, ABI.SOL_SOCKET, ABI.SO_PEERGROUPS, groups, length)
    return { result, neededGroups: (length[0] ?? 0) / groups.BYTES_PER_ELEMENT }
  }

  return {
    peerOf(fd) {
      length[0] = credentials.byteLength
      const result = getsockopt(fd, ABI.SOL_SOCKET, ABI.SO_PEERCRED, credentials, length)
      checked('getsockopt(SO_PEERCRED)', result)
      const [pid = 0, uid = 0, gid = 0] = credentials
      return { pid, uid: uid >>> 0, gid: gid >>> 0 }
    },
    peerGroups(fd) {
      let groups = new Uint32Array(USUAL_GROUPS)
      let { result, neededGroups } = readGroups(fd, groups)
      if (result < 0 && neededGroups > groups.length) {
        groups = new Uint32Array(neededGroups)
        ;({ result, neededGroups } = readGroups(fd, groups))
      }
      checked('getsockopt(SO_PEERGROUPS)', result)
      return [...groups.subarray(0, neededGroups)]
    },
    isHungUp(fd) {
      return (eventsOf(fd) & ABI.POLLHUP) !== 0
    },
    setSendBuffer(fd, bytes) {
      const value = Int32Array.of(bytes)
      checked('setsockopt(SO_SNDBUF)', setsockopt(fd, ABI.SOL_SOCKET, ABI.SO_SNDBUF, value, value.byteLength))
    },
  }
}
