import { getEventListeners } from 'node:events'
import { expect, onTestFinished, test } from 'vitest'
import type { FetchOutcome } from '../../src/token/outcome.ts'
import { usableToken } from '../../src/token/selectors.ts'
import { recordOf, type TokenState } from '../../src/token/state.ts'
import { serviceFacts } from '../support/facts.ts'
import { failures } from '../support/failures.ts'
import { createKeeperWorld, runningKeeper, type KeeperWorld } from '../support/keeper-world.ts'

const TICK_MS = 15_000
const MINUTE = 60_000
const HOUR = 60 * MINUTE

/** Requests that are answered when the test says so, and given up as the source gives them up. */
function byHand() {
  const signals: AbortSignal[] = []
  let resolve: (outcome: FetchOutcome) => void = () => undefined
  return {
    signals,
    answer: (signal: AbortSignal) =>
      new Promise<FetchOutcome>((resolved) => {
        signals.push(signal)
        resolve = resolved
        signal.addEventListener('abort', () => resolved(failures.network))
      }),
    resolve: (outcome: FetchOutcome) => resolve(outcome),
  }
}

const never = new AbortController().signal
const refused = failures.inactive
const heldBy = ({ keeper }: KeeperWorld): string | undefined =>
  usableToken(keeper.state(), keeper.now())?.accessToken

/** Time for which the loop was silent at the longest, in ms. */
const longestSilence = (ticks: number[]): number =>
  Math.max(...ticks.slice(1).map((at, index) => at - (ticks[index] ?? 0)))

test.each([
  ['between two requests', undefined],
  ['while a request hangs', byHand().answer],
])('the loop ticks at least every 15 s, and not much more often, %s', async (_, first) => {
  const { clock, ticks, asked } = await runningKeeper(first && { first })
  await clock.advance(10 * MINUTE)
  expect(asked()).toBe(1)
  expect(longestSilence(ticks)).toBe(TICK_MS)
  expect(ticks.length).toBeLessThanOrEqual(43)
})

test('the loop counts as alive for 45 s after its last tick', async () => {
  const { clock, keeper, stop } = await runningKeeper({ first: byHand().answer })
  await clock.advance(HOUR)
  await stop()
  await clock.advance(45_000 - 1)
  keeper.remember({ loggedEnd: 'pair' })
  expect(keeper.isAlive()).toBe(true)
  await clock.advance(1)
  expect(keeper.isAlive()).toBe(false)
})

test('the loop ends when it is stopped, also in a request, and leaves nothing behind', async () => {
  for (const outcome of [undefined, failures.network, refused, byHand().answer]) {
    const { clock, keeper, start, stop, answer, heard } = createKeeperWorld()
    if (outcome !== undefined) answer(outcome)
    start()
    await clock.settle()
    const { length } = heard
    await stop()
    expect(clock.sleepers()).toBe(0)
    expect(keeper.state().inFlight).toBeNull()
    expect(heard).toHaveLength(length)
  }
})

test('the loop ends with a fault that no one expected', async () => {
  const { keeper, answer, clock } = createKeeperWorld()
  answer(() => Promise.reject(new Error('A fault of the daemon')))
  await expect(keeper.run(never)).rejects.toThrow('A fault of the daemon')
  expect(keeper.state().inFlight).toBeNull()
  expect(clock.sleepers()).toBe(0)
})

test('the loop holds no listener of its signal longer than it needs it', async () => {
  const stop = new AbortController()
  const listening = (): number => getEventListeners(stop.signal, 'abort').length
  const { keeper, clock } = createKeeperWorld({ lifeSeconds: 100 })
  const end = keeper.run(stop.signal)
  await clock.advance(10 * MINUTE)
  const before = listening()
  await clock.advance(HOUR)
  expect(listening()).toBe(before)
  stop.abort()
  await end
})

