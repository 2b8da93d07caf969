// A host alone: spread over the life that is left, or over the size of the fleet.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { aloneAtMs, spreadMs } from '../../src/share/alone.ts'
import { createRandom } from '../support/random.ts'

const NOW = 1_000_000

describe('with a usable token', () => {
  test('a host asks in the first four fifths of what is left of it', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 86_400_000 }),
        fc.double({ min: 0, max: 0.999999, noNaN: true }),
        (leftMs, drawn) => {
          const atMs = aloneAtMs({ usableUntilMs: NOW + leftMs, hosts: null }, NOW, drawn)
          expect(atMs).toBeGreaterThanOrEqual(NOW)
          expect(atMs).toBeLessThanOrEqual(NOW + 0.8 * leftMs)
        },
      ),
    )
  })

  test('10,000 draws over 20 minutes make at most 20 requests in one second', () => {
    const random = createRandom(1)
    const perSecond = new Map<number, number>()
    for (let host = 0; host < 10_000; host += 1) {
      const atMs = aloneAtMs({ usableUntilMs: NOW + 1_200_000, hosts: 10_000 }, NOW, random())
      const second = Math.floor(atMs / 1_000)
      perSecond.set(second, (perSecond.get(second) ?? 0) + 1)
    }
    // 10,000 over 960 seconds are 10.4 in the mean.
    expect(Math.max(...perSecond.values())).toBeLessThanOrEqual(26)
  })
})

describe('without one', () => {
  test.each([
    [1, 1_000],
    [10, 1_000],
    [214, 21_400],
    [1_000, 100_000],
    [10_000, 300_000],
    [null, 10_000],
  ])('of %s hosts each asks within %d ms', (hosts, withinMs) => {
    expect(spreadMs({ usableUntilMs: null, hosts }, NOW)).toBe(withinMs)
    expect(spreadMs({ usableUntilMs: NOW, hosts }, NOW)).toBe(withinMs)
  })
})
