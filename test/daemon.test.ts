import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { request } from 'node:http'
import { join } from 'node:path'
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { TokenClient } from '../src/client/index.ts'
import { configOf, credentials, startDaemon, tokenFile, type Daemon } from './support/daemon.ts'
import { jwtOf } from './support/jwt.ts'
import { granting, refusing, startService, type Service } from './support/service.ts'
import { tempDirectory } from './support/temp-directory.ts'
import { expectUntil } from './support/until.ts'

let service: Service
let directory: string
let issued = 0

beforeEach(async () => {
  directory = await tempDirectory()
  service = await startService({ answer: () => granting(freshToken()) })
  onTestFinished(async () => service.stop())
})

function freshToken(lifeS = 3_600): string {
  const now = Date.now() / 1000
  issued += 1
  return jwtOf({ iat: now, exp: now + lifeS }, issued)
}

async function started(config: object = {}): Promise<Daemon> {
  const daemon = startDaemon({ directory, baseUrl: service.url, config })
  await daemon.listening()
  return daemon
}

function clientOf(daemon: Daemon): TokenClient {
  const client = new TokenClient({ socketPath: daemon.ipcPath })
  onTestFinished(() => client.close())
  return client
}

function overHttp(daemon: Daemon, path: string): Promise<{ status: number | undefined; body: string }> {
  return new Promise((resolve, reject) => {
    request({ socketPath: daemon.httpPath, path }, (response) => {
      let body = ''
      response.setEncoding('utf8').on('data', (chunk: string) => (body += chunk))
      response.on('end', () => resolve({ status: response.statusCode, body }))
    })
      .on('error', reject)
      .end()
  })
}

describe('the daemon', () => {
  test('asks once with the credentials, serves the token over its socket and writes it to its file', async () => {
    const daemon = await started()
    const token = await clientOf(daemon).get({})
    await expectUntil('the token file', () => tokenFile(daemon) === token.accessToken)
    expect(service.requests).toHaveLength(1)
    const [arrived] = service.requests
    expect(arrived).toMatchObject({ method: 'POST', path: '/token/external/jwt' })
    expect(JSON.parse(arrived?.body ?? '')).toEqual(credentials)
    expect(statSync(join(directory, 'run', 'token')).mode & 0o777).toBe(0o600)
    expect(statSync(join(directory, 'state')).mode & 0o777).toBe(0o700)
  })

  test('ends in order on SIGTERM, and leaves the token file and no sockets', async () => {
    const daemon = await started()
    const { accessToken } = await clientOf(daemon).get({})
    expect(await daemon.end('SIGTERM')).toBe(0)
    expect(tokenFile(daemon)).toBe(accessToken)
    expect(() => statSync(daemon.ipcPath)).toThrow(/ENOENT/)
    expect(() => statSync(daemon.httpPath)).toThrow(/ENOENT/)
  })

  test('serves a kept token after a kill -9 without another request', async () => {
    const first = await started()
    const before = await clientOf(first).get({})
    const saved = (path: string): string =>
      existsSync(join(directory, path)) ? readFileSync(join(directory, path), 'utf8') : ''
    // The token is saved first: until the rest is, the attempt counts as failed and is repeated.
    await expectUntil(
      'the token to be kept',
      () =>
        saved('run/kept.json').includes(before.accessToken) &&
        saved('state/memory.json').includes('"failure":null'),
    )
    await first.end('SIGKILL')
    const second = await started()
    const after = await clientOf(second).get({})
    expect(after.accessToken).toBe(before.accessToken)
    expect(service.requests).toHaveLength(1)
  })

  test('takes other credentials over at SIGHUP, and keeps the running configuration where the new one is faulty', async () => {
    const daemon = await started()
    await clientOf(daemon).get({})
    daemon.configure({ ...configOf({ directory, baseUrl: service.url }), retry: { initialDelay: 5 } })
    daemon.process.kill('SIGHUP')
    expect((await daemon.logged('reload-failed'))['error']).toContain('retry.initialDelay')
    daemon.configure({
      ...configOf({ directory, baseUrl: service.url }),
      credentials: { ...credentials, apiSecret: 'another-secret-99' },
    })
    daemon.process.kill('SIGHUP')
    await service.arrived(2)
    expect(JSON.parse(service.requests[1]?.body ?? '')).toMatchObject({ apiSecret: 'another-secret-99' })
  })

  test('asks at once on SIGUSR2, also where the account was refused', async () => {
    service.answer(refusing(500, 'Your account is not active'))
    const daemon = await started()
    await daemon.logged('alert')
    service.answer(() => granting(freshToken()))
    daemon.process.kill('SIGUSR2')
    await daemon.logged('alert-resolved')
    expect(await clientOf(daemon).get({})).toMatchObject({ state: 'ready' })
  })

  test('opens no debugger on SIGUSR1, which is beside SIGUSR2 on the keyboard', async () => {
    const daemon = await started()
    await clientOf(daemon).get({})
    daemon.process.kill('SIGUSR1')
    daemon.process.kill('SIGUSR2')
    await service.arrived(2)
    expect(daemon.stderr()).not.toContain('Debugger')
    expect(await daemon.end()).toBe(0)
  })

  test('leaves the sockets to the daemon that has them, without a request', async () => {
    const first = await started()
    await clientOf(first).get({})
    const second = startDaemon({ directory, baseUrl: service.url })
    expect(await second.ended()).toBe(69)
    expect(second.stderr()).toMatch(/answers at .*ipc\.sock/)
    expect(service.requests).toHaveLength(1)
    expect(await clientOf(first).get({})).toMatchObject({ state: 'ready' })
  })

  test.each(['ipc', 'http'])(
    'ends where something else is at the path of its socket for %s',
    async (name) => {
      mkdirSync(join(directory, 'run'), { mode: 0o700 })
      writeFileSync(join(directory, 'run', `${name}.sock`), '')
      const daemon = startDaemon({ directory, baseUrl: service.url })
      expect(await daemon.ended()).toBe(78)
      expect(daemon.stderr()).toMatch(new RegExp(`${name}\\.sock is in the way`))
    },
  )

  test('ends and gives up its sockets where a setting shows only late that it cannot work', async () => {
    const env = { HTTPS_PROXY: 'socks5://proxy.test:1080' }
    const daemon = startDaemon({ directory, baseUrl: 'https://service.test', env })
    expect(await daemon.ended()).toBe(78)
    expect(daemon.stderr()).toContain('HTTPS_PROXY')
    expect(readdirSync(join(directory, 'run')).filter((name) => name.endsWith('.sock'))).toEqual([])
  })

  test('serves its metrics over HTTP', async () => {
    const daemon = await started()
    await clientOf(daemon).get({})
    const { status, body } = await overHttp(daemon, '/metrics')
    expect(status).toBe(200)
    expect(body).toMatch(/^kyc_tokend_fetches_total\{outcome="ok",reason="none"\} 1$/m)
  })

  test('never shows token or credentials in its log, not even at debug', async () => {
    const daemon = await started()
    const { accessToken } = await clientOf(daemon).get({})
    service.answer(({ body }) => ({ status: 500, json: { detail: `Sent: ${body} ${accessToken}` } }))
    daemon.process.kill('SIGUSR2')
    await daemon.logged('fetch-failed')
    await daemon.end()
    for (const secret of [accessToken, credentials.apiKey, credentials.apiSecret]) {
      expect(daemon.stderr()).not.toContain(secret)
    }
  })
})
