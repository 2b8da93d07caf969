// A request of an operator (a refresh, other credentials, a secret file that is written again), made once for
// the whole fleet: which answers resolve it, and which waits it bypasses. It is pending until a token or a
// refusal resolves it.
import type { Cause } from '../token/outcome.ts'
import type { Known } from './known.ts'
import { FAILURE_MS } from './wait.ts'

/** A roll-out of credentials needs some time: a refusal that is younger than this postpones the request. */
const ROLL_OUT_MS = 60_000

interface WaitInStore {
  readonly sentAtMs: number
  readonly reason: string
  readonly unconfirmed: object | null
  readonly leftMs: number
}
interface Pending {
  /** A refresh; false: other credentials, or a secret file that was written again. */
  readonly isRefresh: boolean
  /** When the host first reached the store for it, on the boot clock; Infinity: it has not yet. */
  readonly sinceMs: number
  /** The attempt was postponed, and comes again with the same cause: that is no new request. */
  readonly isPostponed: boolean
}

export type OperatorRequest = ReturnType<typeof createOperatorRequest>

export function createOperatorRequest() {
  let pending: Pending | null = null

  /** Reports whether this answer counts: it resolves the pending request, or none is pending. */
  function isAnsweredBy({ answer, sentAtMs }: Known): boolean {
    if (pending === null) return true
    if (answer === null || pending.sinceMs === Infinity) return false
    return sentAtMs >= pending.sinceMs || (!pending.isRefresh && answer.kind === 'ok')
  }

  return {
    isAnsweredBy,
    isPending: (): boolean => pending !== null,
    /** Other credentials, or a secret file that was written again: any token resolves it, however old. */
    isReload: (): boolean => pending?.isRefresh === false,
    /** An attempt begins. */
    begin(cause: Cause, known: Known): void {
      const isPostponed = pending?.isPostponed === true
      if (!isPostponed && isAnsweredBy(known)) pending = null
      const isRefresh = cause === 'operator' || pending?.isRefresh === true
      if (cause === 'operator' || (cause === 'reload' && !isPostponed))
        pending = { isRefresh, sinceMs: Infinity, isPostponed: false }
    },
    /** The host reached the store at this time of the boot clock. */
    storeReached(nowMs: number): void {
      if (pending !== null) pending = { ...pending, sinceMs: Math.min(pending.sinceMs, nowMs) }
    },
    /** The attempt ends without an answer, and comes again. */
    postpone(): void {
      if (pending !== null) pending = { ...pending, isPostponed: true }
    },
    resolve(): void {
      pending = null
    },
    /** For how long an earlier refusal postpones the request: until the refusal is a minute old. */
    delayMs({ answer, sentAtMs }: Known, nowMs: number): number {
      if (pending === null || pending.isRefresh || answer?.kind !== 'permanent') return 0
      return Math.max(0, sentAtMs + ROLL_OUT_MS - nowMs)
    },
    /**
     * For how long this wait, of which `leftMs` are left, postpones the attempt. A pending request bypasses a
     * wait that a second host has to confirm. A refresh bypasses a wait that is older than the refresh. Other
     * credentials bypass a wait for `rejected` that is a minute old.
     */
    waitMs({ sentAtMs, reason, unconfirmed, leftMs }: WaitInStore, nowMs: number): number {
      if (pending === null) return leftMs
      if (unconfirmed !== null && reason === 'rejected' && leftMs <= FAILURE_MS) return 0
      if (sentAtMs >= pending.sinceMs) return leftMs
      if (pending.isRefresh) return 0
      if (reason !== 'rejected') return leftMs
      return Math.min(leftMs, Math.max(0, sentAtMs + ROLL_OUT_MS - nowMs))
    },
  }
}
