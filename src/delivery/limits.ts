// The limits of clients: what one connection may have, and how many connections there may be, in all and of
// each user.
import { readFileSync } from 'node:fs'
import type { SocketConfig } from '../config/config.ts'
import { monotonicMs } from '../lib/clock.ts'
import { withSystemFallback } from '../lib/error.ts'
import type { Fault } from '../protocol.ts'
import type { Peer } from './peers.ts'

/** Requests of one connection that wait for a token. */
export const MAX_WAITING = 16
export const MAX_SUBSCRIPTIONS = 16
export const MAX_HEAD_BYTES = 8 * 1024
export const MAX_HEAD_FIELDS = 64
/** Body of an HTTP request: a report of the longest token fits. */
export const MAX_BODY_BYTES = 32 * 1024
/** Connections of peers that `allow` excludes, while their first request is awaited. */
const MAX_DENIED = 64

/**
 * idle: the client has no request, no pending answer and no subscription; stalled: it does not read its
 * answers; incomplete-request: it has begun a request and does not end it.
 */
export type TimeoutReason = 'idle' | 'stalled' | 'incomplete-request'
/** In ms. Connections are checked every `sweepMs`: one ends at the first check after its time is up. */
export type Timeouts = Readonly<Record<TimeoutReason | 'sweepMs', number>>

/** Reasons for which a client loses its connection. */
export const dropReasons = [
  'too-many-connections',
  'too-many-requests',
  'too-many-subscriptions',
  'denied',
  'stalled',
  'idle',
  'incomplete-request',
  'broken-framing',
  'fault-of-ours',
] as const
export type DropReason = (typeof dropReasons)[number]

/** A fault that ends the connection of its client. */
export interface ClosingFault {
  readonly fault: Fault
  readonly drop: DropReason
}
const busy = (drop: DropReason, message: string): ClosingFault => ({ fault: { code: 'busy', message }, drop })
/** For a connection that is over a limit of its own. */
export const OVER_LIMIT = {
  requests: busy(
    'too-many-requests',
    'More requests per second than `maxRequestsPerSecond` allows: send fewer',
  ),
  waits: busy(
    'too-many-requests',
    `At most ${MAX_WAITING} requests of one connection wait for a token: open another`,
  ),
  subscriptions: busy(
    'too-many-subscriptions',
    `One connection has at most ${MAX_SUBSCRIPTIONS} subscriptions: open another`,
  ),
} as const

/** Limits of a socket that was handed over, if the configuration has none for it; the path is not used. */
export const HANDED_OVER: SocketConfig = {
  path: '',
  mode: 0,
  gid: null,
  allow: { uids: [], gids: [] },
  maxConnections: 1_024,
  maxConnectionsPerUser: 128,
  maxRequestsPerSecond: null,
}
type Limits = Pick<SocketConfig, 'maxConnections' | 'maxConnectionsPerUser'>

/**
 * Counts one more connection against the limits of its socket. Returns the function that ends the count;
 * null: one too many. Root and the daemon's own user have no limit, peers that `allow` excludes one of their
 * own, and unknown users count as one.
 */
export function createQuota(descriptors: Descriptors) {
  /** By user; of those that are limited. */
  const counts = new Map<number | undefined, number>()
  let limited = 0
  let denied = 0

  function count(peer: Peer | null, isAllowed: boolean, by: 1 | -1): void {
    descriptors.used += by
    if (peer?.isPrivileged) return
    if (!isAllowed) {
      denied += by
      return
    }
    limited += by
    const ofUser = (counts.get(peer?.uid) ?? 0) + by
    if (ofUser === 0) counts.delete(peer?.uid)
    else counts.set(peer?.uid, ofUser)
  }

  function isWithin(peer: Peer | null, isAllowed: boolean, limits: Limits): boolean {
    const { used, most, privileged } = descriptors
    if (peer?.isPrivileged) return used < most
    if (used >= most - privileged) return false
    if (!isAllowed) return denied < MAX_DENIED
    return limited < limits.maxConnections && (counts.get(peer?.uid) ?? 0) < limits.maxConnectionsPerUser
  }

  return (peer: Peer | null, isAllowed: boolean, limits: Limits): (() => void) | null => {
    if (!isWithin(peer, isAllowed, limits)) return null
    count(peer, isAllowed, 1)
    return () => count(peer, isAllowed, -1)
  }
}

/**
 * Descriptors for connections of all sockets together: beyond them the daemon could open no file and reach no
 * service.
 */
export interface Descriptors {
  used: number
  readonly most: number
  /** The part of them that only root and the daemon's own user may use. */
  readonly privileged: number
}

/**
 * For files, logs, the service and Redis; of a small limit six tenths, so that some clients are served, too.
 */
const OWN_DESCRIPTORS = 64
const OWN_SHARE = 0.6
const PRIVILEGED_DESCRIPTORS = 32
/** Assumed if /proc is hidden: the usual soft limit. */
const USUAL_DESCRIPTORS = 1_024

export function createDescriptors(limit = descriptorLimit()): Descriptors {
  const most = limit - Math.min(OWN_DESCRIPTORS, Math.ceil(limit * OWN_SHARE))
  return { used: 0, most, privileged: Math.min(PRIVILEGED_DESCRIPTORS, Math.ceil(most / 2)) }
}

/** RLIMIT_NOFILE, whose soft limit Node has raised to the hard one. Linux has no unlimited one. */
function descriptorLimit(): number {
  const text = withSystemFallback('', () => readFileSync('/proc/self/limits', 'utf8'))
  return Number(/Max open files +(\d+)/.exec(text)?.[1] ?? USUAL_DESCRIPTORS)
}

/** The requests of a connection in the second that began at `sinceMs`. */
export interface RequestRate {
  count: number
  sinceMs: number
}

/** Counts one request. False: one too many in this second. */
export function isWithinRate(rate: RequestRate, perSecond: number): boolean {
  const nowMs = monotonicMs()
  if (nowMs - rate.sinceMs >= 1_000) {
    rate.sinceMs = nowMs
    rate.count = 0
  }
  rate.count += 1
  return rate.count <= perSecond
}
