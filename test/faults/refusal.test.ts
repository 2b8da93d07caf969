// An account that the service refuses: one alert, no further request, and the way out of it.
import { beforeEach, describe, expect, test } from 'vitest'
import { alertFile, tokenFile } from '../support/daemon.ts'
import { useDaemons } from '../support/daemon-world.ts'
import { askOnce } from '../support/ipc-client.ts'
import { command, httpAsk, statusOf, tokenOf } from '../support/outside.ts'
import { accountInactive, accountNotFound } from '../support/service.ts'
import { expectUntil } from '../support/until.ts'

const world = useDaemons()

beforeEach(() => world.service.answer(accountInactive))

describe.each([
  ['account-inactive', accountInactive, 'Your account is not active', /support/],
  ['account-not-found', accountNotFound, 'Account not found', /dashboard/],
] as const)('%s', (reason, answer, detail, remedy) => {
  test('is one alert with what to do, wherever one looks, and no further request', async () => {
    const { service } = world
    service.answer(answer)
    const daemon = await world.started({ retry: { initialDelay: '10ms', maxDelay: '100ms' } })
    expect(await daemon.logged('alert')).toMatchObject({
      level: 'alert',
      reason,
      detail,
      remedy: expect.stringMatching(remedy) as string,
      host: expect.any(String) as string,
    })
    await expectUntil('alert.json', () => alertFile(daemon)?.['reason'] === reason)
    expect(await statusOf(daemon)).toMatchObject({
      state: 'refused',
      alert: { reason },
      nextAttemptAt: null,
      service: { requests: 1 },
    })
    const status = await command(daemon, 'status')
    expect(status.status).toBe(77)
    expect(status.stdout).toMatch(remedy)
    expect((await command(daemon, 'status', '--json')).status).toBe(77)
    const token = await command(daemon, 'token')
    expect(token).toMatchObject({ status: 77, stdout: '' })
    expect(await httpAsk(daemon, '/readyz')).toMatchObject({ status: 503 })
    expect((await httpAsk(daemon, '/healthz')).status).toBe(200)
    expect(await httpAsk(daemon, '/v1/token')).toMatchObject({ status: 503, json: { code: reason } })
    expect(await askOnce(daemon.ipcPath, 'token.get', {})).toMatchObject({
      type: 'fault',
      data: { code: reason },
    })
    // Readers that insist, and reports: all answered from memory.
    await Promise.all(
      Array.from({ length: 50 }, () => httpAsk(daemon, '/v1/token?minValidSeconds=600&waitSeconds=0')),
    )
    await askOnce(daemon.ipcPath, 'token.reject', { fingerprint: '0123456789abcdef' })
    expect(service.requests).toHaveLength(1)
    expect(daemon.records('alert')).toHaveLength(1)
  })
})

test('a token that is still good is served on, and said to be refused', async () => {
  const { service } = world
  service.answer(() => world.grant())
  const daemon = await world.started()
  const { accessToken } = await tokenOf(daemon)
  service.answer(accountInactive)
  daemon.process.kill('SIGUSR2')
  await daemon.logged('alert')
  expect(await tokenOf(daemon)).toMatchObject({ accessToken, state: 'refused' })
  expect((await httpAsk(daemon, '/readyz')).status).toBe(200)
  expect(await command(daemon, 'token')).toMatchObject({ status: 0, stdout: `${accessToken}\n` })
  expect((await command(daemon, 'status')).status).toBe(77)
  expect(tokenFile(daemon)).toBe(accessToken)
})

test('an operator ends it once the account is active again', async () => {
  const daemon = await world.started()
  await daemon.logged('alert')
  const refused = await command(daemon, 'refresh')
  expect(refused.status).toBe(77)
  expect(refused.stderr).toContain('Your account is not active')
  // The same alert is still raised: it is not raised twice.
  expect(daemon.records('alert')).toHaveLength(1)
  world.service.answer(() => world.grant())
  expect((await command(daemon, 'refresh')).status).toBe(0)
  await daemon.logged('alert-resolved')
  await expectUntil('alert.json to go', () => alertFile(daemon) === undefined)
  expect((await command(daemon, 'status')).status).toBe(0)
  expect(world.service.requests).toHaveLength(3)
})
