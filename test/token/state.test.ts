// The pure half of the loop, step by step; the stories that such steps make are in test/scenarios.
import fc from 'fast-check'
import { expect, test } from 'vitest'
import type { Instant } from '../../src/lib/clock.ts'
import type { FetchOutcome } from '../../src/token/outcome.ts'
import { currentAlert } from '../../src/token/current-alert.ts'
import {
  plannedAttempt,
  dueAtMs,
  initialState,
  isSettled,
  noTokenSince,
  phaseOf,
  signatureOf,
  type Policy,
  type Step,
  type TokenState,
} from '../../src/token/state.ts'
import {
  afterOperator,
  afterReload,
  afterAttemptBegan,
  afterRequest,
  afterTick,
  nextState,
} from '../../src/token/transitions.ts'
import { afterClientNeed, afterReject, fittingMaxAgeMs } from '../../src/token/client-requests.ts'
import { type Cause } from '../../src/token/outcome.ts'
import { type Token } from '../../src/token/token.ts'
import { failures } from '../support/failures.ts'
import { grantAt } from '../support/jwt.ts'

const BASE_URL = 'https://service.test'
const MINUTE = 60_000
const HOUR = 60 * MINUTE
const policy: Policy = { maxAgeMs: 15 * MINUTE, initialDelayMs: 1_000, maxDelayMs: 5 * MINUTE }

/** So long after the beginning. */
const at = (ms: number): Instant => ({ bootMs: 1_000_000 + ms, wallMs: 1_800_000_000_000 + ms })
const step = (ms: number, more: Partial<Step> = {}): Step => {
  const now = at(ms)
  return { now, awakeMs: now.bootMs, policy, drawn: 0.5, ...more }
}

const jwt = (lifeMs = HOUR, ms = 0, salt = 0): FetchOutcome => grantAt(at(ms).wallMs, lifeMs, salt)
const opaque = (accessToken = 'opaque'): FetchOutcome => ({ kind: 'ok', accessToken })
const down: FetchOutcome = { kind: 'transient', reason: 'network', detail: 'No answer' }
const { inactive, rejected } = failures

const SETTINGS = { baseUrl: BASE_URL, credentialsId: 'first' }
const initial = initialState(SETTINGS, at(0))
/** The service is asked at that moment and answers so. */
function asked(state: TokenState, outcome: FetchOutcome, ms = 0, cause: Cause = 'start'): TokenState {
  const begun = afterRequest(afterAttemptBegan(state, cause, at(ms)), cause, at(ms))
  return nextState(begun, outcome, step(ms)).state
}
/** From the initial state, answer by answer, each at its moment. */
const after = (...answers: [FetchOutcome, number?][]): TokenState =>
  answers.reduce((state, [outcome, ms]) => asked(state, outcome, ms), initial)
const tokenOf = ({ token }: TokenState): Token => token!
const held = after([jwt()])

test('an opaque token given again is the same one, whose other end is an event', () => {
  const first = after([opaque()])
  const again = asked(first, opaque(), 10 * MINUTE)
  expect(signatureOf(again, at(10 * MINUTE))).not.toBe(signatureOf(first, at(10 * MINUTE)))
  expect(tokenOf(again)).toEqual({
    ...tokenOf(first),
    answer: 2,
    expiresAtMs: at(25 * MINUTE).bootMs,
    refreshAtMs: expect.closeTo(tokenOf(first).refreshAtMs + 10 * MINUTE, 3),
  })
})

test('at the end of a life that is counted down the waits double from 0.2 s up to the usual longest', () => {
  const counted = (answerLifeMs: number): FetchOutcome => ({ kind: 'ok', accessToken: 'same', answerLifeMs })
  let state = asked(after([counted(HOUR)]), counted(20 * MINUTE), 40 * MINUTE)
  expect(dueAtMs(state)).toBe(at(HOUR + 500).bootMs)
  const ended: FetchOutcome = { ...down, reason: 'malformed-answer' }
  const waits = Array.from({ length: 11 }, (_, count) => {
    const ms = HOUR + count * MINUTE
    state = asked(state, ended, ms)
    return dueAtMs(state) - at(ms).bootMs
  })
  // Drawn from the upper half of each.
  const longest = [200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 51_200, 60_000, 60_000]
  expect(waits).toEqual(longest.map((ms) => 0.75 * ms))
})

