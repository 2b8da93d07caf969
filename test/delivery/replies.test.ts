import { describe, expect, it, onTestFinished } from 'vitest'
import { createReplies, type Answer as Given, type Reply } from '../../src/delivery/replies.ts'
import { remedyOf } from '../support/remedies.ts'
import type { TokenResult } from '../../src/protocol.ts'
import type { Connection } from '../../src/delivery/guard.ts'
import { statusSourcesOf } from '../support/delivery-world.ts'
import { failures } from '../support/failures.ts'
import { createKeeperWorld, type Answer } from '../support/keeper-world.ts'

const never = new AbortController()
/** A client, whose waits nothing ends. */
const client = { waits: null } as unknown as Connection

async function start(options: Parameters<typeof createKeeperWorld>[0] = {}) {
  const world = createKeeperWorld(options)
  let monotonicMs = 0
  const replies = createReplies({
    keeper: world.keeper,
    refresh: world.keeper.refresh,
    monotonicMs: () => monotonicMs,
    sources: async () => statusSourcesOf(world.keeper),
    remedyOf,
  })
  onTestFinished(world.stop)
  world.start()
  await world.clock.settle()
  const cachedResult = (): TokenResult | null => {
    const reply = replies.current()
    return 'fault' in reply ? null : (JSON.parse(reply.json) as TokenResult)
  }
  return { ...world, replies, cachedResult, pass: (ms: number) => (monotonicMs += ms) }
}

/** Reports whether the answer is there already, without waiting. */
function isThere(reply: Reply | Promise<Reply>): boolean {
  return !(reply instanceof Promise)
}

describe('the cached reply', () => {
  it('is built once, and again when the token, its phase or the wall clock changes', async () => {
    const { replies, clock, keeper, cachedResult } = await start()
    const valueOf = (reply: Reply) => 'json' in reply && reply.json
    const first = valueOf(replies.current())
    expect(valueOf(replies.current())).toBe(first)
    await clock.advance(60_000)
    expect(valueOf(replies.current())).toBe(first)
    const { expiresAt } = cachedResult() ?? { expiresAt: '' }
    clock.jumpWall(50_000)
    // The keeper's next tick.
    await clock.advance(15_000)
    expect(Date.parse(cachedResult()?.expiresAt ?? '') - Date.parse(expiresAt)).toBe(50_000)
    void keeper.refresh(never.signal)
    await clock.settle()
    expect(cachedResult()?.generation).toBe(2)
  })
})

it('a token gets stale and expires at its time, though no timer fires in a suspended host', async () => {
  const { replies, clock, cachedResult } = await start({ first: { kind: 'ok', accessToken: 'opaque' } })
  expect(cachedResult()).toMatchObject({ stale: false })
  clock.suspend(900_001)
  await clock.settle()
  expect(cachedResult()).toMatchObject({ stale: true })
  expect(isThere(replies.token({ waitSeconds: 10 }, client))).toBe(true)
  clock.suspend(900_000)
  await clock.settle()
  expect(replies.current()).toMatchObject({ fault: { code: 'expired' } })
})

it('a refresh that the end of the daemon cuts off has a reason, as every failure', async () => {
  const { replies, cachedResult } = await start()
  const { fingerprint } = cachedResult() ?? {}
  expect(await replies.refresh(AbortSignal.abort())).toMatchObject({
    outcome: 'failed',
    reason: 'stopping',
    detail: expect.stringContaining('stopping'),
    fingerprint,
  })
})

