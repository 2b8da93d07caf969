// A keeper on a fake clock, with a service that answers as the test says.
import { onTestFinished } from 'vitest'
import { fingerprintOf, type TokenUse } from '../../src/protocol.ts'
import { createKeeper, type Source } from '../../src/token/keeper.ts'
import type { Attempt, FetchOutcome } from '../../src/token/outcome.ts'
import type { Files, Policy, TokenState } from '../../src/token/state.ts'
import type { KeeperEvent } from '../../src/token/variable.ts'
import { firstState, POLICY, serviceFacts } from './facts.ts'
import { failures } from './failures.ts'
import { createFakeClock, type FakeClock } from './fake-clock.ts'
import { grantAt } from './jwt.ts'
import { createRandom } from './random.ts'

// Modules that the keeper imports later are loaded before the fake clock runs: loading takes real time.
await import('p-retry')

/** The service's answer, which may take its time; the signal says that the request was given up. */
export type Answer = (signal: AbortSignal, attempt: Attempt) => FetchOutcome | Promise<FetchOutcome>

/** More than any test here causes: a loop that asks without end ends here instead of never. */
const MAX_REQUESTS = 10_000

export type KeeperWorld = ReturnType<typeof createKeeperWorld>
export interface KeeperOptions {
  readonly state?: TokenState
  readonly clock?: FakeClock
  readonly lifeSeconds?: number
  /** Opaque tokens instead of a JWT each; the first is number 1. */
  readonly tokenOf?: ((number: number) => string) | undefined
  readonly use?: TokenUse
  readonly policy?: Partial<Policy>
  readonly save?: (state: TokenState) => Promise<void>
  /** The service's answer from the start; else each is another token. */
  readonly first?: FetchOutcome | Answer
  /** Null: it is not good. */
  readonly readAssertion?: () => Promise<string | null>
}

export function createKeeperWorld(options: KeeperOptions = {}) {
  const { clock = createFakeClock(), lifeSeconds = 3_600, readAssertion } = options
  let issued = 0
  let asked = 0
  /** Another token. */
  const token = (): FetchOutcome => {
    issued += 1
    if (options.tokenOf !== undefined) return { kind: 'ok', accessToken: options.tokenOf(issued) }
    return grantAt(clock.now().wallMs, lifeSeconds * 1_000, issued)
  }
  const answerOf = (to: FetchOutcome | Answer): Answer => (typeof to === 'function' ? to : () => to)
  let next = answerOf(options.first ?? token)
  const answers = new Map<string, Answer>()
  const askService = (pair: string) => async (signal: AbortSignal, attempt: Attempt) => {
    const read = await readAssertion?.()
    if (read === null) return { kind: 'transient', reason: 'assertion', detail: 'is not there' } as const
    await attempt.beforeRequest(read && fingerprintOf(read))
    if (signal.aborted) return failures.network
    asked += 1
    if (asked > MAX_REQUESTS) throw new Error('The service is asked without end')
    return (answers.get(pair) ?? next)(signal, attempt)
  }
  const policy = { ...POLICY, ...options.policy }
  const sourceOf = (id: string): Source => ({ id, fetchToken: askService(id), readAssertion })
  const service = { ...serviceFacts(), ...(options.use && { use: options.use }) }
  const keeper = createKeeper(options.state ?? firstState(clock.now(), { policy, service }), {
    sourceOf,
    clock,
    random: createRandom(1),
    save: options.save ?? (() => Promise.resolve()),
  })
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
    token,
    /** Sets the service's answer from now on; `pair`: to that one alone. */
    answer: (to: FetchOutcome | Answer, pair?: string): void => {
      if (pair === undefined) next = answerOf(to)
      else answers.set(pair, answerOf(to))
    },
    /** Number of requests. */
    asked: () => asked,
    /** The files hold this pair from now on, and perhaps other settings. */
    reload: (pair: string, change: Partial<Files> = {}): void =>
      keeper.reload({ service: serviceFacts(), policy, pair, ...change }),
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
export async function runningKeeper(options?: KeeperOptions): Promise<KeeperWorld> {
  const world = createKeeperWorld(options)
  world.start()
  onTestFinished(world.stop)
  await world.clock.settle()
  return world
}
