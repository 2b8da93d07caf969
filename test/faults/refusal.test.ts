// An account that the service refuses, seen from outside: one alert, no further request, and every way out of it.
import { beforeEach, describe, expect, test } from 'vitest'
import { configOf, credentials, startDaemon, tokenFile, type Daemon } from '../support/daemon.ts'
import { askOnce } from '../support/ipc-client.ts'
import { alertFile, command, freshToken, httpAsk, serviceOf, statusOf, tokenOf } from '../support/outside.ts'
import { accountInactive, accountNotFound, granting, type Service } from '../support/service.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'

let directory: string
let service: Service

beforeEach(async () => {
  directory = await tempDirectory()
  service = await serviceOf(accountInactive)
})

async function started(config: object = {}): Promise<Daemon> {
  const daemon = startDaemon({ directory, baseUrl: service.url, config })
  await daemon.listening()
  return daemon
}

const countOf = (daemon: Daemon, event: string): number =>
  daemon.log().filter((line) => line.event === event).length

describe.each([
  ['account-inactive', accountInactive, 'Your account is not active', /support/],
  ['account-not-found', accountNotFound, 'Account not found', /dashboard/],
] as const)('%s', (reason, answer, detail, remedy) => {
  test('is one alert with what to do, in the log, in alert.json and in the status, and no further request', async () => {
    service.answer(answer)
    const daemon = await started({ retry: { initialDelay: '10ms', maxDelay: '100ms' } })
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
    expect(countOf(daemon, 'alert')).toBe(1)
  })
})

test('a token that is still good is served on, and said to be refused', async () => {
  service.answer(() => granting(freshToken()))
  const daemon = await started()
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

test('other credentials end it at once', async () => {
  const daemon = await started()
  await daemon.logged('alert')
  service.answer(({ body }) => (body.includes('right-secret') ? granting(freshToken()) : accountInactive))
  // A reload without a change sends no request.
  daemon.process.kill('SIGHUP')
  await daemon.logged('reloaded')
  expect(service.requests).toHaveLength(1)
  daemon.configure(
    configOf({
      directory,
      baseUrl: service.url,
      config: { credentials: { ...credentials, apiSecret: 'right-secret' } },
    }),
  )
  daemon.process.kill('SIGHUP')
  await daemon.logged('alert-resolved')
  expect((await tokenOf(daemon)).state).toBe('ready')
  await expectUntil('alert.json to go', () => alertFile(daemon) === undefined)
  expect(service.requests).toHaveLength(2)
  expect(countOf(daemon, 'alert')).toBe(1)
})

test('`kyc-tokend refresh` asks once, and says how it went', async () => {
  const daemon = await started()
  await daemon.logged('alert')
  const refused = await command(daemon, 'refresh')
  expect(refused.status).toBe(77)
  expect(refused.stderr).toContain('Your account is not active')
  expect(service.requests).toHaveLength(2)
  // The same alert is still raised: it is not raised twice.
  expect(countOf(daemon, 'alert')).toBe(1)
  service.answer(() => granting(freshToken()))
  expect((await command(daemon, 'refresh')).status).toBe(0)
  await daemon.logged('alert-resolved')
  await expectUntil('alert.json to go', () => alertFile(daemon) === undefined)
  expect((await command(daemon, 'status')).status).toBe(0)
  expect(service.requests).toHaveLength(3)
})

test('an alert is said again when it is time, and after a crash once, but not with each request', async () => {
  const config = { alerts: { remindAfter: ['1s', '2s'] } }
  const first = await started(config)
  await expectUntil('both reminders', async () => {
    // A reload has the loop look, which it does by itself every 15 s.
    const reloads = countOf(first, 'reloaded')
    first.process.kill('SIGHUP')
    await expectUntil('the reload', () => countOf(first, 'reloaded') > reloads)
    return countOf(first, 'alert') === 3
  })
  const records = first.log().filter(({ event }) => event === 'alert')
  expect(records.map(({ reminder }) => reminder)).toEqual([undefined, 1, 2])
  const since = Date.parse(String(records[0]?.['since']))
  for (const [index, { time }] of records.entries()) {
    expect(Date.parse(String(time)) - since).toBeGreaterThanOrEqual(1_000 * index - 50)
  }
  await first.end('SIGKILL')
  const second = await started(config)
  await second.logged('alert')
  for (let requests = 0; requests < 20; requests += 1)
    await httpAsk(second, '/v1/token?minValidSeconds=86400')
  expect(second.log().filter(({ event }) => event === 'alert')).toMatchObject([{ resumed: true }])
  expect(service.requests).toHaveLength(1)
})
