// One token for a fleet: who asks, who waits, who takes over, and what every loss, act and race leads to. Stories
// in the world of the model (test/model), whose rules hold at each step.
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { createWorld, type World } from '../model/world.ts'
import { phaseOf, type TokenState } from '../../src/token/state.ts'
import { createRandom } from '../support/random.ts'

type Host = World['hosts'][number]

let world: World
/** A fleet that has a token, unless the service answers otherwise. */
async function begin({ auto = 'token', ...options }: Parameters<typeof createWorld>[0] = {}): Promise<void> {
  world = await createWorld({ hosts: 3, hasNames: true, random: createRandom(1), ...options })
  onTestFinished(world.end)
  await play(`auto:${auto}`, 'wait:1')
}
async function play(...story: readonly string[]): Promise<void> {
  for (const act of story) await world.act(act)
  expect([...world.broken]).toEqual([])
}
/** Each host has this act done. */
const all = (act: string): string[] => world.hosts.map(({ index }) => `${act}:${index}`)
const stateOf = ({ life }: Host): TokenState => life.parts.keeper.state()
const phases = (hosts: readonly Host[] = world.hosts): string[] => [
  ...new Set(hosts.map((host) => phaseOf(stateOf(host), host.life.clock.now()))),
]
const tokens = (): (string | undefined)[] => [...new Set(world.served())]
const server = () => [...world.servers.values()][0]!
const eventsOf = (event: string, hosts: readonly Host[] = world.hosts): Host['events'] =>
  hosts.flatMap(({ events }) => events.filter((one) => one.event === event))
const shareOf = ({ life }: Host) => life.parts.sharing.status()
/** The requests in the fullest second. */
function peak(askers: World['askers']): number {
  const seconds = askers.map(({ atMs }) => Math.floor(atMs / 1_000))
  return Math.max(0, ...seconds.map((one) => seconds.filter((other) => other === one).length))
}

describe('a fleet', () => {
  test('of 20 hosts asks once for the boot and once for each rotation', async () => {
    await begin({ hosts: 20 })
    expect(world.asked()).toBe(1)
    // A token lives 240 s, and is replaced after 60 to 67 % of that.
    await play('wait:1600')
    expect(world.asked()).toBeGreaterThanOrEqual(10)
    expect(world.asked()).toBeLessThanOrEqual(12)
    expect(tokens()).toHaveLength(1)
    expect(eventsOf('share-lost')).toEqual([])
    expect(shareOf(world.hosts[0]!)).toMatchObject({ state: 'connected', hosts: 20, lastError: null })
  })

  test('whose clocks are an hour apart sees the expiry at one moment, also on a late host', async () => {
    await begin()
    await play('wall:0:-3600', 'wall:1:3600', 'reboot:2', 'operator:0', 'wait:60')
    await world.join()
    await play('wait:1')
    expect(world.asked()).toBe(2)
    const ends = world.hosts.map((host) => stateOf(host).token!.expiresAtMs + host.bootedAtMs - world.nowMs())
    for (const endMs of ends) expect(Math.abs(endMs - 179_000)).toBeLessThanOrEqual(1_000)
  })

  test('that misses every message has the new token on each host within 15 s', async () => {
    await begin()
    await play('deaf', 'operator:0', 'wait:15')
    expect(tokens()).toHaveLength(1)
    expect(world.asked()).toBe(2)
    expect(world.hosts.map(({ life }) => life.parts.sharing.sample()?.outcomes)).toEqual([
      { asked: 2, adopted: 0, alone: 0 },
      { asked: 0, adopted: 2, alone: 0 },
      { asked: 0, adopted: 2, alone: 0 },
    ])
    expect(eventsOf('share-adopted').at(-1)).toMatchObject({ by: 'host-0' })
  })

  test('is not kept busy by messages: each host polls at most four times a second', async () => {
    await begin({ hosts: 2 })
    let polls = 0
    server().onStep = () => (polls += 1)
    for (let count = 0; count < 1_000; count += 1) {
      server().message()
      await play('wait:0.01')
    }
    expect(polls).toBeLessThanOrEqual(2 * (4 * 10 + 2))
  })

  test('has hosts that come, are away or go on with what it knows', async () => {
    await begin()
    await play('lose')
    const alone = await world.join()
    await play('wait:60')
    const newest = stateOf(alone).token?.accessToken
    expect(world.asked()).toBe(2)
    await play('find', 'wait:60')
    expect(tokens()).toEqual([newest])
    expect(world.asked()).toBe(2)
  })
})

