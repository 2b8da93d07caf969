// The token as it is requested: from memory, after a wait, or the reason why there is none.
import { describe, expect, it } from 'vitest'
import type { Connection } from '../../src/delivery/guard.ts'
import type { Reply } from '../../src/delivery/replies.ts'
import type { TokenResult } from '../../src/protocol.ts'
import { startDelivery } from '../support/delivery-world.ts'
import { failures } from '../support/failures.ts'
import type { Answer } from '../support/keeper-world.ts'

/** A client, whose waits nothing ends. */
const client = { waits: null } as unknown as Connection
const resultOf = (reply: Reply): Partial<TokenResult> =>
  'fault' in reply ? {} : (JSON.parse(reply.json) as TokenResult)

async function start(options: Parameters<typeof startDelivery>[0] = {}) {
  const world = await startDelivery({ lifeSeconds: 3_600, ...options })
  const { replies, clock } = world
  return {
    ...world,
    current: () => resultOf(replies.current()),
    /** The reply to a request, and the time that it took, in ms; NaN: it is not there yet. */
    ask: (request: Parameters<typeof replies.token>[0]) => {
      const begunMs = clock.now().bootMs
      const reply = replies.token(request, client)
      let endedMs = reply instanceof Promise ? NaN : begunMs
      if (reply instanceof Promise) void reply.then(() => (endedMs = clock.now().bootMs))
      return { reply, tookMs: () => endedMs - begunMs }
    },
  }
}

it('a token gets stale at its time, though no timer fires in a suspended host', async () => {
  const { clock, current, ask } = await start({ first: { kind: 'ok', accessToken: 'opaque' } })
  expect(current()).toMatchObject({ stale: false })
  clock.suspend(900_001)
  expect(current()).toMatchObject({ stale: true })
  expect(ask({ waitSeconds: 10 }).tookMs()).toBe(0)
})

it('a wait for another token goes on where no attempt is due: an operator may bring one', async () => {
  const { current, clock, ask, rotate } = await start()
  const { reply, tookMs } = ask({ notFingerprint: current().fingerprint!, waitSeconds: 60 })
  await clock.advance(30_000)
  expect(tookMs()).toBeNaN()
  await rotate()
  expect(resultOf(await reply)).toMatchObject({ generation: 2 })
})

it('a wait for a first token goes on while attempts fail, and ends with the reason', async () => {
  const { clock, ask } = await start({ first: failures.network })
  const { reply, tookMs } = ask({ waitSeconds: 30 })
  await clock.advance(30_000)
  expect(tookMs()).toBe(30_000)
  expect(await reply).toMatchObject({ fault: { code: 'no-token-yet', reason: 'network' } })
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
    return world
  }

  it('is given after 1 s at most with its true end, and at once to who does not wait', async () => {
    const { clock, ask, current } = await late(noAnswer)
    const { reply, tookMs } = ask(soon)
    await clock.advance(5_000)
    expect(tookMs()).toBe(1_000)
    expect(resultOf(await reply).expiresAt).toBe(current().expiresAt)
    expect(ask({ minValidSeconds: 60, waitSeconds: 0 }).tookMs()).toBe(0)
    const { tookMs: shortMs } = ask({ minValidSeconds: 60, waitSeconds: 0.5 })
    await clock.advance(5_000)
    expect(shortMs()).toBe(500)
  })

  it('that expires meanwhile is waited for like a first one', async () => {
    const { clock, ask } = await late(() => failures.network)
    await clock.advance(58_500)
    const { reply, tookMs } = ask(soon)
    await clock.advance(10_000)
    expect(tookMs()).toBe(10_000)
    expect(await reply).toMatchObject({ fault: { code: 'expired' } })
  })

  it('is given at once where none of the service lives as long', async () => {
    const { clock, ask } = await start({ lifeSeconds: 50 })
    // Another one comes soon.
    await clock.advance(20_000)
    expect(ask(soon).tookMs()).toBe(0)
  })
})
