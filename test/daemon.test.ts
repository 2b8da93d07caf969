// One daemon with a service, as a process: what it asks, serves and writes, and what keeps it from starting.
import { mkdirSync, readdirSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeEach, expect, test } from 'vitest'
import { credentials, startDaemon, tokenFile, type Daemon } from './support/daemon.ts'
import { httpAsk, serviceOf, tokenOf } from './support/outside.ts'
import type { Service } from './support/service.ts'
import { tempDirectory } from './support/temp-directory.ts'
import { expectUntil } from './support/until.ts'

let service: Service
let directory: string

beforeEach(async () => {
  directory = await tempDirectory()
  service = await serviceOf()
})

async function started(): Promise<Daemon> {
  const daemon = startDaemon({ directory, baseUrl: service.url })
  await daemon.listening()
  return daemon
}

test('the daemon asks once with the credentials, serves the token over its socket and writes it to its file', async () => {
  const daemon = await started()
  const token = await tokenOf(daemon)
  await expectUntil('the token file', () => tokenFile(daemon) === token.accessToken)
  expect(service.requests).toHaveLength(1)
  const [arrived] = service.requests
  expect(arrived).toMatchObject({ method: 'POST', path: '/token/external/jwt' })
  expect(JSON.parse(arrived?.body ?? '')).toEqual(credentials)
  expect(statSync(join(directory, 'run', 'token')).mode & 0o777).toBe(0o600)
  expect(statSync(join(directory, 'state')).mode & 0o777).toBe(0o700)
})

test('a second daemon leaves the sockets to the daemon that has them, without a request', async () => {
  const first = await started()
  await tokenOf(first)
  const second = startDaemon({ directory, baseUrl: service.url })
  expect(await second.ended()).toBe(69)
  expect(second.stderr()).toMatch(/answers at .*ipc\.sock/)
  expect(service.requests).toHaveLength(1)
  expect(await tokenOf(first)).toMatchObject({ state: 'ready' })
})

test.each(['ipc', 'http'])(
  'the daemon ends if something else is at the path of its socket for %s',
  async (name) => {
    mkdirSync(join(directory, 'run'), { mode: 0o700 })
    writeFileSync(join(directory, 'run', `${name}.sock`), '')
    const daemon = startDaemon({ directory, baseUrl: service.url })
    expect(await daemon.ended()).toBe(78)
    expect(daemon.stderr()).toMatch(new RegExp(`${name}\\.sock is in the way`))
  },
)

test('the daemon ends and gives up its sockets if a setting shows only late that it cannot work', async () => {
  const env = { HTTPS_PROXY: 'socks5://proxy.test:1080' }
  const daemon = startDaemon({ directory, baseUrl: 'https://service.test', env })
  expect(await daemon.ended()).toBe(78)
  expect(daemon.stderr()).toContain('HTTPS_PROXY')
  expect(readdirSync(join(directory, 'run')).filter((name) => name.endsWith('.sock'))).toEqual([])
})

test('the daemon serves its metrics over HTTP', async () => {
  const daemon = await started()
  await tokenOf(daemon)
  const { status, body } = await httpAsk(daemon, '/metrics')
  expect(status).toBe(200)
  expect(body).toMatch(/^kyc_tokend_fetches_total\{outcome="ok",reason="none"\} 1$/m)
})
