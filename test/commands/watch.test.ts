import { spawnSync } from 'node:child_process'
import { expect, onTestFinished, test } from 'vitest'
import { commandWorld, hourToken } from '../support/command-world.ts'
import { PROGRAM } from '../support/daemon.ts'
import { runCli, startCli } from '../support/run-cli.ts'
import { granting, type Answer } from '../support/service.ts'
import { expectUntil } from '../support/until.ts'

const renewing: Answer = (_, { number }) => granting(hourToken(number))

function watch(socketPath: string, ...options: string[]) {
  const { child, stdout, stderr } = startCli(['watch', '--socket', socketPath, ...options])
  onTestFinished(() => void child.kill('SIGKILL'))
  const lines = (): Record<string, unknown>[] =>
    stdout()
      .split('\n')
      .slice(0, -1)
      .map((line) => JSON.parse(line) as Record<string, unknown>)
  return { lines, stderr }
}

test('prints a line now and at each change, also across a restart of the daemon', async () => {
  const { daemon, cli, again } = await commandWorld({ answer: renewing })
  const { lines, stderr } = watch(daemon.ipcPath)
  await expectUntil('the token', () => lines().some(({ generation }) => generation === 1))
  await cli(['refresh'])
  await expectUntil('the second token', () => lines().some(({ generation }) => generation === 2))
  await daemon.end()
  await expectUntil('a word on the daemon', () => stderr().includes('No kyc-tokend answers'))
  await again()
  await cli(['refresh'])
  await expectUntil('the third token', () => lines().some(({ generation }) => generation === 3))
  const generations = lines().map(({ generation }) => generation)
  expect(generations.filter((generation) => generation !== undefined)).toEqual([1, 2, 3])
})

test('with --no-token it prints everything but the token', async () => {
  const token = hourToken()
  const { daemon } = await commandWorld({ answer: granting(token) })
  const { lines } = watch(daemon.ipcPath, '--no-token')
  await expectUntil('the line', () => lines().some(({ state }) => state === 'ready'))
  expect(lines().at(-1)).toMatchObject({ generation: 1, fingerprint: expect.any(String) as string })
  expect(JSON.stringify(lines())).not.toContain(token)
  expect(lines().at(-1)).not.toHaveProperty('accessToken')
})

test('says why there is no token, in JSON too', async () => {
  const { daemon } = await commandWorld({ answer: { status: 503 } })
  await daemon.logged('fetch-failed')
  const { lines } = watch(daemon.ipcPath)
  await expectUntil('the fault', () => lines().length > 0)
  expect(lines()[0]).toMatchObject({ code: 'no-token-yet', reason: 'server-error' })
})

test('ends without an error when its reader has seen enough, long before the next change', async () => {
  const { daemon, cli } = await commandWorld()
  await cli(['token'])
  const [node, program] = PROGRAM
  const { stdout, stderr } = spawnSync(
    'bash',
    ['-c', '"$0" "$1" watch --socket "$2" | head -1; echo "${PIPESTATUS[0]}"', node, program, daemon.ipcPath],
    { encoding: 'utf8', timeout: 20_000 },
  )
  expect(stdout).toMatch(/^\{"accessToken".*\}\n0\n$/)
  expect(stderr).toBe('')
})

test('without a daemon it ends with 69', async () => {
  expect(await runCli(['watch', '--socket', '/nonexistent'])).toMatchObject({ status: 69, stdout: '' })
})

test('a socket that is named by an unset variable is a mistake, not the default', async () => {
  expect(await runCli(['watch', '--socket', ''])).toMatchObject({ status: 64, stdout: '' })
})
