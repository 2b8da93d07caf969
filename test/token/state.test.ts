// The pure half of the loop, step by step; the stories that such steps make are in test/scenarios.
import { describe, expect, test } from 'vitest'
import type { Instant } from '../../src/lib/clock.ts'
import type { FetchOutcome } from '../../src/token/outcome.ts'
import {
  causeOf,
  dueAtMs,
  initialState,
  isSettled,
  noTokenSince,
  nextExpiryMs,
  nextMomentMs,
  phaseOf,
  type Policy,
  type Step,
  type TokenState,
} from '../../src/token/state.ts'
import {
  afterReload,
  afterAttemptBegan,
  afterAttemptEnded,
  afterRequest,
  afterTick,
  afterOperator,
  nextState,
  assumeFailed,
} from '../../src/token/transitions.ts'
import { afterClientNeed, afterReject } from '../../src/token/rejections.ts'
import type { Cause } from '../../src/token/outcome.ts'
import { fingerprintOf, type Token } from '../../src/token/token.ts'
import { failures } from '../support/failures.ts'
import { jwtOf } from '../support/jwt.ts'
import { kindOf } from '../support/kind-of.ts'

const BASE_URL = 'https://service.test'
const MINUTE = 60_000
const HOUR = 60 * MINUTE
const policy: Policy = { maxAgeMs: 15 * MINUTE, initialDelayMs: 1_000, maxDelayMs: 5 * MINUTE }

/** So long after the beginning. */
const at = (ms: number): Instant => ({ bootMs: 1_000_000 + ms, wallMs: 1_800_000_000_000 + ms })
const step = (ms: number, more: Partial<Step> = {}): Step => ({
  now: at(ms),
  policy,
  random: () => 0.5,
  ...more,
})

const jwt = (lifeMs = HOUR, ms = 0, salt = 0): FetchOutcome => {
  const iat = at(ms).wallMs / 1000
  return { kind: 'ok', accessToken: jwtOf({ iat, exp: iat + lifeMs / 1000 }, salt) }
}
const opaque = (accessToken = 'opaque'): FetchOutcome => ({ kind: 'ok', accessToken })
const down: FetchOutcome = { kind: 'transient', reason: 'network', detail: 'No answer' }
const limited: FetchOutcome = {
  kind: 'transient',
  reason: 'rate-limited',
  detail: 'Slow down',
  status: 429,
  retryAfterMs: 10 * MINUTE,
}
const { inactive, notFound, rejected } = failures

const SETTINGS = { baseUrl: BASE_URL, credentialsId: 'first' }
const initial = initialState(SETTINGS, at(0))
/** The service is asked at that moment and answers so. */
function asked(state: TokenState, outcome: FetchOutcome, ms = 0, cause: Cause = 'start'): TokenState {
  return afterAttemptEnded(
    nextState(afterRequest(afterAttemptBegan(state, cause, at(ms)), cause, at(ms)), outcome, step(ms)).state,
  )
}
/** From the initial state, answer by answer, each at its moment. */
const after = (...answers: [FetchOutcome, number?][]): TokenState =>
  answers.reduce((state, [outcome, ms]) => asked(state, outcome, ms), initial)
function tokenOf(state: TokenState): Token {
  const token = state.token
  if (token === null) throw new Error('No token is held')
  return token
}
const failureIn = (state: TokenState) => {
  const failure = state.failure
  if (failure === null) throw new Error('No failure is there')
  return failure
}

describe('a token that was obtained', () => {
  test('is held with all that is known of it, and everything that stood is over', () => {
    const outcome = jwt()
    const before = after([rejected])
    const state = asked(before, outcome, 1_000)
    const accessToken = outcome.kind === 'ok' ? outcome.accessToken : ''
    expect(state).toEqual({
      ...initial,
      hasAttempted: true,
      failure: null,
      generation: 1,
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
      },
    })
    expect(asked(state, jwt(HOUR, 2_000), 2_000)).toMatchObject({ generation: 2, token: { generation: 2 } })
  })

  test('without life is a malformed answer, with a sentence', () => {
    for (const lifeMs of [0, -1_000]) {
      const { state, outcome } = nextState(afterRequest(initial, 'start', at(0)), jwt(lifeMs), step(0))
      expect(outcome).toEqual({
        kind: 'transient',
        reason: 'malformed-answer',
        detail: expect.stringMatching(/already expired$/),
        status: 200,
      })
      expect(state.failure).toMatchObject({ reason: 'malformed-answer', status: 200, attempts: 1 })
      expect(state).toMatchObject({ token: null, refusal: null, generation: 0, lastSuccessAt: null })
    }
    expect(kindOf(after([jwt(1)]))).toBe('held')
  })
})

