import { expect, test } from 'vitest'
import { daemonWith } from '../support/client-world.ts'
import { commandWorld, hourToken } from '../support/daemon-world.ts'
import { tokenFields } from '../support/scripted-daemon.ts'
import { accountInactive, granting } from '../support/service.ts'
import { runCli } from '../support/run-cli.ts'

test('asks the service now and says how it went: another token, the same one, or none (75)', async () => {
  const token = hourToken(2)
  const { cli, service } = await commandWorld()
  await cli(['token'])
  service.answer(granting(token))
  const life = String.raw`[0-9a-f]{16}, good for (59 min( \d+ s)?|1 h)\.\n$`
  for (const words of ['New token', 'The service gave the same token again:']) {
    const { status, stdout } = await cli(['refresh'])
    expect(status).toBe(0)
    expect(stdout).toMatch(new RegExp(`^${words} ${life}`))
  }
  expect(service.requests.length).toBe(3)
  service.answer({ status: 503 })
  const { status, stdout, stderr } = await cli(['refresh'])
  expect({ status, stdout }).toEqual({ status: 75, stdout: '' })
  expect(stderr).toMatch(
    /^No new token \(server-error\): .+\. .*goes on asking.*\. Token [0-9a-f]{16} is still served\.\n$/,
  )
})

test('ends once the new token is in the token files', async () => {
  let questions = 0
  const daemon = await daemonWith(({ type, answer }) => {
    if (type === 'refresh.request')
      return answer('refresh.result', { outcome: 'ok', ...tokenFields('token-2') })
    questions += 1
    const writtenAt = questions < 4 ? '2029-12-31T23:59:59.000Z' : '2030-01-01T00:00:00.001Z'
    answer('status.result', { token: null, files: [{ path: 'token', ok: true, writtenAt }] })
  })
  const { status } = await runCli(['refresh', '--socket', daemon.path])
  expect({ status, questions }).toEqual({ status: 0, questions: 4 })
})

test('a refusal is 77, also without a token', async () => {
  const { cli, service } = await commandWorld({ answer: accountInactive })
  await service.arrived(1)
  const { status, stderr } = await cli(['refresh'])
  expect(status).toBe(77)
  expect(stderr).toMatch(/^No new token \(account-inactive\): .+\. .+\.\n$/)
})

test.each([
  ['stopping', 'It is stopping: ask again later'],
  // Of a newer daemon.
  ['quota-of-2031', 'It is used up'],
])('a daemon that says %j is 75 with its own words', async (reason, detail) => {
  const daemon = await daemonWith(({ type, answer }) => {
    if (type === 'status.get')
      return answer('status.result', { token: null, daemon: { pid: 1, configFile: '/nowhere/c.json' } })
    return answer('refresh.result', { outcome: 'failed', reason, detail })
  })
  const ended = await runCli(['refresh', '--socket', daemon.path])
  const stderr = `No new token (${reason}): ${detail}.\n`
  expect(ended).toMatchObject({ status: 75, stdout: '', stderr })
})
