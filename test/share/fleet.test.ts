// One token for a fleet: who asks, who waits, who takes over, and what every loss, act and race leads to.
import { describe, expect, onTestFinished, test } from 'vitest'
import { Secret } from '../../src/lib/secret.ts'
import { StoreError } from '../../src/share/store.ts'
import { failures } from '../support/failures.ts'
import { createRandom } from '../support/random.ts'
import { createWorld, type World, type WorldOptions } from './world.ts'

let world: World
/** The requests that `asked` has counted already. */
let counted = 0
/** A fleet that has its first answer. */
async function begin(options: WorldOptions = {}, change: Partial<World> = {}): Promise<void> {
  world = Object.assign(createWorld(options), change)
  onTestFinished(world.end)
  counted = 0
  await world.pass(1)
}
/** The requests since the last call. */
function asked(): number {
  const before = counted
  counted = world.requests.length
  return counted - before
}
const phases = (): string[] => [...new Set(world.hosts.map((host) => host.phase()))]
const busy = { kind: 'transient', reason: 'rate-limited', detail: 'no', retryAfterMs: 180_000 } as const

test('a fleet has a new token on each host within 15 s, with one end', async () => {
  await begin()
  void world.hosts[0]!.operator()
  await world.pass(16)
  expect([asked(), world.tokens()]).toEqual([2, ['token-2']])
  const outcomes = world.hosts.map(({ room }) => room.sample()?.outcomes)
  expect(outcomes).toContainEqual({ asked: 0, adopted: 2, alone: 0 })
  const ends = world.hosts.map(({ state }) => state().token!.expiresAtMs)
  expect(Math.max(...ends) - Math.min(...ends)).toBeLessThan(100)
})

describe('a failure of the service', () => {
  test('with Retry-After of 3 min holds for all, for hosts that come, and after an operator who passed it in vain', async () => {
    await begin({ hosts: 5 }, { service: () => busy })
    const late = world.join()
    world.service = () => failures.network
    await world.operator(1)
    expect(asked()).toBe(2)
    world.service = () => 'token'
    await world.pass(170)
    expect([asked(), late.record().failure?.askedBy]).toEqual([0, expect.any(String)])
    await world.pass(30)
    expect([asked(), world.tokens()]).toEqual([1, ['token-3']])
  })

  test('of the network leaves the request to another host after 5 s: 4 in 20 s', async () => {
    await begin({ hosts: 20 }, { service: () => failures.network })
    await world.pass(18)
    expect(asked()).toBe(4)
    const [first, second] = world.requests
    expect(second!.host).not.toBe(first!.host)
    Object.assign(world, { service: () => 'token', requestMs: 4_000 })
    // The lease of an operator outlives the wait that the act passes.
    void world.hosts[0]!.operator()
    await world.pass(6)
    expect([asked(), world.tokens()]).toEqual([1, ['token-5']])
  })

  test('is the own one of a host that is on no list (403): it costs the others nothing', async () => {
    await begin({ hosts: 20 }, { service: (host) => (host === 0 ? failures.rejected : 'token') })
    await world.pass(1_800)
    expect(world.requests.filter(({ host }) => host === 0).length).toBeLessThanOrEqual(7)
    expect(world.tokens()).toHaveLength(1)
    expect(asked()).toBeLessThanOrEqual(13 + 7)
  })
})

describe('a refusal', () => {
  test('is one request; who comes within the hour takes it, who comes later asks once', async () => {
    await begin({ hosts: 5 }, { service: () => failures.inactive })
    await world.pass(600)
    const late = world.join()
    world.restart(0)
    world.restart(1, null)
    await world.pass(1)
    expect([asked(), phases()]).toEqual([1, ['refused']])
    expect(late.record().failure).toMatchObject({ reason: 'account-inactive', askedBy: expect.any(String) })
    const text = world.server.text('record')
    await world.pass(7_200)
    // A writer of Redis cannot make it last.
    world.server.plant(world.server.key('record'), text, 10 ** 9)
    world.join()
    world.join()
    await world.pass(1)
    expect([asked(), phases()]).toEqual([1, ['refused']])
  })

  test('of hosts with certificates of their own is learned by one request of each', async () => {
    await begin({ hosts: 6, hasOwnProof: true }, { service: () => failures.inactive })
    await world.pass(60)
    expect([asked(), phases()]).toEqual([6, ['refused']])
    await world.pass(600)
    expect(asked()).toBe(0)
  })
})

