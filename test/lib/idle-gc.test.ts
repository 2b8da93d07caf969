import { execFileSync, spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { expect, test, vi } from 'vitest'
import { createIdleGc } from '../../src/lib/idle-gc.ts'

type Collect = (options: { dropsMachineCode: boolean }) => Promise<void>
const signal = new AbortController().signal

/** A process with CPU time set by the test: `during` is what it works in each sleep, in ms. */
function processWith({ worked, during }: { worked: number; during: number[] }) {
  let cpuMs = worked
  let bootMs = 0
  const collect = vi.fn<Collect>(async () => undefined)
  const sleep = vi.fn<() => Promise<void>>(async () => {
    cpuMs += during.shift() ?? 0
  })
  const clock = { now: () => ({ bootMs, wallMs: 0 }), sleep }
  const gc = createIdleGc({ clock, cpuMs: () => cpuMs, collect })
  bootMs = 15_000
  /** Works so many ms in so much time, and looks; so many times. */
  async function live(ms: number, { inMs, times = 1 }: { inMs: number; times?: number }): Promise<void> {
    for (let look = 0; look < times; look += 1) {
      cpuMs += ms
      bootMs += inMs
      await gc.tick(signal)
    }
  }
  return { gc, collect, sleep, live }
}

test('memory is collected once after work, when the process is idle', async () => {
  const { gc, collect, sleep } = processWith({ worked: 100, during: [0] })
  await gc.tick(signal)
  expect(collect).toHaveBeenCalledOnce()
  await gc.tick(signal)
  expect(collect).toHaveBeenCalledOnce()
  expect(sleep).toHaveBeenCalledOnce()
})

test('the tick of the start is none of its business: what the daemon reads afterwards would be garbage again', async () => {
  const collect = vi.fn<Collect>(async () => undefined)
  const clock = { now: () => ({ bootMs: 0, wallMs: 0 }), sleep: async () => undefined }
  await createIdleGc({ clock, cpuMs: () => 100, collect }).tick(signal)
  expect(collect).not.toHaveBeenCalled()
})

test('it waits as long as the work goes on', async () => {
  const { gc, collect, sleep } = processWith({ worked: 100, during: [500, 500, 1] })
  await gc.tick(signal)
  expect(sleep).toHaveBeenCalledTimes(3)
  expect(collect).toHaveBeenCalledOnce()
})

test('a look at the clock now and then is no work, however often', async () => {
  const { gc, collect, live } = processWith({ worked: 100, during: [0] })
  await gc.tick(signal)
  await live(5, { inMs: 15_000, times: 1_000 })
  expect(collect).toHaveBeenCalledOnce()
})

test('work is work also where it is looked at again and again', async () => {
  const { collect, live } = processWith({ worked: 0, during: [0] })
  await live(5, { inMs: 50, times: 200 })
  expect(collect).toHaveBeenCalled()
})

test('a little work again and again is worth it in the end', async () => {
  const { collect, live } = processWith({ worked: 0, during: [0] })
  await live(30, { inMs: 15_000 })
  expect(collect).not.toHaveBeenCalled()
  await live(30, { inMs: 15_000 })
  expect(collect).toHaveBeenCalledOnce()
})

test('nothing is begun when the daemon ends meanwhile', async () => {
  const { gc, collect } = processWith({ worked: 100, during: [] })
  await gc.tick(AbortSignal.abort())
  expect(collect).not.toHaveBeenCalled()
})

test('the collections that V8 adds are no work; work that comes later is', async () => {
  const { gc, collect, live } = processWith({ worked: 100, during: [0] })
  await gc.tick(signal)
  await live(60, { inMs: 5_000 })
  await live(200, { inMs: 15_000 })
  await live(5, { inMs: 15_000, times: 10 })
  expect(collect).toHaveBeenCalledOnce()
  await live(60, { inMs: 15_000 })
  expect(collect).toHaveBeenCalledTimes(2)
})

test('machine code is dropped with a collection after each second of work', async () => {
  const { collect, live } = processWith({ worked: 0, during: [0, 0, 0, 0, 0] })
  await live(700, { inMs: 15_000, times: 5 })
  expect(collect.mock.calls.map(([{ dropsMachineCode }]) => dropsMachineCode)).toEqual([
    false,
    true,
    false,
    true,
    false,
  ])
})

test('work that is done while it waits counts, too', async () => {
  const { gc, collect } = processWith({ worked: 100, during: [2_000, 0] })
  await gc.tick(signal)
  expect(collect.mock.calls).toEqual([[{ dropsMachineCode: true }]])
})

/** A process that takes memory, releases it and collects. `then` is what it does afterwards. */
function collectingProgram(then: string): string[] {
  const source = JSON.stringify(new URL('../../src/lib/idle-gc.ts', import.meta.url).href)
  const program = `
    import { createIdleGc } from ${source}
    const before = process.memoryUsage.rss()
    let held = Array.from({ length: 400_000 }, (_, index) => ({ index, text: 'text ' + index }))
    const grown = process.memoryUsage.rss() - before
    held = null
    let bootMs = 0
    const clock = { now: () => ({ bootMs, wallMs: 0 }), sleep: async () => undefined }
    const gc = createIdleGc({ clock })
    bootMs = 15_000
    await gc.tick(new AbortController().signal)
    ${then}`
  return ['--input-type=module-typescript', '--eval', program]
}

test('V8 finishes soon after it, and then wakes nothing', { timeout: 60_000 }, async () => {
  const flags = ['--trace-memory-reducer', ...collectingProgram('setInterval(() => undefined, 60_000)')]
  const child = spawn(process.execPath, flags, { stdio: ['ignore', 'pipe', 'inherit'] })
  const said: string[] = []
  for await (const line of createInterface(child.stdout)) {
    said.push(line)
    if (line.endsWith('(done)') || said.length > 8) child.kill()
  }
  expect(said.at(-1)).toContain('finished GC #2 (done)')
})

test('memory that was released goes back to the system', () => {
  const flags = collectingProgram(
    'console.log(JSON.stringify({ grown, left: process.memoryUsage.rss() - before }))',
  )
  const { grown, left } = JSON.parse(execFileSync(process.execPath, flags, { encoding: 'utf8' })) as {
    grown: number
    left: number
  }
  expect(grown).toBeGreaterThan(20_000_000)
  expect(left).toBeLessThan(grown / 2)
})

/** Machine code in bytes, of five hundred optimized functions and after a collection when so much CPU time was spent. */
function machineCode({ cpuMs }: { cpuMs: number }): { made: number; left: number } {
  const source = JSON.stringify(new URL('../../src/lib/idle-gc.ts', import.meta.url).href)
  const program = `
    import { getHeapSpaceStatistics } from 'node:v8'
    import { createIdleGc } from ${source}
    const size = () => getHeapSpaceStatistics().find((space) => space.space_name === 'code_space').space_used_size
    const before = size()
    const sums = Array.from({ length: 500 }, (_, first) =>
      new Function('list', \`let sum = \${first}; for (const each of list) sum += each; return sum\`))
    for (const sum of sums) {
      %PrepareFunctionForOptimization(sum);
      sum([1, 2]);
      sum([3, 4]);
      %OptimizeFunctionOnNextCall(sum);
      sum([5, 6]);
    }
    const made = size() - before
    let bootMs = 0
    const clock = { now: () => ({ bootMs, wallMs: 0 }), sleep: async () => undefined }
    const gc = createIdleGc({ clock, cpuMs: () => ${cpuMs} })
    bootMs = 15_000
    await gc.tick(new AbortController().signal)
    const left = size() - before
    if (sums[7]([1, 2]) === 10) console.log(JSON.stringify({ made, left }))`
  const flags = ['--allow-natives-syntax', '--input-type=module', '--eval', program]
  return JSON.parse(execFileSync(process.execPath, flags, { encoding: 'utf8' })) as ReturnType<
    typeof machineCode
  >
}

test('machine code that is dropped is no longer in memory', () => {
  const kept = machineCode({ cpuMs: 900 })
  expect(kept.made).toBeGreaterThan(50_000)
  expect(kept.left).toBeGreaterThan(kept.made / 2)
  const dropped = machineCode({ cpuMs: 1_100 })
  expect(dropped.made).toBeGreaterThan(50_000)
  expect(dropped.left).toBeLessThan(dropped.made / 3)
})
