// The keeper: what of its loop the exploration and the scenarios do not show.
import { getEventListeners } from 'node:events'
import { describe, expect, test } from 'vitest'
import type { FetchOutcome } from '../../src/token/outcome.ts'
import { usableToken } from '../../src/token/selectors.ts'
import { recordOf, type TokenState } from '../../src/token/state.ts'
import { serviceFacts } from '../support/facts.ts'
import { failures } from '../support/failures.ts'
import { createKeeperWorld, runningKeeper, type Answer } from '../support/keeper-world.ts'

const MINUTE = 60_000
const HOUR = 60 * MINUTE
const never = new AbortController().signal
const refused = failures.inactive

/** Requests that are answered when the test says so, and given up as the source gives them up. */
function byHand() {
  const signals: AbortSignal[] = []
  const { promise, resolve } = Promise.withResolvers<FetchOutcome>()
  const answer: Answer = (signal) => {
    signals.push(signal)
    signal.addEventListener('abort', () => resolve(failures.network))
    return promise
  }
  return { signals, answer, resolve }
}

test('the loop ticks every 15 s while a request hangs; neither attempts nor its end leave anything behind', async () => {
  const { keeper, clock, answer, asked, ticks, heard } = createKeeperWorld({ lifeSeconds: 100 })
  const stop = new AbortController()
  const end = keeper.run(stop.signal)
  const listeners = () => getEventListeners(stop.signal, 'abort').length
  await clock.advance(10 * MINUTE)
  const before = listeners()
  await clock.advance(HOUR)
  expect(listeners()).toBe(before)
  answer(byHand().answer)
  await clock.advance(MINUTE)
  const [requests, hung] = [asked(), ticks.length]
  await clock.advance(10 * MINUTE)
  const silences = ticks.slice(hung).map((at, index) => at - ticks[hung + index - 1]!)
  expect([asked(), Math.max(...silences)]).toEqual([requests, 15_000])
  const { length } = heard
  stop.abort()
  await end
  expect([clock.sleepers(), keeper.state().inFlight, heard.length]).toEqual([0, null, length])
})

test('a change of the phase, of the token and of its life is an event, and nothing else', async () => {
  const { clock, keeper, answer, heard, token } = await runningKeeper()
  const typesOf = async (act: Promise<unknown>): Promise<string[]> => {
    const before = heard.length
    await act
    await clock.settle()
    return heard.slice(before).map(({ type }) => type)
  }
  const opaque = { kind: 'ok', accessToken: 'opaque' } as const
  for (const outcome of [failures.network, token, opaque, refused]) {
    answer(outcome)
    expect(await typesOf(keeper.refresh(never))).toEqual(['changed', 'attempted'])
    await clock.advance(3_000)
    // The life of an opaque token begins again.
    const isNew = outcome === token || outcome === opaque
    expect(await typesOf(keeper.refresh(never))).toEqual(isNew ? ['changed', 'attempted'] : ['attempted'])
  }
  expect(await typesOf(clock.advance(2 * HOUR))).toEqual(['changed'])
})

describe('a wait', () => {
  test.each([
    ['where there is no candidate', null, 1],
    ['and, where there is a candidate, after its own and one more', refused, 3],
  ])('of operators ends after the request that is under way, %s', async (_, candidate, requests) => {
    const { answer: first, resolve } = byHand()
    const { keeper, asked, clock, token, answer, reload } = await runningKeeper({ first })
    answer(refused, 'second')
    if (candidate !== null) reload('second')
    const stop = new AbortController()
    const [stopped, ...both] = [stop.signal, never, never].map((signal) => keeper.refresh(signal))
    await clock.advance(MINUTE)
    stop.abort()
    expect(await stopped).toBeNull()
    const outcome = token()
    resolve(outcome)
    for (const refreshed of both) expect(await refreshed).toEqual({ outcome, candidate })
    await clock.advance(MINUTE)
    expect(asked()).toBe(requests)
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
    wait('no time', () => false, 0)
    wait('stopped before', () => false, HOUR, AbortSignal.abort())
    wait('met', () => (looks += 1) > 0 && isMet)
    wait('a minute', () => false, MINUTE)
    wait('stopped', () => false)
    await clock.settle()
    isMet = true
    await clock.advance(15_000)
    const looksUntilMet = looks
    await clock.advance(MINUTE - 15_001)
    expect(ended).toEqual(['no time', 'stopped before', 'met'])
    await clock.advance(1)
    stop.abort()
    await clock.settle()
    expect(ended.slice(3)).toEqual(['a minute', 'stopped'])
    expect([looks, clock.sleepers()]).toEqual([looksUntilMet, sleepers])
  })
})

