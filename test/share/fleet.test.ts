// One token for a fleet: who asks, who waits, who takes over, and what every loss, act and race leads to.
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import type { FetchOutcome } from '../../src/token/outcome.ts'
import { createRandom } from '../support/random.ts'
import { createWorld, type World, type WorldOptions } from './world.ts'

let world: World
/** A fleet that has its first answer. */
async function begin(options: WorldOptions = {}, service?: World['service']): Promise<void> {
  world = createWorld(options)
  onTestFinished(world.end)
  if (service !== undefined) world.service = service
  await world.pass(1)
}
/** The requests since the last call. */
let counted = 0
function asked(): number {
  const before = counted
  counted = world.requests.length
  return counted - before
}
beforeEach(() => {
  counted = 0
})

const refused: FetchOutcome = { kind: 'permanent', reason: 'account-inactive', detail: 'no', status: 500 }
const busy: FetchOutcome = {
  kind: 'transient',
  reason: 'rate-limited',
  detail: 'HTTP 429',
  retryAfterMs: 180_000,
}
const reset: FetchOutcome = { kind: 'transient', reason: 'network', detail: 'reset' }
const barred: FetchOutcome = { kind: 'transient', reason: 'rejected', detail: 'HTTP 403', status: 403 }

test('a fleet has a new token on each host within 15 s', async () => {
  await begin()
  void world.hosts[0]!.attempt('operator')
  await world.pass(16)
  expect([asked(), world.tokens()]).toEqual([2, ['token-2']])
  const outcomes = world.hosts.map(({ room }) => room().sample()?.outcomes)
  expect(outcomes).toContainEqual({ asked: 0, adopted: 2, alone: 0 })
})

/** The fullest ten seconds. */
function peak(): number {
  const slots = world.requests.map(({ atMs }) => Math.floor(atMs / 10_000))
  return Math.max(0, ...slots.map((one) => slots.filter((other) => other === one).length))
}
const reasons = (): (string | null)[] => [
  ...new Set(world.hosts.map((host) => (host.facts().isRefused ? 'refused' : host.token()))),
]

describe('a failure of the service', () => {
  test('with Retry-After of 3 min holds for all, for hosts that come, and after an operator who passed it in vain', async () => {
    await begin({ hosts: 5 }, () => busy)
    world.join()
    world.service = () => reset
    await world.act(1, 'operator')
    expect(asked()).toBe(2)
    world.service = () => 'token'
    await world.pass(170)
    expect(asked()).toBe(0)
    const { last } = world.hosts[5]!.facts()
    expect(last).toMatchObject({ kind: 'postponed', askedBy: expect.any(String) })
    // From the first second on, when this host came.
    expect((last as { retryAfterMs: number }).retryAfterMs / 1_000).toBeCloseTo(179, -1)
    await world.pass(20)
    expect([asked(), world.tokens()]).toEqual([1, ['token-3']])
  })

  test('of the network leaves the request to another host after 5 s: 4 in 20 s', async () => {
    await begin({ hosts: 20 }, () => reset)
    await world.pass(19)
    expect(asked()).toBe(4)
    const [first, second] = world.requests
    expect(second!.host).not.toBe(first!.host)
    world.service = () => 'token'
    await world.pass(6)
    expect(asked()).toBe(1)
    expect(world.tokens()).toHaveLength(1)
  })

  test('is the own one of a host that is on no list (403): it costs the others nothing', async () => {
    await begin({ hosts: 20 }, (host) => (host === 0 ? barred : 'token'))
    await world.pass(1_800)
    expect(world.requests.filter(({ host }) => host === 0).length).toBeLessThanOrEqual(7)
    expect(world.tokens()).toHaveLength(1)
    expect(asked()).toBeLessThanOrEqual(13 + 7)
  })
})

describe('a refusal', () => {
  test('is one request; who comes within the hour takes it, who comes later asks once', async () => {
    await begin({ hosts: 20 }, () => refused)
    await world.pass(600)
    const late = world.join()
    world.hosts[0]!.restart()
    world.hosts[1]!.restart({ isNew: true })
    await world.pass(1)
    expect([asked(), reasons()]).toEqual([1, ['refused']])
    expect(late.facts().last).toMatchObject({ reason: 'account-inactive', askedBy: expect.any(String) })
    const text = world.server.text('record')
    await world.pass(7_200)
    // A writer of Redis cannot make it last.
    world.server.plant(world.server.key('record'), text, 10 ** 9)
    world.join()
    world.join()
    await world.pass(1)
    expect([asked(), reasons()]).toEqual([1, ['refused']])
  })

  test('of hosts with certificates of their own is learned by one request of each', async () => {
    await begin({ hosts: 6, hasOwnProof: true }, () => refused)
    await world.pass(60)
    expect([asked(), reasons()]).toEqual([6, ['refused']])
    await world.pass(600)
    expect(asked()).toBe(0)
  })
})

