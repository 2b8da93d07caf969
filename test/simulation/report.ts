// The results of a simulated outage in numbers.
import type { Policy } from '../../src/token/state.ts'
import { failures } from '../support/failures.ts'
import { createRandom } from '../support/random.ts'
import { runFleet, type Arrival, type Service } from './fleet.ts'

interface SimulationOptions {
  readonly daemons: number
  readonly outageMs: number
  /** When the outage begins; 0: it was there when the fleet booted. */
  readonly outageStartMs: number
  readonly tokenLifeMs: number
  /** Requests that the service can serve in a second; null: all. */
  readonly serviceLimit: number | null
  readonly seed: number
}

/** The settings' defaults. */
const policy: Policy = { initialDelayMs: 1_000, maxDelayMs: 300_000, maxAgeMs: 900_000 }
const MEAN_OVER_MS = 300_000
const RECOVERY_MS = 900_000
const DAY_MS = 86_400_000
const outage = { kind: 'transient', reason: 'server-error', detail: 'Outage', status: 503 } as const

export type FleetNumbers = ReturnType<typeof simulate>

/** All numbers of one simulation. `hasJitter: false` draws the longest of every range, everywhere. */
export function simulate(options: SimulationOptions, { hasJitter }: { hasJitter: boolean }) {
  const { daemons, tokenLifeMs, outageStartMs, serviceLimit } = options
  const outageEndMs = outageStartMs + options.outageMs
  const common = { daemons, policy, tokenLifeMs, random: hasJitter ? createRandom(options.seed) : () => 1 }
  const isUp = (atMs: number): boolean => atMs < outageStartMs || atMs >= outageEndMs
  const arrivals = runFleet({
    ...common,
    service: limited(serviceLimit, isUp),
    untilMs: outageEndMs + RECOVERY_MS,
  })
  const during = arrivals.filter(({ atMs }) => atMs >= outageStartMs && atMs < outageEndMs)
  const after = arrivals.filter(({ atMs }) => atMs >= outageEndMs)
  const meanFromMs = Math.max(outageStartMs, outageEndMs - MEAN_OVER_MS)
  const late = during.filter(({ atMs }) => atMs >= meanFromMs)
  const recovered = recoveryTimesMs(during, after, outageEndMs)

  const refreshes = runFleet({ ...common, service: () => 'token', untilMs: tokenLifeMs }).filter(
    ({ cause }) => cause === 'refresh',
  )
  const refused = runFleet({ ...common, service: () => failures.inactive, untilMs: DAY_MS })
  return {
    // Over the last 5 minutes of the outage.
    meanPerSecond: rounded(late.length / Math.max(1, (outageEndMs - meanFromMs) / 1_000)),
    // In the fullest second after the outage.
    recoveryPeakPerSecond: peakPerSecond(after, outageEndMs),
    // Until half of the daemons, and the last, had a token again.
    recoveredP50Seconds: rounded((recovered[Math.floor((recovered.length - 1) / 2)] ?? 0) / 1_000),
    recoveredLastSeconds: rounded((recovered.at(-1) ?? 0) / 1_000),
    requestsPerDaemonDuringOutage: rounded(during.length / daemons),
    // In the fullest second after a common start without an outage.
    refreshPeakPerSecond: peakPerSecond(refreshes),
    requestsPerRefusedDaemon: rounded(refused.length / daemons),
  }
}

/** A service that serves so many a second and turns the others away. */
function limited(mostPerSecond: number | null, isUp: (atMs: number) => boolean): Service {
  let second = -1
  let served = 0
  return (atMs) => {
    if (!isUp(atMs)) return outage
    const current = Math.floor(atMs / 1_000)
    if (current !== second) served = 0
    second = current
    if (mostPerSecond !== null && served >= mostPerSecond) return outage
    served += 1
    return 'token'
  }
}

/** Time from the end of the outage to the token of each daemon that had failed in it, shortest first. */
function recoveryTimesMs(during: readonly Arrival[], after: readonly Arrival[], outageEndMs: number) {
  const failed = new Set(during.map(({ daemon }) => daemon))
  return after
    .filter(({ daemon, isServed }) => isServed && failed.delete(daemon))
    .map(({ atMs }) => atMs - outageEndMs)
}

/** Requests in the fullest second, of those that begin at `fromMs`. */
export function peakPerSecond(arrivals: readonly Arrival[], fromMs = 0): number {
  const counts = new Map<number, number>()
  for (const { atMs } of arrivals) {
    const second = Math.floor((atMs - fromMs) / 1_000)
    counts.set(second, (counts.get(second) ?? 0) + 1)
  }
  return Math.max(0, ...counts.values())
}

const rounded = (value: number): number => Math.round(value * 1_000) / 1_000
