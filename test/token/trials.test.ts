import { describe, expect, onTestFinished, test } from 'vitest'
import type { FetchOutcome } from '../../src/token/outcome.ts'
import type { TokenState } from '../../src/token/state.ts'
import { failures } from '../support/failures.ts'
import { createKeeperWorld } from '../support/keeper-world.ts'

const MINUTE = 60_000
const never = new AbortController().signal

async function running(options: Parameters<typeof createKeeperWorld>[0] = {}) {
  const world = createKeeperWorld(options)
  world.start()
  onTestFinished(world.stop)
  await world.clock.settle()
  return world
}

describe('other credentials that are tried', () => {
  test('are gone on with where they give a token, after one request', async () => {
    const { keeper, settings, asked, token, answer, clock } = await running()
    const former = keeper.state().token
    answer(token())
    expect(await keeper.tryCredentials(settings('second'), never)).toMatchObject({ kind: 'ok' })
    expect(asked()).toBe(2)
    expect(keeper.state()).toMatchObject({
      credentialsId: 'second',
      generation: 2,
      token: { credentialsId: 'second' },
      inFlight: null,
    })
    expect(keeper.state().token?.fingerprint).not.toBe(former?.fingerprint)
    keeper.reload(settings('second'))
    await clock.settle()
    expect(asked()).toBe(2)
  })

  test('that fail or are refused leave everything as it was', async () => {
    for (const outcome of [failures.inactive, failures.network, failures.rejected]) {
      const { keeper, settings, asked, answer, clock } = await running()
      const before = keeper.state()
      answer(outcome)
      expect(await keeper.tryCredentials(settings('second'), never)).toEqual(outcome)
      const { otherBounds, requests, lastRequestAt, ...after } = keeper.state()
      expect({ ...before, ...after }).toEqual(before)
      expect(requests).toBe(2)
      expect(lastRequestAt).toEqual(clock.now())
      await clock.advance(MINUTE)
      expect(asked()).toBe(2)
      expect(Object.keys(otherBounds)).toEqual(outcome === failures.rejected ? ['second'] : [])
    }
  })

  test('leave a refused account refused, and end the refusal where they give a token', async () => {
    const { keeper, settings, answer, token } = await running({})
    answer(failures.inactive)
    await keeper.refresh(never)
    answer(failures.notFound)
    await keeper.tryCredentials(settings('second'), never)
    expect(keeper.state()).toMatchObject({ credentialsId: 'first', refusal: { reason: 'account-inactive' } })
    answer(token())
    await keeper.tryCredentials(settings('third'), never)
    expect(keeper.state()).toMatchObject({ credentialsId: 'third', refusal: null, alert: null })
  })

  test('that give a token without life are not gone on with', async () => {
    const { keeper, settings, answer } = await running()
    answer({ kind: 'ok', accessToken: 'opaque', lifeMs: 1, ageMs: 1 })
    expect(await keeper.tryCredentials(settings('second'), never)).toMatchObject({
      reason: 'malformed-answer',
    })
    expect(keeper.state()).toMatchObject({ credentialsId: 'first', failure: null })
  })

  test('wait for the attempt that is under way: one request at a time', async () => {
    const first = Promise.withResolvers<FetchOutcome>()
    const { keeper, settings, asked, answer, clock, token } = await running()
    answer(() => first.promise)
    void keeper.refresh(never)
    await clock.settle()
    const tried = keeper.tryCredentials(settings('second'), never)
    await clock.settle()
    expect(asked()).toBe(2)
    answer(token())
    first.resolve(failures.network)
    expect(await tried).toMatchObject({ kind: 'ok' })
    expect(asked()).toBe(3)
  })

  test('wait as long as the service asked for with them', async () => {
    const { keeper, settings, asked, answer, clock, token } = await running()
    answer({
      kind: 'transient',
      reason: 'rate-limited',
      detail: 'Slow down',
      status: 429,
      retryAfterMs: 10 * MINUTE,
    })
    await keeper.tryCredentials(settings('second'), never)
    answer(token())
    const tried = keeper.tryCredentials(settings('second'), never)
    await clock.advance(10 * MINUTE)
    expect(asked()).toBe(2)
    await clock.advance(2 * MINUTE + 1_000)
    expect(await tried).toMatchObject({ kind: 'ok' })
  })

  test('are given up at a reload, at another trial and when the signal is aborted', async () => {
    const { keeper, settings, answer, clock, asked } = await running()
    answer(
      (signal) =>
        new Promise((resolve) => {
          signal.addEventListener('abort', () => resolve(failures.network))
        }),
    )
    const reloaded = keeper.tryCredentials(settings('second'), never)
    await clock.settle()
    expect(asked()).toBe(2)
    keeper.reload(settings('first'))
    expect(await reloaded).toBeUndefined()
    await clock.settle()
    expect(keeper.state()).toMatchObject({ credentialsId: 'first', inFlight: null, failure: null })
    void keeper.refresh(never)
    await clock.settle()
    const replaced = keeper.tryCredentials(settings('second'), never)
    const stop = new AbortController()
    const aborted = keeper.tryCredentials(settings('third'), stop.signal)
    expect(await replaced).toBeUndefined()
    stop.abort()
    expect(await aborted).toBeUndefined()
    expect(await keeper.tryCredentials(settings('fourth'), stop.signal)).toBeUndefined()
    expect(asked()).toBe(3)
  })

  test('are saved as the running ones only when they gave a token', async () => {
    const saved: TokenState[] = []
    const { keeper, settings, answer, token } = await running({
      remember: async (state) => void saved.push(state),
    })
    answer(failures.network)
    await keeper.tryCredentials(settings('second'), never)
    expect(new Set(saved.map(({ credentialsId }) => credentialsId))).toEqual(new Set(['first']))
    expect(saved.at(-1)).toMatchObject({ failure: null })
    answer(failures.rejected)
    await keeper.tryCredentials(settings('third'), never)
    expect(saved.at(-1)?.otherBounds).toMatchObject({ third: expect.any(Number) })
    answer(token())
    await keeper.tryCredentials(settings('second'), never)
    expect(saved.at(-1)).toMatchObject({ credentialsId: 'second' })
  })
})
