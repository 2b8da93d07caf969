// A fleet of daemons on one fake clock: the real schedule code, many times, against a service that fails and
// recovers.
import type { Instant } from '../../src/lib/clock.ts'
import type { Cause, FetchOutcome } from '../../src/token/outcome.ts'
import { next, nextExpiryMs } from '../../src/token/selectors.ts'
import type { Policy, TokenState } from '../../src/token/state.ts'
import { afterAnswer, afterBegin, afterRequest, afterTick } from '../../src/token/transitions.ts'
import { firstState } from '../support/facts.ts'
import { jwtOf } from '../support/jwt.ts'

/** One request as the service saw it. */
export interface Arrival {
  readonly atMs: number
  readonly daemon: number
  readonly cause: Cause
  readonly isServed: boolean
}
/** The service's answer to a request: `token`, or a failure. */
export type Service = (atMs: number) => 'token' | Exclude<FetchOutcome, { kind: 'ok' }>
/** Runs the fleet, all started at 0, and reports every request in the order of its arrival. */
export function runFleet({
  policy,
  random,
  service,
  tokenLifeMs,
  ...options
}: {
  daemons: number
  policy: Policy
  tokenLifeMs: number
  random: () => number
  service: Service
  /** The simulation ends here, at the latest. */
  untilMs: number
}): Arrival[] {
  const arrivals: Arrival[] = []
  const states: TokenState[] = Array.from({ length: options.daemons }, () =>
    firstState({ bootMs: 0, wallMs: 1_800_000_000_000 }, { policy }),
  )
  /** The daemons that wake at a ms, in the order in which they fell asleep. */
  const wakes = new Map([[0, [...states.keys()]]])
  let tokens = 0

  function grant(now: Instant): FetchOutcome {
    const iat = now.wallMs / 1000
    return { kind: 'ok', accessToken: jwtOf({ iat, exp: iat + tokenLifeMs / 1000 }, ++tokens) }
  }

  function live(state: TokenState, daemon: number, now: Instant): TokenState {
    const step = { now, drawn: random() }
    const ticked = afterTick(state, now, 0)
    const plan = next(ticked, now)
    if (plan.atMs > now.bootMs) return ticked
    const begun = afterBegin(ticked, plan)
    const answer = service(now.bootMs)
    arrivals.push({ atMs: now.bootMs, daemon, cause: begun.inFlight!.cause, isServed: answer === 'token' })
    const outcome = answer === 'token' ? grant(now) : answer
    return afterAnswer(afterRequest(begun, step), outcome, { now, drawn: random() }).state
  }

  for (let atMs = 0; wakes.size > 0 && atMs <= options.untilMs; atMs += 1) {
    const now: Instant = { bootMs: atMs, wallMs: 1_800_000_000_000 + atMs }
    for (const daemon of wakes.get(atMs) ?? []) {
      const state = live(states[daemon]!, daemon, now)
      states[daemon] = state
      const wakeMs = Math.max(atMs + 1, Math.ceil(Math.min(next(state, now).atMs, nextExpiryMs(state, now))))
      if (wakes.has(wakeMs)) wakes.get(wakeMs)!.push(daemon)
      else if (wakeMs < Infinity) wakes.set(wakeMs, [daemon])
    }
    wakes.delete(atMs)
  }
  return arrivals
}
