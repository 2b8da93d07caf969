// The record of who read tokens and who reported them as refused: for the log and for the status.
import type { Log } from '../lib/log.ts'
import type { RejectVerdict, StatusResult } from '../protocol.ts'
import type { Peer } from './peer-credentials.ts'
import { createProcessNames } from './process-names.ts'
import { monotonicMs as systemMonotonicMs } from '../lib/monotonic.ts'

export type Transport = 'ipc' | 'http'

/** A client as the audit sees it; kept with its connection. */
export interface Reader {
  readonly peer: Peer | null
  reads: ReadCounter | null
}
/** Tokens read by the processes of one user and name, under one name of a client. */
export interface ReadCounter extends Tally {
  readonly transport: Transport
  /** Another connection of the same program was there before: count there. */
  mergedInto: ReadCounter | null
}

interface Tally {
  readonly uid: number
  pid: number
  /** null: /proc does not show it, or not yet. */
  process: string | null
  /** The name that the client gives itself. */
  readonly client: string | null
  /** Since the last record. */
  count: number
  /** Since the start. */
  total: number
  lastAtMs: number
  loggedAtMs: number
  /** Not logged any more: a later read begins again. */
  isForgotten: boolean
}
interface RejectTally extends Tally {
  verdict: RejectVerdict
}

export interface TokenAudit {
  /**
   * A connection was given the token: logged at `debug` for each connection, at `info` once an hour for each user,
   * process and client's name. `atMs`: by the wall clock, which the caller has
   * read already: another reading costs more than the count.
   */
  recordRead(reader: Reader, transport: Transport, client: string | null, atMs: number): void
  /** A client reported a token as refused: logged at once, and then once an hour for each reporter. */
  recordReject(peer: Peer | null, verdict: RejectVerdict, client: string | null): void
  /** Logs what an hour has gathered. To be called every now and then. */
  flush(): void
  /** At most 20 who read the token last. */
  readers(): NonNullable<StatusResult['readers']>
}

const HOUR_MS = 3_600_000
/** Names are chosen by clients; beyond so many combinations those of one user count as one without a name. */
const MAX_TALLIES = 512
const MAX_READERS = 20

export function createTokenAudit(options: {
  log: Log
  processName?: (pid: number) => Promise<string | null>
  /** A monotonic clock, in ms. */
  monotonicMs?: () => number
}): TokenAudit {
  const { log, monotonicMs = systemMonotonicMs } = options
  const processName = options.processName ?? createProcessNames({ monotonicMs })
  const reads = new Map<string, ReadCounter>()
  const rejects = new Map<string, RejectTally>()

  /** The tally of the same kind that is there already, or the new one, which then is. */
  function adopt<T extends Tally>(tallies: Map<string, T>, tally: T, prefix = ''): T {
    const keyOf = (process: string | null, client: string | null): string =>
      JSON.stringify([prefix, tally.uid, process, client])
    const known = tallies.get(keyOf(tally.process, tally.client))
    if (known !== undefined) return known
    if (tallies.size >= MAX_TALLIES) forgetQuiet(tallies)
    const isFull = tallies.size >= MAX_TALLIES
    const adopted = isFull ? { ...tally, process: null, client: null, count: 0, total: 0 } : tally
    const key = keyOf(adopted.process, adopted.client)
    const other = tallies.get(key)
    if (other !== undefined) return other
    tallies.set(key, adopted)
    return adopted
  }

  function forgetQuiet(tallies: Map<string, Tally>): void {
    for (const [key, tally] of tallies) {
      tally.isForgotten = tally.count === 0 && monotonicMs() - tally.loggedAtMs >= HOUR_MS
      if (tally.isForgotten) tallies.delete(key)
    }
  }

  function recordRead(reader: Reader, transport: Transport, client: string | null, atMs: number): void {
    let counter = reader.reads
    if (counter === null || counter.client !== client || counter.isForgotten) {
      if (reader.peer === null) return
      counter = { ...newTally(reader.peer, client), transport, mergedInto: null }
      void attribute(counter)
    }
    // The name of the process is known now, and it has read before.
    if (counter.mergedInto !== null) counter = counter.mergedInto
    reader.reads = counter
    counter.count += 1
    counter.total += 1
    counter.lastAtMs = atMs
  }

  /** Counts what was read before the name of the process was known where it belongs. */
  async function attribute(counter: ReadCounter): Promise<void> {
    counter.process = await processName(counter.pid)
    const { uid, pid, process, client, transport } = counter
    log('debug', 'A connection was given the token', {
      event: 'token-given',
      transport,
      uid,
      pid,
      process,
      ...(client !== null && { client }),
    })
    const known = adopt(reads, counter, transport)
    if (known !== counter) {
      counter.mergedInto = known
      known.pid = pid
      known.count += counter.count
      known.total += counter.total
      known.lastAtMs = Math.max(known.lastAtMs, counter.lastAtMs)
    }
    logReads(known)
  }

  function recordReject(peer: Peer | null, verdict: RejectVerdict, client: string | null): void {
    if (peer === null) return
    void processName(peer.pid).then((process) => {
      const tally = adopt(rejects, { ...newTally(peer, client), process, verdict })
      tally.pid = peer.pid
      tally.verdict = verdict
      tally.count += 1
      return logRejects(tally)
    })
  }

  function isDue(tally: Tally): boolean {
    if (tally.count === 0 || monotonicMs() - tally.loggedAtMs < HOUR_MS) return false
    tally.loggedAtMs = monotonicMs()
    return true
  }

  function logReads(counter: ReadCounter): void {
    if (!isDue(counter)) return
    log('info', 'A client took the token', { event: 'token-taken', ...describe(counter) })
    counter.count = 0
  }

  function logRejects(tally: RejectTally): void {
    if (!isDue(tally)) return
    const { verdict } = tally
    log('warning', 'A client reported that the service refused the token', {
      event: 'token-rejected',
      ...describe(tally),
      verdict,
    })
    tally.count = 0
  }

  return {
    recordRead,
    recordReject,
    flush() {
      reads.forEach(logReads)
      rejects.forEach(logRejects)
    },
    readers: () => describeReaders(reads.values()),
  }
}

function newTally({ uid, pid }: Peer, client: string | null): Tally {
  return {
    uid,
    pid,
    process: null,
    client,
    count: 0,
    total: 0,
    lastAtMs: 0,
    loggedAtMs: -Infinity,
    isForgotten: false,
  }
}

function describe({ uid, pid, process, client, count }: Tally): Record<string, unknown> {
  const named = process === null ? { process, processUnknown: PROCESS_UNKNOWN } : { process }
  return { uid, pid, ...named, ...(client !== null && { client }), count }
}

const PROCESS_UNKNOWN =
  'it has ended, or /proc hides it, as ProtectProc=invisible of the unit does; see kyc-tokend(8) to change that'

/** One line for each user, process and transport, whatever names its clients give themselves. */
function describeReaders(counters: Iterable<ReadCounter>): NonNullable<StatusResult['readers']> {
  const readers = new Map<string, NonNullable<StatusResult['readers']>[number]>()
  for (const { uid, process, transport, lastAtMs, total } of [...counters].toSorted(byLastRead)) {
    const key = JSON.stringify([uid, process, transport])
    const reader = readers.get(key) ?? {
      uid,
      process,
      transport,
      lastAt: new Date(lastAtMs).toISOString(),
      count: 0,
    }
    reader.count += total
    readers.set(key, reader)
  }
  return [...readers.values()].slice(0, MAX_READERS)
}

function byLastRead(one: ReadCounter, other: ReadCounter): number {
  return other.lastAtMs - one.lastAtMs
}