test('the time without a token counts from its loss, and only while the host is awake', () => {
  // Read last 10 s before the end of the token's life, in the middle of 8 hours of suspend 3 s after it.
  const tickedAwakeMs = at(HOUR - 10_000).bootMs
  const before = afterTick(held, step(HOUR + 3_000), { tickedAwakeMs })
  expect(before.tokenless.forMs).toBe(3_000)
  const woken = afterTick(before, step(9 * HOUR, { awakeMs: at(HOUR + 4_000).bootMs }))
  expect(woken.tokenless.forMs).toBe(4_000)
  const asleep = afterTick(held, step(9 * HOUR, { awakeMs: tickedAwakeMs + 1_000 }), { tickedAwakeMs })
  expect(asleep.tokenless.forMs).toBe(1_000)
  expect(asked(woken, jwt(HOUR, 9 * HOUR), 9 * HOUR).tokenless.forMs).toBe(0)
})

test('when the wall clock is set, the instants of the token follow it', () => {
  const { bootMs, wallMs } = at(MINUTE)
  const setBy = (ms: number): Step => step(0, { now: { bootMs, wallMs: wallMs + ms } })
  const ticked = afterTick(held, step(0))
  expect(afterTick(ticked, setBy(2_000))).toBe(ticked)
  const received = { ...at(0), wallMs: at(0).wallMs + HOUR }
  expect(afterTick(ticked, setBy(HOUR))).toEqual({ ...ticked, token: { ...tokenOf(held), received } })
})

test('a token past its assumed life is degraded, whether or not an attempt has failed', () => {
  const phases = [15 * MINUTE - 1, 15 * MINUTE].map((ms) => phaseOf(after([opaque()]), at(ms)))
  expect(phases).toEqual(['ready', 'degraded'])
})

test('what a person wants during an attempt is done after its failure, too; what a client wants is not', () => {
  const begun = afterAttemptBegan(held, 'refresh', at(0))
  const wish = (cause: Cause) => ({ cause, atMs: at(0).bootMs })
  for (const outcome of [down, inactive]) {
    const kept = (cause: Cause) => nextState({ ...begun, next: wish(cause) }, outcome, step(0)).state.next
    for (const cause of ['operator', 'reload', 'start'] as const) expect(kept(cause)).toEqual(wish(cause))
    expect(kept('client')).toBeNull()
  }
})

test('a daemon is settled once it has a token, or no attempt is due: one has ended or was put off', () => {
  const putOff: TokenState = { ...initial, next: { cause: 'start', atMs: at(HOUR).bootMs } }
  expect(isSettled(after([down]), at(0))).toBe(true)
  for (const state of [held, after([inactive]), putOff, asked(held, down, MINUTE)])
    expect(isSettled(state, at(MINUTE))).toBe(true)
  for (const [state, ms] of [
    [initial, 0],
    [held, HOUR],
    // The process that failed has crashed: the attempt of this one is due.
    [after([down]), MINUTE],
  ] as const)
    expect(isSettled(state, at(ms))).toBe(false)
})

test('a need plans nothing beside an attempt, or while the account is refused', () => {
  for (const state of [afterAttemptBegan(held, 'operator', at(MINUTE)), asked(held, inactive, MINUTE)])
    expect(afterClientNeed(state, HOUR, at(MINUTE))).toBe(state)
})

