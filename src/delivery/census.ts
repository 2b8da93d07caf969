// How many connections there are, in all and of each user; root and the daemon's own user are not among them.
import type { SocketConfig } from '../config/config.ts'
import type { Guest } from './guest.ts'

export interface Census {
  add(guest: Guest): void
  /** Once is enough, and twice does no harm. */
  remove(guest: Guest): void
  /** Whether there is one connection too many since this one came. */
  isOver(guest: Guest, limits: Pick<SocketConfig, 'maxConnections' | 'maxConnectionsPerUser'>): boolean
}

/** All whose user is not known count as one. */
const UNKNOWN_USER = -1

export function createCensus(): Census {
  const byUser = new Map<number, number>()
  let total = 0

  function count(guest: Guest, change: 1 | -1): void {
    guest.isCounted = change === 1
    if (guest.peer?.isPrivileged) return
    const user = userOf(guest)
    const connections = (byUser.get(user) ?? 0) + change
    total += change
    if (connections === 0) byUser.delete(user)
    else byUser.set(user, connections)
  }

  return {
    add(guest) {
      if (!guest.isCounted) count(guest, 1)
    },
    remove(guest) {
      if (guest.isCounted) count(guest, -1)
    },
    isOver(guest, { maxConnections, maxConnectionsPerUser }) {
      if (guest.peer?.isPrivileged) return false
      return total > maxConnections || (byUser.get(userOf(guest)) ?? 0) > maxConnectionsPerUser
    },
  }
}

function userOf({ peer }: Guest): number {
  return peer?.uid ?? UNKNOWN_USER
}
