import { expect, test } from 'vitest'
import type { FetchOutcome } from '../../src/token/outcome.ts'
import type { TokenState } from '../../src/token/state.ts'
import { failures } from '../support/failures.ts'
import { runningKeeper } from '../support/keeper-world.ts'

const MINUTE = 60_000
const never = new AbortController().signal
const trial = { cause: 'reload', signal: never } as const

test('other credentials are used if they give a token, after one request', async () => {
  const { keeper, settings, asked, token, answer, clock } = await runningKeeper()
  const former = keeper.state().token
  answer(token())
  expect(await keeper.tryCredentials(settings('second'), trial)).toMatchObject({ kind: 'ok' })
  expect(asked()).toBe(2)
  expect(keeper.state()).toMatchObject({
    credentialsId: 'second',
    generation: 2,
    token: { credentialsId: 'second' },
    inFlight: null,
  })
  expect(keeper.state().token?.fingerprint).not.toBe(former?.fingerprint)
  keeper.reload(settings('second'))
  expect(await keeper.tryCredentials(settings('second'), trial)).toBeUndefined()
  await clock.settle()
  expect(asked()).toBe(2)
})

test('other credentials that are refused leave everything as it was', async () => {
  for (const outcome of [failures.inactive, failures.rejected]) {
    const { keeper, settings, asked, answer, clock } = await runningKeeper()
    const before = keeper.state()
    answer(outcome)
    expect(await keeper.tryCredentials(settings('second'), trial)).toEqual(outcome)
    const { requests, lastRequestAt, ...after } = keeper.state()
    expect({ ...before, ...after }).toEqual(before)
    expect(requests).toBe(2)
    expect(lastRequestAt).toEqual(clock.now())
    await clock.advance(MINUTE)
    expect(asked()).toBe(2)
  }
})

test('other credentials that fail for another reason are tried again with backoff', async () => {
  const { keeper, settings, asked, answer, clock, token } = await runningKeeper()
  const failed: (readonly [string, number])[] = []
  answer(failures.network)
  const tried = keeper.tryCredentials(settings('second'), {
    ...trial,
    onFailed: ({ kind }, retryAtMs) => failed.push([kind, retryAtMs - clock.now().bootMs]),
  })
  await clock.advance(10_000)
  expect(failed.map(([kind]) => kind)).toEqual(Array.from({ length: asked() - 1 }, () => 'transient'))
  failed.forEach(([, waitMs], index) => {
    expect(waitMs).toBeGreaterThanOrEqual(500 * 2 ** index)
    expect(waitMs).toBeLessThanOrEqual(1_000 * 2 ** index)
  })
  expect(keeper.state()).toMatchObject({ credentialsId: 'first', failure: null, notBefore: {} })
  answer({ kind: 'postponed', retryAfterMs: 5 * MINUTE })
  await clock.advance(MINUTE)
  answer(token())
  const before = asked()
  await clock.advance(4 * MINUTE - 30_000)
  expect(asked()).toBe(before)
  await clock.advance(MINUTE)
  expect(await tried).toMatchObject({ kind: 'ok' })
  expect(keeper.state()).toMatchObject({ credentialsId: 'second', failure: null })
})

test('other credentials come before a refusal of the running ones, save in Retry-After', async () => {
  const { keeper, settings, answer, clock, token } = await runningKeeper()
  const events: string[] = []
  const limited = {
    kind: 'transient',
    reason: 'rate-limited',
    detail: 'Slow',
    retryAfterMs: 9 * MINUTE,
  } as const
  for (const first of [failures.network, limited]) {
    answer(first)
    void keeper.tryCredentials(settings('second'), trial)
    await clock.settle()
    keeper.onEvent((event) => event.type === 'attempted' && events.push(event.outcome.kind))
    let asked = 0
    answer(() => ((asked += 1) === 1 ? failures.inactive : token()))
    void keeper.refresh(never)
    await clock.settle()
    if (first === limited) break
    expect(events).toEqual(['ok'])
    expect(keeper.state()).toMatchObject({ credentialsId: 'second', objection: null })
    keeper.reload(settings('first'))
    await clock.settle()
  }
  expect(keeper.state()).toMatchObject({ credentialsId: 'first', objection: { reason: 'account-inactive' } })
})

test('other credentials do not hold up an operator, whose answer is the token of either', async () => {
  for (const gives of ['token', 'refusal'] as const) {
    const first = Promise.withResolvers<FetchOutcome>()
    const { keeper, settings, asked, answer, clock, token } = await runningKeeper()
    answer(() => first.promise)
    void keeper.tryCredentials(settings('second'), trial)
    await clock.settle()
    const refreshed = keeper.refresh(never)
    await clock.settle()
    answer(token())
    first.resolve(gives === 'token' ? token() : failures.inactive)
    expect(await refreshed).toMatchObject({ kind: 'ok' })
    await clock.advance(MINUTE)
    expect(asked()).toBe(gives === 'token' ? 2 : 3)
  }
})

test('other credentials wait for the attempt that is under way: one request at a time', async () => {
  const first = Promise.withResolvers<FetchOutcome>()
  const { keeper, settings, asked, answer, clock, token } = await runningKeeper()
  answer(() => first.promise)
  void keeper.refresh(never)
  await clock.settle()
  const tried = keeper.tryCredentials(settings('second'), trial)
  await clock.settle()
  expect(asked()).toBe(2)
  answer(token())
  first.resolve(failures.network)
  expect(await tried).toMatchObject({ kind: 'ok' })
  expect(asked()).toBe(3)
})

