import { writeFile } from 'node:fs/promises'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { commandWorld, hourToken, type CommandWorld } from '../support/daemon-world.ts'
import { startCli } from '../support/run-cli.ts'
import { granting } from '../support/service.ts'
import { expectUntil } from '../support/until.ts'

const exec = ({ cli }: CommandWorld, ...command: string[]) => cli(['exec', '--', ...command])

test('the command replaces the process, with the token in its environment alone', async () => {
  const token = hourToken()
  const { daemon } = await commandWorld({ answer: granting(token) })
  const traps = 'trap "echo got HUP $KYC_ACCESS_TOKEN" HUP; trap "echo got USR1; exit 7" USR1'
  const script = `${traps}; echo ready; while :; do sleep 0.05; done`
  const { child, stdout, ended } = startCli(['exec', '--socket', daemon.ipcPath, '--', 'sh', '-c', script])
  await expectUntil('the command', () => stdout().includes('ready'))
  expect(readFileSync(`/proc/${child.pid}/comm`, 'utf8')).toBe('sh\n')
  expect(readFileSync(`/proc/${child.pid}/cmdline`, 'utf8')).not.toContain(token)
  child.kill('SIGHUP')
  await expectUntil('the first signal', () => stdout().includes('got HUP'))
  child.kill('SIGUSR1')
  expect(await ended).toMatchObject({ status: 7, stdout: `ready\ngot HUP ${token}\ngot USR1\n` })
})

test('its status, its signals, its options, its stdin and its place in PATH are those of a program of the shell', async () => {
  const token = hourToken()
  const world = await commandWorld({ answer: granting(token) })
  expect(await exec(world, 'sh', '-c', 'exit 42')).toMatchObject({ status: 42, signal: null })
  expect(await exec(world, 'sh', '-c', 'kill -TERM $$')).toMatchObject({ status: null, signal: 'SIGTERM' })
  // In the words of env(1).
  const missing = { status: 127, stderr: expect.stringContaining('no-such-command') as string }
  const system = { env: { PATH: '/usr/bin:/bin' } }
  expect(await world.cli(['exec', '--', 'no-such-command'], system)).toMatchObject(missing)
  expect((await exec(world, 'grep', 'SigIgn', '/proc/self/status')).stdout).toMatch(/^SigIgn:\s0+\n$/)
  expect((await exec(world, 'echo', '--help', '-x')).stdout).toBe('--help -x\n')
  expect((await world.cli(['exec', '--', 'cat'], { input: 'given' })).stdout).toBe('given')
  // A script without a first line is the shell's.
  const text = 'echo "$1 $API_TOKEN, ${KYC_ACCESS_TOKEN-unset}"\n'
  await writeFile(join(world.directory, 'mine'), text, { mode: 0o755 })
  const env = { PATH: `/nowhere:${world.directory}` }
  const { stdout } = await world.cli(['exec', '--env', 'API_TOKEN', '--', 'mine', 'word'], { env })
  expect(stdout).toBe(`word ${token}, unset\n`)
})
