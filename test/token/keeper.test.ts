import { getEventListeners } from 'node:events'
import { describe, expect, onTestFinished, test } from 'vitest'
import type { KeeperEvent } from '../../src/token/keeper.ts'
import type { FetchOutcome } from '../../src/token/outcome.ts'
import type { TokenState } from '../../src/token/state.ts'
import { failures } from '../support/failures.ts'
import { createKeeperWorld, type KeeperWorld } from '../support/keeper-world.ts'
import { kindOf } from '../support/kind-of.ts'

const LOOK_MS = 15_000
const MINUTE = 60_000
const HOUR = 60 * MINUTE

interface Scene extends KeeperWorld {
  /** The types of all events so far, without `looked`. */
  readonly reported: () => string[]
  /** When the loop reported that it looked, on the boot clock. */
  readonly looks: number[]
}

type Options = Parameters<typeof createKeeperWorld>[0]

function createScene(options?: Options): Scene {
  const world = createKeeperWorld(options)
  const events: KeeperEvent[] = []
  const looks: number[] = []
  world.keeper.onEvent((event) => {
    if (event.type === 'tick') looks.push(world.clock.now().bootMs)
    else events.push(event)
  })
  return { ...world, looks, reported: () => events.map(({ type }) => type) }
}

/** A keeper at work, whose service first answers so; it is stopped when the test is over. */
async function running(first?: Parameters<KeeperWorld['answer']>[0], options?: Options): Promise<Scene> {
  const scene = createScene(options)
  if (first !== undefined) scene.answer(first)
  scene.start()
  onTestFinished(scene.stop)
  await scene.clock.settle()
  return scene
}

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
const longestSilence = (looks: number[]): number =>
  Math.max(...looks.slice(1).map((at, index) => at - (looks[index] ?? 0)))

describe('the loop', () => {
  test('reports at least every 15 s that it looked, and not much more often', async () => {
    const { clock, looks } = await running()
    await clock.advance(10 * MINUTE)
    expect(longestSilence(looks)).toBe(LOOK_MS)
    expect(looks.length).toBeLessThanOrEqual(42)
  })

  test('goes on reporting so while a request hangs', async () => {
    const { clock, looks, asked } = await running(byHand().answer)
    await clock.advance(10 * MINUTE)
    expect(asked()).toBe(1)
    expect(longestSilence(looks)).toBe(LOOK_MS)
    expect(looks.length).toBeLessThanOrEqual(42)
  })

  test('asks at the moment that was planned, to the millisecond', async () => {
    const { clock, keeper, asked, answer } = await running(failures.network)
    const waitMs = (keeper.state().failure?.retryAtMs ?? 0) - clock.now().bootMs
    answer(failures.timeout)
    await clock.advance(Math.floor(waitMs))
    expect(asked()).toBe(1)
    await clock.advance(1)
    expect(asked()).toBe(2)
  })

  test('ends when it is stopped, asleep or in the middle of a request, and leaves nothing behind', async () => {
    for (const outcome of [undefined, failures.network, refused, byHand().answer]) {
      const { clock, keeper, start, stop, answer, reported } = createScene()
      if (outcome !== undefined) answer(outcome)
      start()
      await clock.settle()
      const before = reported()
      await stop()
      expect(clock.sleepers()).toBe(0)
      expect(keeper.state().inFlight).toBeNull()
      expect(reported()).toEqual(before)
    }
  })

  test('asks no one where it was stopped before it began', async () => {
    const { keeper, asked, looks } = createScene()
    await keeper.run(AbortSignal.abort())
    expect([asked(), looks]).toEqual([0, []])
  })

  test('ends with a fault that no one expected, and does not go on with it', async () => {
    const { keeper, answer, clock } = createScene()
    answer(() => Promise.reject(new Error('A fault of the daemon')))
    await expect(keeper.run(never)).rejects.toThrow('A fault of the daemon')
    expect(keeper.state().inFlight).toBeNull()
    expect(clock.sleepers()).toBe(0)
  })

  test('holds no listener of its signal longer than it needs it', async () => {
    const stop = new AbortController()
    const listening = (): number => getEventListeners(stop.signal, 'abort').length
    const { keeper, clock } = createScene({ lifeSeconds: 100 })
    const end = keeper.run(stop.signal)
    await clock.advance(10 * MINUTE)
    const before = listening()
    await clock.advance(HOUR)
    expect(listening()).toBe(before)
    stop.abort()
    await end
  })
})

