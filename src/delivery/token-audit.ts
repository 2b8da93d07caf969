// The record of who read tokens and who reported them as refused: for the log and for the status.
import type { Log } from '../lib/log.ts'
import { monotonicMs as systemMonotonicMs } from '../lib/clock.ts'
import type { RejectVerdict, StatusResult } from '../protocol.ts'
import type { Peer } from './peers.ts'

export type Transport = 'ipc' | 'http'

/** A client as the audit sees it; kept with its connection. */
export interface Reader {
  readonly peer: Peer | null
  /** Its last read: the name that it gave itself then, and where that is counted. */
  reads: { readonly client: string | null; readonly tally: Tally; readonly epoch: number } | null
}

/** The acts of one user through one socket under one name. */
export interface Tally {
  readonly uid: number
  readonly transport: Transport
  /** The name that the client gives itself, or the one that replaces it. */
  readonly client: string | null
  /** Of the last one. */
  pid: number
  verdict?: RejectVerdict
  /** Since the last record. */
  count: number
  /** Since the start. */
  total: number
  lastAtMs: number
  loggedAtMs: number
}

export interface TokenAudit {
  /**
   * A connection was given the token: logged at `debug` for each connection, at `info` once an hour for each user,
   * transport and client's name.
   */
  recordRead(reader: Reader, transport: Transport, client: string | null): void
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
/** Beyond so many in all, all counts begin again. */
const MAX_TALLIES = 4_096
const MAX_READERS = 20

export function createTokenAudit(options: {
  log: Log
  /** A monotonic clock, in ms. */
  monotonicMs?: () => number
  /** In ms since the epoch. */
  wallMs?: () => number
}): TokenAudit {
  const { log, monotonicMs = systemMonotonicMs, wallMs = Date.now } = options
  const reads = new Map<string, Tally>()
  let epoch = 0
  const rejects = new Map<string, Tally>()

  function count(tally: Tally, { pid }: Peer): void {
    tally.pid = pid
    tally.count += 1
    tally.total += 1
    tally.lastAtMs = wallMs()
  }

  function tallyOf(
    tallies: Map<string, Tally>,
    { uid, transport, client: asked }: Pick<Tally, 'uid' | 'transport' | 'client'>,
  ): Tally {
    const found = tallies.get(`${uid} ${transport} ${asked ?? ''}`)
    if (found !== undefined) return found
    const names = [...tallies.values()].filter((tally) => tally.uid === uid && tally.client !== null)
    const client = asked !== null && names.length >= MAX_NAMES ? OTHER_NAMES : asked
    const key = `${uid} ${transport} ${client ?? ''}`
    if (tallies.size >= MAX_TALLIES) {
      tallies.clear()
      epoch += 1
    }
    const counts = { pid: 0, count: 0, total: 0, lastAtMs: 0, loggedAtMs: -Infinity }
    const tally = tallies.get(key) ?? { uid, transport, client, ...counts }
    tallies.set(key, tally)
    return tally
  }

  /** Logs the tally at most once an hour, and sets its count back. */
  function logIfDue(tally: Tally): void {
    if (tally.count === 0 || monotonicMs() - tally.loggedAtMs < HOUR_MS) return
    const { uid, pid, transport, client, verdict } = tally
    const fields = { uid, pid, transport, ...(client !== null && { client }), count: tally.count }
    tally.loggedAtMs = monotonicMs()
    tally.count = 0
    if (verdict === undefined)
      return log('info', 'A client took the token', { event: 'token-taken', ...fields })
    const sentence = 'A client reported that the service refused the token'
    log('warning', sentence, { event: 'token-rejected', ...fields, verdict })
  }

  return {
    recordRead(reader, transport, client) {
      const { peer } = reader
      if (peer === null) return
      const { uid, pid } = peer
      const isKnown = reader.reads?.client === client && reader.reads.epoch === epoch
      if (!isKnown) {
        const tally = tallyOf(reads, { uid, transport, client })
        reader.reads = { client, tally, epoch }
      }
      const { tally } = reader.reads!
      count(tally, peer)
      if (isKnown) return
      const fields = { transport, uid, pid, ...(client !== null && { client }) }
      log('debug', 'A connection was given the token', { event: 'token-given', ...fields })
      logIfDue(tally)
    },
    recordReject(peer, transport, { client, verdict }) {
      const tally = tallyOf(rejects, { uid: peer.uid, transport, client })
      count(tally, peer)
      tally.verdict = verdict
      logIfDue(tally)
    },
    flush() {
      for (const tally of [...reads.values(), ...rejects.values()]) logIfDue(tally)
    },
    readers: () =>
      [...reads.values()]
        .toSorted((one, other) => other.lastAtMs - one.lastAtMs)
        .slice(0, MAX_READERS)
        .map(({ uid, client, transport, pid, lastAtMs, total }) => {
          const lastAt = new Date(lastAtMs).toISOString()
          return { uid, client, transport, pid, lastAt, count: total }
        }),
  }
}
