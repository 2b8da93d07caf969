// An operator's act, once for the whole fleet: which answers end it, and which waits it goes through. It
// stands until it is answered.
import type { Cause } from '../token/outcome.ts'
import type { Known } from './known.ts'

/** A roll-out of credentials takes its time: a refusal that is no older than this answers it. */
const SAME_ACT_MS = 60_000

export function createAct() {
  /** `sinceMs`: on the boot clock; Infinity until the store is reached. */
  let act: { readonly isRefresh: boolean; readonly sinceMs: number } | null = null

  /** Reports whether this answer counts, for the act if one stands. */
  function isAnsweredBy({ answer, sentAtMs }: Known): boolean {
    if (act === null) return true
    if (answer === null || act.sinceMs === Infinity) return false
    if (act.isRefresh) return sentAtMs >= act.sinceMs
    return answer.kind === 'ok' || sentAtMs >= act.sinceMs - SAME_ACT_MS
  }

  return {
    isAnsweredBy,
    stands: (): boolean => act !== null,
    /** Other credentials, or a secret file written again: a known token or young refusal answers it. */
    isReload: (): boolean => act?.isRefresh === false,
    /** An attempt begins. */
    begin(cause: Cause, known: Known): void {
      if (isAnsweredBy(known)) act = null
      const isRefresh = cause === 'operator'
      if (isRefresh || cause === 'reload')
        act = { isRefresh: isRefresh || act?.isRefresh === true, sinceMs: Infinity }
    },
    /** The store was reached at this moment of the boot clock. */
    reached(atMs: number): void {
      if (act !== null) act = { ...act, sinceMs: Math.min(act.sinceMs, atMs) }
    },
    /** This host has asked, and has a token or a refusal. */
    end(): void {
      act = null
    },
    /** A refresh goes through a wait that is older than it, other credentials through an old rejection. */
    overrules({ sentAtMs, reason }: { readonly sentAtMs: number; readonly reason: string }): boolean {
      if (act === null) return false
      if (act.isRefresh) return sentAtMs < act.sinceMs
      return reason === 'rejected' && sentAtMs < act.sinceMs - SAME_ACT_MS
    },
  }
}
