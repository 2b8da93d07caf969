// The few calls of libc that Node lacks: about connections, datagrams for systemd, no core dumps, whether a pipe is read, becoming another program, orphans, and ending at once.
import { readdirSync } from 'node:fs'
import { constants } from 'node:os'
import { getSystemErrorName } from 'node:util'
import { createConnectionCalls, type Call, type ConnectionCalls } from './connection-calls.ts'
import { errorCode, errorMessage, exitStatus, UserError } from './error.ts'
import { loadKoffi, type Koffi } from './koffi.ts'
import { countListenFds, FIRST_LISTEN_FD } from './listen-fds.ts'

export interface Libc extends ConnectionCalls, ChildCalls {
  /**
   * Listens at this path and returns the descriptor. Unlike `listen` of Node, whose close removes the name that it bound,
   * nothing done to the descriptor waits for the disk of the path. Throws a SystemCallError.
   */
  listenAt(path: string, backlog: number): number
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
  /** The path at which this socket was bound (getsockname(2)); empty where it has none. Throws a SystemCallError. */
  socketPath(fd: number): string
  /**
   * Locks the open file for this process (flock(2)), and reports whether it did: false where another has it. Ends when the
   * descriptor is closed. Throws a SystemCallError.
   */
  lock(fd: number): boolean
  close(fd: number): void
  /** Reports whether this pipe still has a reader (poll(2), POLLERR). */
  hasReader(fd: number): boolean
  /**
   * Becomes another program, with the same process id (execve(2)), standard streams and sockets that systemd handed to
   * this process (`LISTEN_FDS` and `LISTEN_PID` in `env`); all other descriptors are closed, and nothing of this program
   * runs on, not even exit listeners. Returns only by throwing a SystemCallError.
   */
  replaceProcess(path: string, argv: readonly string[], env: NodeJS.ProcessEnv): never
  /** Programs that this one starts inherit no descriptor that is open now, save the standard streams. */
  closeOnExec(): void
  /** Ends this process with this status (_exit(2)): no exit listener runs, no thread is waited for, nothing is flushed. */
  exitNow(status: number): never
}

/** A call that the kernel refused; `code` as Node names it (`EAGAIN`, `ENOENT` …). */
export class SystemCallError extends Error {
  override readonly name = 'SystemCallError'
  readonly code: string
  readonly errno: number
  constructor(call: string, errno: number) {
    const code = getSystemErrorName(-errno)
    super(`${call}: ${code}`)
    this.code = code
    this.errno = -errno
  }
}

/** Numbers of the Linux ABI in include/uapi/asm-generic; kyc-tokend does not run on the architectures that differ. */
const ABI = {
  AF_UNIX: 1,
  SOCK_STREAM: 1,
  SOCK_DGRAM: 2,
  SOCK_NONBLOCK: 0o4000,
  SOCK_CLOEXEC: 0o2000000,
  MSG_DONTWAIT: 0x40,
  MSG_NOSIGNAL: 0x4000,
  PR_SET_DUMPABLE: 4,
  RLIMIT_CORE: 4,
  F_SETFD: 2,
  FD_CLOEXEC: 1,
  POLLERR: 8,
  LOCK_EX: 2,
  LOCK_NB: 4,
} as const
const ARCHITECTURES = new Set(['x64', 'arm64', 'arm', 'ia32', 'riscv64', 'loong64'])
/** `sun_path` holds so many bytes (unix(7)). */
const MAX_SOCKET_PATH_BYTES = 108

/** libc through koffi. Throws UserError (78) with the remedy where there is none. */
export function loadLibc(): Libc {
  loaded ??= load()
  return loaded
}
let loaded: Libc | undefined

function load(): Libc {
  if (process.platform !== 'linux' || !ARCHITECTURES.has(process.arch)) {
    throw new UserError(
      `System calls of ${process.platform} on ${process.arch} are not known to kyc-tokend: use another host`,
      exitStatus.configuration,
    )
  }
  const koffi = loadKoffi()
  try {
    return createLibc(koffi)
  } catch (cause) {
    throw new UserError(
      `libc has not all functions that are needed (${errorMessage(cause)}): use another Linux`,
      exitStatus.configuration,
      { cause },
    )
  }
}

