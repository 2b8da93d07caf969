import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { commandWorld, hourToken, type CommandWorld } from '../support/daemon-world.ts'
import { PROGRAM } from '../support/daemon.ts'
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
  onTestFinished(() => void child.kill('SIGKILL'))
  await expectUntil('the command', () => stdout().includes('ready'))
  expect(readFileSync(`/proc/${child.pid}/comm`, 'utf8')).toBe('sh\n')
  expect(readFileSync(`/proc/${child.pid}/cmdline`, 'utf8')).not.toContain(token)
  child.kill('SIGHUP')
  await expectUntil('the first signal', () => stdout().includes('got HUP'))
  child.kill('SIGUSR1')
  expect(await ended).toMatchObject({ status: 7, stdout: `ready\ngot HUP ${token}\ngot USR1\n` })
})

test.each(['40', '2000000000'])(
  'only the standard streams stay open, whatever LISTEN_FDS=%s says of another process',
  async (LISTEN_FDS) => {
    const { daemon } = await commandWorld({ answer: granting(hourToken()) })
    const [node, program] = PROGRAM
    const command = ['exec', '--socket', daemon.ipcPath, '--wait', '10s', '--', 'ls', '/proc/self/fd']
    // Node itself closes only the first 16 of those that it was started with.
    const stdio = Array.from({ length: 45 }, (_, fd) => (fd === 1 ? ('pipe' as const) : ('ignore' as const)))
    const env = { ...process.env, LISTEN_FDS, LISTEN_PID: '1' }
    const child = spawn(node, [program, ...command], { stdio, env })
    onTestFinished(() => void child.kill('SIGKILL'))
    let stdout = ''
    child.stdout?.on('data', (chunk: Buffer) => (stdout += chunk.toString()))
    await once(child, 'close')
    // The last is the directory that ls reads.
    expect(stdout).toBe('0\n1\n2\n3\n')
  },
)

test('its status, its signals, its options and its stdin are those of a program of the shell', async () => {
  const world = await commandWorld()
  expect(await exec(world, 'sh', '-c', 'exit 42')).toMatchObject({ status: 42, signal: null })
  expect(await exec(world, 'sh', '-c', 'kill -TERM $$')).toMatchObject({ status: null, signal: 'SIGTERM' })
  expect((await exec(world, 'grep', 'SigIgn', '/proc/self/status')).stdout).toMatch(/^SigIgn:\s0+\n$/)
  expect((await exec(world, 'echo', '--help', '-x')).stdout).toBe('--help -x\n')
  expect((await world.cli(['exec', '--', 'cat'], { input: 'given' })).stdout).toBe('given')
})

test.each([
  ['no-such-command', 127],
  ['/etc/passwd', 126],
])('the command %s ends it with %d', async (command, status) => {
  const { cli } = await commandWorld()
  // A directory that may not be entered would make it 126, as with env(1).
  const env = { PATH: '/usr/bin:/bin' }
  const ended = await cli(['exec', '--', command], { env })
  expect(ended).toMatchObject({ status, stderr: expect.stringContaining('cannot be run') as string })
  // Its name is escaped.
  const { stderr } = await cli(['exec', '--', '/nowhere/a\n<0>b\u001b'])
  expect(stderr).toMatch(/^kyc-tokend: \/nowhere\/a\\u000a<0>b\\u001b cannot be run \(.*\)\.\n$/)
})

test('a script without a first line is the shell’s, and the token is in the variable of --env', async () => {
  const token = hourToken()
  const world = await commandWorld({ answer: granting(token) })
  const script = join(world.directory, 'script')
  const text = 'echo "$0" "$1" "$API_TOKEN, ${KYC_ACCESS_TOKEN-unset}"; ls /proc/self/fd\n'
  await writeFile(script, text, { mode: 0o755 })
  const { stdout } = await world.cli(['exec', '--env', 'API_TOKEN', '--', script, 'word'])
  expect(stdout).toBe(`${script} word ${token}, unset\n0\n1\n2\n3\n`)
})

test('it looks for the command in PATH, and without one where the shell does', async () => {
  const world = await commandWorld()
  await writeFile(join(world.directory, 'mine'), '#!/bin/sh\necho "mine, $PATH"\n', { mode: 0o755 })
  const { stdout } = await world.cli(['exec', '--', 'mine'], { env: { PATH: `/nowhere:${world.directory}` } })
  expect(stdout).toBe(`mine, /nowhere:${world.directory}\n`)
  expect(await world.cli(['exec', '--', 'true'], { env: { PATH: undefined } })).toMatchObject({ status: 0 })
})

test('it waits for the first token, no longer than --wait says', async () => {
  const world = await commandWorld({ answer: { status: 503 } })
  await world.daemon.logged('fetch-failed')
  const waiting = world.cli(['exec', '--wait', '30s', '--', 'printenv', 'KYC_ACCESS_TOKEN'])
  const impatient = await world.cli(['exec', '--wait', '0s', '--', 'echo', 'ran'])
  expect(impatient).toMatchObject({ status: 75, stdout: '' })
  const token = hourToken()
  world.service.answer(granting(token))
  expect((await waiting).stdout).toBe(`${token}\n`)
})
