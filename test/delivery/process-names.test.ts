import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { expect, it, onTestFinished, vi } from 'vitest'
import { createProcessNames } from '../../src/delivery/process-names.ts'

/** A process with this command line, by its id. */
async function processOf(argv0: string, ...words: string[]): Promise<number> {
  const child = spawn('/bin/sh', ['-c', 'echo started; read line', ...words], {
    argv0,
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  onTestFinished(() => void child.kill('SIGKILL'))
  await once(child.stdout, 'data')
  return child.pid ?? 0
}

it.each([
  ['billing', 'billing'],
  ['/usr/bin/billing', 'billing'],
  ['/usr/bin/billing --secret=1', 'billing'],
  ['', 'sh'],
])('the name of %j is %s', async (argv0, name) => {
  const nameOf = createProcessNames()
  expect(await nameOf(await processOf(argv0))).toBe(name)
})

it('a program name of 100 KB is cut, and not kept', async () => {
  const nameOf = createProcessNames()
  expect((await nameOf(await processOf('x'.repeat(100_000))))?.length).toBe(256)
})

it('a process that is gone has no name', async () => {
  const nameOf = createProcessNames()
  expect(await nameOf(2 ** 22 + 1)).toBeNull()
})

it('a name is looked up once a second', async () => {
  let monotonicMs = 0
  let reads = 0
  const read = () => Promise.resolve(`name ${(reads += 1)}`)
  const nameOf = createProcessNames({ monotonicMs: () => monotonicMs, read })
  expect([await nameOf(1), await nameOf(1)]).toEqual(['name 1', 'name 1'])
  monotonicMs = 1_000
  expect(await nameOf(1)).toBe('name 2')
})

it('a name that the kernel does not give within a second is none, and holds up one read at a time', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  onTestFinished(() => void vi.useRealTimers())
  const read = vi.fn<() => Promise<string>>(() => new Promise(() => undefined))
  const nameOf = createProcessNames({ read })
  const names = [nameOf(1), nameOf(2)]
  await vi.advanceTimersByTimeAsync(1_000)
  expect(await Promise.all(names)).toEqual([null, null])
  expect(read).toHaveBeenCalledTimes(1)
})
