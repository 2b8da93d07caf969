// Another pair beside the running one: the loop tries it, and it comes into use by giving a token.
import { expect, test } from 'vitest'
import type { FetchOutcome } from '../../src/token/outcome.ts'
import { isRefusedPair, refusalOf, type TokenState } from '../../src/token/state.ts'
import { failures } from '../support/failures.ts'
import { runningKeeper, type KeeperWorld } from '../support/keeper-world.ts'

const MINUTE = 60_000
const never = new AbortController().signal
const limited = { ...failures.network, retryAfterMs: 10 * MINUTE }

/** An answer that does not come. */
const untilGivenUp = (signal: AbortSignal): Promise<FetchOutcome> =>
  new Promise((resolve) => signal.addEventListener('abort', () => resolve(failures.network)))

/** The outcomes of attempts with the candidate that gave no token. */
function failed({ keeper }: KeeperWorld): FetchOutcome[] {
  const outcomes: FetchOutcome[] = []
  keeper.onEvent((event) => event.type === 'tried' && outcomes.push(event.outcome))
  return outcomes
}

test.each([failures.inactive, failures.rejected])(
  'a pair that is refused changes nothing of the running one, and is not asked with again',
  async (outcome) => {
    const world = await runningKeeper()
    const { keeper, settings, asked, answer, clock } = world
    const before = keeper.state()
    const outcomes = failed(world)
    answer(outcome)
    keeper.setCandidate(settings('second'))
    await clock.settle()
    expect(outcomes).toEqual([outcome])
    const { requests, lastRequestAt, candidate, tokenless, ...after } = keeper.state()
    expect({ ...before, ...after, candidate: null, tokenless: before.tokenless }).toEqual(before)
    expect([requests, lastRequestAt, tokenless.forMs]).toEqual([2, clock.now(), 0])
    expect(candidate?.failure).toMatchObject({ reason: outcome.reason, attempts: 1 })
    await clock.advance(10 * MINUTE)
    expect(asked()).toBe(2)
    // An act asks once more.
    keeper.setCandidate(settings('second'))
    await clock.advance(10 * MINUTE)
    expect(asked()).toBe(3)
    expect(keeper.state().candidate?.failure?.attempts).toBe(2)
  },
)

test('a pair that was not tried yet comes before a refusal of the running one', async () => {
  const { keeper, settings, answer, clock, token } = await runningKeeper()
  const events: string[] = []
  const first = Promise.withResolvers<FetchOutcome>()
  answer(() => (keeper.state().inFlight?.credentialsId === 'first' ? first.promise : token()))
  keeper.onEvent((event) => event.type === 'attempted' && events.push(event.outcome.kind))
  void keeper.refresh(never)
  await clock.settle()
  keeper.setCandidate(settings('second'))
  first.resolve(failures.inactive)
  await clock.settle()
  expect(events).toEqual(['ok'])
  expect(keeper.state()).toMatchObject({ credentialsId: 'second', objection: null })
})

test.each([failures.network, limited])(
  'a pair that failed before keeps to its wait although the running one is refused',
  async (before) => {
    const { keeper, settings, answer, clock, asked } = await runningKeeper()
    answer(before)
    keeper.setCandidate(settings('second'))
    await clock.settle()
    answer(failures.inactive)
    const { next } = keeper.state()
    expect(next).toBeNull()
    keeper.reject(keeper.state().token?.fingerprint ?? '')
    await clock.settle()
    expect(asked()).toBe(3)
    expect(keeper.state()).toMatchObject({
      credentialsId: 'first',
      objection: { reason: 'account-inactive' },
    })
  },
)

