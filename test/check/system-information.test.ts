// `check` runs as root, and so do the shell commands of the functions of systeminformation that it calls.
import childProcess from 'node:child_process'
import { createRequire } from 'node:module'
import { expect, onTestFinished, test, vi } from 'vitest'

test('systeminformation runs these shell commands for check, and no word of them comes from elsewhere', async () => {
  const run: string[] = []
  const names = ['exec', 'execSync', 'execFileSync', 'spawn', 'spawnSync', 'fork'] as const
  for (const name of names) {
    const original = childProcess[name] as (...args: unknown[]) => unknown
    const spy = vi.spyOn(childProcess, name) as unknown as { mockImplementation: (by: unknown) => void }
    spy.mockImplementation((command: string, ...rest: unknown[]) => {
      run.push(command)
      return original.call(childProcess, command, ...rest)
    })
  }
  onTestFinished(() => void vi.restoreAllMocks())
  // The library keeps what it finds there when it is loaded.
  createRequire(import.meta.url)('systeminformation')
  const { factsOf } = await import('../../src/check/host.ts')
  const facts = await factsOf(null, { service: null, place: { account: undefined, isUnit: false } })
  expect(facts.memory).toBeLessThan(Infinity)
  const commands = new Set([
    'date +%Z && date +%z && ls -l /etc/localtime 2>/dev/null',
    'cat /proc/mounts 2>/dev/null',
    'export LC_ALL=C; df -kPTx squashfs; unset LC_ALL',
  ])
  expect(run.filter((command) => !commands.has(command))).toEqual([])
})
