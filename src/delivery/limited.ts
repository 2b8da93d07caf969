// Who was over a limit of connections: for the log, once an hour for each user, and for the status.
import type { Clock } from '../lib/clock.ts'
import { HOUR_MS } from '../lib/duration.ts'
import type { Log } from '../lib/log.ts'
import type { StatusResult } from '../protocol.ts'

type Limited = NonNullable<StatusResult['clients']['limited']>[number]
/** The limit that a connection was over. */
export type Excess = Pick<Limited, 'setting' | 'limit'>

/** Users that are remembered; of more the one that was over a limit longest ago is forgotten. */
const MAX_USERS = 64

export type LimitedUsers = ReturnType<typeof createLimitedUsers>

export function createLimitedUsers({ log, clock }: { log: Log; clock: Pick<Clock, 'now'> }) {
  /** By socket, user and setting; the last one is the last that was over its limit. */
  const found = new Map<string, Limited>()
  /** By user: when a record was made, on the boot clock, and what was counted since. */
  const records = new Map<number | null, { madeAtMs: number; count: number; last: Limited }>()

  function record(uid: number | null, nowMs: number): void {
    const entry = records.get(uid)
    if (entry === undefined || entry.count === 0 || nowMs - entry.madeAtMs < HOUR_MS) return
    const { socket, setting, limit } = entry.last
    log('warning', 'Connections of a user were closed, because there are too many: it may keep fewer open', {
      event: 'clients-limited',
      uid,
      socket,
      setting: `${socket}.${setting}`,
      limit,
      count: entry.count,
    })
    records.set(uid, { ...entry, madeAtMs: nowMs, count: 0 })
  }

  return {
    /** Counts a connection that was closed. `uid`: null for a peer that the kernel does not name. */
    note(socket: Limited['socket'], uid: number | null, excess: Excess): void {
      const now = clock.now()
      const key = `${socket} ${uid} ${excess.setting}`
      const count = (found.get(key)?.count ?? 0) + 1
      const limited = { socket, uid, ...excess, count, lastAt: new Date(now.wallMs).toISOString() }
      found.delete(key)
      found.set(key, limited)
      const entry = records.get(uid) ?? { madeAtMs: -Infinity, count: 0 }
      records.set(uid, { ...entry, count: entry.count + 1, last: limited })
      for (const map of [found, records])
        if (map.size > MAX_USERS) map.delete(map.keys().next().value as never)
      record(uid, now.bootMs)
    },
    /** Logs what was counted in the last hour. Call it at each tick. */
    flush(): void {
      const { bootMs } = clock.now()
      for (const uid of records.keys()) record(uid, bootMs)
    },
    list: (): Limited[] => [...found.values()].toReversed(),
  }
}
