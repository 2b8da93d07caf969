// Invariants under any events in any order: what the loop never does.
import * as fc from 'fast-check'
import { expect, test } from 'vitest'
import { createKeeper, type RefreshSettings, type Keeper } from '../../src/token/keeper.ts'
import type { Attempt, ServiceOutcome } from '../../src/token/outcome.ts'
import { initialState, phaseOf, usableToken } from '../../src/token/state.ts'
import { createFakeClock, type FakeClock } from '../support/fake-clock.ts'
import { jwtOf } from '../support/jwt.ts'
import { createRandom } from '../support/random.ts'

type Answer =
  'jwt' | 'short' | 'opaque' | 'again' | 'expired' | 'outage' | 'limited' | 'rejected' | 'refused' | 'hang'
type Action =
  | { kind: 'answer'; answer: Answer }
  | { kind: 'wait' | 'suspend' | 'jump'; ms: number }
  | { kind: 'report' | 'operator' }
  | { kind: 'need'; ms: number }
  | { kind: 'reload'; credentialsId: string; baseUrl: string }

const actions: fc.Arbitrary<Action> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc
      .constantFrom<Answer>(
        'jwt',
        'short',
        'opaque',
        'again',
        'expired',
        'outage',
        'limited',
        'rejected',
        'refused',
        'hang',
      )
      .map((answer) => ({ kind: 'answer' as const, answer })),
  },
  { weight: 6, arbitrary: fc.integer({ min: 1, max: 900_000 }).map((ms) => ({ kind: 'wait' as const, ms })) },
  { weight: 1, arbitrary: fc.integer({ min: 1, max: 1e8 }).map((ms) => ({ kind: 'suspend' as const, ms })) },
  { weight: 1, arbitrary: fc.integer({ min: -1e8, max: 1e8 }).map((ms) => ({ kind: 'jump' as const, ms })) },
  { weight: 3, arbitrary: fc.constant({ kind: 'report' as const }) },
  { weight: 1, arbitrary: fc.constant({ kind: 'operator' as const }) },
  { weight: 2, arbitrary: fc.integer({ min: 0, max: 4e6 }).map((ms) => ({ kind: 'need' as const, ms })) },
  {
    weight: 1,
    arbitrary: fc
      .tuple(fc.constantFrom('one', 'two'), fc.constantFrom('https://one', 'https://two'))
      .map(([subject, baseUrl]) => ({ kind: 'reload' as const, credentialsId: subject + baseUrl, baseUrl })),
  },
)

/** More than any story here can cause: a broken loop ends here instead of never. */
const MAX_REQUESTS = 50_000

/** A keeper whose service checks at each request that it may be asked. */
function createWorld(seed: number) {
  const clock = createFakeClock()
  const policy = { maxAgeMs: 900_000, initialDelayMs: 1_000, maxDelayMs: 300_000 }
  let answer: Answer = 'jwt'
  let underWay = 0
  /** The service's own words about the next request, not the keeper's. */
  let notBeforeMs = -Infinity
  let issued = 0
  let last = 'first'
  let lastClientRequestAtMs = -Infinity
  const broken: string[] = []

  function check(claim: boolean, sentence: string): void {
    if (!claim) broken.push(sentence)
  }

  function outcome(): ServiceOutcome {
    const iat = clock.now().wallMs / 1000
    const token = (accessToken: string): ServiceOutcome => {
      last = accessToken
      return { kind: 'ok', accessToken }
    }
    if (answer === 'jwt') return token(jwtOf({ iat, exp: iat + 3_600 }, ++issued))
    if (answer === 'short') return token(jwtOf({ iat, exp: iat + 5 }, ++issued))
    if (answer === 'opaque') return token(`opaque-${++issued}`)
    if (answer === 'again') return { kind: 'ok', accessToken: last }
    if (answer === 'expired') return { kind: 'ok', accessToken: jwtOf({ iat, exp: iat - 1 }, ++issued) }
    if (answer === 'refused')
      return { kind: 'permanent', reason: 'account-inactive', detail: 'Inactive', status: 500 }
    if (answer === 'rejected')
      return { kind: 'transient', reason: 'rejected', detail: 'Rejected', status: 403 }
    if (answer === 'limited')
      return {
        kind: 'transient',
        reason: 'rate-limited',
        detail: 'Slow down',
        status: 429,
        retryAfterMs: 120_000,
      }
    return { kind: 'transient', reason: 'server-error', detail: 'Outage', status: 503 }
  }

  async function fetchToken(signal: AbortSignal, { cause, beforeRequest }: Attempt): Promise<ServiceOutcome> {
    await beforeRequest()
    check(underWay === 0, 'two requests at once')
    const isEarly = clock.now().bootMs < notBeforeMs
    check(
      !isEarly || cause === 'operator' || cause === 'reload',
      `a request before its time, because of ${cause}`,
    )
    if (cause === 'client') {
      check(
        clock.now().bootMs - lastClientRequestAtMs >= 30_000,
        'two requests caused by clients within 30 s',
      )
      lastClientRequestAtMs = clock.now().bootMs
    }
    underWay += 1
    if (keeper.state().requests > MAX_REQUESTS) throw new Error('The service is asked without end')
    if (answer === 'hang') await clock.sleep(15_000, signal)
    underWay -= 1
    const late: ServiceOutcome = { kind: 'transient', reason: 'timeout', detail: 'Late' }
    const came = signal.aborted || answer === 'hang' ? late : outcome()
    notBeforeMs = clock.now().bootMs + patienceMs(came)
    return came
  }

  const askingWith = (credentialsId: string, baseUrl: string): RefreshSettings => ({
    fetchToken,
    policy,
    baseUrl,
    credentialsId,
  })
  const keeper: Keeper = createKeeper(
    initialState({ baseUrl: 'https://one', credentialsId: 'onehttps://one' }, clock.now()),
    {
      settings: askingWith('onehttps://one', 'https://one'),
      clock,
      random: createRandom(seed),
      saveState: () => Promise.resolve(),
    },
  )
  return {
    clock,
    keeper,
    askingWith,
    broken,
    setAnswer: (next: Answer) => {
      answer = next
    },
  }
}

