// A process that may write to the store and does not know the secret can turn sharing off for as long as it
// writes, and nothing else.
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { StoreError } from '../../src/share/store.ts'
import type { ServiceOutcome } from '../../src/token/outcome.ts'
import { createRandom } from '../support/random.ts'
import {
  createShareWorld,
  eventsOf,
  refresh,
  tokensOf,
  type Host,
  type ShareWorld,
} from '../support/share-world.ts'

const SECOND = 1_000
const MINUTE = 60 * SECOND
const HOSTS = 4
const LIFE_S = 120
const KEYS = ['record', 'lease'] as const

let world: ShareWorld
let issued: Map<string | null, number>
function issue(): ServiceOutcome {
  const outcome = world.token()
  if (outcome.kind === 'ok') issued.set(outcome.accessToken, issued.size)
  return outcome
}
function start(options: Parameters<typeof createShareWorld>[0] = {}): Host[] {
  world = createShareWorld(options)
  onTestFinished(() => world.stop())
  issued = new Map()
  world.answer(issue)
  return world.hosts(HOSTS)
}

/**
 * Lets this time pass, and checks at each step that every host has a token, and none goes back to an older
 * one.
 */
async function watch(hosts: readonly Host[], ms: number, act: () => void): Promise<void> {
  const newest = hosts.map(() => -1)
  for (let passed = 0; passed < ms; passed += 100) {
    act()
    await world.clock.advance(100)
    for (const [index, host] of hosts.entries()) {
      const token = host.token()
      expect(token).not.toBeNull()
      expect(issued.get(token)).toBeGreaterThanOrEqual(newest[index]!)
      newest[index] = issued.get(token)!
    }
  }
}

test('6,000 writes at random in ten minutes take no token away, and cost no more than being alone', async () => {
  const seed = 1
  const alone = start({ lifeSeconds: LIFE_S, seed })
  await world.clock.advance(SECOND)
  world.server.fail(new StoreError('lost', 'connect ECONNREFUSED'))
  await watch(alone, 10 * MINUTE, () => undefined)
  const most = world.asked.length

  const hosts = start({ lifeSeconds: LIFE_S, seed })
  await world.clock.advance(SECOND)
  const random = createRandom(seed)
  const oneOf = <T>(values: readonly T[]): T => values[Math.floor(random() * values.length)]!
  const seen: string[] = []
  function write(): void {
    for (const key of KEYS) {
      const text = world.server.text(key)
      if (text !== null && !seen.includes(text)) seen.push(text)
    }
    const id = Math.floor(random() * 2 ** 48)
      .toString(16)
      .padStart(16, '0')
    const fence = oneOf([
      0,
      world.clock.now().wallMs,
      world.clock.now().wallMs + 10 * MINUTE,
      2 ** 53 - 1,
      2 ** 53,
    ])
    const texts = [
      oneOf(seen),
      oneOf(seen),
      id,
      `${fence} ${id} AAAA`,
      `${fence} ${oneOf(seen)}`,
      'x'.repeat(70_000),
      '',
    ]
    const keepMs = oneOf([1, 50, SECOND, MINUTE, 70 * MINUTE, 74 * MINUTE, 10 ** 12])
    world.server.plant(oneOf(KEYS), { text: oneOf(texts), keepMs })
    if (random() < 0.1) world.server.remove(oneOf(KEYS))
    if (random() < 0.5) world.server.message()
  }
  await watch(hosts, 10 * MINUTE, write)
  expect(world.asked.length).toBeLessThanOrEqual(most)
  expect(hosts.flatMap((host) => eventsOf(host, 'share-unreadable')).length).toBeLessThanOrEqual(2 * HOSTS)
  await world.clock.advance(16 * SECOND)
  expect(tokensOf(hosts)).toHaveLength(1)
})

describe('a text that is planted again and again', () => {
  let hosts: Host[]
  const old = { record: '', wait: '' }
  beforeEach(async () => {
    hosts = start({ lifeSeconds: LIFE_S })
    await world.clock.advance(SECOND)
  })
  const outage: ServiceOutcome = { kind: 'transient', reason: 'server-error', detail: '503', status: 503 }

  test.each<[string, () => { record?: string; lease?: string; keepMs?: number }]>([
    ['a live lease', () => ({ lease: '0123456789abcdef' })],
    ['a lease for 70 minutes', () => ({ lease: 'fedcba9876543210', keepMs: 70 * MINUTE })],
    [
      'a lease that changes',
      () => ({ lease: Math.random().toString(16).slice(2).padEnd(16, '0').slice(0, 16) }),
    ],
    ['an old record', () => ({ record: old.record })],
    ['a record that does not open', () => ({ record: `${2 ** 53 - 1} 0123456789abcdef AAAA` })],
    ['an old wait', () => ({ lease: old.wait })],
  ])('(%s) takes no token away, and costs no more than being alone', async (_what, planted) => {
    const record = world.server.text('record')!
    world.answer(() => outage)
    await refresh(hosts[0]!)
    const wait = world.server.text('lease')!
    world.answer(issue)
    await refresh(hosts[1]!)
    await world.clock.advance(SECOND)
    Object.assign(old, { record, wait })
    await watch(hosts, 5 * MINUTE, () => {
      const { record: text, lease, keepMs = 10 * SECOND } = planted()
      if (text !== undefined) world.server.plant('record', { text, keepMs })
      if (lease !== undefined) world.server.plant('lease', { text: lease, keepMs })
    })
    // A host alone asks once in a life at most, and sooner than it must.
    expect(world.asked.length).toBeLessThanOrEqual(3 + (HOSTS * 5 * 60) / (LIFE_S / 2))
  })
})
