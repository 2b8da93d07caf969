// Faults of the service and the network: their reasons, as they are seen from outside, and that nothing hangs or leaks.
import { writeFileSync } from 'node:fs'
import { createServer, type AddressInfo } from 'node:net'
import { join } from 'node:path'
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import type { StatusResult } from '../../src/protocol.ts'
import { createAuthority, createCertificate } from '../support/certificates.ts'
import { configOf, startDaemon, type Daemon } from '../support/daemon.ts'
import { alertFile, command, freshToken, httpAsk, serviceOf, statusOf, tokenOf } from '../support/outside.ts'
import { granting, refusing, startService, type Answer, type Service } from '../support/service.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'

/** Waits long enough between attempts that a test sees each of them. */
const slow = {
  retry: { initialDelay: '1h', maxDelay: '1h' },
  request: { timeout: '1s', connectTimeout: '1s' },
}

let directory: string

beforeEach(async () => {
  directory = await tempDirectory()
})

async function started(baseUrl: string, config: object = slow): Promise<Daemon> {
  const daemon = startDaemon({ directory, baseUrl, config })
  await daemon.listening()
  return daemon
}

/** The current failure, once there is one after this many attempts. */
const failureOf = (daemon: Daemon, attempts = 1): Promise<NonNullable<StatusResult['failure']>> =>
  expectUntil('a failure', async () => {
    const { failure } = await statusOf(daemon)
    return failure?.attempts === attempts && failure
  })

const answers: Record<string, { reason: string; answer: Answer }> = {
  'an answer that is reset in mid-body': {
    reason: 'network',
    answer(_, { response, socket }) {
      response.writeHead(200, { 'content-length': '1000' })
      response.write('{"accessToken":', () => socket.resetAndDestroy())
    },
  },
  'a connection that is closed without an answer': {
    reason: 'network',
    answer: (_, { socket }) => void socket.destroy(),
  },
  'an answer that drips a byte at a time': {
    reason: 'timeout',
    answer(_, { response }) {
      response.writeHead(200, { 'content-type': 'application/json' })
      const drip = setInterval(() => response.write(' '), 50)
      response.on('close', () => clearInterval(drip))
    },
  },
  'a service that never answers': { reason: 'timeout', answer: () => undefined },
  '10 MB': { reason: 'malformed-answer', answer: { body: Buffer.alloc(10 * 1024 * 1024, 'x') } },
  'bytes that are no HTTP': {
    reason: 'malformed-answer',
    answer: (_, { socket }) => void socket.end('HELLO\r\n\r\n'),
  },
  'a page of HTML': { reason: 'malformed-answer', answer: { body: '<html>Welcome</html>' } },
  'an answer without a token': { reason: 'malformed-answer', answer: { json: { token: 'abc' } } },
  'an expired token': { reason: 'malformed-answer', answer: () => granting(freshToken(-10)) },
  '503': { reason: 'server-error', answer: { status: 503, body: 'Bad day' } },
  '500 of another kind': { reason: 'server-error', answer: refusing(500, 'Something else') },
  '408': { reason: 'server-error', answer: { status: 408 } },
  '429': { reason: 'rate-limited', answer: { status: 429 } },
  '403': { reason: 'rejected', answer: { status: 403 } },
  'a 404 that is not the service’s own': { reason: 'rejected', answer: { status: 404, body: 'Cannot POST' } },
}

test('whatever it answers has its reason, and the token that is held is served on meanwhile', async () => {
  const service = await serviceOf()
  const daemon = await started(service.url)
  const { accessToken } = await tokenOf(daemon)
  let attempts = 0
  for (const [what, { reason, answer }] of Object.entries(answers)) {
    service.answer(answer)
    daemon.process.kill('SIGUSR2')
    attempts += 1
    expect((await failureOf(daemon, attempts)).reason, what).toBe(reason)
    expect(await tokenOf(daemon), what).toMatchObject({ accessToken, state: 'degraded', stale: false })
    expect((await httpAsk(daemon, '/readyz')).status, what).toBe(200)
    await expectUntil('no connection to be left', () => service.connections.open === 0)
  }
  expect((await command(daemon, 'status')).status).toBe(0)
  expect((await command(daemon, 'token')).stdout).toBe(`${accessToken}\n`)
  service.answer(() => granting(freshToken()))
  expect((await command(daemon, 'refresh')).status).toBe(0)
  expect(await statusOf(daemon)).toMatchObject({ state: 'ready', failure: null, alert: null })
  await expectUntil('the end of alert.json', () => alertFile(daemon) === undefined)
})

test('without a token every command and path says so, with the reason', async () => {
  const service = await serviceOf({ status: 503 })
  const daemon = await started(service.url)
  await failureOf(daemon)
  expect((await command(daemon, 'status')).status).toBe(75)
  const token = await command(daemon, 'token', '--wait', '0s')
  expect(token).toMatchObject({ status: 75, stdout: '' })
  expect(token.stderr.trim().split('\n')).toHaveLength(1)
  expect(await httpAsk(daemon, '/readyz')).toMatchObject({ status: 503 })
  expect(await httpAsk(daemon, '/v1/token')).toMatchObject({
    status: 503,
    json: { code: 'no-token-yet', reason: 'server-error' },
  })
  expect((await command(daemon, 'refresh')).status).toBe(75)
  expect(service.requests).toHaveLength(2)
})