describe('what is reported', () => {
  test('is each change once, and each attempt with its outcome, its cause and how long it took', async () => {
    const service = byHand()
    const scene = createScene()
    const events: KeeperEvent[] = []
    scene.keeper.onEvent((event) => void (event.type === 'tick' || events.push(event)))
    scene.answer(service.answer)
    scene.start()
    onTestFinished(scene.stop)
    await scene.clock.advance(2_000)
    expect(events).toEqual([])
    const outcome = scene.token()
    service.resolve(outcome)
    await scene.clock.settle()
    expect(events).toEqual([
      { type: 'changed' },
      { type: 'attempted', outcome, cause: 'start', tookMs: 2_000 },
    ])
    await scene.clock.advance(30 * MINUTE)
    expect(events).toHaveLength(2)
  })

  test('is the state that already holds', async () => {
    const scene = createScene()
    const seen: string[] = []
    scene.keeper.onEvent(({ type }) => {
      if (type === 'changed') seen.push(kindOf(scene.keeper.state()))
    })
    scene.start()
    onTestFinished(scene.stop)
    await scene.clock.settle()
    expect(seen).toEqual(['held'])
  })

  test('is a change of the phase, of the token and of its life, and nothing else', async () => {
    const { clock, keeper, answer, reported, token } = await running()
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

  test('is reported, too, where the same opaque token was given a new life', async () => {
    const { clock, keeper, reported } = await running({ kind: 'ok', accessToken: 'opaque' })
    await clock.advance(MINUTE)
    const before = reported().length
    await keeper.refresh(never)
    expect(reported().slice(before)).toEqual(['changed', 'attempted'])
  })

  test('is reported to no one who has ended listening, not even by another listener a moment ago', async () => {
    const { keeper, clock } = await running()
    const heard: string[] = []
    const endFirst = keeper.onEvent(() => {
      heard.push('first')
      endSecond()
    })
    const endSecond = keeper.onEvent(() => heard.push('second'))
    await clock.advance(LOOK_MS)
    expect(heard).toEqual(['first'])
    endFirst()
    await clock.advance(MINUTE)
    expect(heard).toEqual(['first'])
  })
})

describe("an operator's refresh", () => {
  test('resolves with the outcome when the attempt is over, and not before', async () => {
    const { keeper, answer, clock, reported, token } = await running()
    const service = byHand()
    answer(service.answer)
    let result: FetchOutcome | undefined
    const refreshed = keeper.refresh(never).then((outcome) => (result = outcome))
    await clock.advance(5_000)
    expect(result).toBeUndefined()
    expect(keeper.state().inFlight?.cause).toBe('operator')
    const outcome = token()
    service.resolve(outcome)
    expect(await refreshed).toBe(outcome)
    expect(reported().at(-1)).toBe('attempted')
  })

  test('resolves with a failure, too, whose repetition it does not wait for', async () => {
    const { keeper, answer, asked } = await running()
    answer(failures.timeout)
    expect(await keeper.refresh(never)).toEqual(failures.timeout)
    answer(refused)
    expect(await keeper.refresh(never)).toEqual(refused)
    expect(asked()).toBe(3)
  })

  test('resolves with the request that is under way, and makes no second one', async () => {
    const service = byHand()
    const { keeper, asked, clock, token } = await running(service.answer)
    const both = Promise.all([keeper.refresh(never), keeper.refresh(never)])
    await clock.advance(MINUTE)
    const outcome = token()
    service.resolve(outcome)
    expect(await both).toEqual([outcome, outcome])
    await clock.advance(MINUTE)
    expect(asked()).toBe(1)
  })

  test('is undefined when it is stopped first, and leaves nothing behind', async () => {
    const { keeper, clock } = await running(byHand().answer)
    const sleepers = clock.sleepers()
    const stop = new AbortController()
    const refreshed = keeper.refresh(stop.signal)
    await clock.advance(MINUTE)
    stop.abort()
    expect(await refreshed).toBeUndefined()
    expect(clock.sleepers()).toBe(sleepers)
  })
})

describe('until', () => {
  test('resolves at once where it is met, there is no time to wait, or it is stopped already', async () => {
    const { keeper, clock } = await running()
    const sleepers = clock.sleepers()
    await keeper.waitUntil(() => true, { waitMs: HOUR, signal: never })
    await keeper.waitUntil(() => false, { waitMs: 0, signal: never })
    await keeper.waitUntil(() => false, { waitMs: -1, signal: never })
    await keeper.waitUntil(() => false, { waitMs: HOUR, signal: AbortSignal.abort() })
    expect(clock.sleepers()).toBe(sleepers)
  })

  async function watched(
    scene: Scene,
    isMet: () => boolean,
    options: { waitMs: number; signal: AbortSignal },
  ) {
    const result = { isOver: false }
    void scene.keeper.waitUntil(isMet, options).then(() => (result.isOver = true))
    await scene.clock.settle()
    return result
  }

  test('resolves at the event after which it is met, and listens no longer', async () => {
    const scene = await running()
    const { clock } = scene
    const sleepers = clock.sleepers()
    let isMet = false
    let looked = 0
    const result = await watched(scene, () => ((looked += 1), isMet), { waitMs: HOUR, signal: never })
    await clock.advance(MINUTE)
    expect(result.isOver).toBe(false)
    isMet = true
    await clock.advance(LOOK_MS)
    expect(result.isOver).toBe(true)
    expect(clock.sleepers()).toBe(sleepers)
    const before = looked
    await clock.advance(MINUTE)
    expect(looked).toBe(before)
  })

  test('resolves when its time is over, and not before', async () => {
    const scene = await running()
    const sleepers = scene.clock.sleepers()
    const result = await watched(scene, () => false, { waitMs: MINUTE, signal: never })
    await scene.clock.advance(MINUTE - 1)
    expect(result.isOver).toBe(false)
    await scene.clock.advance(1)
    expect(result.isOver).toBe(true)
    expect(scene.clock.sleepers()).toBe(sleepers)
  })

  test('resolves when it is stopped', async () => {
    const scene = await running()
    const stop = new AbortController()
    const result = await watched(scene, () => false, { waitMs: HOUR, signal: stop.signal })
    expect(result.isOver).toBe(false)
    stop.abort()
    await scene.clock.settle()
    expect(result.isOver).toBe(true)
  })

  test('leaves no listener of its signal behind', async () => {
    const scene = await running()
    const { signal } = new AbortController()
    await watched(scene, () => false, { waitMs: MINUTE, signal })
    expect(getEventListeners(signal, 'abort')).toHaveLength(1)
    await scene.clock.advance(MINUTE)
    expect(getEventListeners(signal, 'abort')).toHaveLength(0)
  })
})

describe('a reload in the middle of a request', () => {
  test('with the same credentials lets it go on', async () => {
    const service = byHand()
    const { keeper, reload, asked, clock } = await running(service.answer)
    reload({ credentialsId: 'first' })
    await clock.settle()
    expect(service.signals[0]?.aborted).toBe(false)
    service.resolve(refused)
    await clock.settle()
    expect(kindOf(keeper.state())).toBe('refused')
    expect(asked()).toBe(1)
  })

  test('that is not even out yet keeps it from going out', async () => {
    const writing = Promise.withResolvers<void>()
    const { reload, asked, clock, keeper } = await running(undefined, {
      remember: () => writing.promise,
    })
    reload({ credentialsId: 'second' })
    await clock.settle()
    expect(asked()).toBe(0)
    writing.resolve()
    await clock.settle()
    expect(asked()).toBe(1)
    expect(keeper.state()).toMatchObject({ token: expect.anything(), refusal: null, forcedCause: null })
  })
})

describe('what is remembered', () => {
  test('is written before the request goes out, as if it had failed, and again with what came of it', async () => {
    const writes: { state: TokenState; done: () => void }[] = []
    const remember = (state: TokenState) => new Promise<void>((done) => writes.push({ state, done }))
    const { asked, clock } = await running(undefined, { remember })
    expect(asked()).toBe(0)
    expect(writes.map(({ state }) => state.failure?.attempts)).toEqual([1])
    writes[0]?.done()
    await clock.settle()
    expect(asked()).toBe(1)
    expect(writes.map(({ state }) => kindOf(state))).toEqual(['waiting', 'held'])
    writes[1]?.done()
  })

  test('of a refusal is written before anybody is reported of it', async () => {
    const story: string[] = []
    const remember = async (state: TokenState) => void story.push(`remembered ${kindOf(state)}`)
    const { keeper, answer } = await running(undefined, { remember })
    story.length = 0
    keeper.onEvent(({ type }) => void (type === 'changed' && story.push(type)))
    answer(refused)
    await keeper.refresh(never)
    expect(story.slice(0, 3)).toEqual(['remembered held', 'remembered refused', 'changed'])
  })

  test('is written before the loop goes on, but a disk that hangs is waited for no longer than 2 s', async () => {
    const writing = Promise.withResolvers<void>()
    const written: TokenState[] = []
    const remember = async (state: TokenState) => {
      if (written.push(state) === 2) await writing.promise
    }
    const { keeper, asked, looks, clock } = await running(failures.network, { remember })
    expect(keeper.state().failure?.attempts).toBe(1)
    const before = looks.length
    await clock.advance(1_999)
    expect([asked(), looks.length]).toEqual([1, before])
    await clock.advance(1)
    expect(asked()).toBe(2)
    writing.resolve()
  })
})

describe('what clients and operators say', () => {
  test('wakes the loop at once where something follows from it', async () => {
    const { keeper, looks, clock, reload, asked } = await running()
    const fingerprint = (): string => keeper.state().token?.fingerprint ?? ''
    const acts: [() => unknown, boolean, number][] = [
      [() => keeper.need(HOUR * 2), false, 0],
      [() => keeper.reject('unknown'), false, 0],
      [() => keeper.reject(fingerprint()), true, 1],
      [() => keeper.reject(fingerprint()), true, 0],
      [() => keeper.reject(fingerprint()), false, 0],
      [() => reload({ credentialsId: 'first' }), true, 0],
      [() => reload({ credentialsId: 'second' }), true, 1],
      [() => keeper.refresh(never), true, 1],
    ]
    for (const [act, isWoken, requests] of acts) {
      const before = { looks: looks.length, asked: asked() }
      await clock.advance(1)
      expect(looks).toHaveLength(before.looks)
      void act()
      await clock.settle()
      expect(looks.length > before.looks).toBe(isWoken)
      expect(asked() - before.asked).toBe(requests)
    }
  })
})
