// When a host asks the service by itself while the store cannot be reached: spread, so that a fleet never stampedes. Pure.
import type { ShareState } from './share-state.ts'

export interface Standalone {
  /** Until when the token that is held can be used, on the boot clock; null: it holds none. */
  readonly usableUntilMs: number | null
  /** Hosts of the fleet, as last counted; null: never. */
  readonly hosts: number | null
  /** The token was reported as refused, or belongs to other credentials. */
  readonly isUrgent: boolean
}

/** Of the life that is left: the rest is for the request itself and its repetition. */
const SHARE_OF_LIFE = 0.8
const PER_HOST_MS = 100
const SPREAD = { atLeastMs: 1_000, atMostMs: 300_000, unknownMs: 10_000 }
/** A minute, less the time after which the store is tried again. */
const URGENT_MS = 45_000

/** Within how many ms from now this host asks. */
export function spreadMs({ usableUntilMs, hosts, isUrgent }: Standalone, nowMs: number): number {
  const leftMs = (usableUntilMs ?? nowMs) - nowMs
  if (leftMs > 0) return isUrgent ? Math.min(URGENT_MS, SHARE_OF_LIFE * leftMs) : SHARE_OF_LIFE * leftMs
  if (hosts === null) return SPREAD.unknownMs
  return Math.min(SPREAD.atMostMs, Math.max(SPREAD.atLeastMs, hosts * PER_HOST_MS))
}

/** The plan is kept while the store is away, but an urgent one may come before it. `drawn` is from [0, 1). */
export function afterPlanned(
  state: ShareState,
  standalone: Standalone,
  { nowMs, drawn }: { nowMs: number; drawn: number },
): ShareState & { readonly plan: NonNullable<ShareState['plan']> } {
  const { plan } = state
  const { isUrgent } = standalone
  if (plan !== null && (plan.isUrgent || !isUrgent)) return { ...state, plan }
  const atMs = Math.min(plan?.atMs ?? Infinity, nowMs + drawn * spreadMs(standalone, nowMs))
  return { ...state, plan: { atMs, isUrgent } }
}
