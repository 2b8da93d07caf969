import { expect, test, vi } from 'vitest'
import { createThrift } from '../../src/lib/thrift.ts'

const signal = new AbortController().signal

/** A process whose CPU time the test sets: `during` is what it works in each sleep, in ms. */
function thriftOf({ worked, during }: { worked: number; during: number[] }) {
  let cpuMs = worked
  let bootMs = 0
  const giveBack = vi.fn<() => Promise<void>>(async () => undefined)
  const sleep = vi.fn<() => Promise<void>>(async () => {
    cpuMs += during.shift() ?? 0
  })
  const clock = { now: () => ({ bootMs, wallMs: 0 }), sleep }
  const thrift = createThrift({ clock, cpuMs: () => cpuMs, giveBack })
  /** Works so many ms in so much time, and looks; so many times. */
  async function live(ms: number, { inMs, times = 1 }: { inMs: number; times?: number }): Promise<void> {
    for (let look = 0; look < times; look += 1) {
      cpuMs += ms
      bootMs += inMs
      await thrift.look(signal)
    }
  }
  return { thrift, giveBack, sleep, live }
}

test('memory is given back once after work, when a while has passed without any', async () => {
  const { thrift, giveBack, sleep } = thriftOf({ worked: 100, during: [0] })
  await thrift.look(signal)
  expect(giveBack).toHaveBeenCalledOnce()
  await thrift.look(signal)
  expect(giveBack).toHaveBeenCalledOnce()
  expect(sleep).toHaveBeenCalledOnce()
})

test('it waits as long as the work goes on', async () => {
  const { thrift, giveBack, sleep } = thriftOf({ worked: 100, during: [500, 500, 1] })
  await thrift.look(signal)
  expect(sleep).toHaveBeenCalledTimes(3)
  expect(giveBack).toHaveBeenCalledOnce()
})

test('a look at the clock now and then is no work, however often', async () => {
  const { thrift, giveBack, live } = thriftOf({ worked: 100, during: [0] })
  await thrift.look(signal)
  await live(5, { inMs: 15_000, times: 1_000 })
  expect(giveBack).toHaveBeenCalledOnce()
})

test('work is work also where it is looked at again and again', async () => {
  const { giveBack, live } = thriftOf({ worked: 0, during: [0] })
  await live(5, { inMs: 50, times: 200 })
  expect(giveBack).toHaveBeenCalled()
})

test('a little work again and again is worth it in the end', async () => {
  const { giveBack, live } = thriftOf({ worked: 0, during: [0] })
  await live(30, { inMs: 15_000 })
  expect(giveBack).not.toHaveBeenCalled()
  await live(30, { inMs: 15_000 })
  expect(giveBack).toHaveBeenCalledOnce()
})

test('nothing is begun when the daemon ends meanwhile', async () => {
  const { thrift, giveBack } = thriftOf({ worked: 100, during: [] })
  await thrift.look(AbortSignal.abort())
  expect(giveBack).not.toHaveBeenCalled()
})

test('what was allocated and let go of is given back to the system', async () => {
  const before = process.memoryUsage.rss()
  let held: unknown[] = Array.from({ length: 400_000 }, (_, index) => ({ index, text: `text ${index}` }))
  expect(process.memoryUsage.rss() - before).toBeGreaterThan(20_000_000)
  const { length } = held
  held = []
  await createThrift({ clock: { now: () => ({ bootMs: 0, wallMs: 0 }), sleep: async () => undefined } }).look(
    signal,
  )
  expect(length + held.length).toBe(400_000)
  expect(process.memoryUsage.rss() - before).toBeLessThan(20_000_000)
})