/** A client reports the token that is held, and its request brings this one when the pace allows it. */
function afterReport(state: TokenState, ms: number, outcome?: FetchOutcome) {
  const wished = afterReject(state, tokenOf(state).fingerprint, at(ms)).state
  const askedMs = Math.max(ms, dueAtMs(wished) - at(0).bootMs)
  expect(plannedAttempt(wished).cause).toBe('client')
  return { state: asked(wished, outcome ?? jwt(HOUR, askedMs, askedMs), askedMs, 'client'), askedMs }
}

test('requests of clients are 30 s apart, then 60 s and 120 s while their own tokens are reported', () => {
  let state = held
  let askedMs = 0
  const waits = Array.from({ length: 6 }, () => {
    const before = askedMs
    ;({ state, askedMs } = afterReport(state, askedMs + 1_000))
    return askedMs - before
  })
  expect(waits).toEqual([1_000, 30_000, 60_000, 120_000, 120_000, 120_000])
  // The pace is the same after another report, after a wish for more life, and beside an operator's token.
  const twice = afterReject(state, tokenOf(state).fingerprint, at(askedMs + 2_000)).state
  expect(afterReject(twice, tokenOf(state).fingerprint, at(askedMs + 3_000)).state).toBe(twice)
  expect(dueAtMs(afterClientNeed(state, HOUR, at(askedMs + 2_000))) - at(askedMs).bootMs).toBe(120_000)
  const ofOperator = asked(state, jwt(HOUR, askedMs + 5_000, 99), askedMs + 5_000, 'operator')
  expect(afterReport(ofOperator, askedMs + 6_000).askedMs - askedMs).toBe(120_000)
  // It stayed unreported for half its plan of 37 min.
  for (const [laterMs, pacedMs] of [
    [18.5 * MINUTE - 1, 120_000],
    [18.5 * MINUTE, 30_000],
  ] as const) {
    const later = afterReport(state, askedMs + laterMs)
    expect(afterReport(later.state, later.askedMs + 1).askedMs - later.askedMs).toBe(pacedMs)
  }
  const replaced = asked(state, jwt(HOUR, askedMs + 19 * MINUTE, 98), askedMs + 19 * MINUTE, 'refresh')
  expect(replaced.pace.reported).toBe(0)
})

test('the same token again counts as reported again, and slows the requests down', () => {
  let state = after([opaque()])
  let askedMs = 0
  const waits = Array.from({ length: 4 }, () => {
    const before = askedMs
    ;({ state, askedMs } = afterReport(state, askedMs + 1_000, opaque()))
    return askedMs - before
  })
  expect(waits).toEqual([1_000, 30_000, 60_000, 120_000])
})

test('an age at which a token was refused too early is told once another token follows', () => {
  const at8 = afterReject(after([opaque()]), tokenOf(after([opaque()])).fingerprint, at(8.5 * MINUTE)).state
  expect(asked(at8, opaque(), 9 * MINUTE, 'client').endedEarlyMs).toEqual([])
  const once = asked(at8, opaque('other'), 9 * MINUTE, 'client')
  expect(once.endedEarlyMs).toEqual([8.5 * MINUTE])
  expect(fittingMaxAgeMs(once.endedEarlyMs)).toBe(8 * MINUTE)
  expect(fittingMaxAgeMs([8 * MINUTE, 20_000])).toBe(MINUTE)
  // Nothing is learned of it.
  expect(tokenOf(once).lifeMs).toBe(15 * MINUTE)
  const atEnd = afterReject(after([opaque()]), tokenOf(after([opaque()])).fingerprint, at(15 * MINUTE)).state
  expect(asked(atEnd, opaque('other'), 15 * MINUTE, 'client').endedEarlyMs).toEqual([])
  expect(afterReport(held, MINUTE).state.endedEarlyMs).toEqual([])
  expect(afterReload(once, SETTINGS, step(10 * MINUTE)).endedEarlyMs).toEqual([])
})

