import * as fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { backoffMs, ENDLESS, retryPlan, type LifeLeft, type RetryPolicy } from '../../src/token/backoff.ts'

const drawn = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true })
const policies: fc.Arbitrary<RetryPolicy> = fc
  .tuple(fc.integer({ min: 1, max: 60_000 }), fc.integer({ min: 0, max: 3_600_000 }))
  .map(([initialDelayMs, more]) => ({ initialDelayMs, maxDelayMs: initialDelayMs + more }))
const attempts = fc.integer({ min: 1, max: 5_000 })
/** A life with so much left, in ms. */
const left = (ms: number): LifeLeft => ({ ...ENDLESS, freshMs: ms })

describe('the backoff', () => {
  test('draws each delay d from [d/2, d], at the cap and after thousands of attempts too', () => {
    fc.assert(
      fc.property(attempts, policies, drawn, (attempt, policy, chance) => {
        const waitMs = backoffMs(attempt, policy, chance)
        const delayMs = Math.min(policy.maxDelayMs, policy.initialDelayMs * 2 ** (attempt - 1))
        expect(waitMs).toBeGreaterThanOrEqual(delayMs / 2)
        expect(waitMs).toBeLessThanOrEqual(delayMs)
      }),
    )
  })
})

describe('the wait after a failure', () => {
  const policy = { initialDelayMs: 1_000, maxDelayMs: 300_000 }
  const situation = { nowMs: 0, attempts: 1, policy, left: null, notBeforeMs: 0 }

  test.each([
    ['Retry-After and 0 to 20 % more', { reason: 'rate-limited', retryAfterMs: 120_000 }, [120_000, 144_000]],
    ['a short Retry-After and a second', { reason: 'server-error', retryAfterMs: 2_000 }, [2_000, 3_000]],
    ['a minute and 20 % for a 429 that says no time', { reason: 'rate-limited' }, [60_000, 72_000]],
  ] as const)('is %s', (_, failure, waits) => {
    const plans = [0, 1].map((chance) => retryPlan(failure, { ...situation, drawn: chance }))
    expect(plans).toEqual(waits.map((atMs) => ({ retryAtMs: atMs, notBeforeMs: atMs })))
  })

  test('is 5 to 10 minutes after `rejected`, however often it happened', () => {
    fc.assert(
      fc.property(attempts, policies, drawn, (attempt, someP, chance) => {
        for (const life of [null, left(10_000), ENDLESS]) {
          const some = { ...situation, attempts: attempt, policy: someP, drawn: chance, left: life }
          const plan = retryPlan({ reason: 'rejected' }, some)
          expect(plan.retryAtMs).toBeGreaterThanOrEqual(300_000)
          expect(plan.retryAtMs).toBeLessThanOrEqual(600_000)
          expect(plan.notBeforeMs).toBe(plan.retryAtMs)
        }
      }),
    )
  })

  test('is the backoff where Retry-After is shorter, and has no bound where the service named none', () => {
    const late = { ...situation, attempts: 30, drawn: 0 }
    const named = retryPlan({ reason: 'server-error', retryAfterMs: 2_000 }, late)
    expect(named).toEqual({ retryAtMs: 30_000, notBeforeMs: 2_000 })
    expect(retryPlan({ reason: 'network' }, late)).toEqual({ retryAtMs: 30_000, notBeforeMs: 0 })
  })
})