test('a pair that the service has asked to wait is not asked with where the running one is refused', async () => {
  const { keeper, settings, answer, clock, asked } = await runningKeeper()
  answer(limited)
  keeper.setCandidate(settings('second'))
  await clock.settle()
  keeper.setCandidate(null)
  keeper.setCandidate(settings('second'))
  answer(failures.inactive)
  keeper.reject(keeper.state().token?.fingerprint ?? '')
  await clock.settle()
  expect(asked()).toBe(3)
  const { objection, candidate } = keeper.state()
  expect([objection?.reason, candidate?.failure]).toEqual(['account-inactive', null])
})

test('its failure is saved before anybody sees it, and is not that of a pair that comes meanwhile', async () => {
  const writing = Promise.withResolvers<void>()
  const saved: unknown[] = []
  const reasonOf = ({ candidate }: TokenState) => candidate?.failure?.reason
  const { keeper, settings, answer, clock } = await runningKeeper({
    async remember(state) {
      saved.push(reasonOf(state))
      if (reasonOf(state) === 'account-inactive') await writing.promise
    },
  })
  answer(failures.inactive)
  keeper.setCandidate(settings('second'))
  await clock.settle()
  expect([saved.at(-1), reasonOf(keeper.state())]).toEqual(['account-inactive', undefined])
  answer(untilGivenUp)
  keeper.setCandidate(settings('third'))
  writing.resolve()
  await clock.settle()
  const third = { credentialsId: 'third' }
  expect(keeper.state()).toMatchObject({ candidate: { ...third, failure: null }, inFlight: third })
})

test.each(['first', 'second'])(
  'what changes while the failure of the %s pair is saved is not undone by it',
  async (pair) => {
    const writing = Promise.withResolvers<void>()
    let isHeld = false
    const { keeper, settings, answer, clock } = await runningKeeper({
      remember: async () => (isHeld ? writing.promise : undefined),
    })
    answer(() => {
      isHeld = true
      return failures.network
    })
    if (pair === 'second') keeper.setCandidate(settings('second'))
    else void keeper.refresh(never)
    await clock.settle()
    keeper.reject(keeper.state().token?.fingerprint ?? '')
    writing.resolve()
    await clock.settle()
    const { failure, candidate, rejection } = keeper.state()
    expect((pair === 'first' ? failure : candidate?.failure)?.reason).toBe('network')
    expect(rejection).not.toBeNull()
  },
)

test('a request counts as failed until it is answered', async () => {
  const saved: TokenState[] = []
  const { keeper, settings, answer, clock } = await runningKeeper({
    remember: async (state) => void saved.push(state),
  })
  answer(untilGivenUp)
  keeper.setCandidate(settings('second'))
  await clock.settle()
  const candidate = { credentialsId: 'second', failure: { reason: 'network', attempts: 1 } }
  expect(saved.at(-1)).toMatchObject({ credentialsId: 'first', failure: null, candidate })
  expect(keeper.state().candidate?.failure).toBeNull()
})

test('a pair whose attempt is put off is tried again then', async () => {
  const { keeper, settings, asked, answer, clock } = await runningKeeper()
  answer({ kind: 'postponed', retryAfterMs: 5 * MINUTE })
  keeper.setCandidate(settings('second'))
  await clock.advance(5 * MINUTE - 1)
  expect(asked()).toBe(2)
  await clock.advance(1)
  expect(asked()).toBe(3)
})

test('what a pair was answered is forgotten with it, after a crash, too', async () => {
  const saved: TokenState['candidate'][] = []
  const { keeper, settings, answer, clock } = await runningKeeper({
    remember: async ({ candidate }) => void saved.push(candidate),
  })
  answer(failures.inactive)
  keeper.setCandidate(settings('second'))
  await clock.settle()
  expect(saved.at(-1)).toMatchObject({ failure: { reason: 'account-inactive' } })
  keeper.setCandidate(null)
  await clock.settle()
  expect(saved.at(-1)).toBeNull()
})

