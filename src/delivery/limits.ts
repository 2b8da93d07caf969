// The limits of clients. They are small, so that their product with the number of connections stays below the memory of the
// unit (config/resolve.ts): there is no common budget, and no client ever loses its connection for another one.
import { readFileSync } from 'node:fs'
import type { SocketConfig } from '../config/config.ts'
import { monotonicMs } from '../lib/clock.ts'
import { withSystemFallback } from '../lib/error.ts'
import type { Peer } from './peers.ts'

/** While more than this of a client's answers is unsent, nothing is read from the client. */
export const MAX_UNSENT_BYTES = 16 * 1024
/** SO_SNDBUF of a connection; the kernel doubles it. The usual 208 KiB of each connection would count as the unit's memory. */
export const SEND_BUFFER_BYTES = 4 * 1024
/** Requests of one connection that wait for a token; further ones are read later. */
export const MAX_WAITING = 16
export const MAX_SUBSCRIPTIONS = 16
/** Requests of one connection that are answered before other connections have their turn. */
export const REQUESTS_PER_TURN = 8
/** Input up to this length is parsed at once; more waits for its turn: long requests of many clients take time and memory. */
export const AT_ONCE_BYTES = 1024
/** Longer input is parsed in parts of this length. Node reads no more (64 KiB at a time) while it holds as much that is not parsed. */
export const READ_BYTES = 4 * 1024
export const MAX_HEAD_BYTES = 8 * 1024
export const MAX_HEAD_FIELDS = 64
/** Body of an HTTP request: a report of the longest token fits. */
export const MAX_BODY_BYTES = 32 * 1024
/** The time for which a connection is read from after its last message, in ms: closed with unread input it would be reset. */
export const LINGER_MS = 5_000
/** Connections that are still read from in this way; any further one is closed at once. */
const MAX_LINGERING = 256
/** Connections of peers that `allow` excludes, while their first request is awaited. */
const MAX_DENIED = 64

/**
 * idle: the client has no request, no pending answer and no subscription; stalled: it does not read its answers;
 * incomplete-request: it has begun a request and does not end it.
 */
export type TimeoutReason = 'idle' | 'stalled' | 'incomplete-request'
/** In ms. Connections are checked every `sweepMs`: one ends at the first check after its time is up. */
export type Timeouts = Readonly<Record<TimeoutReason | 'sweepMs', number>>

/**
 * Counts one more connection against the limits of its socket. Returns the function that ends the count; null: one too many.
 * Root and the daemon's own user have no limit, peers that `allow` excludes one of their own, and unknown users count as one.
 */
export function createQuota(descriptors: Descriptors) {
  /** By user; of those that are limited. */
  const counts = new Map<number | undefined, number>()
  let limited = 0
  let denied = 0

  function isWithin(peer: Peer | null, isAllowed: boolean, limits: Limits): boolean {
    if (peer?.isPrivileged) return true
    if (!isAllowed) return denied < MAX_DENIED
    return limited < limits.maxConnections && (counts.get(peer?.uid) ?? 0) < limits.maxConnectionsPerUser
  }

  function count(peer: Peer | null, isAllowed: boolean, by: 1 | -1): void {
    descriptors.used += by
    if (peer?.isPrivileged) return
    if (!isAllowed) return void (denied += by)
    limited += by
    const ofUser = (counts.get(peer?.uid) ?? 0) + by
    if (ofUser === 0) counts.delete(peer?.uid)
    else counts.set(peer?.uid, ofUser)
  }

  return (peer: Peer | null, isAllowed: boolean, limits: Limits): (() => void) | null => {
    if (descriptors.left(peer) <= 0 || !isWithin(peer, isAllowed, limits)) return null
    count(peer, isAllowed, 1)
    return () => count(peer, isAllowed, -1)
  }
}
type Limits = Pick<SocketConfig, 'maxConnections' | 'maxConnectionsPerUser'>

/** Descriptors for connections of all sockets together: beyond them the daemon could open no file and reach no service. */
type Descriptors = ReturnType<typeof createDescriptors>

/** For files, logs, the service and Redis; of a small limit six tenths, so that some clients are served, too. */
const OWN_DESCRIPTORS = 64
const OWN_SHARE = 0.6
/** The part of the other descriptors that only root and the daemon's own user may use. */
const PRIVILEGED_DESCRIPTORS = 32
/** Assumed if /proc is hidden: the usual soft limit. */
const USUAL_DESCRIPTORS = 1_024

export function createDescriptors(limit = descriptorLimit()) {
  const mostLingering = Math.min(MAX_LINGERING, Math.floor(limit / 4))
  const most = limit - Math.min(OWN_DESCRIPTORS, Math.ceil(limit * OWN_SHARE)) - mostLingering
  const privileged = Math.min(PRIVILEGED_DESCRIPTORS, Math.ceil(most / 2))
  return {
    used: 0,
    /** Of connections that are closed and still read from. */
    lingering: 0,
    left(peer: Peer | null): number {
      return most - this.used - (peer?.isPrivileged ? 0 : privileged)
    },
    mayLinger(): boolean {
      return this.lingering < mostLingering
    },
  }
}

/** RLIMIT_NOFILE, whose soft limit Node has raised to the hard one. Linux has no unlimited one. */
function descriptorLimit(): number {
  const text = withSystemFallback('', () => readFileSync('/proc/self/limits', 'utf8'))
  return Number(/Max open files +(\d+)/.exec(text)?.[1] ?? USUAL_DESCRIPTORS)
}

/** A token bucket that holds the requests of one second. */
export interface RequestRate {
  left: number
  refilledAtMs: number
}

/** Takes one request from the bucket. False: one too many. `perSecond` null: there is no limit. */
export function tryAcquire(rate: RequestRate, perSecond: number | null): boolean {
  if (perSecond === null) return true
  const nowMs = monotonicMs()
  const refill = ((nowMs - rate.refilledAtMs) / 1_000) * perSecond
  rate.left = Math.min(Math.max(1, perSecond), rate.left + refill)
  rate.refilledAtMs = nowMs
  if (rate.left < 1) return false
  rate.left -= 1
  return true
}

/** The time for queued work in one round of the event loop, in ms. */
const TURNS_MS = 5
/** While clients connect: Node accepts one connection in a round, and 255 others may wait before it. */
const ACCEPTING_TURNS_MS = 0.5

/**
 * A queue of work. Each round of the event loop does a part of it, so that new clients are accepted and read from, however much
 * others have sent, and however many wait for the next token.
 */
export function createTurns() {
  const waiting: (() => void)[] = []
  let isScheduled = false
  /** Rounds that are still short: the present one and the next, once a connection was accepted. */
  let shortRounds = 0

  function schedule(): void {
    if (isScheduled || (waiting.length === 0 && shortRounds === 0)) return
    isScheduled = true
    setImmediate(run)
  }

  function run(): void {
    const until = monotonicMs() + (shortRounds > 0 ? ACCEPTING_TURNS_MS : TURNS_MS)
    shortRounds = Math.max(0, shortRounds - 1)
    for (let left = waiting.length; left > 0 && monotonicMs() < until; left -= 1) waiting.shift()!()
    isScheduled = false
    schedule()
  }

  return {
    add(work: () => void): void {
      waiting.push(work)
      schedule()
    },
    /** A connection was accepted: more may wait. */
    accepted(): void {
      shortRounds = 2
      schedule()
    },
    isAccepting: () => shortRounds > 0,
  }
}
