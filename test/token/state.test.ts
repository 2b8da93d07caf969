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
  NO_PACE,
  noTokenSince,
  nextExpiryMs,
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
import { fingerprintOf, type Token } from '../../src/token/token.ts'
import { failures } from '../support/failures.ts'
import { grantAt } from '../support/jwt.ts'

const BASE_URL = 'https://service.test'
const MINUTE = 60_000
const HOUR = 60 * MINUTE
const policy: Policy = { maxAgeMs: 15 * MINUTE, initialDelayMs: 1_000, maxDelayMs: 5 * MINUTE }

/** So long after the beginning. */
const at = (ms: number): Instant => ({ bootMs: 1_000_000 + ms, wallMs: 1_800_000_000_000 + ms })
const step = (ms: number, more: Partial<Step> = {}): Step => ({
  now: at(ms),
  awakeMs: at(ms).bootMs,
  policy,
  drawn: 0.5,
  ...more,
})

const jwt = (lifeMs = HOUR, ms = 0, salt = 0): FetchOutcome => grantAt(at(ms).wallMs, lifeMs, salt)
const opaque = (accessToken = 'opaque'): FetchOutcome => ({ kind: 'ok', accessToken })
const down: FetchOutcome = { kind: 'transient', reason: 'network', detail: 'No answer' }
const { inactive, notFound, rejected } = failures

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
function tokenOf(state: TokenState): Token {
  const token = state.token
  if (token === null) throw new Error('No token is held')
  return token
}
const held = after([jwt()])
const { refreshAtMs, expiresAtMs } = tokenOf(held)

test('a token that was obtained is held with all that is known of it, and ends failure and alert', () => {
  const outcome = grantAt(at(0).wallMs)
  const before = after([rejected])
  const state = asked(before, outcome, 1_000)
  const { accessToken } = outcome
  expect(state).toEqual({
    ...initial,
    generation: 1,
    answers: 2,
    requests: 2,
    lastRequestAt: at(1_000),
    lastSuccessAt: at(1_000),
    token: {
      accessToken,
      fingerprint: fingerprintOf(accessToken),
      generation: 1,
      ...SETTINGS,
      received: at(1_000),
      lifeMs: HOUR,
      expiresAtMs: at(HOUR + 1_000).bootMs,
      expirySource: 'jwt',
      refreshAtMs: expect.closeTo(at(1_000).bootMs + HOUR * (2 / 3 - 0.05), 3),
      answer: 2,
      isOfClients: false,
      isSameUntilEnd: false,
      known: null,
    },
  })
  expect(asked(state, jwt(HOUR, 2_000), 2_000)).toMatchObject({ generation: 2, token: { generation: 2 } })
})

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
  expect(afterTick(held, step(HOUR - 10_000))).toBe(held)
  const before = afterTick(held, step(HOUR + 3_000), { tickedAwakeMs })
  expect(before.tokenless).toMatchObject({ forMs: 3_000 })
  const wokenAwakeMs = at(HOUR + 4_000).bootMs
  const woken = afterTick(before, step(9 * HOUR, { awakeMs: wokenAwakeMs }))
  expect(woken.tokenless.forMs).toBe(4_000)
  const asleep = afterTick(held, step(9 * HOUR, { awakeMs: tickedAwakeMs + 1_000 }), { tickedAwakeMs })
  expect(asleep.tokenless.forMs).toBe(1_000)
  expect(noTokenSince(asleep, at(9 * HOUR))).toEqual(at(HOUR))
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

test.each([
  ['starting', initial, 0],
  ['starting', after([down]), 0],
  ['ready', held, HOUR - 1],
  ['expired', held, HOUR],
  ['degraded', asked(held, down, MINUTE), MINUTE],
  ['expired', asked(held, down, MINUTE), HOUR],
  ['ready', after([opaque()]), 15 * MINUTE - 1],
  ['degraded', after([opaque()]), 15 * MINUTE],
  ['expired', after([opaque()]), 30 * MINUTE],
  ['refused', after([inactive]), 0],
  ['refused', asked(held, inactive, MINUTE), MINUTE],
  // A restart has dropped the token, which had expired.
  ['expired', { ...initial, lastSuccessAt: at(0) }, HOUR],
  ['starting', afterReload(held, { baseUrl: 'https://other.test', credentialsId: 'other' }, step(0)), HOUR],
])('the phase is %s', (phase, state, ms) => {
  expect(phaseOf(state, at(ms))).toBe(phase)
})