test('operators of 20 hosts at once are answered by one request, during a wait, too', async () => {
  await begin({ hosts: 20 }, { service: () => busy })
  world.service = () => 'token'
  const answers = world.hosts.map((host) => host.operator())
  await world.pass(3)
  expect((await Promise.all(answers)).map((answer) => answer?.kind)).toEqual(answers.map(() => 'ok'))
  expect([asked(), world.tokens()]).toEqual([2, ['token-2']])
})

test('operators who ask one after the other wait for no lease: each is given back with its answer', async () => {
  await begin()
  for (const index of world.hosts.keys()) expect(await world.operator(index)).toMatchObject({ kind: 'ok' })
  expect(asked()).toBe(1 + 3)
})

test('clients cause one request in 30 s, whichever hosts they report to', async () => {
  await begin()
  await world.pass(40)
  const [first, second, third] = world.hosts
  first!.report()
  await world.pass(2)
  second!.report()
  third!.report()
  await world.pass(10)
  expect([asked(), world.tokens()]).toEqual([2, ['token-2']])
  second!.report()
  await world.pass(10)
  expect(asked()).toBe(0)
  await world.pass(12)
  expect(asked()).toBe(1)
})

describe('an asker', () => {
  test('that dies is waited for until its lease ends', async () => {
    await begin()
    world.requestMs = 10_000
    void world.hosts[0]!.operator()
    await world.pass(1)
    // As if by a kill: it gives nothing back.
    world.server.step = (host) => (host === 0 ? new Promise(() => undefined) : Promise.resolve())
    world.hosts[0]!.kill()
    void world.hosts[1]!.operator()
    world.requestMs = 50
    await world.pass(15)
    expect(asked()).toBe(2)
    await world.pass(3)
    expect(asked()).toBe(1)
  })

  test('is not waited for by a host whose token would end meanwhile', async () => {
    await begin({ hosts: 2, lifeMs: 20_000 })
    await world.pass(7)
    world.requestMs = 60_000
    void world.hosts[0]!.operator()
    await world.pass(1)
    world.requestMs = 50
    await world.pass(11)
    expect([asked(), world.hosts[1]!.token()]).toEqual([3, 'token-3'])
  })

  test('whose lease is lost before its request leaves it to the host that has the lease', async () => {
    await begin({ hosts: 2 })
    world.requestMs = 5_000
    void world.hosts[0]!.operator()
    await world.pass(0.1)
    world.server.remove(world.server.key('lease'))
    void world.hosts[1]!.operator()
    await world.pass(6)
    expect([asked(), world.tokens()]).toEqual([2, ['token-2']])
  })

  test('that was stopped for longer than its lease makes no request', async () => {
    await begin({ hosts: 2 })
    await world.pass(40)
    const stopped = Promise.withResolvers<void>()
    let replies = 0
    // It has read that there is no lease, has taken it, and has read that it has it.
    world.server.replied = (host) => (host === 0 && ++replies >= 3 ? stopped.promise : Promise.resolve())
    world.hosts[0]!.report()
    await world.pass(18)
    await world.operator(1)
    stopped.resolve()
    await world.pass(16)
    expect([asked(), world.tokens()]).toEqual([2, ['token-2']])
  })

  test('that does not see that it has taken the lease knows it again', async () => {
    await begin({ hosts: 1 })
    await world.pass(40)
    let replies = 0
    const late = new StoreError('no answer within share.timeout')
    world.server.replied = () => (++replies === 2 ? Promise.reject(late) : Promise.resolve())
    world.hosts[0]!.report()
    await world.pass(11)
    expect(world.hosts[0]!.room.sample()?.outcomes).toEqual({ asked: 2, adopted: 0, alone: 0 })
  })

  test('that is answered late replaces no later answer, and ends no lease but its own', async () => {
    await begin()
    await world.pass(40)
    world.requestMs = 8_000
    world.hosts[0]!.report()
    await world.pass(1)
    world.server.remove(world.server.key('lease'))
    world.requestMs = 50
    await world.operator(1)
    await world.pass(3)
    world.requestMs = 3_000
    void world.hosts[2]!.operator()
    await world.pass(2)
    expect([asked(), world.hosts[0]!.token()]).toEqual([4, 'token-3'])
    expect(world.server.text('lease')).not.toBe('')
  })
})