describe('the same token once more', () => {
  test('that has expired is a malformed answer, whose sentence says that it is the same', () => {
    const late = step(HOUR + 1_000)
    const { outcome } = nextState(afterRequest(after([jwt()]), 'start', late.now), jwt(), late)
    expect(outcome).toMatchObject({
      reason: 'malformed-answer',
      detail: 'The service gave the same token again, which has expired',
    })
  })

  test('does not live longer because of a Date that is behind, and not so long because of one ahead', () => {
    const given = (serverDateMs: number) => ({ ...(jwt() as FetchOutcome & { kind: 'ok' }), serverDateMs })
    const first = after([jwt()])
    const behind = asked(first, given(at(-HOUR).wallMs), 30 * MINUTE)
    expect(tokenOf(behind).expiresAtMs).toBe(at(HOUR).bootMs)
    const ahead = asked(first, given(at(50 * MINUTE).wallMs), 30 * MINUTE)
    expect(tokenOf(ahead).expiresAtMs).toBe(at(40 * MINUTE).bootMs)
  })

  test('is refreshed no sooner than in a second', () => {
    const first = after([jwt(10_000)])
    expect(tokenOf(asked(first, jwt(10_000), 9_000)).refreshAtMs).toBe(at(10_000).bootMs)
  })
})

describe('the phase', () => {
  const held = after([jwt()])
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
  ])('is %s', (phase, state, ms) => {
    expect(phaseOf(state, at(ms))).toBe(phase)
  })

  test.each([
    [false, initial, 0],
    [true, after([down]), 0],
    [true, held, 0],
    [false, held, HOUR],
    [true, asked(held, down, MINUTE), HOUR],
    [true, after([inactive]), 0],
  ])('settled: %s', (expected, state, ms) => {
    expect(isSettled(state, at(ms))).toBe(expected)
  })
})

describe('what is due', () => {
  const held = after([jwt()])
  const { refreshAtMs, expiresAtMs } = tokenOf(held)

  test('is the first attempt at once, the refresh as planned, a repetition after its wait, and nothing while refused', () => {
    expect(dueAtMs(initial)).toBe(-Infinity)
    expect(dueAtMs(held)).toBe(refreshAtMs)
    expect(dueAtMs(asked(held, down, MINUTE))).toBe(at(MINUTE + 750).bootMs)
    expect(dueAtMs(after([down]))).toBe(at(750).bootMs)
    expect(dueAtMs(after([inactive]))).toBe(Infinity)
    expect(dueAtMs(asked(held, inactive, MINUTE))).toBe(Infinity)
  })

  test('is, for an operator, at once, whatever the state', () => {
    for (const state of [held, after([limited]), after([inactive])]) {
      const waking = afterOperator(state)
      expect(dueAtMs(waking)).toBe(-Infinity)
      expect(causeOf(waking, at(0))).toBe('operator')
      expect(afterAttemptBegan(waking, 'operator', at(0)).forcedCause).toBeNull()
    }
  })

  test("is a client's wish where it comes before the refresh", () => {
    const wished = afterClientNeed(held, HOUR, at(1))
    expect(dueAtMs(wished)).toBeLessThanOrEqual(at(1).bootMs)
    const paced = asked(wished, jwt(61_000, 1), 1, 'client')
    const { refreshAtMs: soon } = tokenOf(paced)
    expect(soon).toBeGreaterThan(at(30_001).bootMs)
    expect(dueAtMs(afterClientNeed(paced, 61_000, at(2)))).toBe(at(30_001).bootMs)
    const short = asked(wished, jwt(10_000, 1), 1, 'client')
    expect(dueAtMs(afterClientNeed(short, 9_999, at(2)))).toBe(at(5_001).bootMs)
  })

  test('has a cause', () => {
    const causes: [Cause, TokenState, number][] = [
      ['start', initial, 0],
      ['retry', after([down]), 0],
      ['retry', asked(held, down, MINUTE), HOUR],
      ['refresh', held, refreshAtMs - at(0).bootMs],
      ['client', held, refreshAtMs - at(0).bootMs - 1],
    ]
    for (const [cause, state, ms] of causes) expect(causeOf(state, at(ms))).toBe(cause)
  })

  test('comes with the moments at which a conclusion changes', () => {
    expect(nextExpiryMs(initial, at(0))).toBe(Infinity)
    expect(nextExpiryMs(held, at(0))).toBe(expiresAtMs)
    expect(nextExpiryMs(held, at(HOUR))).toBe(Infinity)
    const assumed = after([opaque()])
    expect(nextExpiryMs(assumed, at(15 * MINUTE - 1))).toBe(at(15 * MINUTE).bootMs)
    expect(nextExpiryMs(assumed, at(15 * MINUTE))).toBe(at(30 * MINUTE).bootMs)
    expect(nextExpiryMs(assumed, at(30 * MINUTE))).toBe(Infinity)
    expect(nextMomentMs(held, at(0))).toBe(refreshAtMs)
    expect(nextMomentMs(asked(held, inactive, MINUTE), at(MINUTE))).toBe(expiresAtMs)
  })
})