describe('a failure of the service', () => {
  test('for ten minutes costs at most 13 requests a minute, and one when it is over', async () => {
    await begin({ hosts: 20 })
    await play('auto:outage', 'wait:300', ...all('reject'))
    for (let minute = 0; minute < 10; minute += 1) {
      const before = world.asked()
      await play('wait:60')
      expect(world.asked() - before).toBeLessThanOrEqual(13)
    }
    const before = world.asked()
    await play('auto:token', 'wait:60')
    expect(world.asked()).toBe(before + 1)
    expect(phases()).toEqual(['ready'])
  })

  test.each<[string, string[], number?]>([
    ['', ['operator:0']],
    [', though the store is emptied', ['operator:0', 'wait:1', 'flush', 'find']],
    [', though its host was alone', ['lose', 'operator:0', 'find', 'wait:1']],
    [', though the clock of the store is set back', ['operator:0', 'wait:1', 'clock:-300', 'wait:31'], 140],
    [
      ', though operators go through it',
      ['operator:0', 'wait:1', 'operator:0', 'wait:1', 'operator:1', 'auto:reset', 'wait:1', 'operator:2'],
    ],
  ])('with Retry-After of 3 min holds for all%s', async (_what, story, restS = 170) => {
    await begin()
    await play('auto:busy', ...story)
    const before = world.asked()
    expect(before).toBe(1 + story.filter((act) => act.startsWith('operator')).length)
    await play('auto:token', ...all('reject'), `wait:${restS}`)
    expect(world.asked()).toBe(before)
    await play('wait:60')
    expect(world.asked()).toBe(before + 1)
    expect(phases()).toEqual(['ready'])
  })

  test('with Retry-After is written again to an empty store, until it is over', async () => {
    await begin()
    await play('auto:busy', 'operator:0', 'wait:1')
    const wait = server().text('lease')
    await play('flush', 'find', 'wait:1')
    expect(server().text('lease')?.split(' ', 2)).toEqual(wait?.split(' ', 2))
    expect(eventsOf('share-repaired')).not.toEqual([])
    await play('auto:token', 'wait:200', 'flush', 'find', 'wait:1')
    expect(server().text('lease')).toBeNull()
  })

  test('that people must know of is told to them by one host, though hosts ask in turn', async () => {
    await begin()
    await play('auto:rejected', 'operator:0', 'wait:3600')
    const askedBy = world.hosts.map((host) => stateOf(host).objection?.askedBy)
    expect(askedBy.filter((one) => one === null)).toHaveLength(1)
    expect(askedBy).not.toContain(undefined)
  })

  test('that is the way of one host leaves the request to another after 5 s', async () => {
    await begin({ auto: 'reset' })
    expect(world.askers.map(({ host }) => host)).toEqual([0])
    expect(stateOf(world.hosts[1]!).postponement).toMatchObject({ reason: 'network', askedBy: 'host-0' })
    await play('auto:token', 'wait:6')
    expect(world.askers.map(({ host }) => host)).toEqual([0, expect.not.closeTo(0)])
    expect(tokens()).toHaveLength(1)
  })
})

describe('a refusal', () => {
  test('is one request; who comes within the hour takes it, who comes later asks once for all', async () => {
    await begin({ hosts: 8, auto: 'refused' })
    await play('wait:600')
    await world.join()
    await play('restart:0', 'wait:1')
    expect(phases()).toEqual(['refused'])
    for (const host of world.hosts)
      expect(stateOf(host).objection).toMatchObject({ reason: 'account-inactive' })
    await play('wait:7200')
    expect(world.asked()).toBe(1)
    await world.join()
    await world.join()
    await play('wait:1')
    expect(world.asked()).toBe(2)
    expect(phases()).toEqual(['refused'])
  })

  test('is lifted for all by one operator', async () => {
    await begin({ auto: 'refused' })
    await play('auto:token', 'operator:1', 'wait:1')
    expect(world.asked()).toBe(2)
    expect(phases()).toEqual(['ready'])
    expect(tokens()).toHaveLength(1)
  })

  test('is known to a host that is restarted, which gives it to an empty store', async () => {
    await begin({ auto: 'refused' })
    await play('flush', ...all('restart'), 'wait:20')
    const late = await world.join()
    await play('wait:1')
    expect(phases([late])).toEqual(['refused'])
    expect(stateOf(late).objection?.askedBy).toBe('host-0')
    expect(world.asked()).toBe(1)
  })
})

