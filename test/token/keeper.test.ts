import { getEventListeners } from 'node:events'
import { describe, expect, test } from 'vitest'
import type { FetchOutcome, FetchToken } from '../../src/token/outcome.ts'
import { usableToken } from '../../src/token/selectors.ts'
import { recordOf, type TokenState } from '../../src/token/state.ts'
import { serviceFacts } from '../support/facts.ts'
import { failures } from '../support/failures.ts'
import { createFakeClock } from '../support/fake-clock.ts'
import { createKeeperWorld, runningKeeper } from '../support/keeper-world.ts'

const TICK_MS = 15_000
const MINUTE = 60_000
const HOUR = 60 * MINUTE
const never = new AbortController().signal
const refused = failures.inactive

/** Requests that are answered when the test says so, and given up as the source gives them up. */
function byHand() {
  const signals: AbortSignal[] = []
  const { promise, resolve } = Promise.withResolvers<FetchOutcome>()
  const answer = async (signal: AbortSignal): Promise<FetchOutcome> => {
    signals.push(signal)
    signal.addEventListener('abort', () => resolve(failures.network))
    return promise
  }
  return { signals, answer, resolve }
}

describe('the loop', () => {
  test.each([
    ['between two requests', undefined],
    ['while a request hangs', byHand().answer],
  ])('ticks at least every 15 s, and not much more often, %s', async (_, first) => {
    const { clock, ticks, asked } = await runningKeeper(first && { first })
    await clock.advance(10 * MINUTE)
    const silences = ticks.slice(1).map((at, index) => at - ticks[index]!)
    expect([asked(), Math.max(...silences)]).toEqual([1, TICK_MS])
    expect(ticks.length).toBeLessThanOrEqual(43)
  })

  test('counts as alive for 45 s after its last tick, which is no change from outside', async () => {
    const { clock, keeper, stop } = await runningKeeper()
    await stop()
    await clock.advance(45_000 - 1)
    keeper.remember({ loggedEnd: 'pair' })
    expect(keeper.isAlive()).toBe(true)
    await clock.advance(1)
    expect(keeper.isAlive()).toBe(false)
  })

  test.each([
    ['a token', undefined],
    ['a failure', failures.network],
    ['a refusal', refused],
    ['a request', byHand().answer],
  ])('ends after %s when it is stopped, and leaves nothing behind', async (_, first) => {
    const { clock, keeper, stop, heard } = await runningKeeper(first && { first })
    const { length } = heard
    await stop()
    expect([clock.sleepers(), keeper.state().inFlight, heard.length]).toEqual([0, null, length])
  })

  test('ends with a fault that no one expected', async () => {
    const { keeper, answer, clock } = createKeeperWorld()
    answer(() => Promise.reject(new Error('A fault of the daemon')))
    await expect(keeper.run(never)).rejects.toThrow('A fault of the daemon')
    expect([clock.sleepers(), keeper.state().inFlight]).toEqual([0, null])
  })

  test('holds no listener of its signal longer than it needs it', async () => {
    const stop = new AbortController()
    const { keeper, clock } = createKeeperWorld({ lifeSeconds: 100 })
    const end = keeper.run(stop.signal)
    const listening: number[] = []
    for (const ms of [10 * MINUTE, HOUR]) {
      await clock.advance(ms)
      listening.push(getEventListeners(stop.signal, 'abort').length)
    }
    expect(listening[1]).toBe(listening[0])
    stop.abort()
    await end
  })
})

test('a change of the phase, of the token and of its life is an event, and nothing else', async () => {
  const { clock, keeper, answer, heard, token } = await runningKeeper()
  const typesOf = async (act: Promise<unknown>): Promise<string[]> => {
    const before = heard.length
    await act
    await clock.settle()
    return heard.slice(before).map(({ type }) => type)
  }
  for (const outcome of [failures.network, token, refused]) {
    answer(outcome)
    expect(await typesOf(keeper.refresh(never))).toEqual(['changed', 'attempted'])
    const isAnother = outcome === token
    expect(await typesOf(keeper.refresh(never))).toEqual(isAnother ? ['changed', 'attempted'] : ['attempted'])
  }
  expect(await typesOf(clock.advance(2 * HOUR))).toEqual(['changed'])
})