function createLibc(koffi: Koffi): Libc {
  const libc = koffi.load(null)
  const socket = libc.func('int socket(int, int, int)')
  const bind = libc.func('int bind(int, void *, uint32_t)')
  const listen = libc.func('int listen(int, int)')
  const sendto = libc.func('long sendto(int, void *, size_t, int, void *, uint32_t)')
  const close = libc.func('int close(int)')
  const getsockname = libc.func('int getsockname(int, void *, void *)')
  const flock = libc.func('int flock(int, int)')
  const setrlimit = libc.func('int setrlimit(int, void *)')
  const prctl = libc.func('int prctl(int, ulong, ulong, ulong, ulong)')
  const fcntl = libc.func('int fcntl(int, int, int)')
  const poll = libc.func('int poll(void *, ulong, int)')
  const exit = libc.func('void _exit(int)')
  const func = (definition: string): Call => libc.func(definition)
  const execve = libc.func('int execve(const char *, const char **, const char **)')

  /** The result, or the error of the call by this name. */
  function checked(call: string, result: number): number {
    if (result < 0) throw new SystemCallError(call, koffi.errno())
    return result
  }

  /** The events of a descriptor at this moment, of those that need not be asked for (poll(2)). */
  function eventsOf(fd: number): number {
    // `struct pollfd`
    const asked = Buffer.alloc(8)
    asked.writeInt32LE(fd)
    checked('poll', poll(asked, 1, 0))
    return asked.readInt16LE(6)
  }

  /** Descriptors below `end` are inherited by programs that are executed, all others are not. */
  function inheritBelow(end: number): void {
    for (const fd of openDescriptors()) fcntl(fd, ABI.F_SETFD, fd < end ? 0 : ABI.FD_CLOEXEC)
  }

  return {
    ...createConnectionCalls({ func, eventsOf, checked }),
    ...createChildCalls(func),
    listenAt(path, backlog) {
      const address = socketAddress(path)
      const type = ABI.SOCK_STREAM | ABI.SOCK_CLOEXEC | ABI.SOCK_NONBLOCK
      const fd = checked('socket', socket(ABI.AF_UNIX, type, 0))
      try {
        checked('bind', bind(fd, address, address.length))
        checked('listen', listen(fd, backlog))
        return fd
      } catch (error) {
        close(fd)
        throw error
      }
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
    socketPath(fd) {
      const address = Buffer.alloc(2 + MAX_SOCKET_PATH_BYTES)
      const length = Int32Array.of(address.length)
      checked('getsockname', getsockname(fd, address, length))
      const isUnix = address.readUInt16LE() === ABI.AF_UNIX
      return isUnix ? (address.toString('utf8', 2, length[0]).split('\0')[0] ?? '') : ''
    },
    lock(fd) {
      const result = flock(fd, ABI.LOCK_EX | ABI.LOCK_NB)
      if (result < 0 && koffi.errno() === constants.errno.EAGAIN) return false
      checked('flock', result)
      return true
    },
    close(fd) {
      close(fd)
    },
    hasReader(fd) {
      return (eventsOf(fd) & ABI.POLLERR) === 0
    },
    replaceProcess(path, argv, env) {
      const settings = Object.entries(env).flatMap(([name, value]) =>
        value === undefined ? [] : [`${name}=${value}`],
      )
      inheritBelow(FIRST_LISTEN_FD + countListenFds(env, process.pid))
      checked('execve', execve(path, [...argv, null], [...settings, null]))
      throw new Error('execve returned without an error')
    },
    closeOnExec() {
      inheritBelow(FIRST_LISTEN_FD)
    },
    exitNow(status) {
      exit(status)
      throw new Error('_exit returned')
    },
  }
}

/** Without /proc only the standard streams are known; Node closes the others that it was started with. */
function openDescriptors(): number[] {
  try {
    return readdirSync('/proc/self/fd').map(Number)
  } catch (error) {
    if (errorCode(error) === undefined) throw error
    return [0, 1, 2]
  }
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

interface ChildCalls {
  /**
   * Reaps the ended children that this program did not start itself: orphans, which PID 1 inherits. `own` is the child
   * that Node reaps; where that one has just ended, the rest waits for the next call.
   */
  reapOrphans(own: number | undefined): void
}

/** Numbers of the Linux ABI in include/uapi/linux/wait.h. */
const WAIT = { P_ALL: 0, WNOHANG: 1, WEXITED: 4, WNOWAIT: 0x1000000 } as const
const SIGINFO_BYTES = 128
/** `si_pid`: the union that holds it is aligned to a pointer. */
const PID_OFFSET = process.arch === 'arm' || process.arch === 'ia32' ? 12 : 16

function createChildCalls(func: (definition: string) => Call): ChildCalls {
  const waitid = func('int waitid(int, uint32_t, void *, int)')
  const waitpid = func('int waitpid(int, void *, int)')

  /** The pid of an ended child, which stays unreaped; 0 where there is none. */
  function endedChild(): number {
    const info = Buffer.alloc(SIGINFO_BYTES)
    const result = waitid(WAIT.P_ALL, 0, info, WAIT.WEXITED | WAIT.WNOHANG | WAIT.WNOWAIT)
    return result === 0 ? info.readInt32LE(PID_OFFSET) : 0
  }

  return {
    reapOrphans(own) {
      for (;;) {
        const pid = endedChild()
        if (pid === 0 || pid === own || waitpid(pid, null, WAIT.WNOHANG) !== pid) return
      }
    },
  }
}
