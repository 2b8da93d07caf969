// Several users at once, whose programs never read, flood, or connect in thousands, against the real program
// with the unit's flags, in a cgroup with the unit's memory: the others are answered in time, by the same
// process.
import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, it, onTestFinished, vi } from 'vitest'
import type { Daemon } from '../support/daemon.ts'
import { askOnce } from '../support/ipc-client.ts'
import { httpAsk } from '../support/outside.ts'
import { timeoutFactor } from '../support/timeout-factor.ts'
import { flood, startUnit } from '../support/unit-daemon.ts'
import { expectUntil } from '../support/until.ts'

vi.setConfig({ testTimeout: 180_000 * timeoutFactor })

const isRoot = process.getuid?.() === 0
const TOKEN = {
  ipc: '{"type":"token.get","data":{"id":"1"}}\f',
  http: 'GET /v1/token HTTP/1.1\r\nHost: x\r\n\r\n',
}
const STATUS = {
  ipc: '{"type":"status.get","data":{"id":"1"}}\f',
  http: 'GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n',
}
const sockets = ['ipc', 'http'] as const
type Socket = (typeof sockets)[number]
const pathOf = (daemon: Daemon, socket: Socket): string =>
  socket === 'ipc' ? daemon.ipcPath : daemon.httpPath

/** Asks on a new connection; gives how long that took, in ms. */
async function newcomer(daemon: Daemon, socket: Socket): Promise<number> {
  const begunAt = performance.now()
  if (socket === 'http') expect((await httpAsk(daemon, '/v1/token')).status).toBe(200)
  else expect(await askOnce(daemon.ipcPath, 'token.get', {})).toMatchObject({ type: 'token.result' })
  return performance.now() - begunAt
}

/** The longest that newcomers on both sockets waited meanwhile, in ms. */
async function slowestNewcomer(daemon: Daemon, harm: () => Promise<unknown>, forMs: number): Promise<number> {
  const over = new AbortController()
  const watching = sockets.map(async (socket) => {
    let slowest = 0
    while (!over.signal.aborted) {
      slowest = Math.max(slowest, await newcomer(daemon, socket))
      await sleep(20)
    }
    return slowest
  })
  await harm()
  await sleep(forMs)
  over.abort()
  return Math.max(...(await Promise.all(watching)))
}

/** Each of the users floods with so many connections. */
function floodAs(users: number, settings: object): Promise<unknown> {
  return Promise.all(
    Array.from({ length: users }, async (_, index) => flood({ ...settings, uid: 65_000 + index })),
  )
}

function expectSameProcess(daemon: Daemon): void {
  expect(daemon.process.exitCode).toBeNull()
  expect(daemon.process.signalCode).toBeNull()
  expect(daemon.records('started')).toHaveLength(1)
}

it.runIf(isRoot).each([
  ['ipc', 'tokens of 16 KiB', 3, 16_000, TOKEN],
  ['ipc', 'the status', 8, 1_024, STATUS],
  ['http', 'tokens of 1 KiB', 8, 1_024, TOKEN],
  ['http', 'tokens of 16 KiB', 8, 16_000, TOKEN],
] as const)(
  '%s.sock: who asks for %s on 128 connections of each of %i users and never reads delays nobody by 2 s',
  async (socket, _what, users, tokenBytes, requests) => {
    const daemon = await startUnit({ tokenBytes, isInCgroup: true })
    const settings = { path: pathOf(daemon, socket), request: requests[socket], burst: 400, reads: false }
    const harm = async () => floodAs(users, { ...settings, connections: 128 })
    expect(await slowestNewcomer(daemon, harm, 4_000)).toBeLessThan(2_000 * timeoutFactor)
    expectSameProcess(daemon)
  },
)

/** Sends 64 KiB of requests in one chunk on each of the connections at once; gives the answers of each. */
async function pipelined(path: string, connections: number, request: string): Promise<number[]> {
  const chunk = Buffer.from(request.repeat(Math.floor(65_536 / request.length)))
  const made = await Promise.all(
    Array.from({ length: connections }, async () => {
      const socket = connect(path)
      onTestFinished(() => void socket.destroy())
      await new Promise((resolve) => socket.once('connect', resolve))
      return socket
    }),
  )
  const counts = made.map(() => 0)
  made.forEach((socket, index) => {
    let tail = ''
    socket.setEncoding('latin1').on('data', (text: string) => {
      const parts = (tail + text).split('HTTP/1.1 200 OK')
      counts[index]! += parts.length - 1
      tail = parts.at(-1)!.slice(-20)
    })
    socket.on('error', () => undefined).on('close', () => (counts[index] = -1))
  })
  for (const socket of made) socket.write(chunk)
  const all = chunk.length / request.length
  await expectUntil('all the answers', () => counts.every((count) => count === all || count === -1), {
    withinMs: 150_000,
  })
  return counts
}

it.each([24, 128])(
  'http.sock: %i connections that read get an answer to each request of a chunk of 64 KiB',
  async (connections) => {
    const daemon = await startUnit({ tokenBytes: 1_024, isInCgroup: isRoot })
    const counts = await pipelined(daemon.httpPath, connections, TOKEN.http)
    expect(new Set(counts)).toEqual(new Set([1_872]))
    expectSameProcess(daemon)
  },
)

it.runIf(isRoot).each(sockets)(
  '%s.sock: a new client is answered within 1 s while 256 connections of two users ask as fast as they can',
  async (socket) => {
    const daemon = await startUnit({ tokenBytes: 1_024 })
    const settings = { path: pathOf(daemon, socket), request: TOKEN[socket], connections: 128 }
    const harm = async () => floodAs(2, settings)
    expect(await slowestNewcomer(daemon, harm, 3_000)).toBeLessThan(1_000 * timeoutFactor)
  },
)

it('a new client is answered within 1 s while a new token goes to 10,000 subscriptions', async () => {
  const daemon = await startUnit({ tokenBytes: 1_024 })
  const subscribe = Array.from(
    { length: 10 },
    (_, id) => `{"type":"token.subscribe","data":{"id":"${id}"}}\f`,
  )
  await flood({ path: daemon.ipcPath, connections: 1_000, first: subscribe.join(''), request: '', times: 0 })
  const harm = async () => {
    for (let count = 0; count < 3; count += 1)
      expect(await askOnce(daemon.ipcPath, 'refresh.request', {})).toMatchObject({ data: { outcome: 'ok' } })
  }
  expect(await slowestNewcomer(daemon, harm, 1_000)).toBeLessThan(1_000 * timeoutFactor)
})

it.runIf(isRoot).each(sockets)(
  '%s.sock: 2,000 connects at once are not refused by the kernel, and delay a newcomer by 2 s at most',
  async (socket) => {
    const daemon = await startUnit({ tokenBytes: 1_024 })
    const settings = { path: pathOf(daemon, socket), connections: 2_000, request: '', times: 0, uid: 65_000 }
    const harm = async () => flood(settings)
    expect(await slowestNewcomer(daemon, harm, 500)).toBeLessThan(2_000 * timeoutFactor)
    expect(daemon.records('clients-limited')).toMatchObject([
      { level: 'warning', uid: 65_000, setting: `${socket}.maxConnectionsPerUser`, limit: 128 },
    ])
    const { clients } = (await httpAsk(daemon, '/v1/status')).json as { clients: { limited: object[] } }
    expect(clients.limited).toMatchObject([
      { socket, uid: 65_000, setting: 'maxConnectionsPerUser', limit: 128, count: 2_000 - 128 },
    ])
  },
)
