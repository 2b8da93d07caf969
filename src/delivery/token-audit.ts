// The record of who took tokens and who reported them as refused: for the log and the status.
import { monotonicMs } from '../lib/clock.ts'
import { createHourlyCount, type Log } from '../lib/log.ts'
import type { StatusResult } from '../protocol.ts'
import type { Peer } from './guard.ts'

export type Transport = 'ipc' | 'http'
/** A client as the audit sees it; kept with its connection. */
export interface Reader {
  readonly peer: Peer
  /** Of its user, once it has taken a token. */
  tally: Tally | null
}
/** What one user did, at both sockets. */
interface Tally {
  readonly uid: number
  /** The socket that it used first. */
  readonly transport: Transport
  /** Names that clients give themselves. */
  readonly clients: Set<string>
  /** Since the start, and since the last tick. */
  total: number
  recent: number
  /** On the wall clock. */
  lastAtMs: number
}
export type TokenAudit = ReturnType<typeof createTokenAudit>

/** Clients choose their names: further ones of one user are not noted. */
const MAX_NAMES = 8

/** `nowMs`: a clock that does not jump. */
export function createTokenAudit({ log, nowMs = monotonicMs }: { log: Log; nowMs?: () => number }) {
  const takers = new Map<number, Tally>()
  const reporters = new Map<number, Tally>()
  const dueCount = createHourlyCount(nowMs)

  function tallyOf(users: Map<number, Tally>, { uid }: Peer, transport: Transport): Tally {
    const none = { clients: new Set<string>(), total: 0, recent: 0, lastAtMs: 0 }
    const tally = users.get(uid) ?? { uid, transport, ...none }
    users.set(uid, tally)
    return tally
  }

  function note(tally: Tally, client: string | undefined, wallMs: number): void {
    tally.total += 1
    tally.recent += 1
    tally.lastAtMs = wallMs
    if (client !== undefined && tally.clients.size < MAX_NAMES) tally.clients.add(client)
  }

  /** The fields of its record, if that is due: at the first time, then at most once an hour. */
  function record(event: 'token-taken' | 'token-rejected', tally: Tally): void {
    const { uid, transport, clients } = tally
    const count = dueCount(`${event} ${uid}`, tally.recent)
    tally.recent = 0
    if (count === 0) return
    const fields = { event, uid, transport, clients: [...clients], count }
    if (event === 'token-taken') log('info', 'A user took the token', fields)
    else log('warning', 'A user reported that the service refused the token', fields)
  }

  return {
    noteRead(reader: Reader, transport: Transport, client: string | undefined, wallMs: number): void {
      const isFirst = reader.tally === null
      reader.tally ??= tallyOf(takers, reader.peer, transport)
      note(reader.tally, client, wallMs)
      if (isFirst) record('token-taken', reader.tally)
    },
    noteReject({ peer }: Reader, transport: Transport, client: string | undefined, wallMs: number): void {
      const tally = tallyOf(reporters, peer, transport)
      note(tally, client, wallMs)
      record('token-rejected', tally)
    },
    /** Records what was counted in the last hour. To be called every 15 s. */
    tick(): void {
      for (const tally of takers.values()) record('token-taken', tally)
    },
    /** The users that took tokens. `of`: what else is known of a user. */
    readers: (
      of: (uid: number) => { name: string; connections: number },
    ): NonNullable<StatusResult['readers']> =>
      [...takers.values()].map(({ uid, total, lastAtMs, clients }) => ({
        uid,
        ...of(uid),
        count: total,
        lastAt: new Date(lastAtMs).toISOString(),
        clients: [...clients],
      })),
  }
}
