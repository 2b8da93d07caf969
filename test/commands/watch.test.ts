import { expect, test } from 'vitest'
import { commandWorld, hourToken } from '../support/daemon-world.ts'
import { startCli } from '../support/run-cli.ts'
import { granting, type Answer } from '../support/service.ts'
import { expectUntil } from '../support/until.ts'

const renewing: Answer = (_, { number }) => granting(hourToken(number))

function watch(socketPath: string) {
  const { stdout, stderr } = startCli(['watch', '--socket', socketPath])
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

test('says why there is no token, in JSON too', async () => {
  const { daemon } = await commandWorld({ answer: { status: 503 } })
  await daemon.logged('fetch-failed')
  const { lines } = watch(daemon.ipcPath)
  await expectUntil('the fault', () => lines().length > 0)
  expect(lines()[0]).toMatchObject({ code: 'no-token-yet', reason: 'server-error' })
})