test('other credentials wait as long as the service asked for with them', async () => {
  const { keeper, settings, asked, answer, clock, token } = await runningKeeper()
  answer({
    kind: 'transient',
    reason: 'rate-limited',
    detail: 'Slow down',
    status: 429,
    retryAfterMs: 10 * MINUTE,
  })
  void keeper.tryCredentials(settings('second'), trial)
  await clock.settle()
  answer(token())
  const tried = keeper.tryCredentials(settings('second'), trial)
  await clock.advance(10 * MINUTE)
  expect(asked()).toBe(2)
  await clock.advance(2 * MINUTE + 1_000)
  expect(await tried).toMatchObject({ kind: 'ok' })
})

test('other credentials that an operator wrote are tried at once, also in Retry-After', async () => {
  const { keeper, settings, asked, answer, clock } = await runningKeeper()
  answer({ ...failures.network, retryAfterMs: 10 * MINUTE })
  for (const requests of [2, 3]) {
    void keeper.tryCredentials(settings('second'), { ...trial, cause: 'operator' })
    await clock.settle()
    expect(asked()).toBe(requests)
    await clock.advance(5 * MINUTE)
    expect(asked()).toBe(requests)
  }
})

test('other credentials that an operator wrote are his act once, and are then repeated', async () => {
  const { keeper, settings, answer, clock } = await runningKeeper()
  const causes: unknown[] = []
  answer(() => {
    causes.push(keeper.state().inFlight?.cause)
    return failures.network
  })
  void keeper.tryCredentials(settings('second'), { ...trial, cause: 'operator' })
  await clock.advance(5_000)
  expect(causes.slice(0, 3)).toEqual(['operator', 'retry', 'retry'])
})

test('an answer to credentials that a reload has replaced says nothing of the new ones', async () => {
  const { keeper, settings, answer, clock, token } = await runningKeeper()
  answer(failures.network)
  void keeper.tryCredentials(settings('second'), trial)
  await clock.settle()
  const hanging = Promise.withResolvers<FetchOutcome>()
  answer(() => (keeper.state().inFlight?.credentialsId === 'first' ? failures.inactive : hanging.promise))
  const refreshed = keeper.refresh(never)
  await clock.settle()
  const inFlight = { since: clock.now(), cause: 'retry', credentialsId: 'second' }
  expect(keeper.state().inFlight).toEqual(inFlight)
  answer(token())
  keeper.reload(settings('third'))
  hanging.resolve(failures.network)
  expect(await refreshed).toMatchObject({ kind: 'ok' })
})

test('other credentials are given up at a reload, at another trial and at an abort', async () => {
  const { keeper, settings, answer, clock, asked } = await runningKeeper()
  answer(
    (signal) =>
      new Promise((resolve) => {
        signal.addEventListener('abort', () => resolve(failures.network))
      }),
  )
  const reloaded = keeper.tryCredentials(settings('second'), trial)
  await clock.settle()
  expect(asked()).toBe(2)
  keeper.reload(settings('first'))
  expect(await reloaded).toBeUndefined()
  await clock.settle()
  expect(keeper.state()).toMatchObject({ credentialsId: 'first', inFlight: null, failure: null })
  void keeper.refresh(never)
  await clock.settle()
  const replaced = keeper.tryCredentials(settings('second'), trial)
  const stop = new AbortController()
  const aborted = keeper.tryCredentials(settings('third'), { ...trial, signal: stop.signal })
  expect(await replaced).toBeUndefined()
  stop.abort()
  expect(await aborted).toBeUndefined()
  expect(await keeper.tryCredentials(settings('fourth'), { ...trial, signal: stop.signal })).toBeUndefined()
  expect(asked()).toBe(3)
})

test('other credentials are saved as the running ones only when they gave a token', async () => {
  const saved: TokenState[] = []
  const { keeper, settings, answer, token, clock } = await runningKeeper({
    remember: async (state) => void saved.push(state),
  })
  answer(failures.network)
  void keeper.tryCredentials(settings('second'), trial)
  await clock.settle()
  expect(new Set(saved.map(({ credentialsId }) => credentialsId))).toEqual(new Set(['first']))
  expect(saved.at(-1)).toMatchObject({ failure: null })
  answer({ ...failures.network, retryAfterMs: MINUTE })
  void keeper.tryCredentials(settings('third'), trial)
  await clock.settle()
  expect(saved.at(-1)?.notBefore).toMatchObject({ third: expect.any(Number) as number })
  answer(token())
  await keeper.tryCredentials(settings('second'), trial)
  expect(saved.at(-1)).toMatchObject({ credentialsId: 'second' })
})

test('other credentials that gave a token are in use, even if a disk hangs or the trial ends', async () => {
  const ended = new AbortController()
  const disk = Promise.withResolvers<void>()
  const { keeper, settings, answer, token, clock } = await runningKeeper({
    remember: async ({ credentialsId }) => (credentialsId === 'second' ? disk.promise : undefined),
  })
  answer(token())
  const tried = keeper.tryCredentials(settings('second'), { ...trial, signal: ended.signal })
  await clock.settle()
  expect(keeper.state().credentialsId).toBe('second')
  ended.abort()
  const outcome = await tried
  disk.resolve()
  expect(outcome).toMatchObject({ kind: 'ok' })
})