describe('a request', () => {
  test('that goes out is counted, and what made it go out is done', () => {
    const wished = afterClientNeed(after([jwt()]), HOUR, at(1))
    for (const cause of ['client', 'refresh'] as const) {
      expect(afterRequest(afterAttemptBegan(wished, cause, at(5)), cause, at(5))).toEqual({
        ...wished,
        inFlight: { since: at(5), cause, credentialsId: 'first' },
        postponedUntilMs: null,
        forcedCause: null,
        clientRequestAtMs: null,
        lastClientRequestAtMs: cause === 'client' ? at(5).bootMs : null,
        requests: 2,
        lastRequestAt: at(5),
      })
    }
    const once = afterRequest(wished, 'client', at(5))
    expect(afterRequest(once, 'refresh', at(9)).lastClientRequestAtMs).toBe(at(5).bootMs)
  })

  test('that is given up is over', () => {
    const asking = afterAttemptBegan(initial, 'start', at(0))
    expect(afterAttemptEnded(asking)).toEqual({ ...asking, hasAttempted: true, inFlight: null })
  })

  test('that is never answered is remembered as a failed one; a refusal stays a refusal', () => {
    expect(assumeFailed(initial, step(0))).toMatchObject({
      token: null,
      refusal: null,
      failure: {
        reason: 'network',
        attempts: 1,
        status: null,
        detail: expect.stringMatching(/ended first$/),
      },
    })
    expect(assumeFailed(after([down]), step(MINUTE)).failure).toMatchObject({
      attempts: 2,
      since: at(0),
    })
    const refused = afterRequest(after([inactive]), 'operator', at(0))
    expect(assumeFailed(refused, step(0))).toBe(refused)
  })
})

describe('a failure', () => {
  test('is there with its reason, its beginning and its count, and says when it is repeated', () => {
    expect(after([rejected])).toEqual({
      ...initial,
      hasAttempted: true,
      requests: 1,
      lastRequestAt: at(0),
      alert: { reason: 'rejected', detail: 'Forbidden', since: at(0), askedBy: null },
      failure: {
        reason: 'rejected',
        detail: 'Forbidden',
        status: 403,
        since: at(0),
        attempts: 1,
        retryAtMs: at(450_000).bootMs,
        askedBy: null,
      },
      notBeforeMs: at(450_000).bootMs,
    })
    expect(after([rejected], [down, 450_000]).failure).toEqual({
      reason: 'network',
      detail: 'No answer',
      status: null,
      since: at(0),
      attempts: 2,
      retryAtMs: at(451_500).bootMs,
      askedBy: null,
    })
  })

  /** The wait after the twelfth failure in a row, at that moment. */
  function waitMs(state: TokenState, ms: number, failed: FetchOutcome = down): number {
    const last = Array.from({ length: 12 }).reduce<TokenState>((before) => asked(before, failed, ms), state)
    return failureIn(last).retryAtMs - at(ms).bootMs
  }

  test('waits longer while a usable token is held, and no longer than that lives', () => {
    const held = after([jwt()])
    expect(waitMs(held, MINUTE)).toBe(225_000)
    expect(waitMs(held, HOUR - 100_000)).toBe(75_000)
    expect(waitMs(held, HOUR - 1)).toBe(750)
    expect(waitMs(initial, HOUR)).toBe(45_000)
    expect(waitMs(held, HOUR)).toBe(45_000)
    const assumed = after([opaque()])
    expect(waitMs(assumed, 14 * MINUTE)).toBe(45_000)
    expect(waitMs(assumed, 28 * MINUTE)).toBe(90_000)
  })

  test('of the kind `rejected` is repeated once in the last tenth of the life, before its pace is over', () => {
    const held = after([jwt()])
    const inTenth = HOUR - 3 * MINUTE
    expect(waitMs(held, 30 * MINUTE, rejected)).toBe(450_000)
    expect(waitMs(held, HOUR - 7 * MINUTE, rejected)).toBe(5.25 * MINUTE)
    const once = asked(held, rejected, HOUR - 7 * MINUTE)
    expect(dueAtMs(once)).toBeGreaterThan(at(HOUR - 6 * MINUTE).bootMs)
    expect(waitMs(once, inTenth, rejected)).toBe(450_000)
  })

  test('of other kinds neither raises an alert nor ends one', () => {
    expect(after([down]).alert).toBeNull()
    expect(after([rejected], [down, HOUR]).alert).toEqual({
      reason: 'rejected',
      detail: 'Forbidden',
      since: at(0),
      askedBy: null,
    })
  })
})

