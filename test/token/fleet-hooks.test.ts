// The keeper's hooks for a fleet: outcomes of other hosts, attempts that are put off, lives that are given.
import { expect, test } from 'vitest'
import type { FetchOutcome, FetchToken } from '../../src/token/outcome.ts'
import { runningKeeper } from '../support/keeper-world.ts'

const MINUTE = 60_000
const never = new AbortController().signal

/** A source that makes no request, and gives these outcomes one after another, the last one over and over. */
function giving(...outcomes: FetchOutcome[]): { fetchToken: FetchToken; causes: string[] } {
  const causes: string[] = []
  return {
    causes,
    fetchToken: async (_signal, { cause }) => {
      causes.push(cause)
      return outcomes[Math.min(causes.length, outcomes.length) - 1]!
    },
  }
}

const adopted = { kind: 'ok', accessToken: 'of-another-host', askedBy: 'web-2' } as const

const postponed = { kind: 'postponed', retryAfterMs: 7 * MINUTE, askedBy: 'web-2' } as const

test('an attempt that is put off is no failure, raises no alert, and is made again then', async () => {
  const { fetchToken, causes } = giving(postponed, adopted)
  const { keeper, clock, dueInMs, heard } = await runningKeeper({ fetchToken })
  expect(keeper.state()).toMatchObject({ failure: null, objection: null, requests: 0, lastRequestAt: null })
  expect(dueInMs()).toBe(7 * MINUTE)
  expect(heard).toMatchObject([{ outcome: postponed, tookMs: null }])
  await clock.advance(7 * MINUTE - 1)
  expect(causes).toEqual(['start'])
  await clock.advance(1)
  expect(causes).toEqual(['start', 'start'])
  expect(keeper.state()).toMatchObject({ token: { accessToken: 'of-another-host' }, next: null })
})

test('an attempt that is put off does not hold back an operator, who is answered with it', async () => {
  const { fetchToken, causes } = giving(adopted, postponed)
  const { keeper, clock } = await runningKeeper({ fetchToken })
  expect((await keeper.refresh(never))?.outcome).toEqual(postponed)
  await clock.advance(20 * MINUTE)
  expect(causes).toEqual(['start', 'operator', 'retry', 'retry'])
})

test('an operator who asks during an attempt that is put off is answered by one of their own', async () => {
  const first = Promise.withResolvers<FetchOutcome>()
  const { keeper } = await runningKeeper({
    fetchToken: async (_signal, { cause }) => (cause === 'start' ? first.promise : adopted),
  })
  const refreshed = keeper.refresh(never)
  first.resolve(postponed)
  expect((await refreshed)?.outcome).toBe(adopted)
})

test('an outcome of another host that comes as an attempt falls due spares the request', async () => {
  const { keeper, clock, asked, dueInMs } = await runningKeeper()
  keeper.onEvent(({ type }) => {
    if (type === 'tick' && dueInMs() <= 0) queueMicrotask(() => keeper.offer(adopted))
  })
  await clock.advance(45 * MINUTE)
  expect(keeper.state().token).toMatchObject({ accessToken: adopted.accessToken })
  expect(asked()).toBe(1)
})

test('an outcome of another host is not taken while an attempt is under way', async () => {
  const answered = Promise.withResolvers<FetchOutcome>()
  const { keeper, clock } = await runningKeeper({ fetchToken: async () => answered.promise })
  expect(keeper.offer(adopted)).toBe(false)
  expect(keeper.state().token).toBeNull()
  answered.resolve(adopted)
  await clock.settle()
  expect(keeper.offer({ ...adopted, accessToken: 'next' })).toBe(true)
})

test("an outcome of another host ends a client's wish, and an attempt that was put off", async () => {
  const { keeper, clock, asked } = await runningKeeper()
  const fingerprint = (): string => keeper.state().token?.fingerprint ?? ''
  keeper.reject(fingerprint())
  await clock.settle()
  keeper.reject(fingerprint())
  expect(keeper.state().next?.cause).toBe('client')
  const since = clock.now()
  for (const reason of ['share-lost', 'share-lost', 'network'] as const) {
    keeper.offer({ kind: 'postponed', retryAfterMs: MINUTE, reason, askedBy: 'web-2' })
    const beganAt = reason === 'network' ? clock.now() : since
    expect(keeper.state().postponement).toEqual({ reason, detail: '', since: beganAt, askedBy: 'web-2' })
    await clock.advance(1_000)
  }
  keeper.offer(adopted)
  const nothing = { next: null, postponement: null }
  expect(keeper.state()).toMatchObject(nothing)
  await clock.advance(2 * MINUTE)
  expect(asked()).toBe(2)
})

test('an opaque token of another host lives for refresh.maxAge at most, a JWT as given', async () => {
  const { keeper } = await runningKeeper()
  keeper.offer({ kind: 'ok', accessToken: 'opaque', lifeMs: 60 * MINUTE, expirySource: 'assumed' })
  expect(keeper.state().token).toMatchObject({ lifeMs: 15 * MINUTE, expirySource: 'assumed' })
  keeper.offer({ kind: 'ok', accessToken: 'a.b.c', lifeMs: 60 * MINUTE, expirySource: 'jwt', ageMs: MINUTE })
  expect(keeper.state().token).toMatchObject({ lifeMs: 60 * MINUTE, expirySource: 'jwt' })
  keeper.offer({ kind: 'ok', accessToken: 'old', lifeMs: MINUTE, ageMs: MINUTE })
  expect(keeper.state().failure).toMatchObject({ reason: 'malformed-answer' })
})

test('a source that makes no request costs no save before, and is not counted as one', async () => {
  let saves = 0
  const remember = async (): Promise<void> => void (saves += 1)
  const { keeper, heard } = await runningKeeper({ ...giving(adopted), remember })
  expect(saves).toBe(1)
  expect(keeper.state()).toMatchObject({ requests: 0, lastRequestAt: null, lastSuccessAt: {} })
  expect(heard.at(-1)).toMatchObject({ tookMs: null })
  await runningKeeper({ ...giving(postponed), remember })
  expect(saves).toBe(1)
})

test('a source that waits before its request is timed from the request', async () => {
  const go = Promise.withResolvers<void>()
  const answer = Promise.withResolvers<void>()
  const { keeper, clock, heard } = await runningKeeper({
    async fetchToken(_signal, { beforeRequest }) {
      await go.promise
      await beforeRequest()
      await answer.promise
      return adopted
    },
  })
  await clock.advance(5_000)
  expect(keeper.state()).toMatchObject({ requests: 0, inFlight: { cause: 'start' } })
  go.resolve()
  await clock.advance(2_000)
  expect(keeper.state().requests).toBe(1)
  answer.resolve()
  await clock.settle()
  expect(heard.at(-1)).toMatchObject({ tookMs: 2_000 })
})
