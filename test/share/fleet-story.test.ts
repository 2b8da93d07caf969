// Stories of three hosts with the real keeper, saved state and sharing, in the world of the model
// (test/model): those of chance, and some that once went wrong.
//
//   KYC_STORY_SEED=7 KYC_STORY_RUNS=1000 npx vitest run --config test/vitest.process.config.ts \
//     test/share/fleet-story.test.ts
//
// plays 1,000 stories from that seed on. A story that breaks a rule is shortened before it is shown.
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { wander } from '../model/explore.ts'
import { createWorld, type World } from '../model/world.ts'

const first = Number(process.env['KYC_STORY_SEED'] ?? 1)
const runs = Number(process.env['KYC_STORY_RUNS'] ?? 10)

test(
  `${runs} stories of a fleet from seed ${first} on break no rule`,
  { timeout: runs * 10_000 + 60_000 },
  async () => {
    const broken: string[] = []
    for (let seed = first; seed < first + runs && broken.length === 0; seed += 1) {
      const found = await wander({ hosts: 3, length: 25, seed })
      if (found !== null) broken.push(found)
    }
    expect(broken).toEqual([])
  },
)

describe('of three hosts with saved state', () => {
  let world: World
  const play = async (...story: readonly string[]): Promise<void> => {
    for (const act of story) await world.act(act)
    expect([...world.broken]).toEqual([])
  }
  const isOneToken = (): boolean => new Set(world.served()).size === 1
  beforeEach(async () => {
    world = await createWorld({ hosts: 3, auto: 'token' })
    onTestFinished(() => world.end())
    await play('wait:1')
  })

  test.each(['restart:0', 'reload:0:a', 'crash:0'])(
    'a token that was obtained alone and is newer wins after %s, too',
    async (act) => {
      await play('cut:0', 'operator:0', 'wait:1')
      const [newest, older] = world.served()
      expect(newest).not.toBe(older)
      await play(act, 'wait:20', 'find', 'wait:40')
      expect(new Set(world.served())).toEqual(new Set([newest]))
      expect(world.asked()).toBe(2)
    },
  )

  test('a host that comes back to an account with an older record than its own asks nothing', async () => {
    await play('reload:0:b')
    expect(world.asked()).toBe(2)
    await play('reload:0:a')
    expect(world.asked()).toBe(2)
    expect(isOneToken()).toBe(true)
  })

  test('a reload that changes nothing leaves a request under way alone', async () => {
    await play('auto:', 'operator:0', 'wait:2', 'reload:0:a', 'answer:0:token', 'wait:1')
    expect(world.asked()).toBe(2)
    expect(isOneToken()).toBe(true)
  })

  test('other credentials are tried at once by each host that got them, without the store', async () => {
    await play('lose', 'reload:0:b')
    expect(world.asked()).toBe(2)
    const [own, others] = world.served()
    expect(own).not.toBe(others)
  })

  test('refused credentials are asked about once by all who get them within a minute, when it is over', async () => {
    await play('reload:0:b', 'auto:refused', 'operator:0', 'wait:1')
    const before = world.asked()
    await play('reload:1:b', 'wait:1')
    expect(world.asked()).toBe(before)
    await play('wait:40', 'reload:2:b', 'wait:1')
    expect(world.asked()).toBe(before)
    await play('auto:token', 'wait:20')
    expect(world.asked()).toBe(before + 1)
    expect(isOneToken()).toBe(true)
  })

  test('a host that gets refused credentials again asks if the refusal is over a minute old', async () => {
    await play('auto:refused', 'reload:0:b', 'wait:1', 'reload:0:a', 'auto:token', 'wait:1')
    const before = world.asked()
    await play('reload:0:b', 'wait:1')
    expect(world.asked()).toBe(before)
    await play('reload:0:a', 'wait:60', 'reload:0:b', 'wait:1')
    expect(world.asked()).toBe(before + 1)
    const [own, others] = world.served()
    expect(own).not.toBe(others)
  })

  test.each(['outage', 'rejected'])(
    'a host that takes back its former credentials after %s has the token of another, unasked',
    async (kind) => {
      await play(`auto:${kind}`, 'reject:0', 'reload:2:b')
      const before = world.asked()
      await play('auto:token', 'reload:2:a', 'operator:0', 'wait:60')
      expect(world.asked()).toBe(before + 1)
      expect(isOneToken()).toBe(true)
    },
  )

  test('other credentials come with the token that the fleet has of them, in an outage too', async () => {
    await play('reload:0:b', 'auto:outage', 'operator:0', 'reload:1:b', 'wait:1')
    const [known, taken] = world.served()
    expect(taken).toBe(known)
  })

  test('a new certificate is tried by its own request, and its token is one for all', async () => {
    const [former] = world.served()
    await play('rotate:0:a+new', 'wait:35')
    expect(world.asked()).toBe(2)
    expect(world.nameOf(world.hosts[0]!)).toBe('a+new')
    expect(isOneToken()).toBe(true)
    expect(world.served()).not.toContain(former)
    await play('rotate:1:a+new', 'rotate:2:a+other', 'wait:35')
    expect(world.asked()).toBe(4)
    expect(isOneToken()).toBe(true)
  })

  test('a certificate that is refused is not taken over, and holds nobody up', async () => {
    await play('auto:refused', 'rotate:0:a+bad', 'wait:35')
    expect(world.asked()).toBe(2)
    expect(world.nameOf(world.hosts[0]!)).toBe('a')
    expect(isOneToken()).toBe(true)
    await play('auto:token', 'operator:1', 'wait:1')
    expect(world.asked()).toBe(3)
    expect(isOneToken()).toBe(true)
  })

  test.each([
    ['another store', 'other', 'other'],
    ['a store', 'none', 'kyc-tokend'],
  ])(
    'a host that is moved to %s during a request brings the token of that request',
    async (_what, before, after) => {
      await play(`move:0:${before}`, `move:1:${after}`, `move:2:${after}`, 'wait:16')
      if (before === after) await play('move:0:kyc-tokend', 'wait:16')
      await play('auto:', 'operator:0', 'wait:2', `move:0:${after}`, 'wait:1', 'auto:token', 'wait:2')
      expect(world.asked()).toBe(2)
      const newest = [...world.tokens.keys()].at(-1)
      await play('wait:16')
      expect(world.served()).toEqual([newest, newest, newest])
      expect(world.asked()).toBe(2)
    },
  )

  test('hosts that begin to share bring the newest of their tokens, and ask nothing', async () => {
    await play('lose', 'wait:20', 'operator:1', 'wait:1')
    const [, newest] = world.served()
    const before = world.asked()
    await play('restart:0', 'restart:1', 'restart:2', 'flush', 'find', 'wait:60')
    expect(new Set(world.served())).toEqual(new Set([newest]))
    expect(world.asked()).toBe(before)
  })
})

