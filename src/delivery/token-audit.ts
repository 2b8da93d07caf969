// The record of who took tokens and who reported them as refused: for the log and the status.
import type { Clock } from '../lib/clock.ts'
import { HOUR_MS } from '../lib/duration.ts'
import type { Log } from '../lib/log.ts'
import type { StatusResult } from '../protocol.ts'
import type { Peer } from './peers.ts'

export type Transport = 'ipc' | 'http'
/** A client as the audit sees it; kept with its connection. */
export interface Reader {
  readonly peer: Peer
  /** Of its user, once it has taken a token, and the name that it gave then. */
  tally: Tally | null
  client: string | undefined
}

/** What one user did at one socket. */
interface Tally {
  readonly event: 'token-taken' | 'token-rejected'
  readonly transport: Transport
  readonly uid: number
  /** Names that clients give themselves. */
  readonly clients: Set<string>
  /** Since the start. */
  total: number
  /** Since the last record, and when that was made, on the boot clock. */
  count: number
  recordedAtMs: number
  /** On the wall clock. */
  lastAtMs: number
}
export type TokenAudit = ReturnType<typeof createTokenAudit>

/** Clients choose their names: further ones of one user are not noted. */
const MAX_NAMES = 8

export function createTokenAudit({ log, clock }: { log: Log; clock: Pick<Clock, 'now'> }) {
  const tallies = new Map<string, Tally>()

  function tallyOf(event: Tally['event'], transport: Transport, uid: number): Tally {
    const key = `${event} ${transport} ${uid}`
    const before = tallies.get(key)
    if (before !== undefined) return before
    const none = { clients: new Set<string>(), total: 0, count: 0, recordedAtMs: -Infinity, lastAtMs: 0 }
    const tally = { event, transport, uid, ...none }
    tallies.set(key, tally)
    return tally
  }

  function note(tally: Tally, client: string | undefined): void {
    const { bootMs, wallMs } = clock.now()
    tally.total += 1
    tally.count += 1
    tally.lastAtMs = wallMs
    if (client !== undefined && tally.clients.size < MAX_NAMES) tally.clients.add(client)
    record(tally, bootMs)
  }

  /** At the first one, then at most once an hour. */
  function record(tally: Tally, nowMs: number): void {
    if (tally.count === 0 || nowMs - tally.recordedAtMs < HOUR_MS) return
    const { event, uid, transport, count } = tally
    tally.count = 0
    tally.recordedAtMs = nowMs
    const fields = { event, uid, transport, clients: [...tally.clients], count }
    if (event === 'token-taken') log('info', 'A user took the token', fields)
    else log('warning', 'A user reported that the service refused the token', fields)
  }

  return {
    noteRead(reader: Reader, transport: Transport, client: string | undefined, wallMs: number): void {
      const { tally } = reader
      if (tally === null || (client !== undefined && client !== reader.client)) {
        reader.tally = tallyOf('token-taken', transport, reader.peer.uid)
        reader.client = client
        return note(reader.tally, client)
      }
      tally.total += 1
      tally.count += 1
      tally.lastAtMs = wallMs
    },
    noteReject({ uid }: Peer, transport: Transport, client: string | undefined): void {
      note(tallyOf('token-rejected', transport, uid), client)
    },
    /** Records what was counted in the last hour. To be called every 15 s. */
    tick(): void {
      const { bootMs } = clock.now()
      for (const tally of tallies.values()) record(tally, bootMs)
    },
    /** Those who took tokens, at both sockets together. `of`: what else is known of a user. */
    readers(
      of: (uid: number) => { name: string; connections: number },
    ): NonNullable<StatusResult['readers']> {
      const users = new Map<number, NonNullable<StatusResult['readers']>[number]>()
      for (const { event, uid, total, lastAtMs, clients } of tallies.values()) {
        if (event !== 'token-taken') continue
        const user = users.get(uid) ?? { uid, ...of(uid), count: 0, lastAt: '', clients: [] }
        const lastAt = new Date(lastAtMs).toISOString()
        users.set(uid, {
          ...user,
          count: user.count + total,
          lastAt: lastAt > user.lastAt ? lastAt : user.lastAt,
          clients: [...new Set([...user.clients, ...clients])].slice(0, MAX_NAMES),
        })
      }
      return [...users.values()]
    },
  }
}
