// The bars for a fleet: what the service sees of 10,000 daemons after an outage, at refreshes, and when it asks to wait.
import { spawnSync } from 'node:child_process'
import { beforeAll, describe, expect, test } from 'vitest'
import { createRandom } from '../support/random.ts'
import { simulateCommand } from './command.ts'
import { runFleet } from './fleet.ts'
import { peakPerSecond, simulate, type FleetNumbers } from './report.ts'

const MINUTE_MS = 60_000
const CAP_S = 60
const DAEMONS = 10_000
const fleet = {
  daemons: DAEMONS,
  outageMs: 30 * MINUTE_MS,
  outageStartMs: 0,
  tokenLifeMs: 60 * MINUTE_MS,
  serviceLimit: 200,
  seed: 1,
}

describe('10,000 daemons that booted into an outage of 30 minutes', () => {
  let limited: FleetNumbers
  let unlimited: FleetNumbers
  let withoutJitter: FleetNumbers

  beforeAll(() => {
    const numbersOf = (serviceLimit: number | null, hasJitter: boolean): FleetNumbers =>
      simulate({ ...fleet, serviceLimit }, { hasJitter }).numbers
    limited = numbersOf(200, true)
    unlimited = numbersOf(null, true)
    withoutJitter = numbersOf(200, false)
  })

  test('come back with at most 2.2 times the mean rate of the outage in the fullest second', () => {
    for (const { recoveryPeakPerSecond, meanPerSecond } of [limited, unlimited]) {
      expect(meanPerSecond).toBeGreaterThan(DAEMONS / CAP_S)
      expect(recoveryPeakPerSecond).toBeLessThanOrEqual(2.2 * meanPerSecond)
    }
  })

  test('are all back within the cap and a second where the service serves all', () => {
    expect(unlimited.recoveredP50Seconds).toBeGreaterThan(0)
    expect(unlimited.recoveredLastSeconds).toBeLessThanOrEqual(CAP_S + 1)
  })

  test('are all back within twice the cap where it serves 200 a second', () => {
    // It cannot serve them in less.
    expect(limited.recoveredLastSeconds).toBeGreaterThanOrEqual(DAEMONS / 200)
    expect(limited.recoveredLastSeconds).toBeLessThanOrEqual(2 * CAP_S)
  })

  test('refresh at most 50 times a second after a common start', () => {
    expect(limited.refreshPeakPerSecond).toBeGreaterThan(0)
    expect(limited.refreshPeakPerSecond).toBeLessThanOrEqual(50)
  })

  test('ask once and never again where the account is refused', () => {
    expect(limited.requestsPerRefusedDaemon).toBe(1)
  })

  test('would come all at once without jitter, and last longer', () => {
    expect(withoutJitter.recoveryPeakPerSecond).toBe(DAEMONS)
    expect(withoutJitter.refreshPeakPerSecond).toBe(DAEMONS)
    expect(withoutJitter.recoveredLastSeconds).toBeGreaterThan(5 * limited.recoveredLastSeconds)
  })
})

test('10,000 daemons that hold a token pass an outage that is shorter than what is left of it without a gap', () => {
  const outageStartMs = 45 * MINUTE_MS
  const { arrivals } = simulate(
    { ...fleet, outageStartMs, outageMs: 10 * MINUTE_MS, serviceLimit: null },
    { hasJitter: true },
  )
  const lastServedMs = new Map<number, number>()
  let longestGapMs = 0
  for (const { daemon, atMs, isServed } of arrivals) {
    if (!isServed) continue
    longestGapMs = Math.max(longestGapMs, atMs - (lastServedMs.get(daemon) ?? 0))
    lastServedMs.set(daemon, atMs)
  }
  expect(lastServedMs.size).toBe(DAEMONS)
  expect(longestGapMs).toBeGreaterThan(0)
  expect(longestGapMs).toBeLessThan(fleet.tokenLifeMs)
})

