// The bars for a fleet that shares one token: 10,000 hosts make one request for each rotation, and do not stampede when the store is gone.
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { simulateCommand } from './command.ts'
import { runShareFleet } from './share-fleet.ts'

test(
  '10,000 hosts that share make one request for each rotation; without the store for 10 minutes they spread, and none is without a token',
  { timeout: 180_000 },
  async () => {
    const { numbers, outageRequestsMs } = await runShareFleet({
      daemons: 10_000,
      tokenLifeMs: 3_600_000,
      outageMs: 600_000,
      seed: 1,
    })
    expect(numbers.requestsPerRotation).toBe(1)
    expect(outageRequestsMs.length).toBeGreaterThan(1_000)
    expect(numbers.storeOutagePeakPerSecond).toBeLessThanOrEqual(30)
    expect(numbers.withoutTokenSeconds).toBe(0)
    const page = readFileSync(new URL('../README.md', import.meta.url), 'utf8')
    expect(page).toMatch(
      new RegExp(`requests in the fullest second while it is gone +${numbers.storeOutagePeakPerSecond}\n`),
    )
  },
)

test('a fleet that the store leaves for longer than the token lives has a token on every host all the time', async () => {
  const { numbers } = await runShareFleet({
    daemons: 500,
    tokenLifeMs: 600_000,
    outageMs: 3_600_000,
    seed: 2,
  })
  expect(numbers).toMatchObject({ requestsPerRotation: 1, withoutTokenSeconds: 0 })
})

test('npm run simulate -- --share --json prints the numbers of the page and no others, the same for the same seed', async () => {
  const run = () => simulateCommand(['--share', '--daemons', '100', '--store-outage', '10m', '--json'])
  const first = await run()
  expect({ status: first.status, stderr: first.stderr }).toEqual({ status: 0, stderr: '' })
  expect(Object.keys(JSON.parse(first.stdout) as object)).toEqual([
    'requestsPerRotation',
    'storeOutagePeakPerSecond',
    'withoutTokenSeconds',
  ])
  expect(await run()).toEqual(first)
})
