import { expect, onTestFinished, test, vi } from 'vitest'
import { createGcAfterBurst } from '../../src/lib/gc-after-burst.ts'

/** How often memory was collected at ticks so far apart, after these spans of CPU time, all in ms. */
function collectionsAfter(spans: readonly number[], tickMs = 15_000): number[] {
  let cpuMs = 0
  let count = 0
  let nowMs = 0
  vi.spyOn(process, 'cpuUsage').mockImplementation(() => ({ user: cpuMs * 900, system: cpuMs * 100 }))
  vi.stubGlobal('gc', () => {
    // The collection takes CPU time, too, and is no burst.
    cpuMs += 80
    count += 1
  })
  onTestFinished(() => void vi.restoreAllMocks())
  onTestFinished(() => void vi.unstubAllGlobals())
  const tick = createGcAfterBurst({ now: () => ({ bootMs: nowMs, wallMs: nowMs }) })
  return spans.map((ms) => {
    cpuMs += ms
    nowMs += tickMs
    tick()
    return count
  })
}

test.each([
  ['is collected once, at the first idle tick after a burst', [300, 90, 5, 5], [0, 0, 1, 1], 15_000],
  ['is collected after small bursts, which add up', [25, 5, 25, 5, 5], [0, 0, 0, 1, 1], 15_000],
  ['stays where ticks are idle or a burst is small', [20, 20, 20, 20, 30, 5], [0, 0, 0, 0, 0, 0], 15_000],
  ['stays while close ticks are idle together', [5, 5, 5, 5, 5, 5, 5], [0, 0, 0, 0, 0, 0, 0], 5_000],
  ['is collected where close ticks are a burst together', [90, 5, 5, 5, 0], [0, 0, 0, 1, 1], 5_000],
])('memory %s', (_, spans, collections, tickMs) => {
  expect(collectionsAfter(spans, tickMs)).toEqual(collections)
})