describe('an answer that may concern one host only', () => {
  test.each([
    ['is on no list of addresses', 'rejected', false],
    ['has a certificate that is refused', 'refused', true],
  ])('costs the others nothing: 20 hosts, of which one %s', async (_which, kind, hasOwnProof) => {
    await begin({ hosts: 20, hasOwnProof, auto: kind })
    await play(`bar:0:${kind}`, 'auto:token', 'wait:7')
    expect(world.asked()).toBe(2)
    for (let passed = 0; passed < 1_800; passed += 10) {
      await play('wait:10')
      if (passed % 500 === 0) await play('reject:0')
      expect(tokens()).not.toContain(undefined)
    }
    expect(tokens()).toHaveLength(1)
    // It asks in vain at the pace of its own failure.
    expect(world.askers.filter(({ host }) => host === 0).length).toBeLessThanOrEqual(1_800 / 120)
    expect(phases(world.hosts.slice(1))).toEqual(['ready'])
  })

  test.each([
    ['refused', 'refused'],
    ['rejected', 'starting'],
  ])('is two requests when all 20 hosts are %s, and one notifies people', async (kind, phase) => {
    await begin({ hosts: 20, hasOwnProof: true, auto: kind })
    await play('wait:120')
    expect(world.asked()).toBe(2)
    const objections = world.hosts.flatMap((host) => stateOf(host).objection ?? [])
    expect(phases()).toEqual([phase])
    expect(objections.filter(({ askedBy }) => askedBy === null)).toHaveLength(1)
  })

  test('is two requests, too, when the hosts that may confirm it come to a slow store at once', async () => {
    for (let seed = 1; seed <= 20; seed += 1) {
      const storeMs = Array.from({ length: 10 }, () => 10 * seed)
      await begin({ hosts: 10, hasOwnProof: true, random: createRandom(seed), storeMs })
      await play('wait:5', 'auto:refused', ...all('operator'), 'wait:30')
      expect([seed, world.asked()]).toEqual([seed, 3])
    }
  })

  test('is confirmed by the next host that is due, and nobody is woken for it', async () => {
    await begin({ hasOwnProof: true })
    await play('auto:refused', 'operator:0', 'wait:60')
    expect(world.asked()).toBe(2)
    expect(phases(world.hosts.slice(1))).toEqual(['ready'])
    expect(stateOf(world.hosts[1]!).postponement).toBeNull()
    await play('wait:180')
    expect(world.asked()).toBe(3)
    expect(phases()).toEqual(['refused'])
    // What holds for all is taken by a host that comes.
    const late = await world.join()
    await play('wait:1')
    expect(phases([late])).toEqual(['refused'])
    expect(world.asked()).toBe(3)
  })

  test('is not confirmed by its own host, nor by another failure', async () => {
    await begin({ hasOwnProof: true })
    await play('auto:refused', 'operator:0', 'operator:0')
    expect(world.hosts[0]!.life.parts.sharing.sample()?.outcomes).toMatchObject({ asked: 3, alone: 0 })
    await play('auto:reset', 'operator:1', 'wait:10')
    expect(phases(world.hosts.slice(1)).toSorted()).toEqual(['degraded', 'ready'])
    const before = world.asked()
    await play('auto:refused', 'operator:2', 'wait:1')
    expect(phases()).toEqual(['refused'])
    expect(world.asked()).toBe(before + 1)
  })

  test('asks operators of all hosts to wait for two requests', async () => {
    await begin({ hosts: 20, hasOwnProof: true })
    await play('auto:', ...all('operator'), 'wait:1', 'auto:refused', 'wait:1')
    expect(phases()).toEqual(['refused'])
    expect(world.asked()).toBe(3)
  })

  test('holds at once for a host that is alone, and not for hosts of a cluster, which counts some', async () => {
    await begin({ hasOwnProof: true })
    await play('move:0:other', 'wait:16', 'auto:refused', 'operator:0', 'wait:16')
    const [, other] = world.servers.values()
    expect(other?.text('lease')).toBeNull()
    expect(phases(world.hosts.slice(0, 1))).toEqual(['refused'])
    await begin({ hasOwnProof: true, share: { cluster: true } })
    await play('move:0:other', 'wait:16', 'auto:refused', 'operator:0', 'wait:1')
    expect([...world.servers.values()][1]?.text('lease')).not.toBeNull()
  })

  test('that came while the store was lost does not hold for others when it is back', async () => {
    await begin({ hasOwnProof: true })
    await play('lose', 'auto:refused', 'operator:0', 'auto:token', 'find', 'wait:16')
    expect(phases([world.hosts[0]!])).toEqual(['refused'])
    expect(phases(world.hosts.slice(1))).toEqual(['ready'])
    await play('wait:240')
    expect(phases()).toEqual(['ready'])
  })

  test('answers the operator, though another host had a token just before the act', async () => {
    await begin({ hasOwnProof: true })
    await play('deaf', 'operator:1', 'wait:1', 'auto:refused', 'operator:0')
    expect(world.asked()).toBe(3)
    await play('wait:16')
    expect(phases()).toEqual(['ready'])
    expect(tokens()).toHaveLength(1)
  })

  test('outlives a restart of its host: it stays refused, asks once, and has the next token', async () => {
    await begin({ hasOwnProof: true })
    await play('bar:0:refused', 'operator:0', 'wait:5', 'operator:0', 'restart:0', 'wait:7')
    expect(phases([world.hosts[0]!])).toEqual(['refused'])
    expect(world.asked()).toBe(4)
    await play('operator:1', 'wait:1')
    expect(phases()).toEqual(['ready'])
  })
})

