// The limits of clients. They are small, so that their product with the number of connections stays below the memory of the
// unit (config/resolve.ts): there is no common budget, and no client ever loses its connection for another one.
import { readFileSync } from 'node:fs'
import type { SocketConfig } from '../config/config.ts'
import { monotonicMs } from '../lib/clock.ts'
import { withSystemFallback } from '../lib/error.ts'
import type { Peer } from './peers.ts'

/** While so much of its answers is unsent, nothing more is read from a client. */
export const MAX_UNSENT_BYTES = 16 * 1024
/** SO_SNDBUF of a connection; the kernel doubles it, and the usual 208 KiB of each would be the unit's memory too. */
export const SEND_BUFFER_BYTES = 4 * 1024
/** Requests of one connection that wait for a token; further ones are read later. */
export const MAX_WAITING = 16
export const MAX_SUBSCRIPTIONS = 16
/** Requests of one connection that are answered in one go, before others have their turn. */
export const REQUESTS_PER_TURN = 8
/** As much is parsed as soon as it is read; more waits for its turn: long requests of many clients take time and memory. */
export const AT_ONCE_BYTES = 1024
export const MAX_HEAD_BYTES = 8 * 1024
export const MAX_HEAD_FIELDS = 64
/** Body of an HTTP request: a report of the longest token fits. */
export const MAX_BODY_BYTES = 32 * 1024
/** After its last message a connection is read from for so long, in ms: closed with something unread, it would be reset. */
export const LINGER_MS = 5_000
/** Connections that linger; beyond them one is closed at once. */
export const MAX_LINGERING = 256
/** Connections of peers that `allow` excludes, while their first request is awaited. */
const MAX_DENIED = 64

/** idle: nothing is asked, awaited or subscribed to; stalled: answers are not read; incomplete-request: a request has begun and does not end. */
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
export type Descriptors = ReturnType<typeof createDescriptors>

/** For files, logs, the service, Redis and connections that linger. */
const RESERVED_DESCRIPTORS = 64 + MAX_LINGERING
/** Of the others so many are for root and the daemon's own user. */
const PRIVILEGED_DESCRIPTORS = 32
/** POSIX: the least that a process has. Where /proc is hidden nothing better is known. */
const USUAL_DESCRIPTORS = 1_024

export function createDescriptors(limit = descriptorLimit()) {
  const most = Math.max(limit - RESERVED_DESCRIPTORS, PRIVILEGED_DESCRIPTORS * 2)
  return {
    used: 0,
    left(peer: Peer | null): number {
      return most - this.used - (peer?.isPrivileged ? 0 : PRIVILEGED_DESCRIPTORS)
    },
  }
}

/** RLIMIT_NOFILE, whose soft limit Node has raised to the hard one. */
function descriptorLimit(): number {
  const text = withSystemFallback('', () => readFileSync('/proc/self/limits', 'utf8'))
  const [, soft] = /^Max open files +(\d+|unlimited)/m.exec(text) ?? []
  return soft === 'unlimited' ? Infinity : Number(soft ?? USUAL_DESCRIPTORS)
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

/** Once per round of the event loop so much time goes to work that waits for its turn, in ms. */
const TURNS_MS = 5

/**
 * Returns a function that queues work. Each round of the event loop does a part of the queue: new clients are accepted and
 * read from, however much others have sent, and however many wait for the next token.
 */
export function createTurns(): (work: () => void) => void {
  const waiting: (() => void)[] = []
  let isScheduled = false

  function schedule(): void {
    if (isScheduled || waiting.length === 0) return
    isScheduled = true
    setImmediate(run)
  }

  function run(): void {
    const until = monotonicMs() + TURNS_MS
    for (let left = waiting.length; left > 0 && monotonicMs() < until; left -= 1) waiting.shift()?.()
    isScheduled = false
    schedule()
  }

  return (work) => {
    waiting.push(work)
    schedule()
  }
}
