import { getEventListeners } from 'node:events'
import { uptime } from 'node:os'
import { afterEach, expect, test, vi } from 'vitest'
import { createSystemClock } from '../../src/lib/clock.ts'

vi.mock('node:os', { spy: true })
afterEach(() => {
  vi.restoreAllMocks()
  vi.useRealTimers()
})

/** Makes the machine's clocks go as the test says: `atMs` of monotonic time. */
function machine({ suspendedMs = 0, setByMs = 0, atMs = 0, grainMs = 10 } = {}): void {
  const bootMs = 5_000_700 + atMs + suspendedMs
  vi.spyOn(process, 'uptime').mockReturnValue((1_000 + atMs) / 1_000)
  vi.spyOn(Date, 'now').mockReturnValue(1_800_000_000_000 + atMs + suspendedMs + setByMs)
  vi.mocked(uptime).mockReturnValue((Math.floor(bootMs / grainMs) * grainMs) / 1_000)
}

test('a suspend passes on the boot clock, and the wall clock is shown as it is', () => {
  const clock = createSystemClock()
  machine()
  const before = clock.now()
  machine({ atMs: 100, suspendedMs: 8 * 3_600_000 })
  const after = clock.now()
  expect(after.bootMs - before.bootMs).toBe(8 * 3_600_000 + 100)
  expect(after.wallMs).toBe(1_800_000_000_000 + 8 * 3_600_000 + 100)
})

test.each([10, 1_000])('the boot clock goes on while the other is set, uptime in %i ms', (grainMs) => {
  const clock = createSystemClock()
  machine({ grainMs })
  const { bootMs } = clock.now()
  for (let step = 1; step < 50; step += 1) {
    machine({ grainMs, atMs: step * 137, setByMs: step * 100 * (step % 2 === 0 ? 1 : -1) })
    expect(clock.now().bootMs - bootMs).toBe(step * 137)
  }
})

test.each([false, true])('a sleep leaves no timer and no listener, stopped: %s', async (isStopped) => {
  vi.useFakeTimers()
  const stop = new AbortController()
  const sleeping = createSystemClock().sleep(1_000, stop.signal)
  if (isStopped) stop.abort()
  else vi.advanceTimersByTime(1_000)
  await sleeping
  await createSystemClock().sleep(1_000, AbortSignal.abort())
  expect([vi.getTimerCount(), getEventListeners(stop.signal, 'abort')]).toEqual([0, []])
})

test('a sleep longer than a timer of Node can hold does not end at once', async () => {
  const clock = createSystemClock()
  for (const ms of [2 ** 31, Infinity]) {
    const stop = new AbortController()
    let isOver = false
    const sleeping = clock.sleep(ms, stop.signal).then(() => (isOver = true))
    // Node would take such a timer for one of 1 ms.
    await clock.sleep(20, stop.signal)
    expect(isOver).toBe(false)
    stop.abort()
    await sleeping
  }
})