test('a host that cannot ask takes no lease: it says why, and has the token of another', async () => {
  const detail = 'The ready-made assertion has ended'
  let outcome: { kind: 'transient'; reason: 'assertion'; detail: string } | null = {
    kind: 'transient',
    reason: 'assertion',
    detail,
  }
  await begin({ notReady: () => Promise.resolve(outcome) })
  expect(world.asked()).toBe(0)
  expect(server().text('lease')).toBeNull()
  expect(stateOf(world.hosts[0]!).failure).toMatchObject({ detail })
  outcome = null
  await play('operator:1', 'wait:1')
  expect(tokens()).toHaveLength(1)
  expect(world.asked()).toBe(1)
})

describe('an operator', () => {
  test.each(['token', 'busy'])(
    'who acts during a request is answered by a later one, which all who acted before share (%s)',
    async (kind) => {
      await begin({ hosts: 5 })
      await play('auto:', 'operator:0', 'wait:1', 'operator:1', 'operator:2', 'operator:3', 'operator:4')
      await play('wait:1', 'answer:0:token', 'wait:1', `auto:${kind}`, 'wait:60')
      expect(world.asked()).toBe(3)
      expect(tokens()).toHaveLength(1)
    },
  )

  test('who acts while a lease does not end is answered after two, whatever came before', async () => {
    await begin({ hosts: 2 })
    await play('deaf', 'operator:0', 'wait:1')
    server().plant('lease', { text: '0123456789abcdef', keepMs: 600_000 })
    let steps = 0
    server().onStep = () => (steps += 1)
    await play('operator:1', 'wait:40')
    expect(steps).toBeLessThan(100)
    expect(world.asked()).toBe(3)
  })

  test('does not wait for a lease that is longer than any host takes', async () => {
    await begin({ hosts: 2 })
    server().plant('lease', { text: '0123456789abcdef', keepMs: 4_200_000 })
    await play('operator:1', 'wait:1')
    expect(world.asked()).toBe(2)
  })
})

test('clients cause one request in 30 s, whichever hosts they report to', async () => {
  await begin({ hosts: 10 })
  await play('wait:60')
  for (let round = 0; round < 12; round += 1) await play(...all('reject'), 'wait:5')
  expect(world.asked()).toBeGreaterThanOrEqual(2)
  expect(world.asked()).toBeLessThanOrEqual(4)
  expect(tokens()).toHaveLength(1)
})