test.each([
  ['assertion', 0],
  ['tls', 0],
  ['network', 750],
] as const)('a reload asks at once where the last failure, %s, may have been of a file', (reason, waitMs) => {
  const failed = asked(held, { kind: 'transient', reason, detail: 'no' }, MINUTE)
  expect(dueAtMs(failed)).toBeGreaterThan(at(MINUTE).bootMs)
  const reloaded = afterReload(failed, SETTINGS, step(MINUTE))
  expect(dueAtMs(reloaded)).toBe(at(MINUTE + waitMs).bootMs)
  // The service's own wait holds, and an operator's wish goes before.
  const later = at(10 * MINUTE).bootMs
  const delayed = { ...failed, notBefore: { [failed.credentialsId]: later } }
  expect(dueAtMs(afterReload(delayed, SETTINGS, step(MINUTE)))).toBe(later)
  const wished = afterReload(afterOperator(failed, at(MINUTE)), SETTINGS, step(MINUTE))
  expect(plannedAttempt(wished).cause).toBe('operator')
  expect(asked(reloaded, opaque(), MINUTE, 'reload').next).toBeNull()
})

test('no alert of a missing token is raised while the first attempt is due or under way', () => {
  const longAgo = { ...initial, tokenless: { since: at(-MINUTE), forMs: MINUTE, readAtMs: at(0).bootMs } }
  const alertAfter = (waitMs: number) =>
    currentAlert({ ...longAgo, notBefore: { first: at(waitMs).bootMs } }, at(0), MINUTE)
  expect([alertAfter(0), alertAfter(1)?.reason]).toEqual([null, 'no-token'])
  // One that a host of a fleet puts off for a moment is awaited, too.
  const putOff = (ms: number) => ({ ...longAgo, next: { cause: 'start', atMs: at(ms).bootMs } }) as const
  expect(currentAlert(putOff(15_000), at(0), MINUTE)).toBeNull()
  expect(currentAlert(putOff(15_001), at(0), MINUTE)).not.toBeNull()
  expect(currentAlert(longAgo, at(0), MINUTE, { isRaised: true })).toMatchObject({
    detail: 'There has been no usable token, and no attempt has failed',
    failure: null,
  })
  expect(currentAlert(held, at(MINUTE), 0)).toBeNull()
})

test('failures in a row, and an objection with the same reason, have the time of the first', () => {
  expect(after([down], [down, MINUTE]).failure?.since).toEqual(at(0))
  const objectedAt = (second: FetchOutcome) => after([rejected], [second, HOUR]).objection?.since
  expect([objectedAt({ ...rejected, detail: 'Go' }), objectedAt(inactive)]).toEqual([at(0), at(HOUR)])
})

test('another service has no token since the reload, or since the end of the former one', () => {
  const elsewhere = { baseUrl: 'https://other.test', credentialsId: 'elsewhere' }
  for (const [reloadedMs, sinceMs] of [
    [MINUTE, MINUTE],
    [2 * HOUR, HOUR],
  ] as const)
    expect(noTokenSince(afterReload(held, elsewhere, step(reloadedMs)), at(3 * HOUR))).toEqual(at(sinceMs))
})

test('an attempt falls in the last tenth of a usable token’s life at the latest, Retry-After aside', () => {
  const [passed, chance] = [0.899, 1].map((max) => fc.double({ min: 0, max, maxExcluded: true, noNaN: true }))
  fc.assert(
    fc.property(passed!, chance!, fc.integer({ min: 1, max: HOUR }), (share, drawn, initialDelayMs) => {
      const given = step(HOUR * share, { policy: { ...policy, initialDelayMs, maxDelayMs: HOUR }, drawn })
      for (const failure of [down, rejected])
        expect(dueAtMs(nextState(held, failure, given).state)).toBeLessThanOrEqual(at(HOUR).bootMs)
      const bounded = { ...down, retryAfterMs: HOUR }
      expect(dueAtMs(nextState(held, bounded, given).state)).toBeGreaterThanOrEqual(given.now.bootMs + HOUR)
    }),
  )
})
