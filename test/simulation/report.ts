// The results of a simulated outage in numbers.
import type { TransientFailure } from '../../src/token/outcome.ts'
import type { Policy } from '../../src/token/state.ts'
import { failures } from '../support/failures.ts'
import { createRandom } from '../support/random.ts'
import { runFleet, type Arrival, type Service } from './fleet.ts'

export interface SimulationOptions {
  readonly daemons: number
  readonly outageMs: number
  /** When the outage begins; 0: it was there when the fleet booted. */
  readonly outageStartMs: number
  readonly tokenLifeMs: number
  /** Requests that the service can serve in a second; null: all. */
  readonly serviceLimit: number | null
  readonly seed: number
}
export interface FleetNumbers {
  /** Requests per second over the last 5 minutes of the outage. */
  readonly meanPerSecond: number
  /** Requests in the fullest second after the outage. */
  readonly recoveryPeakPerSecond: number
  /** After how many seconds half of the daemons, and the last, had a token again. */
  readonly recoveredP50Seconds: number
  readonly recoveredLastSeconds: number
  readonly requestsPerDaemonDuringOutage: number
  /** Refreshes in the fullest second after a common start without an outage. */
  readonly refreshPeakPerSecond: number
  readonly requestsPerRefusedDaemon: number
}

/** The settings' defaults. */
const policy: Policy = { initialDelayMs: 1_000, maxDelayMs: 300_000, maxAgeMs: 900_000 }
const MEAN_OVER_MS = 300_000
const RECOVERY_MS = 900_000
const DAY_MS = 86_400_000
const outageAnswer: TransientFailure = {
  kind: 'transient',
  reason: 'server-error',
  detail: 'Outage',
  status: 503,
}

/** All numbers of one simulation. `hasJitter: false` draws the longest of every range, everywhere. */
export function simulate(
  options: SimulationOptions,
  { hasJitter }: { hasJitter: boolean },
): { numbers: FleetNumbers; arrivals: Arrival[] } {
  const random = hasJitter ? createRandom(options.seed) : () => 1
  const { daemons, tokenLifeMs, outageStartMs } = options
  const outageEndMs = outageStartMs + options.outageMs
  const arrivals = runFleet({
    daemons,
    policy,
    tokenLifeMs,
    random,
    service: limited(options.serviceLimit, (atMs) => atMs < outageStartMs || atMs >= outageEndMs),
    untilMs: outageEndMs + RECOVERY_MS,
  })
  const numbers = {
    ...outageNumbers(arrivals, { outageStartMs, outageEndMs, daemons }),
    refreshPeakPerSecond: refreshPeak(daemons, tokenLifeMs, random),
    requestsPerRefusedDaemon: requestsOfRefused(daemons, tokenLifeMs, random),
  }
  return { numbers, arrivals }
}

/** A service that serves so many a second and turns the others away. */
function limited(mostPerSecond: number | null, isUp: (atMs: number) => boolean): Service {
  let second = -1
  let served = 0
  return (atMs) => {
    if (!isUp(atMs)) return outageAnswer
    const current = Math.floor(atMs / 1000)
    if (current !== second) {
      second = current
      served = 0
    }
    if (mostPerSecond !== null && served >= mostPerSecond) return outageAnswer
    served += 1
    return 'token'
  }
}

function outageNumbers(
  arrivals: readonly Arrival[],
  outage: { outageStartMs: number; outageEndMs: number; daemons: number },
): Omit<FleetNumbers, 'refreshPeakPerSecond' | 'requestsPerRefusedDaemon'> {
  const { outageStartMs, outageEndMs, daemons } = outage
  const meanFromMs = Math.max(outageStartMs, outageEndMs - MEAN_OVER_MS)
  const during = arrivals.filter(({ atMs }) => atMs >= outageStartMs && atMs < outageEndMs)
  const after = arrivals.filter(({ atMs }) => atMs >= outageEndMs)
  const late = during.filter(({ atMs }) => atMs >= meanFromMs)
  const recovered = recoveryTimesMs(during, after, outageEndMs)
  return {
    meanPerSecond: rounded(late.length / Math.max(1, (outageEndMs - meanFromMs) / 1000)),
    recoveryPeakPerSecond: peakPerSecond(after, outageEndMs),
    recoveredP50Seconds: rounded((recovered[Math.floor((recovered.length - 1) / 2)] ?? 0) / 1000),
    recoveredLastSeconds: rounded((recovered.at(-1) ?? 0) / 1000),
    requestsPerDaemonDuringOutage: rounded(during.length / daemons),
  }
}

/** Time from the end of the outage to the token of each daemon that had failed in it, shortest first. */
function recoveryTimesMs(
  during: readonly Arrival[],
  after: readonly Arrival[],
  outageEndMs: number,
): number[] {
  const failed = new Set(during.map(({ daemon }) => daemon))
  const timesMs: number[] = []
  for (const { daemon, atMs, isServed } of after) {
    if (isServed && failed.delete(daemon)) timesMs.push(atMs - outageEndMs)
  }
  return timesMs
}

/** Requests by second. */
export function perSecond(instantsMs: readonly number[]): Map<number, number> {
  const counts = new Map<number, number>()
  for (const atMs of instantsMs) {
    const second = Math.floor(atMs / 1000)
    counts.set(second, (counts.get(second) ?? 0) + 1)
  }
  return counts
}

/** Requests in the fullest second. */
export function peakOf(instantsMs: readonly number[]): number {
  let peak = 0
  for (const count of perSecond(instantsMs).values()) peak = Math.max(peak, count)
  return peak
}

/** The same, the seconds counted from `fromMs`. */
export function peakPerSecond(arrivals: readonly Arrival[], fromMs = 0): number {
  return peakOf(arrivals.map(({ atMs }) => atMs - fromMs))
}

function refreshPeak(daemons: number, tokenLifeMs: number, random: () => number): number {
  const service: Service = () => 'token'
  const arrivals = runFleet({ daemons, policy, tokenLifeMs, random, service, untilMs: tokenLifeMs })
  return peakPerSecond(arrivals.filter(({ cause }) => cause === 'refresh'))
}

function requestsOfRefused(daemons: number, tokenLifeMs: number, random: () => number): number {
  const service: Service = () => failures.inactive
  const arrivals = runFleet({ daemons, policy, tokenLifeMs, random, service, untilMs: DAY_MS })
  return rounded(arrivals.length / daemons)
}

function rounded(value: number): number {
  return Math.round(value * 1000) / 1000
}
