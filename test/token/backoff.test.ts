import * as fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import {
  backoffMs,
  delayCapMs,
  MAX_DELAY_WITHOUT_TOKEN_MS,
  retryWait,
  type RetryPolicy,
} from '../../src/token/backoff.ts'

const drawn = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true })
const policies: fc.Arbitrary<RetryPolicy> = fc
  .tuple(fc.integer({ min: 1, max: 60_000 }), fc.integer({ min: 0, max: 3_600_000 }))
  .map(([initialDelayMs, more]) => ({ initialDelayMs, maxDelayMs: initialDelayMs + more }))
const attempts = fc.integer({ min: 1, max: 5_000 })
const lefts = fc.constantFrom(0, 10_000, Infinity)

describe('the backoff', () => {
  test('doubles from the initial delay up to the cap', () => {
    const delays = [1, 2, 3, 4, 10, 11].map((attempt) => backoffMs(attempt, 1_000, 300_000, 1))
    expect(delays).toEqual([1_000, 2_000, 4_000, 8_000, 300_000, 300_000])
    expect(backoffMs(30, 1_000, 300_000, 0)).toBe(150_000)
  })

  test('draws each delay d from [d/2, d], at the cap and after thousands of attempts too', () => {
    fc.assert(
      fc.property(attempts, policies, drawn, (attempt, policy, chance) => {
        const waitMs = backoffMs(attempt, policy.initialDelayMs, policy.maxDelayMs, chance)
        const delayMs = Math.min(policy.maxDelayMs, policy.initialDelayMs * 2 ** (attempt - 1))
        expect(waitMs).toBeGreaterThanOrEqual(delayMs / 2)
        expect(waitMs).toBeLessThanOrEqual(delayMs)
      }),
    )
  })

  test('is capped by a minute while there is no usable token, and by maxDelay while there is one', () => {
    const policy = { initialDelayMs: 1_000, maxDelayMs: 300_000 }
    expect(delayCapMs(policy, Infinity)).toBe(300_000)
    expect(delayCapMs(policy, 0)).toBe(MAX_DELAY_WITHOUT_TOKEN_MS)
    expect(delayCapMs({ ...policy, maxDelayMs: 20_000 }, 0)).toBe(20_000)
    expect(delayCapMs(policy, 90_000)).toBe(90_000)
    expect(delayCapMs(policy, 10)).toBe(policy.initialDelayMs)
  })
})

describe('the wait after a failure', () => {
  const policy = { initialDelayMs: 1_000, maxDelayMs: 300_000 }
  const situation = { attempts: 1, policy, leftMs: 0 }

  test.each([
    ['Retry-After and 0 to 20 % more', { reason: 'rate-limited', retryAfterMs: 120_000 }, [120_000, 144_000]],
    [
      'a short Retry-After and up to a second more',
      { reason: 'server-error', retryAfterMs: 2_000 },
      [2_000, 3_000],
    ],
    [
      'a minute and up to 20 % more for a 429 that does not say how long',
      { reason: 'rate-limited' },
      [60_000, 72_000],
    ],
  ] as const)('is %s', (_, failure, bounds) => {
    const waits = [0, 1].map((drawnLast) => retryWait(failure, { ...situation, random: () => drawnLast }))
    expect(waits.map(({ waitMs }) => waitMs)).toEqual(bounds)
    expect(waits.map(({ minWaitMs }) => minWaitMs)).toEqual(bounds)
  })

  test('is 5 to 10 minutes after `rejected`, however often it happened', () => {
    fc.assert(
      fc.property(attempts, policies, drawn, lefts, (attempt, someP, chance, leftMs) => {
        const { waitMs, minWaitMs } = retryWait(
          { reason: 'rejected' },
          { attempts: attempt, policy: someP, leftMs, random: () => chance },
        )
        expect(waitMs).toBeGreaterThanOrEqual(300_000)
        expect(waitMs).toBeLessThanOrEqual(600_000)
        expect(minWaitMs).toBe(waitMs)
      }),
    )
  })

  test('is the backoff where Retry-After is shorter, and has no floor where the service named none', () => {
    const late = { ...situation, attempts: 30, random: () => 0 }
    const named = retryWait({ reason: 'server-error', retryAfterMs: 2_000 }, late)
    expect(named).toEqual({ waitMs: 30_000, minWaitMs: 2_000, boundMs: 2_000 })
    expect(retryWait({ reason: 'network' }, late)).toEqual({ waitMs: 30_000, minWaitMs: 0, boundMs: 0 })
  })
})
