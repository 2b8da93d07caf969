// A process that may write to the store and does not know the secret can turn sharing off for as long as it
// writes, and nothing else.
import { beforeEach, expect, onTestFinished, test } from 'vitest'
import { createWorld, type World } from '../model/world.ts'
import { createRandom } from '../support/random.ts'
import type { MemoryServer } from '../support/memory-store.ts'

const HOSTS = 4
/** Of a token, of which a host alone uses half at least. */
const LIFE_S = 240
const KEYS = ['record', 'lease'] as const

let world: World
let server: MemoryServer
beforeEach(async () => {
  world = await createWorld({ hosts: HOSTS, auto: 'token', random: createRandom(1) })
  onTestFinished(world.end)
  await world.act('wait:1')
  server = [...world.servers.values()][0]!
})

/**
 * Ten minutes: at each step every host has a token, and none goes back to an older one. Being alone costs no less.
 */
async function expectTokens(plant: () => void, { everyS = 0.5 } = {}): Promise<void> {
  const newest = world.hosts.map(() => -1)
  const before = world.asked()
  for (let passed = 0; passed < 600; passed += everyS) {
    plant()
    await world.act(`wait:${everyS}`)
    for (const [index, token] of world.served().entries()) {
      const { number } = world.tokens.get(token!)!
      expect(number).toBeGreaterThanOrEqual(newest[index]!)
      newest[index] = number
    }
  }
  expect(world.asked() - before).toBeLessThanOrEqual((HOSTS * 600) / (LIFE_S / 2))
}

test('6,000 writes at random in ten minutes take no token away, and cost no more than being alone', async () => {
  const random = createRandom(1)
  const oneOf = <T>(values: readonly T[]): T => values[Math.floor(random() * values.length)]!
  const seen = new Set<string>()
  const write = (): void => {
    for (const key of KEYS) seen.add(server.text(key) ?? '')
    const id = Math.floor(random() * 2 ** 48)
      .toString(16)
      .padStart(16, '0')
    const wallMs = world.hosts[0]!.life.clock.now().wallMs
    const fence = oneOf([0, wallMs, wallMs + 600_000, 2 ** 53 - 1, 2 ** 53])
    const former = oneOf([...seen])
    const texts = [former, former, id, `${fence} ${id} AAAA`, `${fence} ${former}`, 'x'.repeat(70_000), '']
    const keepMs = oneOf([1, 50, 1_000, 60_000, 70 * 60_000, 74 * 60_000, 10 ** 12])
    server.plant(oneOf(KEYS), { text: oneOf(texts), keepMs })
    if (random() < 0.1) server.remove(oneOf(KEYS))
    if (random() < 0.5) server.message()
  }
  await expectTokens(write, { everyS: 0.1 })
  const unreadable = world.hosts.flatMap(({ events }) =>
    events.filter(({ event }) => /unreadable/.test(event)),
  )
  expect(unreadable.length).toBeLessThanOrEqual(2 * HOSTS)
  await world.act('wait:16')
  expect(new Set(world.served()).size).toBe(1)
})

test.each<[string, (old: { record: string; wait: string }) => { record?: string; lease?: string }, number?]>([
  ['a live lease', () => ({ lease: '0123456789abcdef' })],
  ['a lease for 70 minutes', () => ({ lease: 'fedcba9876543210' }), 70 * 60_000],
  [
    'a lease that changes',
    () => ({ lease: Math.random().toString(16).slice(2).padEnd(16, '0').slice(0, 16) }),
  ],
  ['an old record', ({ record }) => ({ record })],
  ['a record that does not open', () => ({ record: `${2 ** 53 - 1} 0123456789abcdef AAAA` })],
  ['an old wait', ({ wait }) => ({ lease: wait })],
])('%s that is planted again and again takes no token away', async (_what, planted, keepMs = 10_000) => {
  const record = server.text('record')!
  for (const act of ['auto:outage', 'operator:0']) await world.act(act)
  const wait = server.text('lease')!
  for (const act of ['auto:token', 'operator:1', 'wait:1']) await world.act(act)
  await expectTokens(() => {
    for (const [key, text] of Object.entries(planted({ record, wait })))
      server.plant(key as 'record', { text, keepMs })
  })
})