describe('an asker', () => {
  test('that is paused is waited for until its lease ends, by one host that then asks', async () => {
    await begin({ hosts: 5 })
    await play('auto:', 'operator:0', 'wait:1', 'stop:0', 'auto:token')
    await play('operator:1', 'operator:2', 'operator:3', 'operator:4', 'wait:15')
    expect(world.asked()).toBe(2)
    await play('wait:5')
    expect(world.asked()).toBe(3)
    await play('go:0', 'wait:20')
    expect(world.asked()).toBe(3)
    expect(tokens()).toHaveLength(1)
  })

  test.each([
    [20, 1],
    [8, 1],
    [7, 0],
  ])(
    'that was suspended for %i s between lease and request begins again %i times',
    async (seconds, times) => {
      await begin({ hosts: 2 })
      let acquired = 0
      // The save before the request.
      server().onStep = () => (acquired += 1)
      await play('operator:0')
      const usual = acquired
      acquired = 0
      await play('wait:5', `arm:0:sleep.${seconds}:5`, 'operator:0', 'wait:1')
      expect(world.asked()).toBe(3)
      expect(acquired - usual).toBe(2 * times)
    },
  )

  test('whose answer comes after its time does not count it', async () => {
    await begin({ hosts: 2 })
    const [before] = world.served()
    await play('auto:', 'operator:0', 'wait:1', 'sleep:30', 'answer:0:token')
    expect(world.served()).toEqual([before, before])
    expect(stateOf(world.hosts[0]!).failure).toMatchObject({ reason: 'timeout' })
  })

  test('that is stopped gives its lease back, so that another asks at once', async () => {
    await begin({ hosts: 2 })
    await play('wait:60', 'auto:', 'operator:0', 'wait:1', 'restart:0', 'auto:token')
    expect(server().text('lease')).toBeNull()
    await play('reject:1', 'wait:1')
    expect(world.askers.at(-1)?.host).toBe(1)
  })
})