test('a change of the phase, of the token and of its life is an event, and nothing else', async () => {
  const { clock, keeper, answer, heard, token } = await runningKeeper()
  const reported = (): string[] => heard.map(({ type }) => type)
  answer(failures.network)
  const refresh = async () => {
    const before = reported().length
    await keeper.refresh(never)
    await clock.settle()
    return reported().slice(before)
  }
  expect(await refresh()).toEqual(['changed', 'attempted'])
  expect(await refresh()).toEqual(['attempted'])
  answer(token)
  expect(await refresh()).toEqual(['changed', 'attempted'])
  expect(await refresh()).toEqual(['changed', 'attempted'])
  answer(refused)
  expect(await refresh()).toEqual(['changed', 'attempted'])
  expect(await refresh()).toEqual(['attempted'])
  const before = reported().length
  await clock.advance(2 * HOUR)
  expect(reported().slice(before)).toEqual(['changed'])
})

test('a refresh resolves with the request that is under way, and makes no second one', async () => {
  const service = byHand()
  const { keeper, asked, clock, token } = await runningKeeper({ first: service.answer })
  const both = Promise.all([keeper.refresh(never), keeper.refresh(never)])
  await clock.advance(MINUTE)
  const outcome = token()
  service.resolve(outcome)
  expect((await both).map((refreshed) => refreshed?.outcome)).toEqual([outcome, outcome])
  await clock.advance(MINUTE)
  expect(asked()).toBe(1)
})

test('a refresh is null when it is stopped first, and leaves nothing behind', async () => {
  const { keeper, clock } = await runningKeeper({ first: byHand().answer })
  const sleepers = clock.sleepers()
  const stop = new AbortController()
  const refreshed = keeper.refresh(stop.signal)
  await clock.advance(MINUTE)
  stop.abort()
  expect(await refreshed).toBeNull()
  expect(clock.sleepers()).toBe(sleepers)
})

test('waitUntil ends at the event that meets it, after its time or at a stop, and leaves nothing behind', async () => {
  const { keeper, clock } = await runningKeeper()
  const sleepers = clock.sleepers()
  const stop = new AbortController()
  const { signal } = stop
  let isMet = false
  let looks = 0
  const ended: string[] = []
  const wait = (name: string, isOver: () => boolean, options: { waitMs: number; signal: AbortSignal }) =>
    void keeper.waitUntil(isOver, options).then(() => ended.push(name))
  wait('met before', () => true, { waitMs: HOUR, signal })
  wait('no time', () => false, { waitMs: 0, signal })
  wait('stopped before', () => false, { waitMs: HOUR, signal: AbortSignal.abort() })
  wait('met', () => (looks += 1) > 0 && isMet, { waitMs: HOUR, signal })
  wait('a minute', () => false, { waitMs: MINUTE, signal })
  wait('stopped', () => false, { waitMs: HOUR, signal })
  await clock.settle()
  expect(ended).toEqual(['met before', 'no time', 'stopped before'])
  isMet = true
  await clock.advance(TICK_MS)
  const looksUntilMet = looks
  await clock.advance(MINUTE - TICK_MS - 1)
  expect(ended.slice(3)).toEqual(['met'])
  await clock.advance(1)
  stop.abort()
  await clock.settle()
  expect(ended.slice(4)).toEqual(['a minute', 'stopped'])
  expect([looks, clock.sleepers()]).toEqual([looksUntilMet, sleepers])
})

// ---- requests and what is saved of them

test('a request goes out once it is saved as failed, or after 2 s where the disk hangs', async () => {
  const saved: TokenState[] = []
  const disk = Promise.withResolvers<void>()
  const save = async (state: TokenState): Promise<void> => {
    saved.push(state)
    if (saved.length === 1) await disk.promise
  }
  const { asked, clock } = await runningKeeper({ save })
  expect(saved.map((state) => recordOf(state, 'first').attempts)).toEqual([1])
  await clock.advance(1_999)
  expect(asked()).toBe(0)
  await clock.advance(1)
  expect(asked()).toBe(1)
  disk.resolve()
})

