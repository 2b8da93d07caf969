// The calls of libc that Node lacks: peers of connections, notifications, file locks, and core dumps.
import { closeSync } from 'node:fs'
import { createRequire } from 'node:module'
import { getSystemErrorName } from 'node:util'
import { errorCode, errorMessage, exitStatus, UserError } from './error.ts'

/** A function of libc by its name, the C type of its result, and those of its arguments. */
type Declare = (name: string, result: string, types: readonly string[]) => Call
type Call = (...args: unknown[]) => number
/** The part of koffi's native module that is used. */
interface Koffi {
  load(path: null): { func: Declare }
  errno(): number
}
/** A call that the kernel refuses throws an error with a `code` as Node names it (`EAGAIN`, `ENOENT` …). */
export type Libc = ReturnType<typeof createLibc>

/** Numbers of the Linux ABI in include/uapi/asm-generic: of all processors for which there is a koffi. */
const ABI = {
  AF_UNIX: 1,
  SOCK_DGRAM: 2,
  SOCK_NONBLOCK: 0o4000,
  SOCK_CLOEXEC: 0o2000000,
  MSG_DONTWAIT: 0x40,
  MSG_NOSIGNAL: 0x4000,
  PR_SET_DUMPABLE: 4,
  F_DUPFD_CLOEXEC: 1030,
  POLLHUP: 16,
  LOCK_EX: 2,
  LOCK_NB: 4,
  SHUT_RD: 0,
  SOL_SOCKET: 1,
  SO_SNDBUF: 7,
  SO_PEERCRED: 17,
  SO_PEERGROUPS: 59,
} as const
/** Longest path of a Unix socket, with the NUL byte that ends it (unix(7), `sun_path`). */
const SUN_PATH_BYTES = 108
/** The most supplementary groups of a process (NGROUPS_MAX). */
const MAX_GROUPS = 65_536

/**
 * libc through koffi. The first time takes about 4 ms and 2.5 MB: load it where it is needed. Throws
 * UserError (78) with the remedy if there is none.
 */
export const loadLibc = (): Libc => (loaded ??= load())
let loaded: Libc | undefined

function load(): Libc {
  try {
    // The native module itself: the entry point of koffi takes 9 ms and 4 MB more.
    const native = `@koromix/koffi-linux-${process.arch}`
    return createLibc(createRequire(import.meta.filename)(native) as Koffi)
  } catch (cause) {
    const why = errorMessage(cause).split('\n')[0]
    const message =
      `The package koffi, by which this program calls libc, cannot be loaded (${why}): ` +
      'install it on Linux with `npm install koffi`'
    throw new UserError(message, exitStatus.configuration, { cause })
  }
}