test('a fleet that was given Retry-After: 120 comes back after it, spread over a fifth of it', () => {
  const arrivals = runFleet({
    daemons: DAEMONS,
    policy: { initialDelayMs: 1_000, maxDelayMs: 300_000, maxAgeMs: 900_000 },
    tokenLifeMs: fleet.tokenLifeMs,
    random: createRandom(1),
    service: (atMs) =>
      atMs < 1
        ? { kind: 'transient', reason: 'rate-limited', detail: '429', status: 429, retryAfterMs: 120_000 }
        : 'token',
    untilMs: 5 * MINUTE_MS,
  })
  const back = arrivals.filter(({ atMs }) => atMs > 0)
  expect(back).toHaveLength(DAEMONS)
  const instants = back.map(({ atMs }) => atMs)
  expect(Math.min(...instants)).toBeGreaterThanOrEqual(120_000)
  expect(Math.max(...instants)).toBeLessThanOrEqual(144_000)
  expect(peakPerSecond(back)).toBeLessThanOrEqual(0.06 * DAEMONS)
})

describe('npm run simulate', () => {
  const few = ['--daemons', '300', '--outage', '5m', '--service-limit', '20']

  test('prints the numbers of the contract and no others with --json', async () => {
    const { status, stdout, stderr } = await simulateCommand([...few, '--json'])
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
    const { withoutJitter, ...numbers } = JSON.parse(stdout) as { withoutJitter: object }
    const names = [
      'meanPerSecond',
      'recoveryPeakPerSecond',
      'recoveredP50Seconds',
      'recoveredLastSeconds',
      'requestsPerDaemonDuringOutage',
      'refreshPeakPerSecond',
      'requestsPerRefusedDaemon',
    ]
    expect(Object.keys(numbers)).toEqual(names)
    expect(Object.keys(withoutJitter)).toEqual(names)
    for (const number of Object.values({ ...numbers, ...withoutJitter })) expect(number).toBeTypeOf('number')
  })

  test('gives the same bytes for the same seed, and others for another', async () => {
    const ofSeed = async (seed: string) => (await simulateCommand([...few, '--seed', seed, '--json'])).stdout
    const first = await ofSeed('7')
    expect(await ofSeed('7')).toBe(first)
    expect(await ofSeed('8')).not.toBe(first)
  })

  test('draws a table and a plot without --json', async () => {
    const { status, stdout } = await simulateCommand(few)
    expect(status).toBe(0)
    expect(stdout).toContain('requests/s, last 5 min of the outage')
    expect(stdout).toContain('█')
  })

  test.each([
    [['--daemons', 'many'], '--daemons'],
    [['--daemons', '0'], '--daemons'],
    [['--daemons', '1.5'], '--daemons'],
    [['--outage', '30'], '--outage'],
    [['--outage-start', 'soon'], '--outage-start'],
    [['--outage', '25h'], '--outage'],
    [['--daemons', '1000000', '--outage', '1h'], '--daemons'],
    [['--token-life', ''], '--token-life'],
    [['--token-life', '0s'], '--token-life'],
    [['--service-limit', '0'], '--service-limit'],
    [['--seed', '-1'], '--seed'],
    [['--seed=-1'], '--seed'],
    [['--sead', '1'], '--sead'],
    [['10000'], '10000'],
  ])('refuses %j in a sentence and ends with 64', async (args, named) => {
    const { status, stdout, stderr } = await simulateCommand(args)
    expect({ status, stdout }).toEqual({ status: 64, stdout: '' })
    const [sentence] = stderr.split('\n')
    expect(sentence).toMatch(/^simulate: /)
    expect(sentence).toContain(named)
    expect(stderr).not.toMatch(/ at .*:\d+:\d+/)
  })

  test('its program ends with that status', () => {
    const program = new URL('./command.ts', import.meta.url).pathname
    const { status, stdout, stderr } = spawnSync(process.execPath, [program, '--sead'], { encoding: 'utf8' })
    expect({ status, stdout }).toEqual({ status: 64, stdout: '' })
    expect(stderr).toContain('--sead')
  })
})
