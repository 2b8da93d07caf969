// The limits of clients: what one connection may have, and how many connections there may be, in all and of
// each user.
import { readFileSync } from 'node:fs'
import type { SocketConfig } from '../config/config.ts'
import { monotonicMs } from '../lib/clock.ts'
import { withSystemFallback } from '../lib/error.ts'
import type { Fault } from '../protocol.ts'
import type { Excess } from './limited.ts'
import type { Peer } from './peers.ts'

/** Requests of one connection that wait for a token. */
export const MAX_WAITING = 16
export const MAX_SUBSCRIPTIONS = 16
export const MAX_HEAD_BYTES = 8 * 1024
export const MAX_HEAD_FIELDS = 64
/** Body of an HTTP request: a report of the longest token fits. */
export const MAX_BODY_BYTES = 32 * 1024
/** Connections of peers that `allow` excludes, while their first request is awaited. */
export const MAX_DENIED = 64

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
/** The limits of one socket: `room` is that of all its connections, whosoever they are. */
export type Limits = Pick<SocketConfig, 'maxConnections' | 'maxConnectionsPerUser'> & {
  readonly room: number
}

/**
 * Counts one more connection against the limits of its socket. Returns the function that ends the count, or
 * the limit that it is over; null: too many that `allow` excludes. Root and the daemon's own user have no
 * limit but the descriptors, peers that `allow` excludes one of their own, and unknown users count as one.
 */
export function createQuota() {
  /** By user; of those that are limited. */
  const counts = new Map<number | undefined, number>()
  let all = 0
  let limited = 0
  let denied = 0

  function count(peer: Peer | null, isAllowed: boolean, by: 1 | -1): void {
    all += by
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

  function excessOf(peer: Peer | null, isAllowed: boolean, limits: Limits): Excess | null | undefined {
    const { maxConnections, maxConnectionsPerUser, room } = limits
    if (all >= room) return { setting: 'LimitNOFILE', limit: room }
    if (peer?.isPrivileged) return undefined
    if (!isAllowed) return denied < MAX_DENIED ? undefined : null
    if ((counts.get(peer?.uid) ?? 0) >= maxConnectionsPerUser)
      return { setting: 'maxConnectionsPerUser', limit: maxConnectionsPerUser }
    return limited < maxConnections ? undefined : { setting: 'maxConnections', limit: maxConnections }
  }

  return (peer: Peer | null, isAllowed: boolean, limits: Limits): (() => void) | Excess | null => {
    const excess = excessOf(peer, isAllowed, limits)
    if (excess !== undefined) return excess
    count(peer, isAllowed, 1)
    return () => count(peer, isAllowed, -1)
  }
}

/**
 * Descriptors for files, logs, the service and Redis, beside those of the listening sockets; of a small limit
 * six tenths, so that some clients are served, too.
 */
const OWN_DESCRIPTORS = 64
const OWN_SHARE = 0.6
/** `ipc`, `http`, `metrics` and one in reserve. */
const LISTENING_SOCKETS = 4
/** Of all descriptors a 128th for each listening socket, and no more than this. */
const MOST_ACCEPTED_IN_A_TURN = 32
/** Of each socket, beside the others, for root and the daemon's own user. */
export const PRIVILEGED_CONNECTIONS = 32
/** Connections to the metrics. */
export const METRICS_CONNECTIONS = 256
/** Assumed if /proc is hidden: the usual soft limit. */
const USUAL_DESCRIPTORS = 1_024

/**
 * The share of the connections by socket for which there are descriptors beside all else that needs one; over
 * 1: there are more. Without the rest the daemon could open no file and reach no service.
 */
export function fitConnections(
  wanted: Readonly<Record<string, number>>,
  openFiles = descriptorLimit(),
): { readonly share: number; readonly openFiles: number } {
  const own = OWN_DESCRIPTORS + LISTENING_SOCKETS * acceptedInATurn(openFiles)
  const free = openFiles - Math.min(own, Math.ceil(openFiles * OWN_SHARE))
  const needed = Object.values(wanted).reduce((sum, each) => sum + each + PRIVILEGED_CONNECTIONS, 0)
  return { share: free / needed, openFiles }
}

/**
 * Node accepts one connection in each turn of the event loop for each descriptor of a listening socket: each
 * has so many, or a newcomer would wait for as many turns as others have connected before. A turn is long
 * while a thousand connections are busy.
 */
export function acceptedInATurn(openFiles = descriptorLimit()): number {
  return Math.max(1, Math.min(MOST_ACCEPTED_IN_A_TURN, Math.floor(openFiles / 128)))
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
