// The record of who read tokens and who reported them as refused: for the log and for the status.
import type { Clock } from '../lib/clock.ts'
import type { Log } from '../lib/log.ts'
import type { RejectVerdict, StatusResult } from '../protocol.ts'
import type { Peer } from './peers.ts'

export type Transport = 'ipc' | 'http'

/** A client as the audit sees it; kept with its connection. */
export interface Reader {
  readonly peer: Peer | null
  /** Its last read: the name that the client gave, and the tally that counts it. */
  reads: { readonly client: string | null; readonly tally: Tally } | null
}

/** The acts of one user through one socket under one name. */
interface Tally {
  readonly key: string
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
  /** On the wall clock. */
  lastAtMs: number
  /** On the boot clock. */
  loggedAtMs: number
}

export type TokenAudit = ReturnType<typeof createTokenAudit>

const HOUR_MS = 3_600_000
/** Clients choose their names: further names of one user count under OTHER_NAMES. */
const MAX_NAMES = 16
const OTHER_NAMES = '(other names)'
/** If there are this many tallies, a new one replaces the oldest. */
const MAX_TALLIES = 4_096
const MAX_READERS = 20
const NO_ACTS = { pid: 0, count: 0, total: 0, lastAtMs: 0, loggedAtMs: -Infinity }

export function createTokenAudit({ log, clock }: { log: Log; clock: Pick<Clock, 'now'> }) {
  const reads = new Map<string, Tally>()
  const rejects = new Map<string, Tally>()

  function tallyOf(
    tallies: Map<string, Tally>,
    peer: Peer,
    transport: Transport,
    client: string | null,
  ): Tally {
    const { uid } = peer
    const key = `${uid} ${transport} ${client ?? ''}`
    const found = tallies.get(key)
    if (found !== undefined) return found
    const names = [...tallies.values()].filter((tally) => tally.uid === uid && tally.client !== null)
    if (client !== null && client !== OTHER_NAMES && names.length >= MAX_NAMES)
      return tallyOf(tallies, peer, transport, OTHER_NAMES)
    const [oldest] = tallies.keys()
    if (tallies.size >= MAX_TALLIES) tallies.delete(oldest!)
    const tally = { key, uid, transport, client, ...NO_ACTS }
    tallies.set(key, tally)
    return tally
  }

  function count(tally: Tally, { pid }: Peer): void {
    tally.pid = pid
    tally.count += 1
    tally.total += 1
    tally.lastAtMs = clock.now().wallMs
  }

  /** Logs the tally, at most once an hour, and resets its count. */
  function logIfDue(tally: Tally): void {
    const { bootMs } = clock.now()
    if (tally.count === 0 || bootMs - tally.loggedAtMs < HOUR_MS) return
    const { uid, pid, transport, client, verdict } = tally
    const fields = { uid, pid, transport, ...(client !== null && { client }), count: tally.count }
    tally.loggedAtMs = bootMs
    tally.count = 0
    if (verdict === undefined)
      return log('info', 'A client took the token', { event: 'token-taken', ...fields })
    const sentence = 'A client reported that the service refused the token'
    log('warning', sentence, { event: 'token-rejected', ...fields, verdict })
  }

  return {
    /** Logged at `debug` for each connection, at `info` once an hour for each user, transport and client's name. */
    recordRead(reader: Reader, transport: Transport, client: string | null): void {
      const { peer, reads: last } = reader
      if (peer === null) return
      if (last !== null && last.client === client && reads.get(last.tally.key) === last.tally)
        return count(last.tally, peer)
      const tally = tallyOf(reads, peer, transport, client)
      reader.reads = { client, tally }
      count(tally, peer)
      const fields = { transport, uid: peer.uid, pid: peer.pid, ...(client !== null && { client }) }
      log('debug', 'A connection was given the token', { event: 'token-given', ...fields })
      logIfDue(tally)
    },
    /** A client reported a token as refused: logged at once, and then once an hour for each reporter. */
    recordReject(peer: Peer, transport: Transport, client: string | undefined, verdict: RejectVerdict): void {
      const tally = tallyOf(rejects, peer, transport, client ?? null)
      count(tally, peer)
      tally.verdict = verdict
      logIfDue(tally)
    },
    /** Logs the tallies that are due. Call it at each tick. */
    flush(): void {
      for (const tally of [...reads.values(), ...rejects.values()]) logIfDue(tally)
    },
    /** At most 20 who took the token last. */
    readers: (): NonNullable<StatusResult['readers']> =>
      [...reads.values()]
        .toSorted((one, other) => other.lastAtMs - one.lastAtMs)
        .slice(0, MAX_READERS)
        .map(({ uid, client, transport, pid, lastAtMs, total }) => {
          const lastAt = new Date(lastAtMs).toISOString()
          return { uid, client, transport, pid, lastAt, count: total }
        }),
  }
}