test('a redirect to another host is not followed: that host sees nothing', async () => {
  const other = await serviceOf()
  const service = await serviceOf({ status: 307, headers: { location: `${other.url}/token/external/jwt` } })
  const daemon = await started(service.url)
  expect(await failureOf(daemon)).toMatchObject({ reason: 'malformed-answer', status: 307 })
  expect(other.connections.opened).toBe(0)
  expect(service.requests).toHaveLength(1)
})

test('a flapping service is asked again after each failure, and each recovery is logged once', async () => {
  const service = await serviceOf((_, { number }) =>
    number % 2 === 1 ? { status: 503 } : granting(freshToken()),
  )
  const daemon = await started(service.url, { retry: { initialDelay: '20ms' } })
  for (let flap = 1; flap <= 5; flap += 1) {
    await service.arrived(2 * flap)
    await expectUntil('a good token', async () => (await statusOf(daemon)).state === 'ready')
    if (flap < 5) daemon.process.kill('SIGUSR2')
  }
  const countOf = (event: string): number => daemon.log().filter((line) => line.event === event).length
  expect([countOf('fetch-failed'), countOf('recovered'), countOf('token-obtained')]).toEqual([5, 5, 5])
})

describe('Retry-After', () => {
  test.each([
    ['seconds', 429, () => '2'],
    ['a date', 429, () => new Date(Date.now() + 3_000).toUTCString()],
    ['seconds with a 503', 503, () => '2'],
  ])('as %s is kept to, and not by more than a fifth or a second', async (_, status, value) => {
    const service = await serviceOf((_request, { number }) =>
      number === 1 ? { status, headers: { 'retry-after': value() } } : granting(freshToken()),
    )
    const daemon = await started(service.url, { retry: { initialDelay: '10ms' } })
    const { nextAttemptAt, failure } = await expectUntil('a failure', async () => {
      const now = await statusOf(daemon)
      return now.failure !== null && now
    })
    const [first] = service.requests
    const waitMs = Date.parse(nextAttemptAt ?? '') - (first?.atMs ?? 0)
    // A date has whole seconds.
    expect(waitMs).toBeGreaterThanOrEqual(1_900)
    expect(waitMs).toBeLessThanOrEqual(4_500)
    expect(failure?.reason).toBe(status === 429 ? 'rate-limited' : 'server-error')
    await service.arrived(2)
    expect((service.requests[1]?.atMs ?? 0) - (first?.atMs ?? 0)).toBeGreaterThanOrEqual(1_900)
  })

  test('holds an operator back as little as any other wait', async () => {
    const service = await serviceOf({ status: 429, headers: { 'retry-after': '3600' } })
    const daemon = await started(service.url)
    await failureOf(daemon)
    service.answer(() => granting(freshToken()))
    expect((await command(daemon, 'refresh')).status).toBe(0)
  })
})

describe('over TLS', () => {
  const authority = createAuthority()
  const DAY_MS = 86_400_000
  const certificates = {
    good: createCertificate(authority, { names: ['localhost'] }),
    'wrong name': createCertificate(authority, { names: ['elsewhere.test'] }),
    expired: createCertificate(authority, {
      names: ['localhost'],
      notBeforeMs: Date.now() - 10 * DAY_MS,
      notAfterMs: Date.now() - DAY_MS,
    }),
  }

  async function tlsService(kind: keyof typeof certificates): Promise<Service> {
    const service = await startService({ answer: () => granting(freshToken()), tls: certificates[kind] })
    onTestFinished(async () => service.stop())
    return service
  }

  function caFile(): string {
    const file = join(directory, 'ca.pem')
    writeFileSync(file, authority.cert)
    return file
  }

  test.each(['wrong name', 'expired'] as const)(
    'a certificate with %s is no service, and gets no secret',
    async (kind) => {
      const service = await tlsService(kind)
      const daemon = await started(service.url, { ...slow, request: { ...slow.request, caFile: caFile() } })
      expect((await failureOf(daemon)).reason).toBe('tls')
      expect(service.requests).toHaveLength(0)
    },
  )

  test('an unknown authority is no service either, until caFile names it', async () => {
    const service = await tlsService('good')
    const daemon = await started(service.url)
    expect((await failureOf(daemon)).reason).toBe('tls')
    expect((await command(daemon, 'status')).stdout).toContain('request.caFile')
    expect(service.requests).toHaveLength(0)
    const request = { ...slow.request, caFile: caFile() }
    daemon.configure(configOf({ directory, baseUrl: service.url, config: { ...slow, request } }))
    daemon.process.kill('SIGHUP')
    await daemon.logged('reloaded')
    daemon.process.kill('SIGUSR2')
    expect((await tokenOf(daemon)).state).toBe('ready')
  })

  test('a connection that is closed at the first byte of TLS is a failure like any other', async () => {
    const server = createServer((socket) =>
      socket.once('data', () => socket.destroy()).on('error', () => undefined),
    )
    onTestFinished(() => void server.close())
    const port = await new Promise<number>((resolve) => {
      server.listen(0, '127.0.0.1', () => resolve((server.address() as AddressInfo).port))
    })
    const daemon = await started(`https://localhost:${port}`)
    expect((await failureOf(daemon)).reason).toMatch(/^(network|tls)$/)
  })
})

test('a name that does not resolve is a failure of the network', async () => {
  const daemon = await started('https://kyc.invalid', {
    ...slow,
    request: { timeout: '10s', connectTimeout: '10s' },
  })
  const { reason, detail } = await failureOf(daemon)
  expect(reason).toBe('network')
  expect(detail).toContain('kyc.invalid')
})