describe('what is saved', () => {
  test('of a request is its failure, before it goes out, or 2 s later where the disk hangs', async () => {
    const saved: TokenState[] = []
    const save = async (state: TokenState): Promise<void> => {
      if (saved.push(state) === 1) await new Promise(() => undefined)
    }
    const { asked, clock } = await runningKeeper({ save })
    expect(saved.map((state) => recordOf(state, 'first').attempts)).toEqual([1])
    await clock.advance(1_999)
    expect(asked()).toBe(0)
    await clock.advance(1)
    expect(asked()).toBe(1)
  })

  test('of an answer is there before anybody sees it', async () => {
    const disk = Promise.withResolvers<void>()
    const save = async (state: TokenState): Promise<void> => {
      if (recordOf(state, 'first').failure !== null) await disk.promise
    }
    const { keeper, clock, heard } = await runningKeeper({ first: refused, save })
    expect([heard.length, recordOf(keeper.state(), 'first').failure]).toEqual([0, null])
    disk.resolve()
    await clock.settle()
    expect(heard.at(-1)).toMatchObject({ type: 'attempted', outcome: refused })
  })

  test('of 50 wrong pairs are the last 8, with the running one', async () => {
    const { keeper, reload, answer, clock, asked } = await runningKeeper()
    answer(failures.rejected)
    await keeper.refresh(never)
    for (let count = 0; count < 50; count += 1) {
      answer(refused, `wrong-${count}`)
      reload(`wrong-${count}`)
      await clock.advance(0)
    }
    const remembered = [43, 44, 45, 46, 47, 48, 49].map((n) => `wrong-${n}`)
    expect(Object.keys(keeper.state().pairs)).toEqual(['first', ...remembered])
    const before = asked()
    reload('wrong-45')
    await clock.advance(4 * MINUTE)
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
  const { keeper, clock, asked } = await runningKeeper({ first: refused, readAssertion: async () => read })
  await clock.advance(10 * MINUTE)
  const { failure } = recordOf(keeper.state(), 'first')
  expect(failure).toMatchObject({ reason: 'assertion', detail: 'is not there' })
  const requests: number[] = []
  for (const [content, ms] of [
    [null, 0],
    ['one', 15_000],
    ['two', 15_000],
    ['three', 4 * MINUTE],
    ['three', 2 * MINUTE],
    ['three', HOUR],
  ] as const) {
    read = content
    await clock.advance(ms)
    requests.push(asked())
  }
  expect(requests).toEqual([0, 1, 2, 2, 3, 3])
})

test('an attempt has the clock of the service, as the last answer had it', async () => {
  const { clock, keeper, answer } = await runningKeeper()
  const behindMs: number[] = []
  answer((_signal, { serviceWallMs = NaN }) => {
    behindMs.push(clock.now().bootMs - serviceWallMs)
    return { ...failures.network, serverDateMs: 1_000_000 }
  })
  await keeper.refresh(never)
  const answeredAtMs = clock.now().bootMs
  await clock.advance(1_000)
  expect(behindMs).toEqual([NaN, answeredAtMs - 1_000_000])
})

test('an outcome of another host is used while nothing is asked', async () => {
  const { answer, resolve } = byHand()
  const { keeper, clock, heard } = await runningKeeper({ first: answer })
  const life = { lifeMs: HOUR, expirySource: 'jwt', ageMs: MINUTE } as const
  const grant = { kind: 'ok', accessToken: 'of-fleet', ...life } as const
  expect(keeper.offer(grant)).toBe(false)
  resolve(failures.network)
  await clock.advance(0)
  expect(keeper.offer(grant)).toBe(true)
  expect(heard.at(-1)).toEqual({ type: 'attempted', outcome: grant, cause: 'fleet', tookMs: null })
  const expiresAtMs = clock.now().bootMs + 59 * MINUTE
  expect(usableToken(keeper.state(), clock.now())).toMatchObject({ accessToken: 'of-fleet', expiresAtMs })
  // Its host assumes a longer life for it than this one.
  const tooOld = {
    ...grant,
    accessToken: 'too-old',
    expirySource: 'assumed',
    askedBy: 'a',
    ageMs: HOUR / 2,
  } as const
  expect(keeper.offer(tooOld)).toBe(true)
  expect(usableToken(keeper.state(), clock.now())).toMatchObject({ accessToken: 'of-fleet' })
  expect(recordOf(keeper.state(), keeper.state().running).failure).toBeNull()
})