describe('an alert', () => {
  test('is there since its first cause, in the last words, until it is another', () => {
    const words = { ...rejected, detail: 'Go away' } as FetchOutcome
    expect(after([rejected], [words, HOUR]).alert).toEqual({
      reason: 'rejected',
      detail: 'Go away',
      since: at(0),
      askedBy: null,
    })
    expect(after([rejected], [inactive, HOUR]).alert).toEqual({
      reason: 'account-inactive',
      detail: 'Your account is not active',
      since: at(HOUR),
      askedBy: null,
    })
    expect(after([inactive], [inactive, HOUR]).alert?.since).toEqual(at(0))
    expect(after([inactive], [notFound, HOUR]).alert).toMatchObject({
      reason: 'account-not-found',
      since: at(HOUR),
    })
    expect(after([inactive], [jwt()]).alert).toBeNull()
  })

  test('comes with a refusal, which keeps the token', () => {
    const state = after([jwt()], [inactive, MINUTE], [inactive, HOUR])
    expect(state).toMatchObject({
      inFlight: null,
      refusal: {
        reason: 'account-inactive',
        detail: 'Your account is not active',
        status: 500,
        since: at(MINUTE),
      },
    })
    expect(state.token).toEqual(after([jwt()]).token)
    expect(after([inactive]).token).toBeNull()
    expect(state.failure).toBeNull()
  })
})

describe('when the last usable token goes, or will', () => {
  /** A failure whose wait ends so long after the expiry, with the token usable until `HOUR`. */
  function waiting(afterExpiryMs: number, notBeforeMs = 0): TokenState {
    const state = asked(after([jwt()]), down, HOUR - 1)
    const failure = {
      ...failureIn(state),
      attempts: 12,
      retryAtMs: at(HOUR + afterExpiryMs).bootMs,
    }
    return { ...state, failure, notBeforeMs: at(HOUR + notBeforeMs).bootMs }
  }
  const lookedAt = (state: TokenState, ms: number): number =>
    dueAtMs(afterTick(state, step(ms))) - at(HOUR).bootMs

  test('a wait over the cap that now holds is drawn again, once', () => {
    const state = waiting(200_000)
    expect(lookedAt(state, HOUR - 1)).toBe(749)
    expect(lookedAt(state, HOUR)).toBe(45_000)
    const drawn = afterTick(state, step(HOUR))
    expect(drawn.failure).toEqual({ ...state.failure, retryAtMs: at(HOUR + 45_000).bootMs })
    expect(afterTick(drawn, step(HOUR + 15_000))).toBe(drawn)
  })

  test('a wait under that cap goes on', () => {
    for (const ms of [60_000, 59_000, 0]) {
      const state = waiting(ms)
      expect(afterTick(state, step(HOUR))).toBe(state)
    }
    expect(lookedAt(waiting(60_001), HOUR)).toBe(45_000)
  })

  test('what the service asked for is there', () => {
    expect(lookedAt(waiting(200_000, 100_000), HOUR)).toBe(100_000)
    expect(lookedAt(waiting(200_000, 30_000), HOUR)).toBe(45_000)
    const state = waiting(200_000, 200_000)
    expect(afterTick(state, step(HOUR))).toBe(state)
  })

  test('nothing changes where nothing failed, or everything is refused', () => {
    for (const state of [initial, after([jwt()]), after([inactive]), after([jwt()], [inactive, MINUTE])])
      expect(afterTick(state, step(2 * HOUR))).toBe(state)
  })
})