describe('a store that is lost', () => {
  test('takes no token away: each host asks at its own time, and all agree when it is back', async () => {
    await begin({ hosts: 20 })
    await play('lose')
    for (let passed = 0; passed < 600; passed += 10) {
      await play('wait:10')
      expect(tokens()).not.toContain(undefined)
    }
    for (const host of world.hosts) {
      expect(eventsOf('share-lost', [host])).toEqual([
        expect.objectContaining({ remedy: expect.stringContaining('`kyc-tokend check`') }),
      ])
      expect(shareOf(host)).toMatchObject({ state: 'alone', lastError: 'Lost' })
    }
    expect(world.asked()).toBeGreaterThanOrEqual(1 + 20 * 2)
    expect(world.asked()).toBeLessThanOrEqual(1 + 20 * 8)
    expect(peak(world.askers)).toBeLessThanOrEqual(4)
    const before = world.asked()
    await play('flush', 'find', 'wait:15')
    // One host may be due at the very moment.
    expect(world.asked()).toBeLessThanOrEqual(before + 1)
    expect(tokens()).toHaveLength(1)
    for (const host of world.hosts)
      expect(shareOf(host)).toMatchObject({ state: 'connected', lastError: null })
  })

  test('and found in turn is one record in ten minutes, with a count', async () => {
    await begin({ hosts: 2 })
    for (let turn = 0; turn < 60; turn += 1) await play('lose', 'wait:10', 'find', 'wait:20')
    await play('wait:900')
    const changes = world.hosts[0]!.events.filter(({ event }) => /^share-(lost|connected)$/.test(event))
    const names = changes.map(({ event }) => event)
    expect(names.slice(0, 3)).toEqual(['share-connected', 'share-lost', 'share-connected'])
    expect(names.at(-1)).toBe('share-connected')
    expect(names.length).toBeLessThanOrEqual(10)
    // Each loss is counted once, the first without a number.
    expect(changes.reduce((sum, { losses }) => sum + Number(losses ?? 0), 1)).toBe(60)
  })

  test('is known at once, and hosts without a token spread over 100 ms each', async () => {
    await begin({ hosts: 40, auto: 'outage' })
    await play('wait:20')
    const before = world.asked()
    await play('lose')
    for (const host of world.hosts) expect(shareOf(host)).toMatchObject({ state: 'alone' })
    await play('auto:token', 'wait:20')
    expect(tokens()).not.toContain(undefined)
    expect(world.asked() - before).toBe(40)
    expect(peak(world.askers.slice(before))).toBeLessThanOrEqual(20)
    await play('find', 'wait:15')
    expect(tokens()).toHaveLength(1)
  })

  test('is asked without after a report within a minute, and for an operator at once', async () => {
    await begin({ hosts: 20 })
    await play('wait:20', 'lose', 'wait:10')
    const before = tokens()
    await play(...all('reject'), 'wait:60')
    expect(tokens().filter((token) => before.includes(token))).toEqual([])
    const { length } = world.askers
    await play('operator:0')
    expect(world.asked()).toBe(length + 1)
  })

  test.each([
    [0.072, 300],
    [0, 300],
    [0, 20],
  ])(
    'gives all the token that came %f s later, though its host is %i ms away, or one of two',
    async (seconds, farMs) => {
      await begin({ hosts: 2, storeMs: [farMs, 20] })
      await play('wait:5', 'lose', 'wait:1', 'operator:1', `wait:${seconds}`, 'operator:0', 'wait:1')
      const [newest, other] = tokens()
      expect(other).toBeDefined()
      await play('find', 'wait:16')
      expect(tokens()).toHaveLength(1)
      if (seconds > 0) expect(tokens()).toEqual([newest])
      expect(world.asked()).toBe(3)
    },
  )

  test('has hosts that wait serve what they have, say so, and ask for an operator', async () => {
    await begin({ hosts: 2, share: { whenAlone: 'wait' } })
    await play('lose', 'wait:230')
    expect(world.asked()).toBe(1)
    for (const host of world.hosts) expect(stateOf(host).postponement).toMatchObject({ reason: 'share-lost' })
    expect(tokens()).not.toContain(undefined)
    await play('operator:1')
    expect(world.asked()).toBe(2)
  })

  test('is not asked for by a host that never asks', async () => {
    await begin({ hosts: 2, waits: [0, 1] })
    await play('operator:1', 'wait:60')
    for (const host of world.hosts) expect(stateOf(host).postponement).toMatchObject({ reason: 'not-asked' })
    expect(world.asked()).toBe(0)
    await world.join()
    await play('wait:1')
    expect(tokens()).toHaveLength(1)
    expect(world.asked()).toBe(1)
  })
})

test('an answer that comes while an earlier one is written again is what is known from then on', async () => {
  await begin({ hosts: 2, storeMs: [200, 200] })
  await play('wait:60', 'auto:', 'operator:0', 'wait:5', 'flush', 'cut:1')
  server().message()
  // It polls, finds nothing, and writes what it knows.
  for (let passed = 0; server().text('record') === null && passed < 2_000; passed += 1)
    await play('wait:0.01')
  await play('cut:0', 'answer:0:token', 'wait:2')
  const [newest, other] = world.served()
  expect(newest).not.toBe(other)
  await play('find', 'wait:60')
  expect(tokens()).toEqual([newest])
  expect(world.asked()).toBe(2)
})

test.each([-30, 36_000, -600, -259_200])(
  'the clock of the store is set by %i s: all have one token of the right age 15 s after, and rotate it',
  async (seconds) => {
    await begin()
    await play('wait:60', `clock:${seconds}`, 'wait:16')
    const late = await world.join()
    await play('wait:1')
    const leftMs = (host: Host): number =>
      (stateOf(host).token?.expiresAtMs ?? Infinity) - host.life.clock.now().bootMs
    for (const host of world.hosts) expect(leftMs(host)).toBeLessThanOrEqual(180_000)
    expect(leftMs(late)).toBeGreaterThan(150_000)
    expect(world.asked()).toBe(1)
    await play('wait:100')
    expect(world.asked()).toBe(2)
    expect(tokens()).toHaveLength(1)
  },
)

test('hosts that are restarted take nothing older, and give what they had to an empty store', async () => {
  await begin({ hosts: 2 })
  const old = server().text('record')!
  await play('operator:0', 'wait:1')
  const newest = tokens()
  server().plant('record', { text: old, keepMs: 3_600_000 })
  await play('restart:0', 'restart:1', 'wait:20')
  expect(tokens()).toEqual(newest)
  expect(world.asked()).toBe(2)
  expect(eventsOf('share-repaired')).toHaveLength(1)
})

