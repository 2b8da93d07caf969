// Faults of the service, as they are seen from outside, and that nothing hangs or leaks.
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import type { StatusResult } from '../../src/protocol.ts'
import { createAuthority, createCertificate } from '../support/certificates.ts'
import { alertFile, type Daemon } from '../support/daemon.ts'
import { useDaemons } from '../support/daemon-world.ts'
import { command, freshToken, httpAsk, statusOf, tokenOf } from '../support/outside.ts'
import { granting, refusing, startService, type Answer } from '../support/service.ts'
import { expectUntil } from '../support/until.ts'

/** Waits long enough between attempts that a test sees each of them. */
const slow = {
  retry: { initialDelay: '1h', maxDelay: '1h' },
  request: { timeout: '1s', connectTimeout: '1s' },
}

const world = useDaemons()

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
  'a 404 of another': { reason: 'rejected', answer: { status: 404, body: 'Cannot POST' } },
}

test('whatever it answers has its reason, and the token that is held is served on meanwhile', async () => {
  const { service } = world
  const daemon = await world.started(slow)
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
  service.answer(() => world.grant())
  expect((await command(daemon, 'refresh')).status).toBe(0)
  expect(await statusOf(daemon)).toMatchObject({ state: 'ready', failure: null, alert: null })
  await expectUntil('the end of alert.json', () => alertFile(daemon) === undefined)
})

test('without a token every command and path says so, with the reason', async () => {
  const { service } = world
  service.answer({ status: 503 })
  const daemon = await world.started(slow)
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

test('an unknown authority is no service, until caFile names it', async () => {
  const authority = createAuthority()
  const tls = createCertificate(authority, { names: ['localhost'] })
  const service = await startService({ answer: () => world.grant(), tls })
  onTestFinished(() => service.stop())
  const daemon = await world.started(slow, { baseUrl: service.url })
  expect((await failureOf(daemon)).reason).toBe('tls')
  expect((await command(daemon, 'status')).stdout).toContain('request.caFile')
  expect(service.requests).toHaveLength(0)
  const caFile = join(world.directory, 'ca.pem')
  writeFileSync(caFile, authority.cert)
  await daemon.reload({ ...slow, request: { ...slow.request, caFile } })
  daemon.process.kill('SIGUSR2')
  expect((await tokenOf(daemon)).state).toBe('ready')
})
