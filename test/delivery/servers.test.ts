import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { expect, it, onTestFinished } from 'vitest'
import { HANDED_OVER } from '../../src/delivery/limits.ts'
import type { Replies } from '../../src/delivery/replies.ts'
import { createMetricsServer } from '../../src/delivery/http/server.ts'
import { createDeliveryContext, createServers } from '../../src/delivery/servers.ts'
import { loadLibc } from '../../src/lib/libc.ts'
import { playSweeps } from '../support/delivery-world.ts'
import { createFakeClock } from '../support/fake-clock.ts'
import { connectRaw } from '../support/ipc-client.ts'
import { createRecords } from '../support/records.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'

const NONE = { ipc: [], http: [], metrics: [], unknown: [] }

it('each socket with more connections than descriptors is logged with what it has, at start and reload', async () => {
  const openFiles = Number(/open files +(\d+)/.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1])
  const many = { ...HANDED_OVER, maxConnections: openFiles }
  const few = { ...HANDED_OVER, maxConnections: 10 }
  const { log, of } = createRecords()
  const reply = () => ({ fault: { code: 'busy', message: '' } }) as const
  const options = { log, clock: createFakeClock(), testAlert: reply, reload: reply, inherited: NONE }
  const metrics = () => ({ contentType: '', body: '' })
  const servers = createServers({ ipc: many, http: many }, { ...options, metrics, replies: {} as Replies })
  // Beside 96 for the daemon itself, and at each of its three kinds of sockets 32 for root and its own user.
  const own = 64 + 4 * Math.min(32, Math.floor(openFiles / 128))
  const limitOf = (all: number): number => Math.floor((openFiles * (openFiles - own)) / (all + 3 * 32))
  const record = { level: 'warning', configured: openFiles, limit: limitOf(2 * openFiles), openFiles }
  expect(of('connections-clamped')).toMatchObject([
    { ...record, setting: 'ipc.maxConnections' },
    { ...record, setting: 'http.maxConnections' },
  ])
  await servers.prepare({ ipc: few, http: few })
  expect(of('connections-clamped')).toHaveLength(2)
  await servers.prepare({ ipc: many, http: null })
  expect(of('connections-clamped').slice(2)).toMatchObject([
    { setting: 'ipc.maxConnections', limit: limitOf(openFiles) },
  ])
})

it.each([
  ['asks nothing', '', 'idle'],
  ['asks half of it', 'GET /metrics', 'incomplete-request'],
  ['reads nothing', 'GET /metrics HTTP/1.1\r\n\r\n', 'stalled'],
] as const)('a connection to the metrics that %s ends after 5 s', async (_what, request, reason) => {
  const pass = playSweeps()
  const path = join(await tempDirectory(), 'metrics')
  const clock = createFakeClock()
  const reply = () => ({ fault: { code: 'busy', message: '' } }) as const
  const replies = { onChange: () => () => undefined } as unknown as Replies
  const sources = { replies, testAlert: reply, reload: reply, log: createRecords().log, clock }
  const body = 'x'.repeat(1_000_000)
  const server = createMetricsServer({
    ...createDeliveryContext(sources),
    metrics: () => ({ contentType: 'text/plain', body }),
    inherited: [loadLibc().listenAt(path, 16)],
  })
  await server.open()
  onTestFinished(async () => server.close())
  const client = await connectRaw(path, { reads: false })
  client.write(request)
  await expectUntil('the connection', () => server.counts().connections === 1)
  // What it has sent is received, too.
  for (let turns = 0; turns < 20; turns += 1) await nextTurn()
  pass(5_000)
  expect(server.counts().dropped[reason]).toBe(0)
  pass(1_000)
  expect(server.counts().dropped[reason]).toBe(1)
})
