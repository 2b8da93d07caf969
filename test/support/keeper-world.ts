// A keeper on a fake clock, with a service that answers as the test says.
import { createKeeper, type Asking, type Keeper, type Remember } from '../../src/token/keeper.ts'
import type { FetchOutcome } from '../../src/token/outcome.ts'
import { initialState, type TokenState } from '../../src/token/state.ts'
import { createFakeClock, type FakeClock } from './fake-clock.ts'
import { jwtOf } from './jwt.ts'
import { createRandom } from './random.ts'

// What the keeper imports when it needs it is here before the fake clock runs: loading takes real time.
await import('p-retry')

/** The service's answer, which may take its time; the signal says that the request was given up. */
export type Answer = (signal: AbortSignal) => FetchOutcome | Promise<FetchOutcome>

/** More than any test here causes: a loop that asks without end ends here instead of never. */
const MAX_REQUESTS = 10_000

export interface KeeperWorld {
  readonly clock: FakeClock
  readonly keeper: Keeper
  /** What the service answers from now on. */
  readonly answer: (next: FetchOutcome | Answer) => void
  /** Another token. */
  readonly token: () => FetchOutcome
  /** How often it was asked. */
  readonly asked: () => number
  /** Another configuration: other credentials, and another service where one is given. */
  readonly reload: (change: { subject: string; baseUrl?: string }) => void
  /** Runs the keeper until `stop`. */
  readonly start: () => void
  readonly stop: () => Promise<void>
}

export const failures = {
  network: { kind: 'transient', reason: 'network', detail: 'connect ECONNREFUSED' },
  timeout: { kind: 'transient', reason: 'timeout', detail: 'No answer within 15 s' },
  rejected: { kind: 'transient', reason: 'rejected', detail: 'Forbidden', status: 403 },
  inactive: {
    kind: 'permanent',
    reason: 'account-inactive',
    detail: 'Your account is not active',
    status: 500,
  },
  notFound: { kind: 'permanent', reason: 'account-not-found', detail: 'Account not found', status: 404 },
} as const satisfies Record<string, FetchOutcome>

export function createKeeperWorld(
  options: {
    state?: TokenState
    clock?: FakeClock
    lifeSeconds?: number
    policy?: Partial<Asking['policy']>
    remember?: Remember
  } = {},
): KeeperWorld {
  const { clock = createFakeClock(), lifeSeconds = 3_600 } = options
  const baseUrl = 'https://service.test'
  let issued = 0
  let asked = 0
  const token = (): FetchOutcome => {
    const iat = Math.floor(clock.now().wallMs / 1000)
    issued += 1
    return { kind: 'ok', accessToken: jwtOf({ iat, exp: iat + lifeSeconds }, issued) }
  }
  let next: Answer = token
  const fetchToken = async (signal: AbortSignal): Promise<FetchOutcome> => {
    asked += 1
    if (asked > MAX_REQUESTS) throw new Error('The service is asked without end')
    return next(signal)
  }
  const policy = { maxAgeMs: 900_000, initialDelayMs: 1_000, maxDelayMs: 300_000, ...options.policy }
  const keeper = createKeeper(options.state ?? initialState(baseUrl), {
    asking: { fetchToken, policy, baseUrl, subject: 'first' },
    clock,
    random: createRandom(1),
    remember: options.remember ?? (() => Promise.resolve()),
  })
  const stopping = new AbortController()
  let running: Promise<void> = Promise.resolve()
  return {
    clock,
    keeper,
    answer(to) {
      next = typeof to === 'function' ? to : () => to
    },
    token,
    asked: () => asked,
    reload(change) {
      next = token
      keeper.reload({ fetchToken, policy, baseUrl, ...change })
    },
    start() {
      running = keeper.run(stopping.signal)
    },
    async stop() {
      stopping.abort()
      await running
    },
  }
}