test('a failure and a refusal are saved before anybody sees them', async () => {
  for (const first of [failures.network, refused]) {
    const seen: (readonly [number, boolean])[] = []
    const world = createKeeperWorld({
      first,
      save: async (state) => {
        const { failure } = recordOf(state, 'first')
        if (failure !== null) seen.push([world.heard.length, state.inFlight === null])
        return Promise.resolve()
      },
    })
    world.start()
    await world.clock.advance(0)
    expect(seen[0]).toEqual([0, true])
    await world.stop()
  }
})

// ---- the candidate

test('of 50 wrong pairs the last 8 are remembered, with the running one', async () => {
  const { keeper, reload, answer, clock, asked } = await runningKeeper()
  for (let count = 0; count < 50; count += 1) {
    answer(refused, `wrong-${count}`)
    reload(`wrong-${count}`)
    await clock.advance(0)
  }
  expect(Object.keys(keeper.state().pairs)).toEqual([42, 43, 44, 45, 46, 47, 48, 49].map((n) => `wrong-${n}`))
  const before = asked()
  reload('wrong-45')
  await clock.advance(HOUR / 4)
  expect(asked()).toBe(before)
})

test('another service is asked at once, and an answer of the former one is given up', async () => {
  const service = byHand()
  const world = await runningKeeper({ first: service.answer })
  const { reload, answer, clock, asked, keeper } = world
  answer(world.token)
  reload('first', { service: serviceFacts('other') })
  await clock.advance(0)
  expect([service.signals[0]?.aborted, asked()]).toEqual([true, 2])
  expect(keeper.state().token).not.toBeNull()
  reload('first', { service: serviceFacts('other') })
  await clock.advance(MINUTE)
  expect(asked()).toBe(2)
})

// ---- the ready-made assertion, and another host's answers

test('an assertion that is not good is waited for, and asked with as soon as it is', async () => {
  let read: string | null = null
  const { keeper, clock, asked, answer } = await runningKeeper({
    readAssertion: async () => Promise.resolve(read),
  })
  await clock.advance(10 * MINUTE)
  expect(asked()).toBe(0)
  expect(recordOf(keeper.state(), 'first').failure).toMatchObject({
    reason: 'assertion',
    detail: 'is not there',
  })
  read = 'one'
  answer(refused)
  await clock.advance(TICK_MS)
  expect(asked()).toBe(1)
  // Changed content lifts a refusal, the first time at once, then at most once in 5 min.
  for (const text of ['two', 'three']) {
    read = text
    await clock.advance(TICK_MS)
  }
  expect(asked()).toBe(2)
  await clock.advance(5 * MINUTE)
  expect(asked()).toBe(3)
  await clock.advance(HOUR)
  expect(asked()).toBe(3)
})

test('an attempt has the clock of the service, as the last answer had it', async () => {
  const seen: [wallMs: number | undefined, bootMs: number][] = []
  const world = createKeeperWorld({
    async fetchToken(_signal, { serviceWallMs }) {
      seen.push([serviceWallMs, world.clock.now().bootMs])
      return Promise.resolve({ ...failures.network, serverDateMs: 1_000_000 })
    },
  })
  world.start()
  onTestFinished(world.stop)
  await world.clock.advance(MINUTE)
  const [[first] = [], [second, againMs] = []] = [seen[0], seen[1]]
  expect([first, second]).toEqual([undefined, 1_000_000 + againMs! - seen[0]![1]])
})

test('an outcome of another host is used while nothing is asked', async () => {
  const service = byHand()
  const world = await runningKeeper({ first: service.answer })
  const { keeper, clock, heard } = world
  const grant = {
    kind: 'ok',
    accessToken: 'of-fleet',
    lifeMs: HOUR,
    expirySource: 'jwt',
    ageMs: MINUTE,
  } as const
  expect(keeper.offer(grant)).toBe(false)
  service.resolve(failures.network)
  await clock.advance(0)
  expect(keeper.offer(grant)).toBe(true)
  expect([heldBy(world), heard.at(-1)]).toEqual([
    'of-fleet',
    { type: 'attempted', outcome: grant, cause: 'fleet', tookMs: null },
  ])
  expect(usableToken(keeper.state(), clock.now())?.expiresAtMs).toBe(clock.now().bootMs + 59 * MINUTE)
})
