// Reloads of a real daemon: under load, of every part, and none that costs a client its answer.
import { existsSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { beforeEach, expect, onTestFinished, test } from 'vitest'
import { TokenClient } from '../../src/client/index.ts'
import { configOf, credentials, startDaemon, tokenFile, type Daemon } from '../support/daemon.ts'
import { askOnce } from '../support/ipc-client.ts'
import { httpAsk, serviceOf, statusOf, textOf, tokenOf } from '../support/outside.ts'
import type { Service } from '../support/service.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'

let service: Service
let directory: string

beforeEach(async () => {
  directory = await tempDirectory()
  service = await serviceOf()
})

async function started(config: object = {}): Promise<Daemon> {
  const daemon = startDaemon({ directory, baseUrl: service.url, config })
  await daemon.listening()
  const { accessToken } = await tokenOf(daemon)
  await expectUntil('the token file', () => tokenFile(daemon) === accessToken)
  return daemon
}

const count = (daemon: Daemon, event: string): number =>
  daemon.log().filter((line) => line.event === event).length

/** Reloads with this beside the usual; waits until the daemon has said how it went. */
async function reload(daemon: Daemon, config: object = {}): Promise<void> {
  const before = count(daemon, 'reloaded') + count(daemon, 'reload-failed')
  daemon.configure(configOf({ directory, baseUrl: service.url, config }))
  daemon.process.kill('SIGHUP')
  await expectUntil('the reload', () => count(daemon, 'reloaded') + count(daemon, 'reload-failed') > before)
}

test('100 reloads while clients ask continuously cost not one answer', { timeout: 120_000 }, async () => {
  const daemon = await started()
  const client = new TokenClient({ socketPath: daemon.ipcPath })
  onTestFinished(() => client.close())
  const { accessToken } = await client.get()
  const over = new AbortController()
  const answers = { client: 0, ipc: 0, http: 0 }
  const asking = [
    async () => {
      expect((await client.get()).accessToken).toBe(accessToken)
      answers.client += 1
    },
    async () => {
      expect(await askOnce(daemon.ipcPath, 'token.get', {})).toMatchObject({
        type: 'token.result',
        data: { accessToken },
      })
      answers.ipc += 1
    },
    async () => {
      expect((await tokenOf(daemon)).accessToken).toBe(accessToken)
      answers.http += 1
    },
  ].map(async (ask) => {
    while (!over.signal.aborted) await ask()
  })
  for (let reloads = 0; reloads < 100; reloads += 1) {
    await reload(daemon, {
      log: { level: 'info', format: 'json' },
      refresh: { maxAge: `${10 + (reloads % 5)}m` },
    })
  }
  over.abort()
  await Promise.all(asking)
  for (const answered of Object.values(answers)) expect(answered).toBeGreaterThan(20)
  expect(count(daemon, 'reload-failed')).toBe(0)
  expect(service.requests).toHaveLength(1)
  expect(tokenFile(daemon)).toBe(accessToken)
})

test('settings that show only late that they cannot work leave the sockets where they are', async () => {
  const daemon = startDaemon({
    directory,
    baseUrl: service.url,
    env: { HTTPS_PROXY: 'socks5://proxy.test:1' },
  })
  await daemon.listening()
  await reload(daemon, {
    baseUrl: 'https://service.test',
    ipc: { path: join(directory, 'run', 'other.sock') },
  })
  expect((await daemon.logged('reload-failed'))['error']).toContain('HTTPS_PROXY')
  expect(await askOnce(daemon.ipcPath, 'status.get', {})).toMatchObject({ type: 'status.result' })
  expect(existsSync(join(directory, 'run', 'other.sock'))).toBe(false)
})

test('HTTP is switched off and on', async () => {
  const daemon = await started()
  await reload(daemon, { http: false })
  await expectUntil('the socket to go', () => !existsSync(daemon.httpPath))
  expect(await askOnce(daemon.ipcPath, 'status.get', {})).toMatchObject({ data: { clients: { http: null } } })
  await reload(daemon)
  expect((await tokenOf(daemon)).state).toBe('ready')
  expect(service.requests).toHaveLength(1)
})

test('other token files are written, and the ones that are no longer configured are removed', async () => {
  const daemon = await started({ tokenFiles: [{ path: 'token' }, { path: 'headers', format: 'header' }] })
  const { accessToken } = await tokenOf(daemon)
  const run = join(directory, 'run')
  await expectUntil('both files', () => existsSync(join(run, 'headers')))
  await reload(daemon, {
    tokenFiles: [
      { path: 'headers', format: 'header' },
      { path: 'other.env', format: 'env', mode: '0640' },
    ],
  })
  await expectUntil(
    'the new file',
    () => textOf(join(run, 'other.env')) === `KYC_ACCESS_TOKEN=${accessToken}\n`,
  )
  await expectUntil('the old one to go', () => !existsSync(join(run, 'token')))
  expect(textOf(join(run, 'headers'))).toBe(`Authorization: Bearer ${accessToken}\n`)
  expect((await statusOf(daemon)).files.map(({ path, ok }) => [path, ok])).toEqual([
    [join(run, 'headers'), true],
    [join(run, 'other.env'), true],
  ])
})

test('the sockets move, and those who are connected stay so', async () => {
  const daemon = await started()
  const client = new TokenClient({ socketPath: daemon.ipcPath })
  onTestFinished(() => client.close())
  const { accessToken } = await client.get()
  const moved = {
    ipcPath: join(directory, 'run', 'moved.sock'),
    httpPath: join(directory, 'run', 'moved-http.sock'),
  }
  await reload(daemon, { ipc: { path: 'moved.sock' }, http: { path: 'moved-http.sock' } })
  expect(await askOnce(moved.ipcPath, 'token.get', {})).toMatchObject({ data: { accessToken } })
  expect((await tokenOf(moved)).accessToken).toBe(accessToken)
  expect(existsSync(daemon.ipcPath)).toBe(false)
  expect(existsSync(daemon.httpPath)).toBe(false)
  expect((await client.get()).accessToken).toBe(accessToken)
})

/** Another program's socket at this path, until the test ends. */
async function occupy(path: string): Promise<void> {
  const server = createServer((socket) => void socket.destroy())
  onTestFinished(() => void server.close())
  await new Promise<void>((resolve) => server.listen(path, resolve))
}

test.each([
  ['ipc', { ipc: { path: 'taken.sock' } }],
  ['http', { http: { path: 'taken.sock' } }],
  ['both', { ipc: { path: 'moved.sock' }, http: { path: 'taken.sock' } }],
])('a socket that is taken leaves the running configuration as it is, whole: %s', async (_, config) => {
  const daemon = await started()
  await occupy(join(directory, 'run', 'taken.sock'))
  await reload(daemon, { ...config, tokenFiles: [{ path: 'other' }] })
  expect((await daemon.logged('reload-failed'))['error']).toMatch(/answers at .*taken\.sock.*path/)
  expect(await askOnce(daemon.ipcPath, 'token.get', {})).toMatchObject({ type: 'token.result' })
  expect((await statusOf(daemon)).files.map(({ path }) => path)).toEqual([join(directory, 'run', 'token')])
  expect(existsSync(join(directory, 'run', 'other'))).toBe(false)
  expect(existsSync(join(directory, 'run', 'moved.sock'))).toBe(false)
})

test('HTTP that cannot be switched on leaves the running configuration as it is', async () => {
  const daemon = startDaemon({ directory, baseUrl: service.url, config: { http: false } })
  await daemon.listening()
  await occupy(daemon.httpPath)
  await reload(daemon, { tokenFiles: [{ path: 'other' }] })
  expect((await daemon.logged('reload-failed'))['error']).toMatch(/answers at .*http\.sock.*path/)
  expect(await askOnce(daemon.ipcPath, 'token.get', { waitSeconds: 5 })).toMatchObject({
    type: 'token.result',
  })
  expect(existsSync(join(directory, 'run', 'other'))).toBe(false)
  expect(await daemon.end()).toBe(0)
})

test('who may use a socket changes with `allow`, also for those who are connected', async () => {
  const daemon = await started()
  expect(await askOnce(daemon.ipcPath, 'token.get', {})).toMatchObject({ type: 'token.result' })
  await reload(daemon, { http: { allow: { users: [4_000_000_001] } } })
  expect(count(daemon, 'reload-failed')).toBe(0)
  // Root and the daemon's own user are always allowed.
  expect((await httpAsk(daemon, '/v1/token')).status).toBe(200)
})

test('other directories take effect at a restart and not before, and that is said each time', async () => {
  const daemon = await started()
  const elsewhere = join(directory, 'elsewhere')
  for (let reloads = 1; reloads <= 2; reloads += 1) {
    await reload(daemon, { runtimeDirectory: elsewhere, stateDirectory: join(elsewhere, 'state') })
    await expectUntil('two more records', () => count(daemon, 'restart-needed') >= 2 * reloads)
    const needed = daemon.log().filter(({ event }) => event === 'restart-needed')
    expect(needed.map(({ setting }) => setting).slice(-2)).toEqual(['runtimeDirectory', 'stateDirectory'])
    expect(needed).toHaveLength(2 * reloads)
  }
  expect(existsSync(elsewhere)).toBe(false)
  const { accessToken } = await tokenOf(daemon)
  expect(tokenFile(daemon)).toBe(accessToken)
  await daemon.end()
  const restarted = startDaemon({
    directory,
    baseUrl: service.url,
    config: { runtimeDirectory: elsewhere, stateDirectory: join(elsewhere, 'state') },
  })
  await restarted.listening()
  await expectUntil('the token file', () => textOf(join(elsewhere, 'token')) !== undefined)
})

test('the status says at once how the configuration on disk is, also after a check that kept a reload away', async () => {
  const daemon = await started()
  const onDisk = async (): Promise<unknown> => (await statusOf(daemon)).daemon.configuration
  expect(await onDisk()).toEqual({ state: 'current', problem: null })
  writeFileSync(daemon.configFile, '{ "baseUrl": ')
  expect(await onDisk()).toEqual({
    state: 'faulty',
    problem: expect.stringContaining(daemon.configFile) as string,
  })
  daemon.configure(configOf({ directory, baseUrl: service.url, config: { refresh: { maxAge: '7m' } } }))
  expect(await onDisk()).toEqual({ state: 'changed', problem: null })
  await reload(daemon, { refresh: { maxAge: '7m' } })
  expect(await onDisk()).toEqual({ state: 'current', problem: null })
})

test('a faulty file is logged with all its faults, and a corrected one is enough', async () => {
  const daemon = await started()
  writeFileSync(daemon.configFile, '{ "baseUrl": ')
  daemon.process.kill('SIGHUP')
  await daemon.logged('reload-failed')
  expect((await tokenOf(daemon)).state).toBe('ready')
  await reload(daemon, { credentials: { ...credentials, apiSecret: 'mended-secret-1' } })
  await service.arrived(2)
  expect(service.requests[1]?.body).toContain('mended-secret-1')
})