test('operators of 20 hosts at once are answered by one request, during a wait, too', async () => {
  await begin({ hosts: 20 }, () => busy)
  world.service = () => 'token'
  const made = world.hosts.map(({ attempt }) => attempt('operator'))
  await world.pass(3)
  expect((await Promise.all(made)).map(({ kind }) => kind)).not.toContain('postponed')
  expect([asked(), world.tokens()]).toEqual([2, ['token-2']])
})

test('operators who ask one after the other wait for no lease: each is given back with its answer', async () => {
  await begin()
  for (const host of world.hosts) {
    void host.attempt('operator')
    await world.pass(3)
  }
  expect(asked()).toBe(1 + 3)
})

test('clients cause one request in 30 s, whichever hosts they report to', async () => {
  await begin()
  await world.pass(40)
  const [first, second, third] = world.hosts
  void first!.attempt('client')
  await world.pass(2)
  void second!.attempt('client')
  void third!.attempt('client')
  await world.pass(10)
  expect([asked(), world.tokens()]).toEqual([2, ['token-2']])
  void second!.attempt('client')
  await world.pass(10)
  expect(asked()).toBe(0)
  await world.pass(12)
  expect(asked()).toBe(1)
})

test('an asker that dies is waited for until its lease ends', async () => {
  await begin()
  world.requestMs = 10_000
  void world.hosts[0]!.attempt('operator')
  await world.pass(1)
  // As if by a kill: it gives nothing back.
  world.server.step = (host) => (host === 0 ? new Promise(() => undefined) : Promise.resolve())
  world.hosts[0]!.kill()
  void world.hosts[1]!.attempt('refresh')
  world.requestMs = 50
  await world.pass(15)
  expect(asked()).toBe(2)
  await world.pass(3)
  expect(asked()).toBe(1)
})

test("a host whose token would end during another's lease asks alone before", async () => {
  await begin({ hosts: 2, lifeMs: 20_000 })
  await world.pass(9)
  world.requestMs = 60_000
  void world.hosts[0]!.attempt('refresh')
  await world.pass(1)
  world.requestMs = 50
  await world.pass(9)
  expect([asked(), world.hosts[1]!.token()]).toEqual([3, 'token-3'])
})

test("a wait that is far ahead of the store's clock holds nobody back", async () => {
  world = createWorld()
  onTestFinished(world.end)
  world.aheadMs = 36_000_000
  world.service = () => busy
  await world.pass(1)
  world.aheadMs = 0
  world.service = () => 'token'
  world.join()
  await world.pass(1)
  expect([asked(), world.hosts[3]!.token()]).toEqual([2, 'token-2'])
})

test('an asker whose lease is lost before its request leaves it to the host that has the lease', async () => {
  await begin({ hosts: 2 })
  world.requestMs = 5_000
  void world.hosts[0]!.attempt('operator')
  await world.pass(0.1)
  world.server.remove(world.server.key('lease'))
  void world.hosts[1]!.attempt('refresh')
  await world.pass(6)
  expect([asked(), world.tokens()]).toEqual([2, ['token-2']])
})

test('an answer that comes after a later one was adopted does not replace it', async () => {
  await begin({ hosts: 2 })
  await world.pass(9)
  world.requestMs = 8_000
  const slow = world.hosts[0]!.attempt('refresh')
  await world.pass(1)
  world.server.remove(world.server.key('lease'))
  world.requestMs = 50
  await world.act(1, 'operator')
  await world.pass(10)
  expect(await slow).toMatchObject({ kind: 'ok' })
  expect(world.tokens()).toEqual(['token-3'])
})

