import { getEventListeners } from 'node:events'
import { expect, test } from 'vitest'
import type { FetchOutcome } from '../../src/token/outcome.ts'
import { type TokenState } from '../../src/token/state.ts'
import { createLiveness } from '../../src/token/variable.ts'
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
  expect(ticks.length).toBeLessThanOrEqual(42)
})

test('the loop counts as alive for 45 s after its last tick', async () => {
  const { clock, keeper, settings, stop } = await runningKeeper({ first: byHand().answer })
  const isAlive = createLiveness(keeper, () => clock.now().bootMs)
  await clock.advance(HOUR)
  await stop()
  await clock.advance(45_000 - 1)
  keeper.reload({ ...settings('first'), refusedBy: [403] })
  expect(isAlive()).toBe(true)
  await clock.advance(1)
  expect(isAlive()).toBe(false)
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

test('a refresh is undefined when it is stopped first, and leaves nothing behind', async () => {
  const { keeper, clock } = await runningKeeper({ first: byHand().answer })
  const sleepers = clock.sleepers()
  const stop = new AbortController()
  const refreshed = keeper.refresh(stop.signal)
  await clock.advance(MINUTE)
  stop.abort()
  expect(await refreshed).toBeUndefined()
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

test('a reload with the same credentials lets the request under way end', async () => {
  const service = byHand()
  const { reload, clock } = await runningKeeper({ first: service.answer })
  reload({ credentialsId: 'first' })
  await clock.settle()
  expect(service.signals[0]?.aborted).toBe(false)
})

test('a reload with other credentials keeps a request from going out that is still being saved', async () => {
  const writing = Promise.withResolvers<void>()
  const { reload, asked, clock, keeper } = await runningKeeper({ remember: () => writing.promise })
  reload({ credentialsId: 'second' })
  await clock.settle()
  expect(asked()).toBe(0)
  writing.resolve()
  await clock.settle()
  expect(asked()).toBe(1)
  expect(keeper.state()).toMatchObject({ token: expect.anything(), objection: null, next: null })
})

test('the loop waits for a save, for 2 s at most where the disk hangs', async () => {
  const writing = Promise.withResolvers<void>()
  const written: TokenState[] = []
  const remember = async (state: TokenState) => {
    if (written.push(state) === 2) await writing.promise
  }
  const { keeper, asked, ticks, clock } = await runningKeeper({ first: failures.network, remember })
  const before = ticks.length
  await clock.advance(1_999)
  expect([asked(), ticks.length, keeper.state().failure]).toEqual([1, before, null])
  await clock.advance(1)
  expect(asked()).toBe(2)
  writing.resolve()
})
