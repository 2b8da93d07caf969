// Reloads of a real daemon: under load, of every part, and none that costs a client its answer.
import { existsSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { TokenClient } from '../../src/client/index.ts'
import { credentials, textOf, tokenFile, type Daemon } from '../support/daemon.ts'
import { useDaemons } from '../support/daemon-world.ts'
import { askOnce } from '../support/ipc-client.ts'
import { statusOf, tokenOf } from '../support/outside.ts'
import { expectUntil } from '../support/until.ts'

const world = useDaemons()

async function started(config: object = {}): Promise<Daemon> {
  const daemon = await world.started(config)
  const answer = await askOnce(daemon.ipcPath, 'token.get', { waitSeconds: 10 })
  await expectUntil('the token file', () => tokenFile(daemon) === answer?.data['accessToken'])
  return daemon
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
    await daemon.reload({
      log: { level: 'info', format: 'json' },
      refresh: { maxAge: `${10 + (reloads % 5)}m` },
    })
  }
  over.abort()
  await Promise.all(asking)
  for (const answered of Object.values(answers)) expect(answered).toBeGreaterThan(20)
  expect(daemon.records('reload-failed')).toEqual([])
  expect(world.service.requests).toHaveLength(1)
  expect(tokenFile(daemon)).toBe(accessToken)
})

test('settings that show only late that they cannot work leave the sockets where they are', async () => {
  const daemon = await world.started({}, { env: { HTTPS_PROXY: 'socks5://proxy.test:1' } })
  await daemon.reload({
    baseUrl: 'https://service.test',
    ipc: { path: join(world.directory, 'run', 'other.sock') },
  })
  expect((await daemon.logged('reload-failed'))['error']).toContain('HTTPS_PROXY')
  expect(await askOnce(daemon.ipcPath, 'status.get', {})).toMatchObject({ type: 'status.result' })
  expect(existsSync(join(world.directory, 'run', 'other.sock'))).toBe(false)
})

test('HTTP is switched off and on', async () => {
  const daemon = await started()
  await daemon.reload({ http: false })
  await expectUntil('the socket to go', () => !existsSync(daemon.httpPath))
  expect(await askOnce(daemon.ipcPath, 'status.get', {})).toMatchObject({ data: { clients: { http: null } } })
  await daemon.reload()
  expect((await tokenOf(daemon)).state).toBe('ready')
  expect(world.service.requests).toHaveLength(1)
})

test('other token files are written, and the ones that are no longer configured are removed', async () => {
  const daemon = await started({ tokenFiles: [{ path: 'token' }, { path: 'headers', format: 'header' }] })
  const { accessToken } = await tokenOf(daemon)
  const run = join(world.directory, 'run')
  await expectUntil('both files', () => existsSync(join(run, 'headers')))
  await daemon.reload({
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
    ipcPath: join(world.directory, 'run', 'moved.sock'),
    httpPath: join(world.directory, 'run', 'moved-http.sock'),
  }
  await daemon.reload({ ipc: { path: 'moved.sock' }, http: { path: 'moved-http.sock' } })
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
  ['ipc', { ipc: { path: 'taken.sock' } }, {}],
  ['http', { http: { path: 'taken.sock' } }, {}],
  ['http, which was switched off', { http: { path: 'taken.sock' } }, { http: false }],
  ['both', { ipc: { path: 'moved.sock' }, http: { path: 'taken.sock' } }, {}],
])(
  'a socket that is taken leaves the running configuration as it is, whole: %s',
  async (_, config, first) => {
    const daemon = await started(first)
    await occupy(join(world.directory, 'run', 'taken.sock'))
    await daemon.reload({ ...config, tokenFiles: [{ path: 'other' }] })
    expect((await daemon.logged('reload-failed'))['error']).toMatch(/answers at .*taken\.sock.*path/)
    expect(await askOnce(daemon.ipcPath, 'token.get', {})).toMatchObject({ type: 'token.result' })
    const status = await askOnce(daemon.ipcPath, 'status.get', {})
    expect(status?.data['files']).toMatchObject([{ path: join(world.directory, 'run', 'token') }])
    expect(existsSync(join(world.directory, 'run', 'other'))).toBe(false)
    expect(existsSync(join(world.directory, 'run', 'moved.sock'))).toBe(false)
  },
)

test('other directories take effect at a restart and not before, and that is said each time', async () => {
  const daemon = await started()
  const elsewhere = join(world.directory, 'elsewhere')
  for (let reloads = 1; reloads <= 2; reloads += 1) {
    await daemon.reload({ runtimeDirectory: elsewhere, stateDirectory: join(elsewhere, 'state') })
    const needed = await expectUntil('two more records', () => {
      const records = daemon.records('restart-needed')
      return records.length >= 2 * reloads && records
    })
    expect(needed.map(({ setting }) => setting).slice(-2)).toEqual(['runtimeDirectory', 'stateDirectory'])
    expect(needed).toHaveLength(2 * reloads)
  }
  expect(existsSync(elsewhere)).toBe(false)
  const { accessToken } = await tokenOf(daemon)
  expect(tokenFile(daemon)).toBe(accessToken)
  await daemon.end()
  await world.started({ runtimeDirectory: elsewhere, stateDirectory: join(elsewhere, 'state') })
  await expectUntil('the token file', () => textOf(join(elsewhere, 'token')) !== undefined)
})

test('a faulty file is logged with all its faults, and a corrected one is enough', async () => {
  const daemon = await started()
  writeFileSync(daemon.configFile, '{ "baseUrl": ')
  daemon.process.kill('SIGHUP')
  await daemon.logged('reload-failed')
  expect((await tokenOf(daemon)).state).toBe('ready')
  await daemon.reload({ credentials: { ...credentials, apiSecret: 'mended-secret-1' } })
  await world.service.arrived(2)
  expect(world.service.requests[1]?.body).toContain('mended-secret-1')
})

test('the log has its new level from then on', async () => {
  const daemon = await world.started({ log: { level: 'info', format: 'json' } })
  await tokenOf(daemon)
  await daemon.logged('token-taken')
  expect(daemon.log().filter(({ level }) => level === 'debug')).toEqual([])
  await daemon.reload()
  await tokenOf(daemon)
  await daemon.logged('token-given')
})
