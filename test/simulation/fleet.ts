// A fleet of daemons on one fake clock: the real schedule code, many times, against a service that fails and
// recovers.
import type { Instant } from '../../src/lib/clock.ts'
import type { FetchOutcome } from '../../src/token/outcome.ts'
import {
  dueAtMs,
  initialState,
  nextMomentMs,
  plannedAttempt,
  type Policy,
  type TokenState,
} from '../../src/token/state.ts'
import { afterAttemptBegan, afterRequest, afterTick, nextState } from '../../src/token/transitions.ts'
import type { Cause } from '../../src/token/outcome.ts'
import { jwtOf } from '../support/jwt.ts'
import { createHeap } from './heap.ts'

/** One request as the service saw it. */
export interface Arrival {
  readonly atMs: number
  readonly daemon: number
  readonly cause: Cause
  readonly isServed: boolean
}
/** The service's answer to a request: `token`, or a failure. */
export interface Service {
  (atMs: number): 'token' | Exclude<FetchOutcome, { kind: 'ok' }>
}
export interface FleetOptions {
  readonly daemons: number
  readonly policy: Policy
  readonly tokenLifeMs: number
  readonly random: () => number
  readonly service: Service
  /** The simulation ends here, at the latest. */
  readonly untilMs: number
}

/** Runs the fleet, all started at 0, and reports every request in the order of its arrival. */
export function runFleet(options: FleetOptions): Arrival[] {
  const { policy, random, service, tokenLifeMs } = options
  const arrivals: Arrival[] = []
  const states: TokenState[] = Array.from({ length: options.daemons }, () =>
    initialState(
      { baseUrl: 'https://service', credentialsId: 'first' },
      { bootMs: 0, wallMs: 1_800_000_000_000 },
    ),
  )
  const queue = createHeap()
  for (const index of states.keys()) queue.push(0, index)
  let tokens = 0

  function grant(now: Instant): FetchOutcome {
    const iat = now.wallMs / 1000
    return { kind: 'ok', accessToken: jwtOf({ iat, exp: iat + tokenLifeMs / 1000 }, ++tokens) }
  }

  function live(state: TokenState, daemon: number, now: Instant): TokenState {
    const looked = afterTick(state, { now, awakeMs: now.bootMs, policy, drawn: random() })
    if (dueAtMs(looked) > now.bootMs) return looked
    const { cause } = plannedAttempt(looked)
    const answer = service(now.bootMs)
    arrivals.push({ atMs: now.bootMs, daemon, cause, isServed: answer === 'token' })
    const outcome = answer === 'token' ? grant(now) : answer
    return nextState(afterRequest(afterAttemptBegan(looked, cause, now), cause, now), outcome, {
      now,
      awakeMs: now.bootMs,
      policy,
      drawn: random(),
    }).state
  }

  for (let next = queue.pop(); next !== undefined && next.atMs <= options.untilMs; next = queue.pop()) {
    const now: Instant = { bootMs: next.atMs, wallMs: 1_800_000_000_000 + next.atMs }
    const state = live(states[next.index] as TokenState, next.index, now)
    states[next.index] = state
    const wakeAtMs = nextMomentMs(state, now)
    if (Number.isFinite(wakeAtMs)) queue.push(Math.max(wakeAtMs, now.bootMs), next.index)
  }
  return arrivals
}
