// An operator's act, once for the whole fleet: which answers end it, and which waits it goes through. It
// stands until it is answered.
import type { Cause } from '../token/outcome.ts'
import type { Known } from './known.ts'

/** A roll-out of credentials takes its time: a refusal that is no older than this answers it. */
const SAME_ACT_MS = 60_000

export function createAct() {
  /** `sinceMs`: on the boot clock, once the store was reached. */
  let act: { readonly isRefresh: boolean; readonly sinceMs: number | null } | null = null

  /** Reports whether this answer counts, for the act if one stands. */
  function isAnsweredBy({ answer, sentAtMs }: Known): boolean {
    if (act === null) return true
    if (answer === null || act.sinceMs === null) return false
    if (act.isRefresh) return sentAtMs >= act.sinceMs
    return answer.kind === 'ok' || sentAtMs >= act.sinceMs - SAME_ACT_MS
  }

  return {
    isAnsweredBy,
    stands: (): boolean => act !== null,
    /**
     * Other credentials, or a secret file written again: a token or a young refusal answers that, also one
     * that is known.
     */
    isReload: (): boolean => act?.isRefresh === false,
    /** An attempt begins. */
    begin(cause: Cause, known: Known): void {
      if (isAnsweredBy(known)) act = null
      const isRefresh = cause === 'operator'
      if (isRefresh || cause === 'reload')
        act = { isRefresh: isRefresh || act?.isRefresh === true, sinceMs: null }
    },
    /** The store was reached at this moment of the boot clock. */
    reached(atMs: number): void {
      if (act?.sinceMs === null) act = { ...act, sinceMs: atMs }
    },
    /** This host has asked, and has a token or a refusal. */
    end(): void {
      act = null
    },
    /**
     * A refresh goes through a wait that was there before it, and other credentials through an old rejection.
     */
    overrules({ sentAtMs, reason }: { readonly sentAtMs: number; readonly reason: string }): boolean {
      if (act?.sinceMs === undefined || act.sinceMs === null) return false
      if (act.isRefresh) return sentAtMs < act.sinceMs
      return reason === 'rejected' && sentAtMs < act.sinceMs - SAME_ACT_MS
    },
  }
}