/** Time for which the service is to be left alone after an answer, at the least. */
function patienceMs(outcome: ServiceOutcome): number {
  if (outcome.kind === 'permanent') return Infinity
  if (outcome.kind === 'ok') return 0
  return { 'rate-limited': 120_000, rejected: 300_000 }[outcome.reason as string] ?? 500
}

async function act(
  world: ReturnType<typeof createWorld>,
  action: Action,
  signal: AbortSignal,
): Promise<void> {
  const { clock, keeper } = world
  if (action.kind === 'answer') world.setAnswer(action.answer)
  if (action.kind === 'wait') await clock.advance(action.ms)
  if (action.kind === 'suspend') clock.suspend(action.ms)
  if (action.kind === 'jump') clock.jumpWall(action.ms)
  if (action.kind === 'need') keeper.need(action.ms)
  if (action.kind === 'report') {
    const token = usableToken(keeper.state(), keeper.now())
    keeper.reject(token?.fingerprint ?? 'unknown')
  }
  if (action.kind === 'operator') void keeper.refresh(signal)
  if (action.kind === 'reload') keeper.reload(world.askingWith(action.credentialsId, action.baseUrl))
  await clock.settle()
}

function checkState(
  keeper: Keeper,
  clock: FakeClock,
  requestsWhileRefused: { requests: number | null },
): void {
  const state = keeper.state()
  const token = usableToken(state, clock.now())
  if (token !== null && token.expirySource === 'jwt')
    expect(token.expiresAtMs).toBeGreaterThan(clock.now().bootMs)
  if (token !== null) expect(token.baseUrl).toBe(state.baseUrl)
  if (phaseOf(state, clock.now()) === 'ready') expect(token).not.toBeNull()
  if (state.refusal !== null) expect(state.alert).not.toBeNull()
  requestsWhileRefused.requests = state.refusal !== null ? state.requests : null
}

test('whatever happens: one request at a time, none before its time, none while refused, no expired token', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(actions, { maxLength: 40 }), fc.integer(), async (story, seed) => {
      const stop = new AbortController()
      const world = createWorld(seed)
      const running = world.keeper.run(stop.signal)
      const refused: { requests: number | null } = { requests: null }
      await world.clock.settle()
      for (const action of story) {
        const before = refused.requests
        await act(world, action, stop.signal)
        const isAsked = action.kind === 'operator' || action.kind === 'reload'
        if (before !== null && !isAsked && world.keeper.state().refusal !== null) {
          expect(world.keeper.state().requests).toBe(before)
        }
        checkState(world.keeper, world.clock, refused)
      }
      stop.abort()
      await running
      expect(world.broken).toEqual([])
    }),
    { numRuns: 150 },
  )
}, 60_000)
