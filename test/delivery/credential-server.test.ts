// `credential.sock` without systemd: a program of root's that keeps its connection, and errors of ours.
import { once } from 'node:events'
import { connect } from 'node:net'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { createCredentialServer } from '../../src/delivery/credential-server.ts'
import { createDeliveryContext } from '../../src/delivery/servers.ts'
import type { Replies } from '../../src/delivery/replies.ts'
import { createSystemClock } from '../../src/lib/clock.ts'
import { loadLibc } from '../../src/lib/libc.ts'
import { createRecords } from '../support/records.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'

const json = JSON.stringify({ accessToken: 'token-1' })

async function start(token: () => unknown) {
  const path = join(await tempDirectory(), 'credential.sock')
  const { log, records } = createRecords()
  const clock = createSystemClock()
  const replies = { now: () => clock.now(), token } as unknown as Replies
  const testAlert = () => ({ value: { outcome: 'refused' as const } })
  const context = createDeliveryContext({ replies, testAlert, log, clock })
  const server = createCredentialServer([loadLibc().listenAt(path, 1)], context)
  await server.open()
  return { path, records, server }
}

it.each([
  ['has its token and keeps the connection', { value: { json } }],
  ['does not read why there is none', { fault: { code: 'no-token-yet', message: 'None.' } }],
])('a program that %s does not hold up the stop', async (_what, reply) => {
  const { path, records, server } = await start(() => reply)
  const socket = connect({ path, allowHalfOpen: true })
  onTestFinished(() => void socket.destroy())
  let text = ''
  if ('value' in reply) socket.on('data', (chunk) => (text += chunk.toString()))
  await expectUntil('an answer', () => ('value' in reply ? text === 'token-1' : records.length > 0))
  await server.close()
  expect(socket.destroyed).toBe(false)
})

it('an internal error fails the unit, and not the daemon', async () => {
  const { path, records, server } = await start(() => {
    throw new Error('oops')
  })
  const socket = connect(path)
  let length = 0
  socket.on('data', (chunk) => (length += chunk.length)).end()
  await once(socket, 'close')
  expect(length).toBeGreaterThan(1_048_576)
  expect(records).toMatchObject([{ fields: { event: 'connection-fault', detail: 'oops' } }])
  await server.close()
})
