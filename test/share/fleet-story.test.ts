// Random stories of three hosts with the real keeper, saved state and sharing: crashes at any await, and a store that is gone, slow, denied, empty or mute.
//
//   KYC_STORY_SEED=7 KYC_STORY_RUNS=1000 npx vitest run --config test/vitest.config.ts test/share/fleet-story.test.ts
//
// plays 1,000 stories of that seed. A story that breaks a rule is shortened before it is shown.
import fc from 'fast-check'
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { Secret } from '../../src/lib/secret.ts'
import {
  createFleetStoryWorld,
  type FleetAnswer,
  type FleetStep,
  type FleetStoryWorld,
} from '../support/fleet-story-world.ts'
import { createRandom } from '../support/random.ts'

const MINUTE = 60_000
const ANSWERS: readonly FleetAnswer[] = [
  'long',
  'long',
  'long',
  'short',
  'opaque',
  'outage',
  'reset',
  'busy',
  'rejected',
  'refused',
]
const host = fc.nat(2)
const step = (
  weight: number,
  acts: readonly FleetStep['do'][],
  fields: Readonly<Record<string, fc.Arbitrary<unknown>>> = {},
): fc.WeightedArbitrary<FleetStep> => ({
  weight,
  arbitrary: fc.record({ do: fc.constantFrom(...acts), ...fields }) as unknown as fc.Arbitrary<FleetStep>,
})
const shortly = fc.integer({ min: 1, max: 20_000 })
const steps = fc.oneof(
  step(5, ['answer'], { answer: fc.constantFrom(...ANSWERS), afterMs: fc.constantFrom(0, 0, 3_000, 14_000) }),
  step(9, ['wait'], { ms: fc.oneof(shortly, fc.integer({ min: 1, max: 45 * MINUTE })) }),
  step(1, ['need'], { host, ms: fc.integer({ min: 0, max: 4e6 }) }),
  step(4, ['reject', 'operator'], { host }),
  step(3, ['reboot', 'restart'], { host }),
  step(2, ['reload'], { host, credentials: fc.constantFrom('one', 'two') }),
  step(6, ['crash'], {
    host,
    effects: fc.integer({ min: 0, max: 8 }),
    turns: fc.integer({ min: 0, max: 24 }),
  }),
  step(2, ['lose'], { kind: fc.constantFrom('lost', 'denied'), host: fc.option(host) }),
  step(5, ['find', 'find', 'flush', 'mute', 'unmute', 'endLease']),
)

const seed = process.env['KYC_STORY_SEED']
const runs = Number(process.env['KYC_STORY_RUNS'] ?? 25)
const seeds = seed === undefined ? [1, 2] : [Number(seed)]

test.for(seeds)(
  'stories of a fleet of seed %i break no rule, and end with one token',
  { timeout: runs * 10_000 },
  async (storySeed) => {
    await fc.assert(
      fc.asyncProperty(fc.array(steps, { maxLength: 25, size: 'max' }), async (story) => {
        const world = await createFleetStoryWorld(createRandom(1))
        try {
          for (const one of story) await world.play(one)
          expect(world.broken()).toEqual([])
          await world.calm()
          const [token, ...others] = world.tokens()
          expect(token).not.toBeNull()
          expect(others).toEqual([token, token])
          const before = world.requests()
          await world.advance(30 * MINUTE)
          expect(world.requests() - before).toBeLessThanOrEqual(1)
          expect(new Set(world.tokens()).size).toBe(1)
          expect(world.broken()).toEqual([])
        } finally {
          await world.end()
        }
      }),
      { numRuns: runs, seed: storySeed, endOnFailure: process.env['KYC_STORY_QUICK'] === '1' },
    )
  },
)

test('a host that comes back to an account whose record is older than the one it had asks nothing', async () => {
  const world = await createFleetStoryWorld(createRandom(1))
  onTestFinished(() => world.end())
  await world.play({ do: 'reload', host: 0, credentials: 'two' })
  expect(world.requests()).toBe(2)
  await world.play({ do: 'reload', host: 0, credentials: 'one' })
  expect(world.requests()).toBe(2)
  expect(new Set(world.tokens()).size).toBe(1)
})

