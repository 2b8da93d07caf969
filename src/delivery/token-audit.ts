// The record of who read tokens and who reported them as refused: for the log and for the status.
import type { Log } from '../lib/log.ts'
import { monotonicMs as systemMonotonicMs } from '../lib/monotonic.ts'
import type { RejectVerdict, StatusResult } from '../protocol.ts'
import type { Peer } from './peers.ts'

export type Transport = 'ipc' | 'http'

/** A client as the audit sees it; kept with its connection. */
export interface Reader {
  readonly peer: Peer | null
  reads: { readonly client: string | null; readonly tally: Tally } | null
}

/** The acts of one user through one socket under one name. */
export interface Tally {
  readonly uid: number
  readonly transport: Transport
  /** The name that the client gives itself, or the one that replaces it. */
  readonly name: string | null
  /** Of the last one. */
  pid: number
  verdict?: RejectVerdict
  /** Since the last record. */
  count: number
  /** Since the start. */
  total: number
  lastAtMs: number
  loggedAtMs: number
  /** Not kept any more: what follows begins again. */
  isForgotten: boolean
}

export interface TokenAudit {
  /**
   * A connection was given the token: logged at `debug` for each connection, at `info` once an hour for each user,
   * transport and client's name. `atMs`: by the wall clock, which the caller has read already.
   */
  recordRead(reader: Reader, transport: Transport, read: { client: string | null; atMs: number }): void
  /** A client reported a token as refused: logged at once, and then once an hour for each reporter. */
  recordReject(
    peer: Peer,
    transport: Transport,
    report: { client: string | null; verdict: RejectVerdict },
  ): void
  /** Logs what an hour has gathered. To be called every now and then. */
  flush(): void
  /** At most 20 who took the token last. */
  readers(): NonNullable<StatusResult['readers']>
}

const HOUR_MS = 3_600_000
/** Clients choose their names: those of one user beyond so many count under one. */
const MAX_NAMES = 16
const OTHER_NAMES = '(other names)'
/** Beyond so many in all, the one that was quiet for longest is forgotten. */
const MAX_TALLIES = 1_024
const MAX_READERS = 20

export function createTokenAudit(options: {
  log: Log
  /** A monotonic clock, in ms. */
  monotonicMs?: () => number
}): TokenAudit {
  const { log, monotonicMs = systemMonotonicMs } = options
  const reads = createTallies()
  const rejects = createTallies()

  /** Logs the tally at most once an hour, and sets its count back. */
  function logIfDue(tally: Tally): void {
    if (tally.count === 0 || monotonicMs() - tally.loggedAtMs < HOUR_MS) return
    const { uid, pid, transport, name, count, verdict } = tally
    const fields = { uid, pid, transport, ...(name !== null && { client: name }), count }
    tally.loggedAtMs = monotonicMs()
    tally.count = 0
    if (verdict === undefined) log('info', 'A client took the token', { event: 'token-taken', ...fields })
    else {
      log('warning', 'A client reported that the service refused the token', {
        event: 'token-rejected',
        ...fields,
        verdict,
      })
    }
  }

  return {
    recordRead(reader, transport, { client, atMs }) {
      const { peer } = reader
      if (peer === null) return
      const isKnown = reader.reads?.client === client && !reader.reads.tally.isForgotten
      if (!isKnown) {
        reader.reads = { client, tally: reads.of(peer, transport, client) }
        const { uid, pid } = peer
        const fields = { transport, uid, pid, ...(client !== null && { client }) }
        log('debug', 'A connection was given the token', { event: 'token-given', ...fields })
      }
      const { tally } = reader.reads!
      tally.pid = peer.pid
      tally.count += 1
      tally.total += 1
      tally.lastAtMs = atMs
      if (!isKnown) logIfDue(tally)
    },
    recordReject(peer, transport, { client, verdict }) {
      const tally = rejects.of(peer, transport, client)
      tally.pid = peer.pid
      tally.count += 1
      tally.verdict = verdict
      tally.lastAtMs = monotonicMs()
      logIfDue(tally)
    },
    flush() {
      for (const tally of [...reads.all(), ...rejects.all()]) logIfDue(tally)
    },
    readers: () =>
      reads
        .all()
        .toSorted((one, other) => other.lastAtMs - one.lastAtMs)
        .slice(0, MAX_READERS)
        .map(({ uid, name, transport, pid, lastAtMs, total }) => ({
          uid,
          client: name,
          transport,
          pid,
          lastAt: new Date(lastAtMs).toISOString(),
          count: total,
        })),
  }
}

interface Tallies {
  /** The tally of this user, transport and name. */
  of(peer: Peer, transport: Transport, name: string | null): Tally
  all(): Tally[]
}

function createTallies(): Tallies {
  const tallies = new Map<string, Tally>()
  const keyOf = (uid: number, transport: Transport, name: string | null): string =>
    JSON.stringify([uid, transport, name])

  function namesOf(uid: number): number {
    const names = [...tallies.values()].filter((tally) => tally.uid === uid && tally.name !== null)
    return new Set(names.map(({ name }) => name)).size
  }

  function forgetQuietest(): void {
    const quietest = [...tallies.values()].reduce((one, other) =>
      other.lastAtMs < one.lastAtMs ? other : one,
    )
    quietest.isForgotten = true
    tallies.delete(keyOf(quietest.uid, quietest.transport, quietest.name))
  }

  return {
    of({ uid, pid }, transport, asked) {
      const found = tallies.get(keyOf(uid, transport, asked))
      if (found !== undefined) return found
      const name = asked !== null && namesOf(uid) >= MAX_NAMES ? OTHER_NAMES : asked
      const key = keyOf(uid, transport, name)
      const known = tallies.get(key)
      if (known !== undefined) return known
      if (tallies.size >= MAX_TALLIES) forgetQuietest()
      const counts = { pid, count: 0, total: 0, lastAtMs: 0, loggedAtMs: -Infinity }
      const tally: Tally = { uid, transport, name, ...counts, isForgotten: false }
      tallies.set(key, tally)
      return tally
    },
    all: () => [...tallies.values()],
  }
}