test('another secret, and another share.key, are another account', async () => {
  const key = new Secret('0123456789abcdef')
  await begin({ share: (host) => (host === 2 ? { key } : {}) })
  expect([asked(), world.tokens()]).toEqual([2, ['token-1', 'token-2']])
  const [first, second] = world.hosts.map((host) => host.candidate())
  await world.pass(16)
  expect([await first, await second]).toMatchObject([{ accessToken: 'token-3' }, { accessToken: 'token-3' }])
  world.join()
  await world.pass(1)
  expect([asked(), world.tokens()]).toEqual([2, ['token-1', 'token-2']])
})

test('an answer is later than the one before it, whatever the clock of the store says', async () => {
  await begin({ hosts: 1 })
  world.aheadMs = -3_000
  world.join()
  world.join()
  await world.pass(1)
  await world.operator(1)
  await world.pass(16)
  expect([asked(), world.tokens()]).toEqual([2, ['token-2']])
})

test("a wait that is far ahead of the store's clock holds nobody back", async () => {
  await begin({}, { aheadMs: 36_000_000, service: () => busy })
  Object.assign(world, { aheadMs: 0, service: () => 'token' })
  const late = world.join()
  await world.pass(1)
  expect([asked(), late.token()]).toEqual([2, 'token-2'])
})

describe('a store that is of no use', () => {
  test.each(['lost', 'read-only', 'late'] as const)(
    '(%s): hosts ask at their own times, none is without a token, and all agree when it is back',
    async (mode) => {
      await begin({ hosts: 20 })
      const beganMs = world.nowMs()
      world.server.mode = mode
      for (let passed = 0; passed < 235; passed += 5) {
        await world.pass(5)
        expect(world.tokens()).not.toContain(null)
      }
      const alone = asked() - 1
      expect(alone).toBeGreaterThanOrEqual(20)
      expect(alone).toBeLessThanOrEqual(30)
      const slots = world.requests.map(({ atMs }) => Math.floor((atMs - beganMs) / 10_000))
      const fullest = Math.max(...slots.map((slot) => slots.filter((other) => other === slot).length))
      expect(fullest).toBeLessThanOrEqual(5)
      expect(world.hosts[0]!.room.status()).toMatchObject({ state: 'alone', lastError: expect.any(String) })
      await world.server.back()
      await world.pass(16)
      expect(world.tokens()).toHaveLength(1)
      expect(world.hosts[0]!.room.status()).toMatchObject({ state: 'connected' })
    },
  )

  test('is asked without by an operator at once, and after a report within 10 s', async () => {
    await begin()
    world.server.mode = 'lost'
    expect(await world.operator(0)).toMatchObject({ kind: 'ok' })
    world.hosts[1]!.report()
    await world.pass(10)
    expect(asked()).toBe(3)
  })

  test('lost and back in turn is one record in ten minutes', async () => {
    await begin({ hosts: 1 })
    for (let turn = 0; turn < 20; turn += 1) {
      world.server.mode = 'lost'
      await world.pass(15)
      await world.server.back()
      await world.pass(15)
    }
    expect(world.records.of('share-lost')).toHaveLength(1)
    expect(world.records.of('share-connected').length).toBeLessThanOrEqual(2)
  })

  test('because it denies access is one error, with the rights that are needed', async () => {
    await begin({ hosts: 1 })
    world.server.mode = 'denied'
    await world.pass(60)
    const remedy = expect.stringContaining('ACL SETUSER') as string
    expect(world.records.of('share-denied')).toMatchObject([{ level: 'error', remedy }])
    expect(world.hosts[0]!.room.status()).toMatchObject({ state: 'denied' })
  })

  test('leaves hosts that wait with what they have, and an operator is served', async () => {
    await begin({ share: () => ({ whenAlone: 'wait' }) })
    world.server.mode = 'lost'
    await world.pass(300)
    expect([asked(), world.tokens()]).toEqual([1, [null]])
    expect(world.hosts[0]!.record().failure?.reason).toBe('share-lost')
    await world.operator(0)
    expect(asked()).toBe(1)
  })
})

