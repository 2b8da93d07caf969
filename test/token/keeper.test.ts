import { getEventListeners } from 'node:events'
import { expect, onTestFinished, test } from 'vitest'
import type { FetchOutcome } from '../../src/token/outcome.ts'
import { candidateOf, lostAt, phaseOf, usableToken } from '../../src/token/selectors.ts'
import { recordOf, type TokenState } from '../../src/token/state.ts'
import { serviceFacts } from '../support/facts.ts'
import { failures } from '../support/failures.ts'
import { jwtOf } from '../support/jwt.ts'
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

test('a listener that was ended gets no event, not even the one that is being sent', async () => {
  const { keeper, clock } = await runningKeeper()
  const heard: string[] = []
  const endFirst = keeper.onEvent(() => {
    heard.push('first')
    endSecond()
  })
  const endSecond = keeper.onEvent(() => heard.push('second'))
  await clock.advance(TICK_MS)
  expect(heard).toEqual(['first'])
  endFirst()
  await clock.advance(MINUTE)
  expect(heard).toEqual(['first'])
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

type Wait = Parameters<KeeperWorld['keeper']['waitUntil']>[1]

async function watched({ keeper, clock }: KeeperWorld, isMet: () => boolean, options: Wait) {
  const result = { isOver: false }
  void keeper.waitUntil(isMet, options).then(() => (result.isOver = true))
  await clock.settle()
  return result
}

test('waitUntil ends at the event that meets it, after its time or at a stop', async () => {
  const scene = await runningKeeper()
  const { clock } = scene
  const sleepers = clock.sleepers()
  const stop = new AbortController()
  const { signal } = stop
  let isMet = false
  let looks = 0
  const waits = [
    await watched(scene, () => true, { waitMs: HOUR, signal }),
    await watched(scene, () => false, { waitMs: 0, signal }),
    await watched(scene, () => false, { waitMs: HOUR, signal: AbortSignal.abort() }),
    await watched(scene, () => (looks += 1) > 0 && isMet, { waitMs: HOUR, signal }),
    await watched(scene, () => false, { waitMs: MINUTE, signal }),
    await watched(scene, () => false, { waitMs: HOUR, signal }),
  ]
  const over = (): boolean[] => waits.map(({ isOver }) => isOver)
  expect(over()).toEqual([true, true, true, false, false, false])
  isMet = true
  await clock.advance(TICK_MS)
  expect(over()).toEqual([true, true, true, true, false, false])
  const looksUntilMet = looks
  await clock.advance(MINUTE - TICK_MS - 1)
  expect(over()[4]).toBe(false)
  await clock.advance(1)
  expect(over()).toEqual([true, true, true, true, true, false])
  stop.abort()
  await clock.settle()
  expect(over()[5]).toBe(true)
  expect(looks).toBe(looksUntilMet)
  expect(clock.sleepers()).toBe(sleepers)
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

test('a fault of the clock between two ticks costs one request, which a JWT past its end does not survive', async () => {
  const world = await runningKeeper({ lifeSeconds: 3_600 })
  const { clock, answer, keeper, asked } = world
  // The machine stood still for 3 h, and the service is down when the wall clock is set.
  const serverDateMs = clock.now().wallMs + 3 * HOUR
  clock.jumpWall(3 * HOUR)
  answer({ ...failures.network, reason: 'server-error', serverDateMs })
  expect(heldBy(world)).toBeDefined()
  await clock.advance(TICK_MS)
  expect([asked(), heldBy(world)]).toEqual([2, undefined])
  expect(phaseOf(keeper.state(), clock.now())).toBe('expired')
})

test('a token that the service gives again is asked for at half of what is left, 5 s later at least', async () => {
  const now = Math.floor(1_800_000_000)
  const token = { kind: 'ok', accessToken: jwtOf({ iat: now, exp: now + 100 }) } as const
  const { clock, asked, dueInMs, answer } = await runningKeeper({ first: token })
  const waits: number[] = []
  for (let count = 1; count < 7; count += 1) {
    waits.push(dueInMs())
    await clock.advance(dueInMs())
  }
  expect(waits).toEqual([50_000, 25_000, 12_500, 6_250, 5_000, 1_250])
  expect(asked()).toBe(7)
  answer({ kind: 'ok', accessToken: 'other' })
  await clock.advance(1_000)
  expect(asked()).toBe(8)
})

// ---- the candidate

test('another pair is asked at once, comes into use by its token, and harms nobody until then', async () => {
  const world = await runningKeeper()
  const { keeper, reload, answer, pairs, clock, heard } = world
  const before = heldBy(world)
  answer(failures.notFound, 'second')
  reload('second')
  await clock.advance(10 * MINUTE)
  expect(pairs).toEqual(['first', 'second'])
  expect([heldBy(world), phaseOf(keeper.state(), clock.now())]).toEqual([before, 'ready'])
  expect(candidateOf(keeper.state())).toMatchObject({
    failure: { reason: 'account-not-found' },
    refusal: { assertion: '' },
  })
  expect(heard.map(({ type }) => type)).toEqual(['changed', 'attempted', 'tried'])
  answer(world.token, 'third')
  reload('third')
  await clock.advance(0)
  expect([keeper.state().running, candidateOf(keeper.state())]).toEqual(['third', null])
  reload('second')
  await clock.advance(10 * MINUTE)
  expect(pairs).toEqual(['first', 'second', 'third'])
})

test('an operator has the candidate asked, and where that gives no token the running pair', async () => {
  const { keeper, reload, answer, pairs, clock } = await runningKeeper()
  answer(failures.notFound, 'second')
  reload('second')
  await clock.advance(MINUTE)
  const refreshed = await keeper.refresh(never)
  expect(pairs).toEqual(['first', 'second', 'second', 'first'])
  expect([refreshed?.outcome.kind, refreshed?.candidate]).toEqual(['ok', failures.notFound])
})

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

test('a postponed attempt comes again in its time, at once for a report or an operator, and is no failure', async () => {
  let attempts = 0
  let postpones = true
  const fetchToken = async (): Promise<FetchOutcome> => {
    attempts += 1
    const detail = 'Another host asks'
    return Promise.resolve(
      postpones
        ? { kind: 'postponed', retryAfterMs: MINUTE, detail }
        : { kind: 'ok', accessToken: `token-${attempts}` },
    )
  }
  const { keeper, clock } = await runningKeeper({ fetchToken })
  await clock.advance(59_999)
  expect([attempts, phaseOf(keeper.state(), clock.now())]).toEqual([1, 'starting'])
  await clock.advance(1)
  expect(attempts).toBe(2)
  const refreshed = keeper.refresh(never)
  await clock.advance(0)
  expect([(await refreshed)?.outcome.kind, attempts]).toEqual(['postponed', 3])
  postpones = false
  await clock.advance(MINUTE)
  postpones = true
  keeper.reject(keeper.state().token!.fingerprint)
  await clock.advance(0)
  expect(attempts).toBe(5)
  keeper.reject(keeper.state().token!.fingerprint)
  await clock.advance(0)
  expect(attempts).toBe(5)
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

// ---- the time without a token

test('only time awake counts as time without a token, which is lost since the start', async () => {
  const { keeper, clock } = await runningKeeper({ first: { ...failures.network } })
  const lost = lostAt(keeper.state(), clock.now())
  await clock.advance(9 * MINUTE)
  clock.suspend(8 * HOUR)
  await clock.advance(59_000)
  const { forMs } = keeper.state().tokenless
  expect(forMs).toBeGreaterThan(9 * MINUTE)
  expect(forMs).toBeLessThan(10 * MINUTE)
  expect(lostAt(keeper.state(), clock.now())).toEqual(lost)
})