describe('a wait', () => {
  test('of operators for an answer ends with the request that is under way, and none makes a second one', async () => {
    const service = byHand()
    const { keeper, asked, clock, token } = await runningKeeper({ first: service.answer })
    const both = Promise.all([keeper.refresh(never), keeper.refresh(never)])
    await clock.settle()
    const sleepers = clock.sleepers()
    const stop = new AbortController()
    const stopped = keeper.refresh(stop.signal)
    await clock.advance(MINUTE)
    stop.abort()
    expect([await stopped, clock.sleepers()]).toEqual([null, sleepers])
    const outcome = token()
    service.resolve(outcome)
    expect((await both).map((refreshed) => refreshed?.outcome)).toEqual([outcome, outcome])
    await clock.advance(MINUTE)
    expect(asked()).toBe(1)
  })

  test('for the state ends at the event that meets it, after its time or at a stop, and leaves nothing behind', async () => {
    const { keeper, clock } = await runningKeeper()
    const sleepers = clock.sleepers()
    const stop = new AbortController()
    let isMet = false
    let looks = 0
    const ended: string[] = []
    const wait = (name: string, isOver: () => boolean, waitMs = HOUR, signal = stop.signal): void =>
      void keeper.waitUntil(isOver, { waitMs, signal }).then(() => ended.push(name))
    wait('met before', () => true)
    wait('no time', () => false, 0)
    wait('stopped before', () => false, HOUR, AbortSignal.abort())
    wait('met', () => (looks += 1) > 0 && isMet)
    wait('a minute', () => false, MINUTE)
    wait('stopped', () => false)
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
})

describe('what is saved', () => {
  test('of a request is its failure, before it goes out, or 2 s later where the disk hangs', async () => {
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

  test.each([
    ['failure', failures.network],
    ['refusal', refused],
  ])('of a %s is there before anybody sees it', async (_, first) => {
    const disk = Promise.withResolvers<void>()
    const save = async (state: TokenState): Promise<void> => {
      if (recordOf(state, 'first').failure !== null) await disk.promise
    }
    const { keeper, clock, heard } = await runningKeeper({ first, save })
    expect([heard.length, recordOf(keeper.state(), 'first').failure]).toEqual([0, null])
    disk.resolve()
    await clock.settle()
    expect(heard.at(-1)).toMatchObject({ type: 'attempted', outcome: first })
  })

  test('of 50 wrong pairs are the last 8, with the running one', async () => {
    const { keeper, reload, answer, clock, asked } = await runningKeeper()
    for (let count = 0; count < 50; count += 1) {
      answer(refused, `wrong-${count}`)
      reload(`wrong-${count}`)
      await clock.advance(0)
    }
    const remembered = [42, 43, 44, 45, 46, 47, 48, 49].map((n) => `wrong-${n}`)
    expect(Object.keys(keeper.state().pairs)).toEqual(remembered)
    const before = asked()
    reload('wrong-45')
    await clock.advance(HOUR / 4)
    expect(asked()).toBe(before)
  })
})

test('another service, and it alone, is asked at once, and an answer of the former one is given up', async () => {
  const service = byHand()
  const { reload, answer, clock, asked, keeper, token } = await runningKeeper({ first: service.answer })
  answer(token)
  reload('first')
  expect(service.signals[0]?.aborted).toBe(false)
  for (const ms of [0, MINUTE]) {
    reload('first', { service: serviceFacts('other') })
    await clock.advance(ms)
    expect([service.signals[0]?.aborted, asked()]).toEqual([true, 2])
  }
  expect(keeper.state().token).not.toBeNull()
})

test('an assertion that is not good is waited for; other content lifts a refusal, at once and then after 5 min', async () => {
  let read: string | null = null
  const { keeper, clock, asked, answer } = await runningKeeper({ readAssertion: async () => read })
  answer(refused)
  await clock.advance(10 * MINUTE)
  const { failure } = recordOf(keeper.state(), 'first')
  expect(failure).toMatchObject({ reason: 'assertion', detail: 'is not there' })
  const requests = async (content: string | null, ms: number): Promise<number> => {
    read = content
    await clock.advance(ms)
    return asked()
  }
  expect(await requests(null, 0)).toBe(0)
  expect(await requests('one', TICK_MS)).toBe(1)
  expect(await requests('two', TICK_MS)).toBe(2)
  expect(await requests('three', TICK_MS)).toBe(2)
  expect(await requests('three', 5 * MINUTE)).toBe(3)
  expect(await requests('three', HOUR)).toBe(3)
})

test('an attempt has the clock of the service, as the last answer had it', async () => {
  const clock = createFakeClock()
  const beganMs = clock.now().bootMs
  const behindMs: (number | null)[] = []
  const fetchToken: FetchToken = async (_signal, { serviceWallMs }) => {
    behindMs.push(serviceWallMs === undefined ? null : clock.now().bootMs - serviceWallMs)
    return Promise.resolve({ ...failures.network, serverDateMs: 1_000_000 })
  }
  await runningKeeper({ clock, fetchToken })
  await clock.advance(1_000)
  expect(behindMs).toEqual([null, beganMs - 1_000_000])
})

test('an outcome of another host is used while nothing is asked', async () => {
  const service = byHand()
  const { keeper, clock, heard } = await runningKeeper({ first: service.answer })
  const life = { lifeMs: HOUR, expirySource: 'jwt', ageMs: MINUTE } as const
  const grant = { kind: 'ok', accessToken: 'of-fleet', ...life } as const
  expect(keeper.offer(grant)).toBe(false)
  service.resolve(failures.network)
  await clock.advance(0)
  expect(keeper.offer(grant)).toBe(true)
  expect(heard.at(-1)).toEqual({ type: 'attempted', outcome: grant, cause: 'fleet', tookMs: null })
  const expiresAtMs = clock.now().bootMs + 59 * MINUTE
  expect(usableToken(keeper.state(), clock.now())).toMatchObject({ accessToken: 'of-fleet', expiresAtMs })
})
