// Faults of the service, as they are seen from outside, and that nothing hangs or leaks.
import { expect, test } from 'vitest'
import type { StatusResult } from '../../src/protocol.ts'
import { alertFile, type Daemon } from '../support/daemon.ts'
import { useDaemons } from '../support/daemon-world.ts'
import { command, httpAsk, statusOf, tokenOf } from '../support/outside.ts'
import type { Answer } from '../support/service.ts'
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

/** One for each reason. */
const answers: Record<string, { reason: string; answer: Answer }> = {
  'an answer that is reset in mid-body': {
    reason: 'network',
    answer(_, { response, socket }) {
      response.writeHead(200, { 'content-length': '1000' })
      response.write('{"accessToken":', () => socket.resetAndDestroy())
    },
  },
  'an answer that drips a byte at a time': {
    reason: 'timeout',
    answer(_, { response }) {
      response.writeHead(200, { 'content-type': 'application/json' })
      const drip = setInterval(() => response.write(' '), 50)
      response.on('close', () => clearInterval(drip))
    },
  },
  '10 MB': { reason: 'malformed-answer', answer: { body: Buffer.alloc(10 * 1024 * 1024, 'x') } },
  '503': { reason: 'server-error', answer: { status: 503, body: 'Bad day' } },
  '429': { reason: 'rate-limited', answer: { status: 429 } },
  '403': { reason: 'rejected', answer: { status: 403 } },
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
