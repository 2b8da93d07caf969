// When a host asks by itself while the store is of no use: at a moment drawn at random from the life of its
// token, so that hosts do not ask together.
import type { Clock, Instant } from '../lib/clock.ts'
import type { Attempt } from '../token/outcome.ts'
import { usableToken, usableUntilMs, type TokenState } from '../token/state.ts'
import type { Telemetry } from './telemetry.ts'

/** The rest of the life is for the request and its repetition. */
const SHARE_OF_LIFE = 0.8
const PER_HOST_MS = 100
const SPREAD = { atLeastMs: 1_000, atMostMs: 300_000, unknownMs: 10_000 }
/** A minute, less the time after which the store is tried again. */
const URGENT_MS = 45_000

export type AlonePlan = ReturnType<typeof createAlonePlan>

export function createAlonePlan(options: {
  readonly clock: Pick<Clock, 'now'>
  readonly random: () => number
  readonly keeper: { readonly state: () => TokenState }
  readonly telemetry: Pick<Telemetry, 'alone'>
  readonly leaseMs: () => number
  /** The last count of the fleet; null: it was never read. */
  readonly hosts: () => number | null
}) {
  const { clock, random, keeper, telemetry, leaseMs, hosts } = options
  /** Drawn once for each loss of the store, and again after each request. */
  let plan: { readonly requestAtMs: number; readonly isUrgent: boolean } | null = null

  return {
    isMade: (): boolean => plan !== null,
    drop(): void {
      plan = null
    },
    /** On the boot clock. A plan is made if there is none; an urgent one may come before one that is not. */
    requestAtMs({ cause }: Attempt): number {
      const state = keeper.state()
      const isUrgent = cause === 'client' || state.rejection?.isUnchanged === false
      if (plan !== null && (plan.isUrgent || !isUrgent)) return plan.requestAtMs
      const now = clock.now()
      // Another host's lease may be waited for: the token must live as long.
      const leftMs = usableLeftMs(state, now) - leaseMs()
      const withinMs = spreadMs({ leftMs, hosts: hosts(), isUrgent })
      const inMs = Math.min((plan?.requestAtMs ?? Infinity) - now.bootMs, random() * withinMs)
      plan = { requestAtMs: now.bootMs + inMs, isUrgent }
      telemetry.alone({ spreadMs: Math.round(withinMs), inMs: Math.round(inMs) })
      return plan.requestAtMs
    },
  }
}

/** The time until which the token in use can be used, from now; 0: there is none. */
export function usableLeftMs(state: TokenState, now: Instant): number {
  const token = usableToken(state, now)
  return token === null ? 0 : usableUntilMs(token) - now.bootMs
}

/**
 * The time from now over which hosts without the store spread their requests. `leftMs`: until this host needs
 * another token; 0 or less: it has none. `isUrgent`: its token was reported as refused.
 */
function spreadMs({ leftMs, hosts, isUrgent }: { leftMs: number; hosts: number | null; isUrgent: boolean }) {
  if (leftMs > 0) return Math.min(isUrgent ? URGENT_MS : Infinity, SHARE_OF_LIFE * leftMs)
  if (hosts === null) return SPREAD.unknownMs
  return Math.min(SPREAD.atMostMs, Math.max(SPREAD.atLeastMs, hosts * PER_HOST_MS))
}