test('an attempt that was put off comes again then, for the same cause, and says why and since when', () => {
  const putOff = (state: TokenState, ms: number, more: object = {}, cause: Cause = 'refresh') =>
    asked(state, { kind: 'postponed', retryAfterMs: MINUTE, ...more }, ms, cause)
  const { requests, lastRequestAt } = putOff(held, 0)
  const next = { cause: 'refresh', atMs: at(MINUTE).bootMs }
  expect(putOff(held, 0)).toEqual({ ...held, requests, lastRequestAt, next })
  expect(['client', 'operator'].map((cause) => putOff(held, 0, {}, cause as Cause).next?.cause)).toEqual([
    'client',
    'retry',
  ])
  const why = { reason: 'share-lost', detail: 'No answer', askedBy: 'web-17' }
  const planned = putOff(held, 0, why)
  expect(planned.postponement).toEqual({ ...why, since: at(0) })
  expect(putOff(planned, 1_000, why).postponement?.since).toEqual(at(0))
  expect(putOff(planned, 1_000, { reason: 'network' }).postponement?.since).toEqual(at(1_000))
  expect(dueAtMs(afterReload(planned, { ...SETTINGS, credentialsId: 'second' }, step(2)))).toBe(at(2).bootMs)
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

test('a need or a report plans nothing beside an attempt, or without a token to hand out', () => {
  const asking = afterAttemptBegan(held, 'refresh', at(MINUTE))
  for (const state of [initial, asking, asked(held, inactive, MINUTE)])
    expect(afterClientNeed(state, HOUR, at(MINUTE))).toBe(state)
  const reports = [initial, asking, held, after([opaque()])].map((state, index) => {
    const now = [at(0), at(MINUTE), { ...at(0), bootMs: refreshAtMs }, at(30 * MINUTE)][index]!
    return afterReject(state, state.token?.fingerprint ?? '', now)
  })
  for (const { state, decision } of reports)
    expect([state.next, decision]).toEqual([null, { verdict: 'refreshing' }])
})

/** A client reports the token that is held, and its request brings this one when the pace allows it. */
function afterReport(
  state: TokenState,
  ms: number,
  outcome?: FetchOutcome,
): { state: TokenState; askedMs: number } {
  const wished = afterReject(state, tokenOf(state).fingerprint, at(ms)).state
  const askedMs = Math.max(ms, dueAtMs(wished) - at(0).bootMs)
  expect(plannedAttempt(wished).cause).toBe('client')
  return { state: asked(wished, outcome ?? jwt(HOUR, askedMs, askedMs), askedMs, 'client'), askedMs }
}

test('requests of clients are 30 s apart, then 60 s and 120 s while their own tokens are reported', () => {
  let state = held
  let askedMs = 0
  const waits: number[] = []
  for (let count = 0; count < 6; count += 1) {
    const next = afterReport(state, askedMs + 1_000)
    waits.push(next.askedMs - askedMs)
    ;({ state, askedMs } = next)
  }
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
  const waits: number[] = []
  for (let count = 0; count < 5; count += 1) {
    const next = afterReport(state, askedMs + 1_000, opaque())
    waits.push(next.askedMs - askedMs)
    ;({ state, askedMs } = next)
  }
  expect(waits).toEqual([1_000, 30_000, 60_000, 120_000, 120_000])
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

const pacedUntilRefresh = { ...held, pace: { ...held.pace, requestedMs: refreshAtMs - 30_000 } }
test.each<[Cause, TokenState, dueMs: number]>([
  ['start', initial, 0],
  ['retry', after([down]), at(750).bootMs],
  ['retry', asked(held, down, MINUTE), at(MINUTE + 750).bootMs],
  ['retry', after([inactive]), Infinity],
  ['retry', asked(held, inactive, MINUTE), Infinity],
  ['refresh', held, refreshAtMs],
  ['client', afterClientNeed(held, HOUR, at(MINUTE)), at(MINUTE).bootMs],
  // The pace of clients ends with the refresh.
  ['refresh', afterClientNeed(pacedUntilRefresh, HOUR, at(MINUTE)), refreshAtMs],
])(
  'the cause of the next attempt is %s, and its time follows from the facts, case %#',
  (cause, state, dueMs) => {
    expect(plannedAttempt(state).cause).toBe(cause)
    expect(dueAtMs(state)).toBe(dueMs)
  },
)

test('the next moment at which a token goes out of use is its expiry, or twice the assumed age', () => {
  expect(nextExpiryMs(initial, at(0))).toBe(Infinity)
  expect(nextExpiryMs(held, at(0))).toBe(expiresAtMs)
  expect(nextExpiryMs(held, at(HOUR))).toBe(Infinity)
  const assumed = after([opaque()])
  expect(nextExpiryMs(assumed, at(15 * MINUTE - 1))).toBe(at(15 * MINUTE).bootMs)
  expect(nextExpiryMs(assumed, at(15 * MINUTE))).toBe(at(30 * MINUTE).bootMs)
  expect(nextExpiryMs(assumed, at(30 * MINUTE))).toBe(Infinity)
  expect(afterReload(assumed, SETTINGS, step(MINUTE, { drawn: 0 })).token).toBe(assumed.token)
})

test('a request that goes out is counted, and what made it go out is over', () => {
  const wished = afterClientNeed(after([jwt()]), HOUR, at(1))
  for (const cause of ['client', 'refresh'] as const) {
    expect(afterRequest(afterAttemptBegan(wished, cause, at(5)), cause, at(5))).toEqual({
      ...wished,
      inFlight: { since: at(5), cause, credentialsId: 'first' },
      next: null,
      pace: { ...NO_PACE, requestedMs: cause === 'client' ? at(5).bootMs : null },
      requests: 2,
      lastRequestAt: at(5),
    })
  }
  const once = afterRequest(wished, 'client', at(5))
  expect(afterRequest(once, 'refresh', at(9)).pace.requestedMs).toBe(at(5).bootMs)
})

test('no alert of a missing token is raised while the first attempt is due or under way', () => {
  const tokenless = { since: at(-MINUTE), forMs: MINUTE, readAtMs: at(0).bootMs }
  const longAgo = { ...initial, tokenless }
  expect(currentAlert(longAgo, at(0), 60_000)).toBeNull()
  expect(currentAlert({ ...longAgo, notBefore: { first: at(0).bootMs } }, at(0), MINUTE)).toBeNull()
  expect(currentAlert({ ...longAgo, notBefore: { first: at(1).bootMs } }, at(0), MINUTE)).not.toBeNull()
  const noToken = { reason: 'no-token', since: at(0), noTokenSince: at(-MINUTE), askedBy: null }
  const network = { detail: 'No answer', failure: 'network' }
  expect(currentAlert(asked(longAgo, down), at(0), MINUTE)).toEqual({ ...noToken, ...network })
  expect(currentAlert(longAgo, at(0), MINUTE, { isRaised: true })).toMatchObject({
    detail: 'There has been no usable token, and no attempt has failed',
    failure: null,
  })
  const refused = afterTick(after([inactive]), step(0))
  const later = afterTick(refused, step(MINUTE))
  const alert = {
    reason: 'account-inactive',
    detail: 'Your account is not active',
    since: at(0),
    askedBy: null,
    failure: null,
  }
  expect(currentAlert(later, at(MINUTE), MINUTE)).toEqual({ ...alert, noTokenSince: at(0) })
  for (const afterMs of [MINUTE + 1, null])
    expect(currentAlert(later, at(MINUTE), afterMs)).toEqual({ ...alert, noTokenSince: null })
  expect(currentAlert(held, at(MINUTE), 0)).toBeNull()
})

test('a failure has its reason, its beginning, its count and the time of the next attempt', () => {
  const known = { reason: 'rejected', detail: 'Forbidden', since: at(0) }
  const retryAtMs = at(450_000).bootMs
  expect(after([rejected])).toEqual({
    ...initial,
    answers: 1,
    requests: 1,
    lastRequestAt: at(0),
    objection: { ...known, status: 403, says: null, askedBy: null, known: null },
    failure: { ...known, status: 403, attempts: 1, retryAtMs },
    notBefore: { first: retryAtMs },
  })
  expect(after([down]).notBefore).toEqual({})
  expect(after([rejected], [down, 450_000]).failure).toEqual({
    ...known,
    reason: 'network',
    detail: 'No answer',
    status: null,
    attempts: 2,
    retryAtMs: at(451_500).bootMs,
  })
})

test('an attempt falls in the last tenth of a usable token’s life at the latest, Retry-After aside', () => {
  const [passed, chance] = [0.899, 1].map((max) => fc.double({ min: 0, max, maxExcluded: true, noNaN: true }))
  fc.assert(
    fc.property(passed!, chance!, fc.integer({ min: 1, max: HOUR }), (share, drawn, initialDelayMs) => {
      const given = step(HOUR * share, {
        policy: { ...policy, initialDelayMs, maxDelayMs: HOUR },
        drawn,
      })
      for (const failure of [down, rejected])
        expect(dueAtMs(nextState(held, failure, given).state)).toBeLessThanOrEqual(at(HOUR).bootMs)
      const bounded = { ...down, retryAfterMs: HOUR }
      expect(dueAtMs(nextState(held, bounded, given).state)).toBeGreaterThanOrEqual(given.now.bootMs + HOUR)
    }),
  )
})

test.each([
  [[[rejected], [{ ...rejected, detail: 'Go away' }, HOUR]], 'rejected', 'Go away', 0],
  [[[rejected], [inactive, HOUR]], 'account-inactive', 'Your account is not active', HOUR],
  [[[inactive], [inactive, HOUR]], 'account-inactive', 'Your account is not active', 0],
  [[[inactive], [notFound, HOUR]], 'account-not-found', 'Account not found', HOUR],
] as [[FetchOutcome, number?][], string, string, number][])(
  'an alert has the time of its first cause and the last words, until it is another, case %#',
  (answers, reason, detail, sinceMs) => {
    expect(after(...answers).objection).toMatchObject({ reason, detail, since: at(sinceMs), askedBy: null })
    expect(after(...answers, [down, HOUR]).objection).toEqual(after(...answers).objection)
    expect(after(...answers, [jwt(HOUR, HOUR), HOUR]).objection).toBeNull()
  },
)

const elsewhere = { baseUrl: 'https://other.test', credentialsId: 'elsewhere' }
const dropped = afterReload(held, elsewhere, step(MINUTE))
const recovered = after([down], [jwt(), MINUTE])
test.each<[TokenState, seenMs: number, sinceMs: number | null]>([
  // Counted from the first start, however attempts fail.
  [initial, HOUR, 0],
  [after([down], [inactive, MINUTE]), HOUR, 0],
  // From the end of a token, which an assumed life doubles.
  [recovered, MINUTE + HOUR - 1, null],
  [recovered, 3 * HOUR, MINUTE + HOUR],
  [after([opaque()]), 30 * MINUTE - 1, null],
  [after([opaque()]), 30 * MINUTE, 30 * MINUTE],
  // From a reload that dropped the token, or its loss before that.
  [dropped, HOUR, MINUTE],
  [afterReload(held, elsewhere, step(2 * HOUR)), 3 * HOUR, HOUR],
  [afterReload(dropped, SETTINGS, step(HOUR)), 3 * HOUR, MINUTE],
])('since when there is no usable token, case %#', (state, seenMs, sinceMs) => {
  expect(noTokenSince(state, at(seenMs))).toEqual(sinceMs === null ? null : at(sinceMs))
})