describe('waiting', () => {
  it('for another token goes on where no attempt is due: an operator may bring one', async () => {
    const { replies, cachedResult, clock } = await start()
    const notFingerprint = cachedResult()?.fingerprint ?? ''
    const reply = replies.token({ notFingerprint, waitSeconds: 60 }, client)
    expect(isThere(reply)).toBe(false)
    void replies.refresh(never.signal)
    await clock.settle()
    expect(JSON.parse(((await reply) as Given).json)).toMatchObject({
      generation: 2,
    })
  })

  it('for a first token goes on while attempts fail, and ends with the reason', async () => {
    const { replies, clock } = await start({ first: failures.network })
    const reply = replies.token({ waitSeconds: 30 }, client)
    let isOver = false
    void Promise.resolve(reply).then(() => (isOver = true))
    await clock.advance(29_900)
    expect(isOver).toBe(false)
    await clock.advance(200)
    expect(await reply).toMatchObject({ fault: { code: 'no-token-yet', reason: 'network' } })
  })
})

describe('a token with less life than `minValidSeconds`', () => {
  const soon = { minValidSeconds: 60, waitSeconds: 10 }
  /** Until the request is given up. */
  const noAnswer: Answer = (signal) =>
    new Promise((resolve) => signal.addEventListener('abort', () => resolve(failures.network)))
  /** 59 s before the end of a token of 91 s, while the service answers as given. */
  async function late(service: Answer) {
    const world = await start({ lifeSeconds: 91, policy: { maxDelayMs: 5_000 } })
    world.answer(service)
    await world.clock.advance(32_000)
    const begunMs = world.clock.now().bootMs
    const reply = Promise.resolve(world.replies.token(soon, client))
    let endedMs = NaN
    void reply.then(() => (endedMs = world.clock.now().bootMs))
    return { ...world, reply, tookMs: () => endedMs - begunMs }
  }
  const resultOf = async (reply: Promise<Reply>): Promise<TokenResult> =>
    JSON.parse(((await reply) as Given).json) as TokenResult

  it('waits 1 s at most for another one, and is given with its true end', async () => {
    const { clock, reply, tookMs, cachedResult } = await late(noAnswer)
    await clock.advance(999)
    expect(tookMs()).toBeNaN()
    await clock.advance(1)
    expect(tookMs()).toBe(1_000)
    expect((await resultOf(reply)).expiresAt).toBe(cachedResult()?.expiresAt)
  })

  it('is given at once to who does not wait, though another one is under way', async () => {
    const { clock, replies } = await late(noAnswer)
    await clock.settle()
    expect(isThere(replies.token({ minValidSeconds: 60, waitSeconds: 0 }, client))).toBe(true)
    expect(isThere(replies.token({ minValidSeconds: 60, waitSeconds: 0.5 }, client))).toBe(false)
    await clock.advance(1_000)
  })

  it('that expires meanwhile is waited for like a first one', async () => {
    const { clock, replies } = await late(() => failures.network)
    await clock.advance(58_500)
    const reply = Promise.resolve(replies.token(soon, client))
    let isOver = false
    void reply.then(() => (isOver = true))
    await clock.advance(9_900)
    expect(isOver).toBe(false)
    await clock.advance(100)
    expect(await reply).toMatchObject({ fault: { code: 'expired' } })
  })

  it('is given at once where none of the service lives as long', async () => {
    const { clock, replies } = await start({ lifeSeconds: 50 })
    // Another one comes soon.
    await clock.advance(20_000)
    expect(isThere(replies.token(soon, client))).toBe(true)
  })
})

describe('the status', () => {
  it('of a host that is not to ask says why, to clients too', async () => {
    const postponed = {
      kind: 'postponed',
      reason: 'share-lost',
      detail: 'No store',
      retryAfterMs: 15_000,
    } as const
    const { replies } = await start({ first: postponed })
    expect(replies.token({}, client)).toMatchObject({
      fault: {
        code: 'no-token-yet',
        reason: 'share-lost',
        message: expect.stringMatching(/^There is no token yet: No store\. /),
      },
    })
  })

  it('has no next attempt while the account is refused, and no client waits for one', async () => {
    const { replies } = await start({ first: failures.notFound })
    expect(isThere(replies.token({ waitSeconds: 60 }, client))).toBe(true)
    expect(await replies.status()).toMatchObject({
      state: 'refused',
      nextAttemptAt: null,
      failure: { reason: 'account-not-found', status: 404 },
    })
  })
})
