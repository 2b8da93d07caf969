// The few calls of libc that Node lacks: who a peer is, datagrams for systemd, no core dumps, whether a pipe is read, becoming another program, and ending at once.
import { createRequire } from 'node:module'
import { getSystemErrorName } from 'node:util'
import { errorCode, errorMessage } from './error.ts'

export interface Peer {
  readonly pid: number
  readonly uid: number
  readonly gid: number
}
export interface Libc {
  /**
   * Who is at the other end of a connected Unix socket, as the kernel noted it at connect (unix(7), SO_PEERCRED).
   * The descriptor is `socket._handle.fd`, gone once the socket is destroyed. Throws a SystemCallError.
   */
  peerOf(fd: number): Peer
  /** The supplementary groups of that peer (SO_PEERGROUPS, Linux 4.13). Throws a SystemCallError. */
  peerGroups(fd: number): number[]
  /**
   * Sends one datagram to the Unix socket at this path; `@name` is an abstract one, as in `$NOTIFY_SOCKET`. Never
   * waits: EAGAIN where the receiver does not read. Throws a SystemCallError.
   */
  sendDatagram(path: string, text: string): void
  /**
   * From here on this process leaves no core dump, and no other process of its user can read its memory
   * (prctl(2), PR_SET_DUMPABLE). Throws a SystemCallError.
   */
  forbidDumps(): void
  /** Gives what is free of malloc's memory back to the system (malloc_trim(3)), where libc is glibc. */
  trimHeap(): void
  /** Whether anybody is left to read what is written to this pipe (poll(2), POLLERR). */
  hasReader(fd: number): boolean
  /**
   * Becomes another program, with the same process id (execve(2)), standard streams and sockets that systemd handed
   * over (`LISTEN_FDS` in `env`); nothing of this one runs on, exit listeners neither. Returns only by throwing a
   * SystemCallError.
   */
  replaceProcess(path: string, argv: readonly string[], env: NodeJS.ProcessEnv): never
  /** Ends this process with this status (_exit(2)): no exit listener runs, no thread is waited for, nothing is flushed. */
  exitNow(status: number): never
}
export interface LibcMissing {
  /** Why there is none, and the remedy. */
  readonly error: string
}

/** A call that the kernel refused; `code` as Node names it (`EAGAIN`, `ENOENT` …). */
export class SystemCallError extends Error {
  override readonly name = 'SystemCallError'
  readonly code: string
  constructor(call: string, errno: number) {
    const code = getSystemErrorName(-errno)
    super(`${call}: ${code}`)
    this.code = code
  }
}

/** What is used of koffi's native module. */
interface Koffi {
  load(path: null): { func(definition: string): (...args: unknown[]) => number }
  errno(): number
}

/** Numbers of the Linux ABI in include/uapi/asm-generic; the architectures that differ are those without Node builds of ours. */
const ABI = {
  AF_UNIX: 1,
  SOCK_DGRAM: 2,
  SOCK_CLOEXEC: 0o2000000,
  MSG_DONTWAIT: 0x40,
  MSG_NOSIGNAL: 0x4000,
  SOL_SOCKET: 1,
  SO_PEERCRED: 17,
  SO_PEERGROUPS: 59,
  PR_SET_DUMPABLE: 4,
  RLIMIT_CORE: 4,
  F_SETFD: 2,
  POLLERR: 8,
} as const
const ARCHITECTURES = new Set(['x64', 'arm64', 'arm', 'ia32', 'riscv64', 'loong64'])
/** `sun_path` holds so many bytes (unix(7)). */
const MAX_SOCKET_PATH_BYTES = 108
/** Supplementary groups most users have fewer than; where there are more the kernel says how many. */
const USUAL_GROUPS = 32

/** libc through koffi, or why there is none. The first time takes about 4 ms and 2.5 MB: load it where it is needed. */
export function loadLibc(): Libc | LibcMissing {
  loaded ??= load()
  return loaded
}
let loaded: Libc | LibcMissing | undefined

function load(): Libc | LibcMissing {
  if (process.platform !== 'linux' || !ARCHITECTURES.has(process.arch)) {
    return { error: `System calls of ${process.platform} on ${process.arch} are not known to kyc-tokend` }
  }
  try {
    return createLibc(loadKoffi())
  } catch (error) {
    return {
      error: `The optional package koffi cannot be loaded (${errorMessage(error).split('\n')[0]}): install it with \`npm install koffi\``,
    }
  }
}

/** The native module itself where it can be found: through koffi's own entry it takes 9 ms and 4 MB more. */
function loadKoffi(): Koffi {
  const requireHere = createRequire(import.meta.url)
  try {
    return requireHere(`@koromix/koffi-linux-${process.arch}`) as Koffi
  } catch (error) {
    if (errorCode(error) !== 'MODULE_NOT_FOUND') throw error
    return requireHere('koffi') as Koffi
  }
}