test('a host that never asks says so, and has the token of another', async () => {
  await begin({ hosts: 1, share: (host) => (host === 0 ? { asks: false, whenAlone: 'wait' } : {}) })
  await world.pass(20)
  expect([asked(), world.hosts[0]!.record().failure?.reason]).toEqual([0, 'not-asked'])
  world.server.mode = 'lost'
  expect(await world.operator(0)).toMatchObject({ reason: 'not-asked' })
  await world.server.back()
  world.join()
  await world.pass(16)
  expect([asked(), world.tokens()]).toEqual([1, ['token-1']])
})

test.each([36_000_000, -30_000, -36_000_000, -3_000])(
  "the store's clock jumps by %d ms and back: no host returns to an older token, and all agree",
  async (jumpMs) => {
    await begin({ hosts: 5, lifeMs: 3_600_000 })
    await world.operator(0)
    await world.pass(16)
    for (const [jump, aheadMs] of [jumpMs, 0, jumpMs, 0].entries()) {
      world.aheadMs = aheadMs
      // The first and the last jump come with an empty store.
      if (jump % 3 === 0) world.server.flush()
      const before = world.tokens()
      await world.pass(31)
      world.join()
      await world.pass(1)
      expect(world.tokens()).toEqual(before)
      await world.operator(1)
      await world.pass(31)
      expect(world.tokens()).toEqual([`token-${world.requests.length}`])
    }
    expect(asked()).toBe(6)
  },
)

test('a host that is restarted takes nothing older, and gives what it had to an empty store', async () => {
  await begin({ hosts: 2 })
  const old = world.server.text('record')
  await world.operator(0)
  await world.pass(16)
  world.server.plant(world.server.key('record'), old, 100_000)
  for (const index of world.hosts.keys()) world.restart(index)
  await world.pass(1)
  expect(world.tokens()).toEqual(['token-2'])
  world.server.flush()
  for (const index of world.hosts.keys()) world.restart(index)
  await world.pass(16)
  world.join()
  await world.pass(1)
  expect([asked(), world.tokens()]).toEqual([2, ['token-2']])
})

test('an answer that a host has left is not taken again, although the clock of the store goes back', async () => {
  await begin({ hosts: 1 })
  const old = world.server.text('record')
  for (let act = 0; act < 2; act += 1) {
    void world.hosts[0]!.operator()
    await world.pass(1)
  }
  world.aheadMs = -4_000
  world.server.plant(world.server.key('record'), old, 100_000)
  await world.pass(16)
  expect(world.tokens()).toEqual(['token-3'])
})

test('random writes to the store for ten minutes take no token away, and cost no more than being alone', async () => {
  const lifeS = 240
  await begin({ hosts: 5, lifeMs: lifeS * 1_000 })
  const { server, hosts } = world
  const random = createRandom(1)
  const oneOf = <T>(values: readonly T[]): T => values[Math.floor(random() * values.length)]!
  const names = ['record', 'lease'] as const
  const keys = names.map((name) => server.key('record').replace('record', name))
  const seen = new Set<string>()
  const newest = hosts.map(() => 1)
  for (let step = 0; step < 6_000; step += 1) {
    for (const name of names) seen.add(server.text(name))
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
  expect(asked()).toBeLessThanOrEqual(1 + (hosts.length * 600) / (lifeS / 2))
  await world.pass(16)
  expect(world.tokens()).toHaveLength(1)
})
