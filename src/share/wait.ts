// A wait for all hosts after a request that brought no token, and the answer in it that counts for the fleet
// only once a second host has got it, too. Pure.
import { ENDLESS, MAX_RETRY_WAIT_MS, retryPlan } from '../token/backoff.ts'
import type { FetchOutcome, PermanentFailure, TransientFailure } from '../token/outcome.ts'
import type { Policy } from '../token/state.ts'
import type { Known, Sent } from './known.ts'
import type { Opened, Sealed, Unconfirmed } from './seal.ts'
import type { Pair } from './store.ts'

/** The least time for which no host asks after a failure. */
export const FAILURE_MS = 5_000
/** For so long after it was written an answer can be confirmed. */
export const UNCONFIRMED_MS = 3_600_000

/** Why no host asks for a while: the host that asked writes it in place of its lease. */
export interface Wait extends Pair, Pick<Sealed<'lease'>, 'by' | 'reason' | 'detail' | 'unconfirmed'> {
  /** When the request was sent, and when the wait is over, on this host's boot clock. */
  readonly sentAtMs: number
  readonly endsAtMs: number
}

/** The clocks of this host and of the store. */
interface Clocks {
  readonly bootMs: () => number
  readonly storeMs: (bootMs: number) => number
}

/** An answer that may concern the host that got it alone. */
export type HostSpecific = PermanentFailure | (TransientFailure & { readonly reason: 'rejected' })

/**
 * Reports whether the answer may concern this host alone: its address is on no list (403), or what it proved
 * itself with (`hasOwnProof`: a client certificate, a ready-made assertion) is refused.
 */
export function isHostSpecific(outcome: FetchOutcome, hasOwnProof: boolean): outcome is HostSpecific {
  if (outcome.kind === 'permanent') return hasOwnProof
  return outcome.kind === 'transient' && outcome.reason === 'rejected'
}

export function unconfirmedOf(
  { reason, status }: HostSpecific,
  { hostId, host }: { hostId: string; host: string },
): Unconfirmed {
  return { reason, status: status ?? null, hostId, by: host }
}

/** The host that has got the same answer before; null: none has, and it does not count for the fleet. */
export function confirmerOf(ours: Unconfirmed, earlier: Unconfirmed | null, known: Known): string | null {
  const isSame = ({ reason, status }: { reason: string; status: number | null }): boolean =>
    reason === ours.reason && status === ours.status
  // A refusal that is known counts for all already.
  if (known.answer?.kind === 'permanent' && isSame(known.answer)) return known.by
  return earlier !== null && earlier.hostId !== ours.hostId && isSame(earlier) ? earlier.by : null
}

/** The answer in this text that a second host can confirm now; null: there is none. */
export function confirmableIn({ end, unconfirmed }: Opened<'lease'>, storeNowMs: number): Unconfirmed | null {
  return storeNowMs < end + UNCONFIRMED_MS ? unconfirmed : null
}

/** The wait that the service asks for by this failure. */
export function askedForMs(outcome: FetchOutcome, policy: Policy): number {
  if (outcome.kind !== 'transient') return 0
  const atFirst = { nowMs: 0, attempts: 1, drawn: 0, left: ENDLESS, notBeforeMs: 0 }
  return retryPlan(outcome, { ...atFirst, policy }).notBeforeMs
}

/**
 * The wait of `askedForMs` after this answer, and of 5 s at least. No failure ends a wait before `notBeforeMs`.
 * `unconfirmed`: the answer that waits for a second host, which may be this one.
 */
export function waitOf(
  { reason, detail }: HostSpecific | TransientFailure,
  { fence, id, by, sentAtMs }: Sent,
  around: { link: Clocks; askedForMs: number; notBeforeMs: number; unconfirmed: Unconfirmed | null },
): Wait {
  const { link, notBeforeMs, unconfirmed } = around
  const nowMs = link.bootMs()
  const waitMs = Math.max(FAILURE_MS, around.askedForMs, notBeforeMs - nowMs)
  return {
    fence: Math.max(Math.floor(link.storeMs(sentAtMs)), fence),
    id,
    by,
    sentAtMs,
    // Counted from the answer: the request itself may have taken long.
    endsAtMs: nowMs + Math.min(MAX_RETRY_WAIT_MS, waitMs),
    reason: reasonOf(reason),
    detail,
    unconfirmed,
  }
}

/** A reason that 2.0.0 knows for a wait, too. */
function reasonOf(reason: (HostSpecific | TransientFailure)['reason']): Wait['reason'] {
  if (reason === 'account-inactive' || reason === 'account-not-found') return 'rejected'
  return reason === 'assertion' ? 'network' : reason
}