test('an operator hears of the other pair, too, that is asked after the attempt under way', async () => {
  const [first, second] = [Promise.withResolvers<FetchOutcome>(), Promise.withResolvers<FetchOutcome>()]
  const { keeper, settings, answer, clock, token } = await runningKeeper()
  answer(() => first.promise)
  void keeper.refresh(never)
  await clock.settle()
  answer(() => second.promise)
  keeper.setCandidate(settings('second'))
  const refreshed = keeper.refresh(never)
  first.resolve(token())
  await clock.advance(20_000)
  second.resolve(failures.inactive)
  expect(await refreshed).toMatchObject({ outcome: { kind: 'ok' }, candidate: failures.inactive })
})

test('an operator who asked before another pair came is not held up by it', async () => {
  const first = Promise.withResolvers<FetchOutcome>()
  const { keeper, settings, answer, clock, token } = await runningKeeper()
  answer(() => first.promise)
  const heard: unknown[] = []
  void keeper.refresh(never).then((refreshed) => heard.push(refreshed?.candidate))
  await clock.settle()
  answer(untilGivenUp)
  keeper.setCandidate(settings('second'))
  void keeper.refresh(never).then(() => heard.push('the second'))
  first.resolve(token())
  await clock.settle()
  expect(heard).toEqual([null])
})

test('an answer to a pair that was replaced says nothing of the next one', async () => {
  const { keeper, settings, answer, clock, asked } = await runningKeeper()
  answer(untilGivenUp)
  keeper.setCandidate(settings('second'))
  await clock.settle()
  keeper.setCandidate(settings('third'))
  await clock.settle()
  expect(asked()).toBe(3)
  expect(keeper.state()).toMatchObject({ candidate: { credentialsId: 'third', failure: null } })
  keeper.setCandidate(null)
  await clock.settle()
  expect(keeper.state()).toMatchObject({ credentialsId: 'first', candidate: null, inFlight: null })
})

test('a pair comes into use with the settings that a reload has given it since its request', async () => {
  const first = Promise.withResolvers<FetchOutcome>()
  const { keeper, settings, answer, clock, token } = await runningKeeper()
  answer(() => first.promise)
  keeper.setCandidate(settings('second'))
  await clock.settle()
  const { policy, ...reloaded } = settings('second')
  keeper.setCandidate({ ...reloaded, policy: { ...policy, maxAgeMs: MINUTE } })
  first.resolve(token())
  await clock.settle()
  answer({ kind: 'ok', accessToken: 'opaque' })
  await keeper.refresh(never)
  expect(keeper.state().token).toMatchObject({ credentialsId: 'second', lifeMs: MINUTE })
})

test.each(['first', 'second'])(
  'a refusal of the %s pair stands after a crash during the request of an operator',
  async (pair) => {
    const saved: TokenState[] = []
    const { keeper, settings, answer, clock, token } = await runningKeeper({
      remember: async (state) => void saved.push(state),
    })
    answer(() => (keeper.state().inFlight?.credentialsId === pair ? failures.inactive : token()))
    if (pair === 'second') keeper.setCandidate(settings('second'))
    else void keeper.refresh(never)
    await clock.settle()
    const isRefused = (state: TokenState): boolean =>
      pair === 'first' ? refusalOf(state) !== null : isRefusedPair(state.candidate!)
    expect(isRefused(keeper.state())).toBe(true)
    answer(untilGivenUp)
    void keeper.refresh(never)
    await clock.settle()
    expect(keeper.state().inFlight?.credentialsId).toBe(pair)
    expect(isRefused(saved.at(-1)!)).toBe(true)
  },
)

test('a pair that gave a token is in use, even if the disk hangs', async () => {
  const disk = Promise.withResolvers<void>()
  const { keeper, settings, answer, token, clock } = await runningKeeper({
    remember: async ({ credentialsId }) => (credentialsId === 'second' ? disk.promise : undefined),
  })
  answer(token())
  keeper.setCandidate(settings('second'))
  await clock.settle()
  expect(keeper.state().credentialsId).toBe('second')
  disk.resolve()
})