// FLEET.md, 5: at its time the host asks in any case.
test('a time that was drawn without the store holds when it is back, during a request of another, too', async () => {
  const world = await createWorld({ hosts: 3 })
  onTestFinished(() => world.end())
  const play = async (...story: readonly string[]): Promise<void> => {
    for (const act of story) await world.act(act)
  }
  await play('hang', 'reload:1:b', 'reload:0:b', 'restart:0', 'wait:2', 'find', 'wait:12')
  const isAskingAtOnce = world.hosts.filter((host) => world.isAsking(host)).length
  expect(isAskingAtOnce).toBe(3)
  // Requests that overlap have no order: one of the two tokens is the fleet's.
  await play('auto:token', 'wait:20')
  const [own, other] = world.served()
  expect(own).toBe(other)
  expect([...world.broken]).toEqual([])
})

describe('a pair that was refused once and is written again to 8 hosts', () => {
  const hosts = [0, 1, 2, 3, 4, 5, 6, 7]
  let world: World
  beforeEach(async () => {
    world = await createWorld({ hosts: hosts.length, auto: 'token' })
    onTestFinished(() => world.end())
    for (const act of ['wait:1', 'auto:refused', 'rotate:0:b', 'wait:40']) await world.act(act)
  })

  test.each([
    ['at once', []],
    ['2 s apart', ['wait:2']],
  ])('%s is asked by one of them, when a minute is over', async (_how, then) => {
    const before = world.asked()
    for (const host of hosts) for (const act of [`rotate:${host}:b`, ...then]) await world.act(act)
    expect(world.asked()).toBe(before)
    await world.act('wait:45')
    expect(world.asked()).toBe(before + 1)
    expect([...world.broken]).toEqual([])
    expect(new Set(world.served()).size).toBe(1)
    // That answer holds for all who wrote it before it; the other request is the running pair's refresh.
    for (const act of ['auto:token', 'wait:80']) await world.act(act)
    expect(world.asked()).toBe(before + 2)
  })

  test('is in use on each of them when the service takes it by then', async () => {
    const before = world.asked()
    for (const host of hosts) await world.act(`rotate:${host}:b`)
    for (const act of ['auto:token', 'wait:45']) await world.act(act)
    expect(world.asked()).toBe(before + 1)
    expect(world.hosts.map((host) => world.nameOf(host))).toEqual(hosts.map(() => 'b'))
    expect([...world.broken]).toEqual([])
  })
})