function createLibc(koffi: Koffi): Libc {
  const libc = koffi.load(null)
  const getsockopt = libc.func('int getsockopt(int, int, int, void *, void *)')
  const socket = libc.func('int socket(int, int, int)')
  const sendto = libc.func('long sendto(int, void *, size_t, int, void *, uint32_t)')
  const close = libc.func('int close(int)')
  const setrlimit = libc.func('int setrlimit(int, void *)')
  const prctl = libc.func('int prctl(int, ulong, ulong, ulong, ulong)')
  const fcntl = libc.func('int fcntl(int, int, int)')
  const poll = libc.func('int poll(void *, ulong, int)')
  const exit = libc.func('void _exit(int)')
  const trim = mallocTrim(libc)
  const execve = libc.func('int execve(const char *, const char **, const char **)')
  const optionOf = (fd: number, option: number, sizeBytes: number) =>
    readOption(getsockopt, fd, option, sizeBytes)

  /** The result, or the error of the call by this name. */
  function checked(call: string, result: number): number {
    if (result < 0) throw new SystemCallError(call, koffi.errno())
    return result
  }

  return {
    peerOf(fd) {
      const { result, value } = optionOf(fd, ABI.SO_PEERCRED, 12)
      checked('getsockopt(SO_PEERCRED)', result)
      return { pid: value.readInt32LE(0), uid: value.readUInt32LE(4), gid: value.readUInt32LE(8) }
    },
    peerGroups(fd) {
      let { result, value, neededBytes } = optionOf(fd, ABI.SO_PEERGROUPS, 4 * USUAL_GROUPS)
      if (result < 0 && neededBytes > value.length) {
        ;({ result, value, neededBytes } = optionOf(fd, ABI.SO_PEERGROUPS, neededBytes))
      }
      checked('getsockopt(SO_PEERGROUPS)', result)
      return Array.from({ length: neededBytes / 4 }, (_, index) => value.readUInt32LE(4 * index))
    },
    sendDatagram(path, text) {
      const address = socketAddress(path)
      const fd = checked('socket', socket(ABI.AF_UNIX, ABI.SOCK_DGRAM | ABI.SOCK_CLOEXEC, 0))
      try {
        const datagram = Buffer.from(text)
        const flags = ABI.MSG_DONTWAIT | ABI.MSG_NOSIGNAL
        checked('sendto', sendto(fd, datagram, datagram.length, flags, address, address.length))
      } finally {
        close(fd)
      }
    },
    forbidDumps() {
      const noBytes = Buffer.alloc(16)
      checked('setrlimit', setrlimit(ABI.RLIMIT_CORE, noBytes))
      checked('prctl', prctl(ABI.PR_SET_DUMPABLE, 0, 0, 0, 0))
    },
    trimHeap() {
      trim?.(0)
    },
    hasReader(fd) {
      const asked = Buffer.alloc(8)
      asked.writeInt32LE(fd)
      checked('poll', poll(asked, 1, 0))
      return (asked.readInt16LE(6) & ABI.POLLERR) === 0
    },
    replaceProcess(path, argv, env) {
      const settings = Object.entries(env).flatMap(([name, value]) =>
        value === undefined ? [] : [`${name}=${value}`],
      )
      // Node marks every descriptor it was started with as closed on execve.
      const inherited = 3 + Number(env['LISTEN_FDS'] ?? 0)
      for (let fd = 0; fd < inherited; fd += 1) fcntl(fd, ABI.F_SETFD, 0)
      checked('execve', execve(path, [...argv, null], [...settings, null]))
      throw new Error('execve returned without an error')
    },
    exitNow(status) {
      exit(status)
      throw new Error('_exit returned')
    },
  }
}

function mallocTrim(libc: ReturnType<Koffi['load']>): ((pad: number) => number) | undefined {
  try {
    return libc.func('int malloc_trim(size_t)')
  } catch {
    // musl has none, and gives memory back by itself.
    return undefined
  }
}

/** One socket option; `neededBytes` is its length, also where the buffer was too short for it. */
function readOption(
  getsockopt: (...args: unknown[]) => number,
  fd: number,
  option: number,
  sizeBytes: number,
): { result: number; value: Buffer; neededBytes: number } {
  // Out of Buffer's pool: this is asked at each connection.
  const value = Buffer.allocUnsafe(sizeBytes)
  const length = Buffer.allocUnsafe(4)
  length.writeUInt32LE(sizeBytes)
  const result = getsockopt(fd, ABI.SOL_SOCKET, option, value, length)
  return { result, value, neededBytes: length.readUInt32LE() }
}

/** `struct sockaddr_un`. An abstract name begins with a NUL byte and has no other end than its length. */
function socketAddress(path: string): Buffer {
  const name = Buffer.from(path.startsWith('@') ? `\0${path.slice(1)}` : `${path}\0`)
  if (name.length > MAX_SOCKET_PATH_BYTES) {
    throw new Error(`The path of a Unix socket has at most ${MAX_SOCKET_PATH_BYTES - 1} bytes: ${path}`)
  }
  const family = Buffer.alloc(2)
  family.writeUInt16LE(ABI.AF_UNIX)
  return Buffer.concat([family, name])
}
