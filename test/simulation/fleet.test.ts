// The bars for a fleet: what the service sees of 10,000 daemons after an outage, at refreshes, and when it
// asks to wait.
import { spawnSync } from 'node:child_process'
import { expect, test } from 'vitest'
import { createRandom } from '../support/random.ts'
import { simulateCommand } from './command.ts'
import { peakPerSecond, runFleet, simulate, type FleetNumbers } from './fleet.ts'

const MINUTE_MS = 60_000
const CAP_S = 60
const fleet = { daemons: 10_000, tokenLifeMs: 60 * MINUTE_MS }
const numbersOf = (serviceLimit: number | null, hasJitter: boolean): FleetNumbers => {
  const outage = { outageMs: 30 * MINUTE_MS, outageStartMs: 0, serviceLimit, seed: 1 }
  return simulate({ ...fleet, ...outage }, { hasJitter }).numbers
}

test('10,000 daemons come back from an outage spread, soon and without a storm of refreshes', () => {
  const limited = numbersOf(200, true)
  const unlimited = numbersOf(null, true)
  for (const { recoveryPeakPerSecond, meanPerSecond } of [limited, unlimited]) {
    expect(meanPerSecond).toBeGreaterThan(fleet.daemons / CAP_S)
    expect(recoveryPeakPerSecond).toBeLessThanOrEqual(2.2 * meanPerSecond)
  }
  expect(unlimited.recoveredP50Seconds).toBeGreaterThan(0)
  expect(unlimited.recoveredLastSeconds).toBeLessThanOrEqual(CAP_S + 1)
  // A service that serves 200 a second cannot serve them in less.
  expect(limited.recoveredLastSeconds).toBeGreaterThanOrEqual(fleet.daemons / 200)
  expect(limited.recoveredLastSeconds).toBeLessThanOrEqual(2 * CAP_S)
  expect(limited.refreshPeakPerSecond).toBeGreaterThan(0)
  expect(limited.refreshPeakPerSecond).toBeLessThanOrEqual(50)
  expect(limited.requestsPerRefusedDaemon).toBe(1)
  const withoutJitter = numbersOf(200, false)
  expect(withoutJitter).toMatchObject({
    recoveryPeakPerSecond: fleet.daemons,
    refreshPeakPerSecond: fleet.daemons,
  })
  expect(withoutJitter.recoveredLastSeconds).toBeGreaterThan(5 * limited.recoveredLastSeconds)
})

test('a fleet that was given Retry-After: 120 comes back after it, spread over a fifth of it', () => {
  const limited = { kind: 'transient', reason: 'rate-limited', detail: '429', retryAfterMs: 120_000 } as const
  const service = (atMs: number) => (atMs < 1 ? limited : 'token')
  const arrivals = runFleet({ ...fleet, random: createRandom(1) }, { service, untilMs: 5 * MINUTE_MS })
  const back = arrivals.filter(({ atMs }) => atMs > 0)
  expect(back).toHaveLength(fleet.daemons)
  expect(back[0]!.atMs).toBeGreaterThanOrEqual(120_000)
  expect(back.at(-1)!.atMs).toBeLessThanOrEqual(144_000)
  expect(peakPerSecond(back)).toBeLessThanOrEqual(0.06 * fleet.daemons)
})

test("npm run simulate --json prints the contract's numbers, the same bytes for a seed", () => {
  const few = ['--daemons', '300', '--outage', '5m', '--service-limit', '20', '--json']
  const ofSeed = (seed: string): string => simulateCommand([...few, '--seed', seed])
  const first = ofSeed('7')
  const { withoutJitter, ...numbers } = JSON.parse(first) as { withoutJitter: object }
  expect(Object.keys(numbers).join(' ')).toBe(
    'meanPerSecond recoveryPeakPerSecond recoveredP50Seconds recoveredLastSeconds requestsPerDaemonDuringOutage ' +
      'refreshPeakPerSecond requestsPerRefusedDaemon',
  )
  expect(Object.keys(withoutJitter)).toEqual(Object.keys(numbers))
  expect(ofSeed('7')).toBe(first)
  expect(ofSeed('8')).not.toBe(first)
})

test('npm run simulate prints a table, and a plot of the requests of each minute', () => {
  const printed = simulateCommand(['--daemons', '300', '--outage', '5m'])
  expect(printed).toMatch(/^requests per daemon during the outage +[\d.]+ +[\d.]+$/m)
  // After five minutes of outage each daemon gets its token within the sixth.
  expect(printed).toMatch(/^minute +requests\n +0 +\d+ #{60}\n(?: +[1-4] +\d+ #+\n){4} +5 +300 #+\n$/m)
})

test('npm run simulate ends with 64 for what it does not understand, and names it', () => {
  const program = new URL('./command.ts', import.meta.url).pathname
  for (const args of [['--daemons', '1.5'], ['--outage', 'long'], ['--sead']]) {
    const { status, stdout, stderr } = spawnSync(process.execPath, [program, ...args], { encoding: 'utf8' })
    expect({ status, stdout }).toEqual({ status: 64, stdout: '' })
    expect(stderr.split('\n')[0]).toContain(args[0])
  }
})
