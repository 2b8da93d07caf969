import { expect, test } from 'vitest'
import { createGcAfterBurst } from '../../src/lib/gc-after-burst.ts'

/** Ticks, 15 s apart or as far as given, after these spans of CPU time in ms; the result has how often memory was collected. */
function collectionsAfter(spans: readonly number[], tickMs = 15_000): number[] {
  let cpuMs = 0
  let count = 0
  let nowMs = 0
  const collect = (): void => {
    // The collection takes CPU time, too, and is no burst.
    cpuMs += 80
    count += 1
  }
  const tick = createGcAfterBurst({ now: () => ({ bootMs: nowMs, wallMs: nowMs }) }, () => cpuMs, collect)
  return spans.map((ms) => {
    cpuMs += ms
    nowMs += tickMs
    tick()
    return count
  })
}

test('memory is collected once, at the first idle tick after a burst', () => {
  expect(collectionsAfter([300, 90, 5, 5, 5])).toEqual([0, 0, 1, 1, 1])
})

test('small bursts add up', () => {
  expect(collectionsAfter([30, 5, 30, 5, 5])).toEqual([0, 0, 0, 1, 1])
})

test('idle ticks and a lone small burst are no reason', () => {
  expect(collectionsAfter([15, 15, 15, 15, 30, 5])).toEqual([0, 0, 0, 0, 0, 0])
})

test('ticks that follow each other closely are measured together', () => {
  expect(collectionsAfter([5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5], 5_000)).toEqual(Array(13).fill(0))
  expect(collectionsAfter([90, 5, 5, 5, 0, 0], 5_000)).toEqual([0, 0, 0, 1, 1, 1])
})
