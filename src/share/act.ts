// An operator's act, once for the whole fleet: which answers end it, and which waits it passes. An act is open
// until a token or a refusal answers it.
import type { Cause } from '../token/outcome.ts'
import type { Known } from './known.ts'
import { FAILURE_MS } from './wait.ts'

/** A roll-out of credentials takes its time: a refusal that is younger puts the act off, and no more. */
const SAME_ACT_MS = 60_000

interface HeldWait {
  readonly sentAtMs: number
  readonly reason: string
  readonly unconfirmed: object | null
  readonly leftMs: number
}
interface OpenAct {
  readonly isRefresh: boolean
  /** On the boot clock; Infinity until the store is reached. */
  readonly sinceMs: number
  /** The attempt was put off, and comes again with the same cause: that is no new act. */
  readonly isPutOff: boolean
}

export type Act = ReturnType<typeof createAct>

export function createAct() {
  let act: OpenAct | null = null

  /** Reports whether this answer counts, for the act if one is open. */
  function isAnsweredBy({ answer, sentAtMs }: Known): boolean {
    if (act === null) return true
    if (answer === null || act.sinceMs === Infinity) return false
    return sentAtMs >= act.sinceMs || (!act.isRefresh && answer.kind === 'ok')
  }

  return {
    isAnsweredBy,
    isOpen: (): boolean => act !== null,
    /** Other credentials, or a secret file written again: a token answers it, however old. */
    isReload: (): boolean => act?.isRefresh === false,
    /** An attempt begins. */
    begin(cause: Cause, known: Known): void {
      const isPutOff = act?.isPutOff === true
      if (!isPutOff && isAnsweredBy(known)) act = null
      const isRefresh = cause === 'operator' || act?.isRefresh === true
      if (cause === 'operator' || (cause === 'reload' && !isPutOff))
        act = { isRefresh, sinceMs: Infinity, isPutOff: false }
    },
    /** The store was reached at this moment of the boot clock. */
    reached(nowMs: number): void {
      if (act !== null) act = { ...act, sinceMs: Math.min(act.sinceMs, nowMs) }
    },
    /** The attempt ends without an answer, and comes again. */
    putOff(): void {
      if (act !== null) act = { ...act, isPutOff: true }
    },
    /** The act is answered. */
    end(): void {
      act = null
    },
    /** For how long a refusal from before the act puts it off: until the refusal is a minute old. */
    delayMs({ answer, sentAtMs }: Known, nowMs: number): number {
      if (act === null || act.isRefresh || answer?.kind !== 'permanent') return 0
      return Math.max(0, sentAtMs + SAME_ACT_MS - nowMs)
    },
    /**
     * For how long the act keeps to this wait, of which `leftMs` are left. Each act passes one that a second
     * host has to confirm; a refresh passes one from before it; other credentials pass one for `rejected`, once
     * that is a minute old.
     */
    heedMs({ sentAtMs, reason, unconfirmed, leftMs }: HeldWait, nowMs: number): number {
      if (act === null) return leftMs
      if (unconfirmed !== null && reason === 'rejected' && leftMs <= FAILURE_MS) return 0
      if (sentAtMs >= act.sinceMs) return leftMs
      if (act.isRefresh) return 0
      if (reason !== 'rejected') return leftMs
      return Math.min(leftMs, Math.max(0, sentAtMs + SAME_ACT_MS - nowMs))
    },
  }
}