describe('a report', () => {
  const held = after([opaque()])
  const fingerprint = fingerprintOf('opaque')
  const verdictOn = (state: TokenState, ms: number, reported = fingerprint) =>
    afterReject(state, reported, at(ms)).verdict
  const reported = (state: TokenState, ms: number) => afterReject(state, fingerprint, at(ms)).state

  test('says that another is on its way, and asks for it', () => {
    const { state, verdict } = afterReject(held, fingerprint, at(MINUTE))
    expect(verdict).toEqual({ verdict: 'refreshing' })
    expect(dueAtMs(state)).toBeLessThanOrEqual(at(MINUTE).bootMs)
    expect(causeOf(state, at(MINUTE))).toBe('client')
    expect(state.rejection).toEqual({ fingerprint, ageMs: MINUTE })
    expect(afterReject(state, fingerprint, at(2 * MINUTE)).state).toBe(state)
  })

  test('while a request is under way, or due, waits for that', () => {
    for (const before of [held, asked(held, down, 1_000)]) {
      const asking = afterAttemptBegan(before, 'refresh', at(2_000))
      expect(verdictOn(asking, 3_000)).toEqual({ verdict: 'refreshing' })
      expect(reported(asking, 3_000).clientRequestAtMs).toBeNull()
    }
    const dueMs = dueAtMs(held) - at(0).bootMs
    expect(verdictOn(held, dueMs)).toEqual({ verdict: 'refreshing' })
    expect(reported(held, dueMs).clientRequestAtMs).toBeNull()
    expect(reported(held, dueMs - 1).clientRequestAtMs).not.toBeNull()
  })

  test('while no token is held, or none is usable, waits for the one that is coming', () => {
    expect(verdictOn(initial, 0)).toEqual({ verdict: 'refreshing' })
    const { state, verdict } = afterReject(held, fingerprint, at(30 * MINUTE))
    expect([state, verdict]).toEqual([held, { verdict: 'refreshing' }])
  })

  test('during an outage is held until the next attempt', () => {
    const failed = asked(held, limited, MINUTE)
    expect(verdictOn(failed, 2 * MINUTE)).toEqual({ verdict: 'held', retryAfterMs: 10 * MINUTE })
    expect(verdictOn(failed, 12 * MINUTE)).toEqual({ verdict: 'refreshing' })
    expect(verdictOn(failed, 14 * MINUTE)).toEqual({ verdict: 'refreshing' })
    expect(reported(failed, 2 * MINUTE).clientRequestAtMs).toBeNull()
  })
})

describe('an operator', () => {
  test('asks with the request that is under way, where there is one', () => {
    const asking = afterAttemptBegan(after([jwt()]), 'refresh', at(1))
    expect(afterOperator(asking).forcedCause).toBeNull()
    const reloading = { ...asking, forcedCause: 'reload' as const }
    expect(afterOperator(reloading).forcedCause).toBe('reload')
  })
})

describe('the time without a usable token', () => {
  test('is counted from the first start', () => {
    expect(noTokenSince(initial, at(HOUR))).toEqual(at(0))
    expect(noTokenSince(after([down], [inactive, MINUTE]), at(HOUR))).toEqual(at(0))
  })

  test('is over with a token, and counted from the moment at which that goes out of use', () => {
    const held = after([down], [jwt(), MINUTE])
    expect(noTokenSince(held, at(MINUTE + HOUR - 1))).toBeNull()
    expect(noTokenSince(held, at(3 * HOUR))).toEqual(at(MINUTE + HOUR))
    const stale = after([opaque()])
    expect(noTokenSince(stale, at(30 * MINUTE - 1))).toBeNull()
    expect(noTokenSince(stale, at(30 * MINUTE))).toEqual(at(30 * MINUTE))
  })

  test('is counted from a reload that dropped the token, or from its loss before that', () => {
    const elsewhere = { baseUrl: 'https://other.test', credentialsId: 'elsewhere' }
    const held = after([jwt()])
    expect(noTokenSince(afterReload(held, elsewhere, step(MINUTE)), at(HOUR))).toEqual(at(MINUTE))
    expect(noTokenSince(afterReload(held, elsewhere, step(2 * HOUR)), at(3 * HOUR))).toEqual(at(HOUR))
    const moved = afterReload(afterReload(held, elsewhere, step(MINUTE)), SETTINGS, step(HOUR))
    expect(noTokenSince(moved, at(3 * HOUR))).toEqual(at(MINUTE))
  })
})
