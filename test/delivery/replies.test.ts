// The token as it is requested: from memory, after a wait, or the reason why there is none.
import { describe, expect, it } from 'vitest'
import { createReplies, type Reply } from '../../src/delivery/replies.ts'
import type { Connection } from '../../src/delivery/guard.ts'
import type { TokenResult } from '../../src/protocol.ts'
import { statusSourcesOf } from '../support/delivery-world.ts'
import { failures } from '../support/failures.ts'
import { runningKeeper, type Answer } from '../support/keeper-world.ts'
import { remedyOf } from '../support/remedies.ts'

const never = new AbortController().signal
/** A client, whose waits nothing ends. */
const client = { waits: null } as unknown as Connection

async function start(options: Parameters<typeof runningKeeper>[0] = {}) {
  const world = await runningKeeper(options)
  const { keeper, clock } = world
  const sources = async () => statusSourcesOf(keeper)
  const replies = createReplies({ keeper, refresh: keeper.refresh, sources, remedyOf })
  return {
    ...world,
    replies,
    current: () => resultOf(replies.current()),
    /** The reply to a request, and the time that it took, in ms; NaN: it is not there yet. */
    ask: (request: Parameters<typeof replies.token>[0]) => {
      const begunMs = clock.now().bootMs
      const reply = Promise.resolve(replies.token(request, client))
      let endedMs = NaN
      void reply.then(() => (endedMs = clock.now().bootMs))
      return { reply, tookMs: () => endedMs - begunMs }
    },
    /** Reports whether the answer is there already, without waiting. */
    isThere: (request: Parameters<typeof replies.token>[0]) =>
      !(replies.token(request, client) instanceof Promise),
  }
}

function resultOf(reply: Reply): Partial<TokenResult> {
  return 'fault' in reply ? {} : (JSON.parse(reply.json) as TokenResult)
}

it('the reply is built once, and again when the token, its phase or the wall clock changes', async () => {
  const { replies, clock, keeper, current } = await start()
  const first = replies.current()
  await clock.advance(60_000)
  expect(replies.current()).toBe(first)
  const { expiresAt = '' } = current()
  clock.jumpWall(50_000)
  // The keeper's next tick.
  await clock.advance(15_000)
  expect(Date.parse(current().expiresAt ?? '') - Date.parse(expiresAt)).toBe(50_000)
  void keeper.refresh(never)
  await clock.settle()
  expect(current().generation).toBe(2)
})

it('a token gets stale and expires at its time, though no timer fires in a suspended host', async () => {
  const { replies, clock, current, isThere } = await start({ first: { kind: 'ok', accessToken: 'opaque' } })
  expect(current()).toMatchObject({ stale: false })
  clock.suspend(900_001)
  await clock.settle()
  expect(current()).toMatchObject({ stale: true })
  expect(isThere({ waitSeconds: 10 })).toBe(true)
  clock.suspend(900_000)
  await clock.settle()
  expect(replies.current()).toMatchObject({ fault: { code: 'expired' } })
})

describe('waiting', () => {
  it('for another token goes on where no attempt is due: an operator may bring one', async () => {
    const { replies, current, clock, ask } = await start()
    const { reply, tookMs } = ask({ notFingerprint: current().fingerprint!, waitSeconds: 60 })
    await clock.advance(30_000)
    expect(tookMs()).toBeNaN()
    void replies.refresh(never)
    await clock.settle()
    expect(resultOf(await reply)).toMatchObject({ generation: 2 })
  })

  it('for a first token goes on while attempts fail, and ends with the reason', async () => {
    const { clock, ask } = await start({ first: failures.network })
    const { reply, tookMs } = ask({ waitSeconds: 30 })
    await clock.advance(30_000)
    expect(tookMs()).toBe(30_000)
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
    return world
  }

  it('waits 1 s at most for another one, and is given with its true end', async () => {
    const { clock, ask, current } = await late(noAnswer)
    const { reply, tookMs } = ask(soon)
    await clock.advance(5_000)
    expect(tookMs()).toBe(1_000)
    expect(resultOf(await reply).expiresAt).toBe(current().expiresAt)
  })

  it('is given at once to who does not wait, though another one is under way', async () => {
    const { clock, isThere } = await late(noAnswer)
    expect(isThere({ minValidSeconds: 60, waitSeconds: 0 })).toBe(true)
    expect(isThere({ minValidSeconds: 60, waitSeconds: 0.5 })).toBe(false)
    await clock.advance(1_000)
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
    const { clock, isThere } = await start({ lifeSeconds: 50 })
    // Another one comes soon.
    await clock.advance(20_000)
    expect(isThere(soon)).toBe(true)
  })
})