function createLibc(koffi: Koffi) {
  const libc = koffi.load(null)
  const lenient: Declare = (name, result, types) => libc.func(name, result, types)
  /** Throws if the call fails. */
  const strict: Declare = (name, result, types) => {
    const call = lenient(name, result, types)
    return (...args) => {
      const returned = call(...args)
      if (returned >= 0) return returned
      const code = getSystemErrorName(-koffi.errno())
      throw Object.assign(new Error(`${name}: ${code}`), { code })
    }
  }
  const accept4 = lenient('accept4', 'int', ['int', 'void *', 'void *', 'int'])
  const exit = lenient('_exit', 'void', ['int'])
  const fcntl = lenient('fcntl', 'int', ['int', 'int', 'int'])
  const flock = strict('flock', 'int', ['int', 'int'])
  const getsockname = strict('getsockname', 'int', ['int', 'void *', 'void *'])
  const getsockopt = strict('getsockopt', 'int', ['int', 'int', 'int', 'void *', 'void *'])
  const poll = strict('poll', 'int', ['void *', 'ulong', 'int'])
  const prctl = strict('prctl', 'int', ['int', 'ulong', 'ulong', 'ulong', 'ulong'])
  const sendto = strict('sendto', 'long', ['int', 'void *', 'size_t', 'int', 'void *', 'uint32_t'])
  const setsockopt = strict('setsockopt', 'int', ['int', 'int', 'int', 'void *', 'uint32_t'])
  const shutdown = lenient('shutdown', 'int', ['int', 'int'])
  const socket = strict('socket', 'int', ['int', 'int', 'int'])
  // Reused, because each connection needs them. Memory that no group was written to takes no space.
  const credentials = new Int32Array(3)
  const groups = new Uint32Array(MAX_GROUPS)
  const length = new Int32Array(1)
  const size = new Int32Array(1)

  return {
    /**
     * Sends one datagram to the Unix socket at this path; `@name` is an abstract one, as in `$NOTIFY_SOCKET`.
     * Never waits: EAGAIN if the receiver does not read.
     */
    sendDatagram(path: string, content: string | Uint8Array): void {
      const address = socketAddress(path)
      const fd = socket(ABI.AF_UNIX, ABI.SOCK_DGRAM | ABI.SOCK_CLOEXEC, 0)
      try {
        const datagram = Buffer.from(content)
        const flags = ABI.MSG_DONTWAIT | ABI.MSG_NOSIGNAL
        sendto(fd, datagram, datagram.length, flags, address, address.length)
      } finally {
        closeSync(fd)
      }
    },
    /** The path at which this Unix socket was bound (getsockname(2)); empty if it has none or is another socket. */
    socketPath(fd: number): string {
      const address = Buffer.alloc(2 + SUN_PATH_BYTES)
      length[0] = address.length
      getsockname(fd, address, length)
      if (address.readUInt16LE() !== ABI.AF_UNIX) return ''
      return address.toString('utf8', 2, Math.max(2, length[0])).split('\0')[0] ?? ''
    },
    /**
     * The user and the group at the other end of a connected Unix socket, as the kernel noted them at connect
     * (unix(7), SO_PEERCRED). The descriptor is gone once the socket is destroyed.
     */
    peerOf(fd: number): { uid: number; gid: number } {
      length[0] = credentials.byteLength
      getsockopt(fd, ABI.SOL_SOCKET, ABI.SO_PEERCRED, credentials, length)
      const [, uid = 0, gid = 0] = credentials
      return { uid: uid >>> 0, gid: gid >>> 0 }
    },
    /** The supplementary groups of that peer (SO_PEERGROUPS, Linux 4.13). */
    peerGroups(fd: number): number[] {
      length[0] = groups.byteLength
      getsockopt(fd, ABI.SOL_SOCKET, ABI.SO_PEERGROUPS, groups, length)
      return [...groups.subarray(0, length[0] / groups.BYTES_PER_ELEMENT)]
    },
    /** Reports whether the other end is closed in both directions (poll(2), POLLHUP). */
    isHungUp(fd: number): boolean {
      // `struct pollfd`
      const asked = Buffer.alloc(8)
      asked.writeInt32LE(fd)
      poll(asked, 1, 0)
      return (asked.readInt16LE(6) & ABI.POLLHUP) !== 0
    },
    /** The other end can send no more; what it has sent can still be read (shutdown(2), SHUT_RD). */
    endInput: (fd: number): number => shutdown(fd, ABI.SHUT_RD),
    /** Accepts a connection that waits (accept4(2)); -1: none does, or there is no descriptor left. */
    accept: (fd: number): number => accept4(fd, null, null, ABI.SOCK_NONBLOCK | ABI.SOCK_CLOEXEC),
    /** Another descriptor of the same connection (fcntl(2), F_DUPFD_CLOEXEC); -1: there is none left. */
    duplicate: (fd: number): number => fcntl(fd, ABI.F_DUPFD_CLOEXEC, 0),
    /** The kernel keeps about twice as many bytes as these for a peer that does not read (SO_SNDBUF). */
    limitSendBuffer(fd: number, bytes: number): void {
      size[0] = bytes
      setsockopt(fd, ABI.SOL_SOCKET, ABI.SO_SNDBUF, size, size.byteLength)
    },
    /** No core dump from here on, and no other process of this user reads the memory (PR_SET_DUMPABLE). */
    forbidDumps: (): number => prctl(ABI.PR_SET_DUMPABLE, 0, 0, 0, 0),
    /** Locks the open file (flock(2)) until its descriptor is closed. False: another process has locked it. */
    lock(fd: number): boolean {
      try {
        return flock(fd, ABI.LOCK_EX | ABI.LOCK_NB) === 0
      } catch (error) {
        if (errorCode(error) !== 'EAGAIN') throw error
        return false
      }
    },
    /** Ends this process (_exit(2)): no exit listener runs, no thread is waited for, nothing is flushed. */
    exitNow(status: number): never {
      exit(status)
      throw new Error('_exit returned')
    },
  }
}

/** `struct sockaddr_un`. An abstract name begins with a NUL byte and has no other end than its length. */
function socketAddress(path: string): Buffer {
  const name = Buffer.from(path.startsWith('@') ? `\0${path.slice(1)}` : `${path}\0`)
  if (name.length > SUN_PATH_BYTES) throw new Error(`The path of a Unix socket is too long: ${path}`)
  const family = Buffer.alloc(2)
  family.writeUInt16LE(ABI.AF_UNIX)
  return Buffer.concat([family, name])
}
