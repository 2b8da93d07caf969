// The part of a random story that is the same for one daemon and for each host of a fleet.
import type { Keeper } from '../../src/token/keeper.ts'
import type { ServiceOutcome } from '../../src/token/outcome.ts'
import { dueAtMs, phaseOf, usableToken, type TokenState } from '../../src/token/state.ts'
import type { Instant } from '../../src/lib/clock.ts'
import type { FakeClock } from './fake-clock.ts'

export type HostStep =
  { readonly do: 'wait' | 'need'; readonly ms: number } | { readonly do: 'reject' | 'operator' }

/** `now`: the host's own clock. */
export async function takeStep(
  step: HostStep,
  host: { keeper: Keeper; now: () => Instant; clock: FakeClock; signal: AbortSignal },
): Promise<void> {
  const { keeper, now, clock, signal } = host
  switch (step.do) {
    case 'wait':
      return clock.advance(step.ms)
    case 'need':
      return keeper.need(step.ms)
    case 'reject':
      keeper.reject(usableToken(keeper.state(), now())?.fingerprint ?? 'unknown')
      return
    case 'operator':
      void keeper.refresh(signal)
  }
}

/** The service's `Retry-After` where it is busy. */
export const BUSY_MS = 600_000

/** Its answers that give no token. */
export const failures = {
  outage: { kind: 'transient', reason: 'server-error', detail: 'outage', status: 503 },
  reset: { kind: 'transient', reason: 'network', detail: 'reset' },
  rejected: { kind: 'transient', reason: 'rejected', detail: 'rejected', status: 401 },
  busy: { kind: 'transient', reason: 'rate-limited', detail: 'busy', status: 429, retryAfterMs: BUSY_MS },
  refused: { kind: 'permanent', reason: 'account-inactive', detail: 'refused', status: 500 },
} as const satisfies Record<string, ServiceOutcome>

const DAY_MS = 86_400_000

/** The rules for a state without regard to its token. */
export function checkPlan(
  state: TokenState,
  now: Instant,
  check: (claim: boolean, sentence: string) => void,
): void {
  if (phaseOf(state, now) === 'refused') check(state.alert !== null, 'a refusal without an alert')
  else check(dueAtMs(state) - now.bootMs <= DAY_MS, 'nothing is planned within a day')
}
