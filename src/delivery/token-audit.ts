// The record of who read tokens and who reported them as refused: for the log and for the status.
import type { Clock, Instant } from '../lib/clock.ts'
import { HOUR_MS } from '../lib/duration.ts'
import type { Log } from '../lib/log.ts'
import type { RejectVerdict, StatusResult } from '../protocol.ts'
import type { Peer } from './peers.ts'

export type Transport = 'ipc' | 'http'

/** A client as the audit sees it; kept with its connection. */
export interface Reader {
  readonly peer: Peer | null
  /** The name that the client gave then, and the tally that counted it. */
  lastRead: { readonly client: string | null; readonly tally: Tally } | null
}

/** The acts of one user through one socket under one name. */
interface Tally {
  readonly uid: number
  readonly transport: Transport
  /** The name that the client gives itself, or the one that replaces it. */
  readonly client: string | null
  /** Of the last one. */
  pid: number
  verdict?: RejectVerdict
  /** Since the last record; `isLogged`: that was in this hour, and the next one is made at its end. */
  count: number
  isLogged: boolean
  /** Since the start. */
  total: number
  /** On the wall clock. */
  lastAtMs: number
}

export type TokenAudit = ReturnType<typeof createTokenAudit>

/**
 * Clients choose their names: further names of one user count under OTHER_NAMES.
 */
const MAX_NAMES = 16
const OTHER_NAMES = '(other names)'
/**
 * Reads and reports together, so that no user, of however many names and ids, crowds other records out of the
 * journal.
 */
const MAX_RECORDS_AN_HOUR = 200
const MAX_READERS = 20

export function createTokenAudit({ log, clock }: { log: Log; clock: Pick<Clock, 'now'> }) {
  const reads = createTallies()
  const rejects = createTallies()
  /** Since when, on the boot clock; the records made and left out since then. */
  let hour = { sinceMs: clock.now().bootMs, made: 0, leftOut: 0 }

  function count(tally: Tally, { pid }: Peer, now: Instant): void {
    tally.pid = pid
    tally.count += 1
    tally.total += 1
    tally.lastAtMs = now.wallMs
  }

  function record(tally: Tally): void {
    tally.isLogged = true
    if (hour.made >= MAX_RECORDS_AN_HOUR) {
      hour.leftOut += 1
      return
    }
    hour.made += 1
    const { uid, pid, transport, client, verdict } = tally
    const fields = { uid, pid, transport, ...(client !== null && { client }), count: tally.count }
    tally.count = 0
    if (verdict === undefined)
      return log('info', 'A client took the token', { event: 'token-taken', ...fields })
    const sentence = 'A client reported that the service refused the token'
    log('warning', sentence, { event: 'token-rejected', ...fields, verdict })
  }

  return {
    /**
     * Logged at `debug` for each connection, at `info` once an hour for each user, transport and client's
     * name.
     */
    recordRead(reader: Reader, transport: Transport, client: string | null, now = clock.now()): void {
      const { peer, lastRead: last } = reader
      if (peer === null) return
      if (last !== null && last.client === client) return count(last.tally, peer, now)
      const tally = reads.of(peer, transport, client)
      reader.lastRead = { client, tally }
      count(tally, peer, now)
      const fields = { transport, uid: peer.uid, pid: peer.pid, ...(client !== null && { client }) }
      log('debug', 'A connection was given the token', { event: 'token-given', ...fields })
      if (!tally.isLogged) record(tally)
    },
    /** A client reported a token as refused: logged at once, and then once an hour for each reporter. */
    recordReject(peer: Peer, transport: Transport, client: string | undefined, verdict: RejectVerdict): void {
      const tally = rejects.of(peer, transport, client ?? null)
      count(tally, peer, clock.now())
      tally.verdict = verdict
      if (!tally.isLogged) record(tally)
    },
    /** Once an hour logs what was counted since, and how many records were left out. Call it at each tick. */
    flush(): void {
      const { bootMs } = clock.now()
      if (bootMs - hour.sinceMs < HOUR_MS) return
      if (hour.leftOut > 0)
        log('warning', 'Records of who took or reported the token were left out', {
          event: 'token-records-left-out',
          count: hour.leftOut,
        })
      hour = { sinceMs: bootMs, made: 0, leftOut: 0 }
      for (const tally of [...reads.all(), ...rejects.all()]) {
        tally.isLogged = false
        if (tally.count > 0) record(tally)
      }
    },
    /** At most 20 who took the token last. */
    readers: (): NonNullable<StatusResult['readers']> =>
      [...reads.all()]
        .toSorted((one, other) => other.lastAtMs - one.lastAtMs)
        .slice(0, MAX_READERS)
        .map(({ uid, client, transport, pid, lastAtMs, total }) => {
          const lastAt = new Date(lastAtMs).toISOString()
          return { uid, client, transport, pid, lastAt, count: total }
        }),
  }
}

/** Tallies by user, transport and name. */
function createTallies() {
  const tallies = new Map<string, Tally>()
  /** The number of names, by user. */
  const names = new Map<number, number>()

  function of(peer: Peer, transport: Transport, client: string | null): Tally {
    const { uid } = peer
    const key = `${uid} ${transport} ${client ?? ''}`
    const found = tallies.get(key)
    if (found !== undefined) return found
    if (client !== null && client !== OTHER_NAMES) {
      const count = names.get(uid) ?? 0
      if (count >= MAX_NAMES) return of(peer, transport, OTHER_NAMES)
      names.set(uid, count + 1)
    }
    const none = { pid: 0, count: 0, isLogged: false, total: 0, lastAtMs: 0 }
    const tally: Tally = { uid, transport, client, ...none }
    tallies.set(key, tally)
    return tally
  }

  return { of, all: () => tallies.values() }
}
