import { createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { daemonWith } from '../support/client-world.ts'
import { commandWorld, hourToken } from '../support/daemon-world.ts'
import { listening } from '../support/listening.ts'
import { runCli } from '../support/run-cli.ts'
import { startScriptedDaemon, tokenFields } from '../support/scripted-daemon.ts'
import { granting } from '../support/service.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'

test('prints the token in the format that is asked for, and nothing else', async () => {
  const token = hourToken()
  const { cli } = await commandWorld({ answer: granting(token) })
  await cli(['token'])
  // More life than any token has: the freshest is printed.
  const formats = [
    ['--min-valid', '24h', '--wait', '0s'],
    ['--format', 'raw'],
    ['--format=header'],
    ['--format', 'env'],
    ['--format', 'json'],
  ]
  const ended = await Promise.all(formats.map((args) => cli(['token', ...args])))
  for (const { status, stderr } of ended) expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
  expect(ended.slice(0, 4).map(({ stdout }) => stdout)).toEqual([
    `${token}\n`,
    `${token}\n`,
    `Authorization: Bearer ${token}\n`,
    `KYC_ACCESS_TOKEN=${token}\n`,
  ])
  expect(JSON.parse(ended[4]?.stdout ?? '')).toMatchObject({
    accessToken: token,
    generation: 1,
    state: 'ready',
  })
})

test('without a daemon it ends with 69 at once and says how to start one', async () => {
  const directory = await tempDirectory()
  for (const args of [['--socket', join(directory, 'none.sock')], []]) {
    const { status, stdout, stderr } = await runCli(['token', ...args], {
      env: { XDG_RUNTIME_DIR: directory },
    })
    expect({ status, stdout }).toEqual({ status: 69, stdout: '' })
    expect(stderr).toMatch(/systemctl start kyc-tokend.*\/cli\.\w+ run/)
  }
})

test.each([
  ['expired', 75],
  ['no-token-yet', 75],
  ['busy', 75],
  ['account-inactive', 77],
  ['denied', 77],
  ['bad-request', 64],
])('the fault %s ends it with %d', async (code, status) => {
  const daemon = await daemonWith(({ answer }) =>
    answer('fault', { code, message: 'The sentence of the daemon.' }),
  )
  expect(await runCli(['token', '--wait', '0s', '--socket', daemon.path])).toMatchObject({
    status,
    stdout: '',
    stderr: 'The sentence of the daemon.\n',
  })
})

test('with --wait it also waits for a daemon that has not been started yet', async () => {
  const path = join(await tempDirectory(), 'ipc.sock')
  const tries: Socket[] = []
  const before = createServer((socket) => void tries.push(socket.destroy()))
  await listening(before, path)
  const ended = runCli(['token', '--wait', '20s', '--min-valid', '30m', '--socket', path])
  await expectUntil('a first try', () => tries.length > 0)
  before.close()
  const daemon = await startScriptedDaemon(path, ({ answer }) =>
    answer('token.result', tokenFields('token-1')),
  )
  onTestFinished(() => daemon.stop())
  expect(await ended).toMatchObject({ status: 0, stdout: 'token-1\n' })
})