describe('a store that is of no use', () => {
  test.each(['lost', 'read-only', 'late'] as const)(
    '(%s): hosts ask at their own times, none is without a token, and all agree when it is back',
    async (mode) => {
      await begin({ hosts: 20 })
      world.server.mode = mode
      for (let passed = 0; passed < 235; passed += 5) {
        await world.pass(5)
        expect(world.tokens()).not.toContain(null)
      }
      const alone = asked() - 1
      expect(alone).toBeGreaterThanOrEqual(20)
      expect(alone).toBeLessThanOrEqual(30)
      expect(peak()).toBeLessThanOrEqual(5)
      expect(world.hosts[0]!.room().status()).toMatchObject({ state: 'alone', lastError: expect.any(String) })
      world.server.back()
      await world.pass(16)
      expect(world.tokens()).toHaveLength(1)
      expect(world.hosts[0]!.room().status()).toMatchObject({ state: 'connected' })
    },
  )

  test('is asked without by an operator at once, and after a report within 10 s', async () => {
    await begin()
    world.server.mode = 'lost'
    expect(await world.act(0, 'operator')).toMatchObject({ kind: 'ok' })
    void world.hosts[1]!.attempt('client')
    await world.pass(10)
    expect(asked()).toBe(3)
  })

  test('lost and back in turn is one record in ten minutes', async () => {
    await begin({ hosts: 1 })
    for (let turn = 0; turn < 20; turn += 1) {
      world.server.mode = 'lost'
      await world.pass(15)
      world.server.back()
      await world.pass(15)
    }
    expect(world.eventsOf('share-lost')).toHaveLength(1)
    expect(world.eventsOf('share-connected').length).toBeLessThanOrEqual(2)
  })

  test('leaves hosts that wait with what they have, and an operator is served', async () => {
    await begin({ share: () => ({ whenAlone: 'wait' }) })
    world.server.mode = 'lost'
    await world.pass(300)
    expect([asked(), world.tokens()]).toEqual([1, [null]])
    expect(world.hosts[0]!.facts().last).toMatchObject({ reason: 'share-lost' })
    await world.act(0, 'operator')
    expect(asked()).toBe(1)
  })
})

test('a host that never asks says so, and has the token of another', async () => {
  await begin({ hosts: 1, share: (host) => (host === 0 ? { asks: false, whenAlone: 'wait' } : {}) })
  await world.pass(20)
  expect(asked()).toBe(0)
  expect(world.hosts[0]!.facts().last).toMatchObject({ kind: 'postponed', reason: 'not-asked' })
  world.join()
  await world.pass(16)
  expect([asked(), world.tokens()]).toEqual([1, ['token-1']])
})

test.each([36_000_000, -30_000, -36_000_000, -3_000])(
  "the store's clock jumps by %d ms and back: no host returns to an older token, and all agree",
  async (jumpMs) => {
    await begin({ hosts: 5, lifeMs: 3_600_000 })
    await world.act(0, 'operator')
    await world.pass(16)
    for (const [aheadMs, isFlushed] of [
      [jumpMs, true],
      [0, false],
      [jumpMs, false],
      [0, true],
    ] as const) {
      world.aheadMs = aheadMs
      if (isFlushed) world.server.flush()
      const before = world.tokens()
      await world.pass(31)
      expect(world.tokens()).toEqual(before)
      await world.act(1, 'operator')
      await world.pass(31)
      expect(world.tokens()).toEqual([`token-${world.requests.length}`])
    }
    expect(asked()).toBe(6)
  },
)

test('a host that is restarted takes nothing older, and gives what it had to an empty store', async () => {
  await begin({ hosts: 2 })
  const old = world.server.text('record')
  await world.act(0, 'operator')
  await world.pass(16)
  world.server.plant(world.server.key('record'), old, 100_000)
  for (const host of world.hosts) host.restart()
  await world.pass(1)
  expect(world.tokens()).toEqual(['token-2'])
  world.server.flush()
  for (const host of world.hosts) host.restart()
  await world.pass(16)
  world.join()
  await world.pass(1)
  expect([asked(), world.tokens()]).toEqual([2, ['token-2']])
})

test('random writes to the store for ten minutes take no token away, and cost no more than being alone', async () => {
  const lifeS = 240
  await begin({ hosts: 5, lifeMs: lifeS * 1_000 })
  const { server, hosts } = world
  const random = createRandom(1)
  const oneOf = <T>(values: readonly T[]): T => values[Math.floor(random() * values.length)]!
  const record = server.key('record')
  const keys = [record, record.replace('record', 'lease')]
  const seen = new Set<string>()
  const newest = hosts.map(() => 1)
  const before = world.requests.length
  for (let step = 0; step < 6_000; step += 1) {
    for (const name of ['record', 'lease'] as const) seen.add(server.text(name))
    const texts = [oneOf([...seen]), oneOf([...seen]), 'A'.repeat(80), 'x'.repeat(65_536), 'no base64!']
    server.plant(oneOf(keys), oneOf(texts), oneOf([1, 50, 1_000, 60_000, 70 * 60_000, 10 ** 12]))
    if (random() < 0.1) server.remove(oneOf(keys))
    await world.pass(0.1)
    for (const [index, host] of hosts.entries()) {
      const number = Number(host.token()?.split('-')[1])
      expect(number).toBeGreaterThanOrEqual(newest[index]!)
      newest[index] = number
    }
  }
  expect(world.requests.length - before).toBeLessThanOrEqual((hosts.length * 600) / (lifeS / 2))
  await world.pass(16)
  expect(world.tokens()).toHaveLength(1)
})
