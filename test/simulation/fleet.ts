// A fleet of daemons on one fake clock: the real schedule code, many times, against a service that fails and
// recovers, and the numbers of that.
import type { Cause, FetchOutcome } from '../../src/token/outcome.ts'
import { next, nextExpiryMs } from '../../src/token/selectors.ts'
import type { TokenState } from '../../src/token/state.ts'
import { afterAnswer, afterBegin, afterRequest, afterTick } from '../../src/token/transitions.ts'
import { firstState } from '../support/facts.ts'
import { failures } from '../support/failures.ts'
import { grantAt } from '../support/jwt.ts'
import { createRandom } from '../support/random.ts'

/** One request as the service saw it. */
interface Arrival {
  readonly atMs: number
  readonly daemon: number
  readonly cause: Cause
  readonly isServed: boolean
}
/** The service's answer to a request: `token`, or a failure. */
type Service = (atMs: number) => 'token' | Exclude<FetchOutcome, { kind: 'ok' }>

interface Fleet {
  readonly daemons: number
  readonly tokenLifeMs: number
  readonly random: () => number
}

const START_WALL_MS = 1_800_000_000_000
const MEAN_OVER_MS = 300_000
const RECOVERY_MS = 900_000
const DAY_MS = 86_400_000
const outage = { kind: 'transient', reason: 'server-error', detail: 'Outage', status: 503 } as const

/** Starts the fleet at 0, with the settings' defaults. Returns every request until then, in their order. */
export function runFleet(
  { daemons, tokenLifeMs, random }: Fleet,
  { service, untilMs }: { service: Service; untilMs: number },
): Arrival[] {
  const arrivals: Arrival[] = []
  const first = firstState({ bootMs: 0, wallMs: START_WALL_MS })
  const states: TokenState[] = Array.from({ length: daemons }, () => first)
  /** The daemons that wake at a ms, in the order in which they fell asleep. */
  const wakes = new Map([[0, [...states.keys()]]])

  function live(state: TokenState, daemon: number, atMs: number): TokenState {
    const now = { bootMs: atMs, wallMs: START_WALL_MS + atMs }
    const step = { now, drawn: random() }
    const ticked = afterTick(state, now, 0)
    const plan = next(ticked, now)
    if (plan.atMs > atMs) return ticked
    const begun = afterBegin(ticked, plan)
    const answer = service(atMs)
    arrivals.push({ atMs, daemon, cause: begun.inFlight!.cause, isServed: answer === 'token' })
    const outcome = answer === 'token' ? grantAt(now.wallMs, tokenLifeMs, arrivals.length) : answer
    return afterAnswer(afterRequest(begun, step), outcome, { now, drawn: random() }).state
  }

  for (let atMs = 0; wakes.size > 0 && atMs <= untilMs; atMs += 1) {
    const now = { bootMs: atMs, wallMs: START_WALL_MS + atMs }
    for (const daemon of wakes.get(atMs) ?? []) {
      const state = live(states[daemon]!, daemon, atMs)
      states[daemon] = state
      const wakeMs = Math.max(atMs + 1, Math.ceil(Math.min(next(state, now).atMs, nextExpiryMs(state, now))))
      if (wakes.has(wakeMs)) wakes.get(wakeMs)!.push(daemon)
      else if (wakeMs < Infinity) wakes.set(wakeMs, [daemon])
    }
    wakes.delete(atMs)
  }
  return arrivals
}

export type FleetNumbers = ReturnType<typeof simulate>['numbers']

/**
 * All numbers of one simulation, and the requests of each minute. `outageStartMs` 0: the outage was there when the fleet booted. `serviceLimit`:
 * requests that the service serves in a second; null: all. Without jitter the longest of every range is drawn.
 */
export function simulate(
  options: {
    daemons: number
    outageMs: number
    outageStartMs: number
    tokenLifeMs: number
    serviceLimit: number | null
    seed: number
  },
  { hasJitter }: { hasJitter: boolean },
) {
  const { daemons, tokenLifeMs, outageStartMs } = options
  const outageEndMs = outageStartMs + options.outageMs
  const fleet = { daemons, tokenLifeMs, random: hasJitter ? createRandom(options.seed) : () => 1 }
  const isUp = (atMs: number): boolean => atMs < outageStartMs || atMs >= outageEndMs
  const service = limited(options.serviceLimit ?? Infinity, isUp)
  const arrivals = runFleet(fleet, { service, untilMs: outageEndMs + RECOVERY_MS })
  const during = arrivals.filter(({ atMs }) => !isUp(atMs))
  const after = arrivals.filter(({ atMs }) => atMs >= outageEndMs)
  const meanFromMs = Math.max(outageStartMs, outageEndMs - MEAN_OVER_MS)
  const late = during.filter(({ atMs }) => atMs >= meanFromMs)
  const failed = new Set(during.map(({ daemon }) => daemon))
  /** From the end of the outage to the token of each that had failed in it, shortest first. */
  const recovered = after
    .filter(({ daemon, isServed }) => isServed && failed.delete(daemon))
    .map(({ atMs }) => (atMs - outageEndMs) / 1_000)
  const all = runFleet(fleet, { service: () => 'token', untilMs: tokenLifeMs })
  const refused = runFleet(fleet, { service: () => failures.inactive, untilMs: DAY_MS })
  const numbers = {
    meanPerSecond: rounded(late.length / Math.max(1, (outageEndMs - meanFromMs) / 1_000)),
    recoveryPeakPerSecond: peakPerSecond(after, outageEndMs),
    recoveredP50Seconds: rounded(recovered[Math.floor((recovered.length - 1) / 2)] ?? 0),
    recoveredLastSeconds: rounded(recovered.at(-1) ?? 0),
    requestsPerDaemonDuringOutage: rounded(during.length / daemons),
    refreshPeakPerSecond: peakPerSecond(all.filter(({ cause }) => cause === 'refresh')),
    requestsPerRefusedDaemon: rounded(refused.length / daemons),
  }
  return { numbers, perMinute: counted(arrivals, 60_000) }
}

/** A service that serves so many a second and turns the others away. */
function limited(mostPerSecond: number, isUp: (atMs: number) => boolean): Service {
  let [second, served] = [-1, 0]
  return (atMs) => {
    if (!isUp(atMs)) return outage
    const current = Math.floor(atMs / 1_000)
    served = current === second ? served + 1 : 1
    second = current
    return served <= mostPerSecond ? 'token' : outage
  }
}

/** Requests in the fullest second, of those that begin at `fromMs`. */
export function peakPerSecond(arrivals: readonly Arrival[], fromMs = 0): number {
  return Math.max(0, ...counted(arrivals, 1_000, fromMs).values())
}

/** The number of requests in each interval of this length that has one. */
function counted(arrivals: readonly Arrival[], lengthMs: number, fromMs = 0): Map<number, number> {
  const counts = new Map<number, number>()
  for (const { atMs } of arrivals) {
    const interval = Math.floor((atMs - fromMs) / lengthMs)
    counts.set(interval, (counts.get(interval) ?? 0) + 1)
  }
  return counts
}

const rounded = (value: number): number => Math.round(value * 1_000) / 1_000