describe('three hosts with other pairs, certificates and stores', () => {
  beforeEach(() => begin())

  test.each(['restart:0', 'reload:0:a', 'crash:0'])(
    'a token that was obtained alone and is newer wins after %s, too',
    async (act) => {
      await play('cut:0', 'operator:0', 'wait:1')
      const [newest, older] = world.served()
      expect(newest).not.toBe(older)
      await play(act, 'wait:20', 'find', 'wait:40')
      expect(tokens()).toEqual([newest])
      expect(world.asked()).toBe(2)
    },
  )

  test('a host that comes back to an account with an older record than its own asks nothing', async () => {
    await play('reload:0:b')
    expect(world.asked()).toBe(2)
    await play('reload:0:a')
    expect(world.asked()).toBe(2)
    expect(tokens()).toHaveLength(1)
  })

  test('a reload that changes nothing leaves a request under way alone', async () => {
    await play('auto:', 'operator:0', 'wait:2', 'reload:0:a', 'answer:0:token', 'wait:1')
    expect(world.asked()).toBe(2)
    expect(tokens()).toHaveLength(1)
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
    expect(tokens()).toHaveLength(1)
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
      expect(tokens()).toHaveLength(1)
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
    expect(tokens()).toHaveLength(1)
    expect(world.served()).not.toContain(former)
    await play('rotate:1:a+new', 'rotate:2:a+other', 'wait:35')
    expect(world.asked()).toBe(4)
    expect(tokens()).toHaveLength(1)
  })

  test('a certificate that is refused is not taken over, and holds nobody up', async () => {
    await play('auto:refused', 'rotate:0:a+bad', 'wait:35')
    expect(world.asked()).toBe(2)
    expect(world.nameOf(world.hosts[0]!)).toBe('a')
    expect(tokens()).toHaveLength(1)
    await play('auto:token', 'operator:1', 'wait:1')
    expect(world.asked()).toBe(3)
    expect(tokens()).toHaveLength(1)
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
    expect(tokens()).toEqual([newest])
    expect(world.asked()).toBe(before)
  })
})

// FLEET.md, 5: at its time the host asks in any case.
test('a time that was drawn without the store holds when it is back, during a request of another, too', async () => {
  world = await createWorld({ hosts: 3 })
  onTestFinished(world.end)
  await play('hang', 'reload:1:b', 'reload:0:b', 'restart:0', 'wait:2', 'find', 'wait:12')
  const isAskingAtOnce = world.hosts.filter((host) => world.isAsking(host)).length
  expect(isAskingAtOnce).toBe(3)
  // Requests that overlap have no order: one of the two tokens is the fleet's.
  await play('auto:token', 'wait:20')
  const [own, other] = world.served()
  expect(own).toBe(other)
})

describe('a pair that was refused once and is written again to 8 hosts', () => {
  const hosts = [0, 1, 2, 3, 4, 5, 6, 7]
  beforeEach(async () => {
    await begin({ hosts: hosts.length })
    await play('auto:refused', 'rotate:0:b', 'wait:40')
  })

  test.each([
    ['at once', []],
    ['2 s apart', ['wait:2']],
  ])('%s is asked by one of them, when a minute is over', async (_how, then) => {
    const before = world.asked()
    for (const host of hosts) await play(`rotate:${host}:b`, ...then)
    expect(world.asked()).toBe(before)
    await play('wait:45')
    expect(world.asked()).toBe(before + 1)
    expect(tokens()).toHaveLength(1)
    // That answer holds for all who wrote it before it; the other request is the running pair's refresh.
    await play('auto:token', 'wait:80')
    expect(world.asked()).toBe(before + 2)
  })

  test('is in use on each of them when the service takes it by then', async () => {
    const before = world.asked()
    for (const host of hosts) await play(`rotate:${host}:b`)
    await play('auto:token', 'wait:45')
    expect(world.asked()).toBe(before + 1)
    expect(world.hosts.map((host) => world.nameOf(host))).toEqual(hosts.map(() => 'b'))
  })
})