describe('of three hosts with saved state', () => {
  let world: FleetStoryWorld
  const play = async (...story: readonly FleetStep[]): Promise<void> => {
    for (const one of story) await world.play(one)
  }
  beforeEach(async () => {
    world = await createFleetStoryWorld(createRandom(1))
    onTestFinished(() => world.end())
  })
  const answer = (kind: FleetAnswer, afterMs = 0): FleetStep => ({ do: 'answer', answer: kind, afterMs })
  const wait = (ms: number): FleetStep => ({ do: 'wait', ms })
  const lose = (index: number | null): FleetStep => ({ do: 'lose', kind: 'lost', host: index })

  test.each(['restart', 'reload', 'crash'] as const)(
    'a token that was obtained alone and is newer wins after a %s, too',
    async (act) => {
      await play(wait(1_000), lose(0), { do: 'operator', host: 0 }, wait(1_000))
      const [newest, older] = world.tokens()
      expect(newest).not.toBe(older)
      await play(
        act === 'restart'
          ? { do: 'restart', host: 0 }
          : act === 'reload'
            ? { do: 'reload', host: 0, credentials: 'one' }
            : { do: 'crash', host: 0, effects: 0, turns: 0 },
        wait(20_000),
        { do: 'find' },
        wait(40_000),
      )
      expect(new Set(world.tokens())).toEqual(new Set([newest]))
      expect(world.requests()).toBe(2)
    },
  )

  test('a reload that changes nothing leaves a request under way alone', async () => {
    await play(wait(1_000), answer('long', 10_000), { do: 'operator', host: 0 }, wait(2_000))
    await play({ do: 'reload', host: 0, credentials: 'one' }, wait(10_000))
    expect(world.requests()).toBe(2)
    const tokens = new Set(world.tokens())
    await play({ do: 'operator', host: 1 }, wait(11_000))
    expect(world.requests()).toBe(3)
    expect(tokens.size).toBe(1)
  })

  test.each([
    ['the same settings', { password: new Secret('former') }, 0],
    ['another password', { password: new Secret('another') }, 1],
    ['another time limit', { password: new Secret('former'), timeoutMs: 2_000 }, 1],
  ])(
    'a reload with %s of the store opens another connection only if they differ',
    async (_what, share, more) => {
      const former = { password: new Secret('former') }
      const reload = { do: 'reload', host: 0, credentials: 'one' } as const
      await play(wait(1_000), { ...reload, share: former }, { do: 'operator', host: 0 }, wait(1_000))
      const before = world.connections()
      await play({ ...reload, share }, { do: 'operator', host: 0 }, wait(1_000))
      expect(world.connections() - before).toBe(more)
      expect(new Set(world.tokens()).size).toBe(1)
    },
  )

  test('other credentials are tried at once while the store is away, by each host that got them', async () => {
    await play(wait(1_000), lose(null), { do: 'reload', host: 0, credentials: 'two' }, wait(100))
    expect(world.requests()).toBe(2)
    const [own, others] = world.tokens()
    expect(own).not.toBe(others)
  })

  test('a shared refusal is asked about once by those who get the credentials at one time, and again by a later one', async () => {
    await play(wait(1_000), { do: 'reload', host: 0, credentials: 'two' }, answer('refused'))
    await play({ do: 'operator', host: 0 }, wait(1_000))
    const before = world.requests()
    await play({ do: 'reload', host: 1, credentials: 'two' }, wait(1_000))
    expect(world.requests()).toBe(before)
    await play(wait(60_000), answer('long'), { do: 'reload', host: 2, credentials: 'two' }, wait(1_000))
    expect(world.requests()).toBe(before + 1)
    expect(new Set(world.tokens()).size).toBe(1)
  })

  test('a host that gets refused credentials again asks once the refusal is older than a minute', async () => {
    await play(wait(1_000), answer('refused'), { do: 'reload', host: 0, credentials: 'two' }, wait(1_000))
    await play({ do: 'reload', host: 0, credentials: 'one' }, answer('long'), wait(1_000))
    const before = world.requests()
    await play({ do: 'reload', host: 0, credentials: 'two' }, wait(1_000))
    expect(world.requests()).toBe(before)
    await play({ do: 'reload', host: 0, credentials: 'one' }, wait(60_000))
    await play({ do: 'reload', host: 0, credentials: 'two' }, wait(1_000))
    expect(world.requests()).toBe(before + 1)
    expect(world.tokens()[0]).not.toBe(world.tokens()[1])
  })

  test.each(['outage', 'rejected'] as const)(
    'a host that waits after an answer of %s to use its former credentials takes the token of another, and asks nothing',
    async (kind) => {
      await play(answer(kind), { do: 'reject', host: 0 }, { do: 'reload', host: 2, credentials: 'two' })
      const before = world.requests()
      await play(answer('long'), { do: 'reload', host: 2, credentials: 'one' })
      await play({ do: 'operator', host: 0 }, wait(60_000))
      expect(world.requests()).toBe(before + 1)
      expect(new Set(world.tokens()).size).toBe(1)
      expect(world.broken()).toEqual([])
    },
  )

  test('other credentials come with the token that the fleet has of them, also during an outage', async () => {
    await play(wait(1_000), { do: 'reload', host: 0, credentials: 'two' }, answer('outage'))
    await play({ do: 'operator', host: 0 }, { do: 'reload', host: 1, credentials: 'two' }, wait(1_000))
    const [known, taken] = world.tokens()
    expect(taken).toBe(known)
    expect(world.broken()).toEqual([])
  })

  test('hosts that begin to share bring the newest of their tokens, and ask nothing', async () => {
    await play(lose(null), wait(20_000), { do: 'operator', host: 1 }, wait(1_000))
    const { 1: newest } = world.tokens()
    const before = world.requests()
    for (const index of [0, 1, 2]) await play({ do: 'restart', host: index })
    await play({ do: 'flush' }, { do: 'find' }, wait(60_000))
    expect(new Set(world.tokens())).toEqual(new Set([newest]))
    expect(world.requests()).toBe(before)
  })
})
