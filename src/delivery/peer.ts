// Who is at the other end of a connection, what they may do, and who took a token.
import { readFileSync } from 'node:fs'
import type { Socket } from 'node:net'
import { basename } from 'node:path'
import type { SocketConfig } from '../config/config.ts'
import { errorCode, exitStatus, UserError } from '../lib/error.ts'
import type { Libc, LibcMissing } from '../lib/libc.ts'
import type { Log } from '../lib/log.ts'

export interface Peer {
  readonly pid: number
  readonly uid: number
  readonly gid: number
  /** Root or the daemon's own user. */
  readonly isPrivileged: boolean
}

export interface Peers {
  /** Loads what is needed to know them. Resolves at once where that was done. */
  load(): Promise<void>
  /** Whether peers can be known; false before `load`, too. */
  areKnown(): boolean
  /** Throws UserError (78) where `allow` is set and peers cannot be known. */
  require(allow: SocketConfig['allow']): Promise<void>
  /** Who it is, as the kernel noted it at connect; null where that cannot be known, or not yet. */
  of(socket: Socket): Peer | null
  /** Whether the peer may use a socket: with an empty `allow` the socket's mode alone decides. */
  isAllowed(socket: Socket, peer: Peer | null, allow: SocketConfig['allow']): boolean
  /**
   * A connection was given its first token: told at `debug` now, at `info` once an hour for each user and process
   * name. Add to the `count` of what comes back for each token after that.
   */
  tookToken(peer: Peer, fields: { transport: string; client: string | null }): Taker
  /** Tells what an hour has gathered. To be called every now and then. */
  tellTakers(): void
}

const HOUR_MS = 3_600_000
const NAMES_FOR_MS = 1_000
/** Process names are chosen by the clients; beyond so many of them a user's are told as one. */
const MAX_TAKERS = 512

/** A user's processes of one name, and the tokens they took since that was last told. */
export interface Taker {
  readonly uid: number
  /** null: not known, or one name too many. */
  readonly process: string | null
  pid: number
  count: number
  toldAtMs: number
}

export function createPeers(options: {
  log: Log
  /** By default `loadLibc` of `lib/libc.ts`, imported when it is needed. */
  loadLibc?: () => Promise<Libc | LibcMissing>
  /** A monotonic clock, in ms. */
  monotonicMs?: () => number
}): Peers {
  const { log, monotonicMs = () => performance.now() } = options
  const loadLibc = options.loadLibc ?? (async () => (await import('../lib/libc.ts')).loadLibc())
  const ownUid = process.geteuid?.()
  const takers = new Map<string, Taker>()
  const nameOf = createProcessNames(monotonicMs)
  let libc: Libc | null = null
  let whyUnknown = ''
  let loading: Promise<void> | null = null

  function whenLoaded(): Promise<void> {
    return (loading ??= load())
  }

  async function load(): Promise<void> {
    const loaded = await loadLibc()
    if (!('error' in loaded)) libc = loaded
    else {
      whyUnknown = loaded.error
      log('warning', 'Peers cannot be known: refresh.request is denied to everybody', {
        event: 'peers-unknown',
        detail: whyUnknown,
      })
    }
  }

  function of(socket: Socket): Peer | null {
    const fd = descriptorOf(socket)
    if (libc === null || fd === null) return null
    const { pid, uid, gid } = libc.peerOf(fd)
    return { pid, uid, gid, isPrivileged: uid === 0 || uid === ownUid }
  }

  function isAllowed(socket: Socket, peer: Peer | null, allow: SocketConfig['allow']): boolean {
    if (isOpen(allow)) return true
    const { uids, gids } = allow
    if (peer === null) return false
    if (peer.isPrivileged || uids.includes(peer.uid) || gids.includes(peer.gid)) return true
    const fd = descriptorOf(socket)
    if (libc === null || fd === null || gids.length === 0) return false
    return libc.peerGroups(fd).some((gid) => gids.includes(gid))
  }

  /** The taker that a peer is counted under. */
  function takerOf(peer: Peer, name: string | null): Taker {
    const known = takers.get(`${peer.uid} ${String(name)}`)
    if (known !== undefined) return known
    if (takers.size >= MAX_TAKERS) forgetQuiet()
    const process = takers.size < MAX_TAKERS ? name : null
    const key = `${peer.uid} ${String(process)}`
    const taker = takers.get(key) ?? { uid: peer.uid, process, pid: peer.pid, count: 0, toldAtMs: -Infinity }
    takers.set(key, taker)
    return taker
  }

  function forgetQuiet(): void {
    for (const [key, taker] of takers) {
      if (taker.count === 0 && monotonicMs() - taker.toldAtMs >= HOUR_MS) takers.delete(key)
    }
  }

  function tell(taker: Taker): void {
    if (taker.count === 0 || monotonicMs() - taker.toldAtMs < HOUR_MS) return
    const { uid, pid, process: name, count } = taker
    log('info', 'A client took the token', {
      event: 'token-taken',
      uid,
      pid,
      ...(name !== null && { process: name }),
      count,
    })
    taker.toldAtMs = monotonicMs()
    taker.count = 0
  }

  return {
    load: whenLoaded,
    areKnown: () => libc !== null,
    async require(allow) {
      if (isOpen(allow)) return
      await whenLoaded()
      if (libc !== null) return
      throw new UserError(
        `\`allow\` is set, but who connects cannot be known. ${whyUnknown}, or leave \`allow\` empty and use \`mode\` and \`group\``,
        exitStatus.configuration,
      )
    },
    of,
    isAllowed,
    tookToken(peer, { transport, client }) {
      const name = nameOf(peer.pid)
      const fields = { uid: peer.uid, pid: peer.pid, ...(name !== null && { process: name }) }
      log('debug', 'A connection was given the token', {
        event: 'token-given',
        transport,
        ...fields,
        ...(client !== null && { client }),
      })
      const taker = takerOf(peer, name)
      taker.pid = peer.pid
      taker.count += 1
      tell(taker)
      return taker
    },
    tellTakers() {
      for (const taker of takers.values()) tell(taker)
    },
  }
}

/** Whether the socket's mode alone decides who may use it. */
export function isOpen({ uids, gids }: SocketConfig['allow']): boolean {
  return uids.length === 0 && gids.length === 0
}

/** The descriptor of a connection; null once it is destroyed. Node has no public name for it. */
function descriptorOf(socket: Socket): number | null {
  const { _handle: handle } = socket as Socket & { _handle?: { fd?: number } | null }
  const fd = handle?.fd
  return fd === undefined || fd < 0 ? null : fd
}

/** Remembers names for a second: a program that connects for each request is looked up once in that time. */
function createProcessNames(monotonicMs: () => number): (pid: number) => string | null {
  const known = new Map<number, string | null>()
  let sinceMs = -Infinity
  return (pid) => {
    const nowMs = monotonicMs()
    if (nowMs - sinceMs >= NAMES_FOR_MS) {
      known.clear()
      sinceMs = nowMs
    }
    const name = known.has(pid) ? (known.get(pid) ?? null) : processName(pid)
    known.set(pid, name)
    return name
  }
}

/**
 * The name of a process where /proc shows it: it may belong to another user, or be gone. The first word of its
 * command line, because the kernel's own name is that of a thread: `MainThread` for all programs of Node.
 */
function processName(pid: number): string | null {
  try {
    const [program = ''] = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split(/[\0\s]/, 1)
    return basename(program) || readFileSync(`/proc/${pid}/comm`, 'utf8').trimEnd()
  } catch (error) {
    if (errorCode(error) === undefined) throw error
    return null
  }
}
