// A process that may write to the store and does not know the secret can turn sharing off for as long as it
// writes, and nothing else.
import { beforeEach, expect, onTestFinished, test } from 'vitest'
import { createRandom } from '../support/random.ts'
import { createWorld, type World } from './world.ts'

const HOSTS = 5
const LIFE_S = 240
const NAMES = ['record', 'lease'] as const

let world: World
beforeEach(async () => {
  world = createWorld({ hosts: HOSTS, lifeMs: LIFE_S * 1_000 })
  onTestFinished(world.end)
  await world.pass(1)
})

const numberOf = (token: string | null): number => Number(token?.split('-')[1] ?? 0)

/** Ten minutes: each host has a token at each step, none goes back, and being alone costs no less. */
async function expectTokens(plant: () => void, everyS: number): Promise<void> {
  const newest = world.hosts.map(() => 0)
  const before = world.requests.length
  for (let passed = 0; passed < 600; passed += everyS) {
    plant()
    await world.pass(everyS)
    for (const [index, host] of world.hosts.entries()) {
      const number = numberOf(host.token())
      expect(number).toBeGreaterThanOrEqual(Math.max(1, newest[index]!))
      newest[index] = number
    }
  }
  expect(world.requests.length - before).toBeLessThanOrEqual((HOSTS * 600) / (LIFE_S / 2))
}

test('writes at random for ten minutes take no token away, and cost no more than being alone', async () => {
  const { server } = world
  const random = createRandom(1)
  const oneOf = <T>(values: readonly T[]): T => values[Math.floor(random() * values.length)]!
  const keys = Object.fromEntries(NAMES.map((name) => [name, server.key(name)]))
  keys['lease'] = keys['record']!.replace('record', 'lease')
  const seen = new Set<string>()
  await expectTokens(() => {
    for (const name of NAMES) if (server.text(name) !== '') seen.add(server.text(name))
    const texts = [oneOf([...seen]), oneOf([...seen]), 'A'.repeat(80), 'x'.repeat(65_536), 'no base64!']
    server.plant(keys[oneOf(NAMES)]!, oneOf(texts), oneOf([1, 50, 1_000, 60_000, 70 * 60_000, 10 ** 12]))
    if (random() < 0.1) server.remove(keys[oneOf(NAMES)]!)
    if (random() < 0.05) world.aheadMs = 0
  }, 0.1)
  await world.pass(16)
  expect(world.tokens()).toHaveLength(1)
})
