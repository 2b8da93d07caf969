// A keeper on a fake clock, with a service that answers as the test says.
import { onTestFinished } from 'vitest'
import type { SaveState } from '../../src/token/attempts.ts'
import { createKeeper, type KeeperEvent, type RefreshSettings } from '../../src/token/keeper.ts'
import type { Attempt, FetchOutcome, FetchToken } from '../../src/token/outcome.ts'
import { dueAtMs, initialState, type TokenState } from '../../src/token/state.ts'
import { failures } from './failures.ts'
import { createFakeClock, type FakeClock } from './fake-clock.ts'
import { grantAt } from './jwt.ts'
import { createRandom } from './random.ts'

// Modules that the keeper imports later are loaded before the fake clock runs: loading takes real time.
await import('p-retry')

/** The service's answer, which may take its time; the signal says that the request was given up. */
export type Answer = (signal: AbortSignal) => FetchOutcome | Promise<FetchOutcome>

/** More than any test here causes: a loop that asks without end ends here instead of never. */
const MAX_REQUESTS = 10_000

export type KeeperWorld = ReturnType<typeof createKeeperWorld>

export function createKeeperWorld(
  options: {
    state?: TokenState
    clock?: FakeClock
    lifeSeconds?: number
    policy?: Partial<RefreshSettings['policy']>
    remember?: SaveState
    /** The service's answer from the start; else each is another token. */
    first?: FetchOutcome | Answer
    /** Instead of the service, which is asked for each attempt. */
    fetchToken?: FetchToken
  } = {},
) {
  const { clock = createFakeClock(), lifeSeconds = 3_600 } = options
  const baseUrl = 'https://service.test'
  let issued = 0
  let asked = 0
  /** Another token. */
  const token = (): FetchOutcome => grantAt(clock.now().wallMs, lifeSeconds * 1_000, (issued += 1))
  const answerOf = (to: FetchOutcome | Answer): Answer => (typeof to === 'function' ? to : () => to)
  let next = answerOf(options.first ?? token)
  const askService = async (signal: AbortSignal, { beforeRequest }: Attempt): Promise<FetchOutcome> => {
    await beforeRequest()
    if (signal.aborted) return failures.network
    asked += 1
    if (asked > MAX_REQUESTS) throw new Error('The service is asked without end')
    return next(signal)
  }
  const fetchToken = options.fetchToken ?? askService
  const policy = { maxAgeMs: 900_000, initialDelayMs: 1_000, maxDelayMs: 300_000, ...options.policy }
  const keeper = createKeeper(
    options.state ?? initialState({ baseUrl, credentialsId: 'first' }, clock.now()),
    {
      settings: { fetchToken, policy, baseUrl, credentialsId: 'first' },
      clock,
      random: createRandom(1),
      saveState: options.remember ?? (() => Promise.resolve()),
    },
  )
  const heard: Exclude<KeeperEvent, { type: 'tick' }>[] = []
  const ticks: number[] = []
  keeper.onEvent((event) => {
    if (event.type === 'tick') ticks.push(clock.now().bootMs)
    else heard.push(event)
  })
  const stopping = new AbortController()
  let running: Promise<void> = Promise.resolve()
  return {
    clock,
    keeper,
    /** All events so far but the ticks, and the instants of these on the boot clock. */
    heard,
    ticks,
    dueInMs: () => dueAtMs(keeper.state()) - clock.now().bootMs,
    token,
    /** Sets the service's answer from now on. */
    answer: (to: FetchOutcome | Answer): void => {
      next = answerOf(to)
    },
    /** Number of requests. */
    asked: () => asked,
    /** Another configuration: other credentials, and another service where one is given. */
    reload: (change: { credentialsId: string } & Partial<RefreshSettings>): void => {
      next = token
      keeper.reload({ fetchToken, policy, baseUrl, ...change })
    },
    /** Settings with other credentials. */
    settings: (credentialsId: string): RefreshSettings => ({ fetchToken, policy, baseUrl, credentialsId }),
    /** Runs the keeper until `stop`. */
    start: (): void => {
      running = keeper.run(stopping.signal)
    },
    stop: async (): Promise<void> => {
      stopping.abort()
      let isOver = false
      const ended = running.finally(() => (isOver = true))
      await clock.settle()
      // A test that failed may have left a save open, for which the loop waits 2 s.
      if (!isOver) await clock.advance(2_000)
      await ended
    },
  }
}

/** A world whose keeper is at work until the test is over. */
export async function runningKeeper(options?: Parameters<typeof createKeeperWorld>[0]): Promise<KeeperWorld> {
  const world = createKeeperWorld(options)
  world.start()
  onTestFinished(world.stop)
  await world.clock.settle()
  return world
}
