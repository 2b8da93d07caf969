// An account that the service refuses: one alert, no further request, and a good token that is served on.
import { expect, test } from 'vitest'
import { alertFile, tokenFile } from '../support/daemon.ts'
import { useDaemons } from '../support/daemon-world.ts'
import { askOnce } from '../support/ipc-client.ts'
import { command, httpAsk, statusOf, tokenOf } from '../support/outside.ts'
import { accountInactive } from '../support/service.ts'
import { expectUntil } from '../support/until.ts'

const world = useDaemons()

test('a refusal is one alert with what to do, wherever one looks, and no further request', async () => {
  const { service } = world
  service.answer(accountInactive)
  const reason = 'account-inactive'
  const daemon = await world.started({ retry: { initialDelay: '10ms', maxDelay: '100ms' } })
  expect(await daemon.logged('alert')).toMatchObject({
    level: 'alert',
    reason,
    detail: 'Your account is not active',
    remedy: expect.stringMatching(/support/) as string,
    host: expect.any(String) as string,
  })
  await expectUntil('alert.json', () => alertFile(daemon)?.['reason'] === reason)
  expect(await statusOf(daemon)).toMatchObject({
    state: 'refused',
    alert: { reason },
    nextAttemptAt: null,
    service: { requests: 1 },
  })
  expect((await command(daemon, 'status', '--json')).status).toBe(77)
  expect(await command(daemon, 'token')).toMatchObject({ status: 77, stdout: '' })
  expect((await httpAsk(daemon, '/healthz')).status).toBe(200)
  // Readers that insist, and reports: all answered from memory.
  await Promise.all(
    Array.from({ length: 50 }, () => httpAsk(daemon, '/v1/token?minValidSeconds=600&waitSeconds=0')),
  )
  await askOnce(daemon.ipcPath, 'token.reject', { fingerprint: '0123456789abcdef' })
  expect(service.requests).toHaveLength(1)
  expect(daemon.records('alert')).toHaveLength(1)
})

test('a token that is still good is served on, and said to be refused', async () => {
  const daemon = await world.started()
  const { accessToken } = await tokenOf(daemon)
  world.service.answer(accountInactive)
  daemon.process.kill('SIGUSR2')
  await daemon.logged('alert')
  expect(await tokenOf(daemon)).toMatchObject({ accessToken, state: 'refused' })
  expect((await httpAsk(daemon, '/readyz')).status).toBe(200)
  expect(await command(daemon, 'token')).toMatchObject({ status: 0, stdout: `${accessToken}\n` })
  expect((await command(daemon, 'status')).status).toBe(77)
  expect(tokenFile(daemon)).toBe(accessToken)
})
