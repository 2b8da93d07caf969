// The record of who took tokens and who reported them as refused: for the log and the status.
import { createHourlyCount, type Log } from '../lib/log.ts'
import type { StatusResult } from '../protocol.ts'

export type Transport = 'ipc' | 'http'
/** The counts of one user, at both sockets. */
interface User {
  readonly uid: number
  /** The socket that it used first. */
  readonly transport: Transport
  /** Names that its clients give themselves. */
  readonly clients: Set<string>
  /** Tokens taken since the start, and those not counted in a record yet. */
  taken: number
  recent: number
  /** On the wall clock. */
  lastAtMs: number
}
export type TokenAudit = ReturnType<typeof createTokenAudit>

/** Clients choose their names: further ones of one user are not noted. */
const MAX_NAMES = 8

/** `nowMs`: a clock that does not jump. */
export function createTokenAudit({ log, nowMs }: { log: Log; nowMs: () => number }) {
  const users = new Map<number, User>()
  const dueTaken = createHourlyCount(nowMs)
  const dueReports = createHourlyCount(nowMs)

  function userOf(uid: number, transport: Transport, name: string | undefined): User {
    let user = users.get(uid)
    if (user === undefined) {
      user = { uid, transport, clients: new Set(), taken: 0, recent: 0, lastAtMs: 0 }
      users.set(uid, user)
    }
    if (name !== undefined && user.clients.size < MAX_NAMES) user.clients.add(name)
    return user
  }

  /** At the first time, then at most once an hour. */
  function recordTaken(user: User): void {
    const { uid, transport, clients, recent } = user
    const count = dueTaken(uid, recent)
    user.recent = 0
    const fields = { event: 'token-taken', uid, transport, clients: [...clients], count }
    if (count > 0) log('info', 'A user took the token', fields)
  }

  return {
    noteRead(uid: number, transport: Transport, name: string | undefined): void {
      const user = userOf(uid, transport, name)
      user.taken += 1
      user.recent += 1
      user.lastAtMs = Date.now()
      if (user.taken === 1) recordTaken(user)
    },
    noteReject(uid: number, transport: Transport, name: string | undefined): void {
      const { clients } = userOf(uid, transport, name)
      const count = dueReports(uid)
      const fields = { event: 'token-rejected', uid, transport, clients: [...clients], count }
      if (count > 0) log('warning', 'A user reported that the service refused the token', fields)
    },
    /** Records what was counted in the last hour. To be called every 15 s. */
    maintain(): void {
      for (const user of users.values()) recordTaken(user)
    },
    /** The users that took tokens. */
    readers: (): Omit<NonNullable<StatusResult['readers']>[number], 'name' | 'connections'>[] =>
      [...users.values()]
        .filter(({ taken }) => taken > 0)
        .map(({ uid, taken: count, lastAtMs, clients }) => {
          return { uid, count, lastAt: new Date(lastAtMs).toISOString(), clients: [...clients] }
        }),
  }
}
