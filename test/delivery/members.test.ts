// Members whose programs never read, flood, send garbage, or connect in thousands, against the real program
// with the unit's flags, in a cgroup with the unit's memory: the others are answered in time, by the same
// process.
import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it, vi } from 'vitest'
import type { Daemon } from '../support/daemon.ts'
import { askOnce, connectRaw } from '../support/ipc-client.ts'
import { httpAsk } from '../support/outside.ts'
import { timeoutFactor } from '../support/timeout-factor.ts'
import { flood, startUnit, UNIT_MIB } from '../support/unit-daemon.ts'
import { expectUntil } from '../support/until.ts'

vi.setConfig({ testTimeout: 180_000 * timeoutFactor })

const isRoot = process.getuid?.() === 0
/** Only root can play another user, whose connections are limited. */
const OTHER_USER = isRoot ? { uid: 65_000 } : {}
const HEAD = 'HTTP/1.1\r\nHost: x\r\n'
const POST = `POST /v1/token/reject ${HEAD}`
const TOKEN = { ipc: '{"type":"token.get","data":{"id":"1"}}\f', http: `GET /v1/token ${HEAD}\r\n` }
const STATUS = { ipc: '{"type":"status.get","data":{"id":"1"}}\f', http: `GET /v1/status ${HEAD}\r\n` }
const sockets = ['ipc', 'http'] as const
type Socket = (typeof sockets)[number]
const pathOf = (daemon: Daemon, socket: Socket): string =>
  socket === 'ipc' ? daemon.ipcPath : daemon.httpPath

/** The most that was resident so far, in MiB; with the pages of the program itself. */
function peakMiB({ process: { pid } }: Daemon): number {
  return Number(/VmHWM:\s*(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024
}

/**
 * The time for which the main threads of these processes have waited for a processor so far, in ms: other
 * work on the machine, and no fault of the daemon.
 */
function queuedMs(...pids: number[]): number {
  return pids.reduce((sum, pid) => {
    const [, waitedNs] = readFileSync(`/proc/${pid}/task/${pid}/schedstat`, 'utf8').split(' ')
    return sum + Number(waitedNs) / 1e6
  }, 0)
}

/** The longest that a request took on a machine with a processor for each process, in ms. */
async function slowestOf(daemon: Daemon, signal: AbortSignal, ask: () => Promise<unknown>): Promise<number> {
  const nowMs = () => performance.now() - queuedMs(process.pid, daemon.process.pid!)
  let slowest = 0
  do {
    const begunAt = nowMs()
    await ask()
    slowest = Math.max(slowest, nowMs() - begunAt)
    await sleep(20)
  } while (!signal.aborted)
  return slowest
}

/** Meanwhile newcomers on both sockets, and one that stays, are answered within this time, in ms. */
async function expectUnnoticed(
  daemon: Daemon,
  { withinMs, forMs }: { withinMs: number; forMs: number },
  harm: () => Promise<unknown>,
): Promise<void> {
  const over = new AbortController()
  const stays = await connectRaw(daemon.ipcPath)
  const token = { type: 'token.result' }
  const watching = [
    async () => expect((await httpAsk(daemon, '/v1/token')).status).toBe(200),
    async () => expect(await askOnce(daemon.ipcPath, 'token.get', {})).toMatchObject(token),
    async () => {
      stays.ask('token.get', { id: '1' })
      expect(await stays.frame(stays.frames.length)).toMatchObject(token)
    },
  ].map(async (ask) => slowestOf(daemon, over.signal, ask))
  await harm()
  await sleep(forMs)
  over.abort()
  expect(Math.max(...(await Promise.all(watching)))).toBeLessThan(withinMs)
  expect([daemon.process.exitCode, daemon.process.signalCode]).toEqual([null, null])
  expect(daemon.records('started')).toHaveLength(1)
  expect(daemon.records('alert')).toEqual([])
  expect(peakMiB(daemon)).toBeLessThan(UNIT_MIB)
}

/** Each of the users floods with so many connections. */
function floodAs(users: number, settings: object): Promise<unknown> {
  return Promise.all(
    Array.from({ length: users }, async (_, index) => flood({ ...settings, uid: 65_000 + index })),
  )
}

describe('nobody waits for 2 s', () => {
  it.runIf(isRoot).each([
    ['ipc', 'tokens of 16 KiB', 3, 16_000, TOKEN],
    ['ipc', 'the status', 8, 1_024, STATUS],
    // Without the hook before Node's parser each connection becomes thousands of requests, and the heap is full.
    ['http', 'tokens of 1 KiB', 8, 1_024, TOKEN],
    ['http', 'tokens of 16 KiB', 8, 16_000, TOKEN],
  ] as const)(
    '%s.sock: for who asks for %s on 128 connections of each of %i users and never reads',
    async (socket, _what, users, tokenBytes, requests) => {
      const daemon = await startUnit({ tokenBytes, isInCgroup: true })
      const settings = { path: pathOf(daemon, socket), request: requests[socket], burst: 400, reads: false }
      await expectUnnoticed(daemon, { withinMs: 2_000, forMs: 4_000 }, async () =>
        floodAs(users, { ...settings, connections: 128 }),
      )
    },
  )

  const SUBSCRIBE = Array.from(
    { length: 16 },
    (_, id) => `{"type":"token.subscribe","data":{"id":"${id}"}}\f`,
  ).join('')
  const GARBAGE = [
    '\0'.repeat(4_000),
    '\r\n'.repeat(2_000),
    'null\f[]\f1\f{"type":1}\foops\f',
    `{"type":"${'x'.repeat(5_000)}"}\f`,
    `${POST}Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
    `GET /healthz ${HEAD}a: ${'b'.repeat(20_000)}\r\n\r\n`,
    `CONNECT x:1 ${HEAD}\r\n`,
    // With --disable-proto=throw Node fails as a whole.
    `GET /healthz ${HEAD}__proto__: x\r\n\r\n`,
    'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
  ]
  const half = { connections: 100, burst: 1, times: 1 }
  const together = { connections: 100, burst: 4_000, times: 1, reads: false, together: true }
  it.each<[string, readonly Socket[], object]>([
    ['4,000 pipelined requests at the same moment, unread', ['http'], { ...together, request: TOKEN.http }],
    ['subscriptions that are not read', ['ipc'], { ...half, request: SUBSCRIBE, reads: false }],
    ['half a frame for ever', ['ipc'], { ...half, request: `{"type":"${'x'.repeat(30_000)}` }],
    ['half a head for ever', ['http'], { ...half, request: `GET / ${HEAD}a: ${'b'.repeat(8_000)}` }],
    [
      'half a body for ever',
      ['http'],
      { ...half, request: `${POST}Content-Length: 32768\r\n\r\n${'x'.repeat(32_000)}` },
    ],
    [
      'garbage, on connections that are made again and again',
      sockets,
      { connections: 20, request: GARBAGE, bytes: 10_000, again: true },
    ],
  ])('for %s', async (_what, paths, settings) => {
    const daemon = await startUnit()
    await expectUnnoticed(daemon, { withinMs: 2_000, forMs: 1_000 }, async () => {
      for (const socket of paths) await flood({ path: pathOf(daemon, socket), ...OTHER_USER, ...settings })
    })
  })

  it('for clients that are killed in the midst of requests and answers', async () => {
    const daemon = await startUnit()
    await expectUnnoticed(daemon, { withinMs: 2_000, forMs: 0 }, async () => {
      for (let count = 0; count < 5; count += 1)
        for (const socket of sockets) {
          const settings = { path: pathOf(daemon, socket), request: TOKEN[socket], connections: 20 }
          const killed = await flood({ ...settings, burst: 100, ...OTHER_USER })
          killed.kill('SIGKILL')
        }
    })
    await expectUntil('no connection of theirs', async () => {
      const status = await httpAsk(daemon, '/v1/status')
      const { ipc, http } = status.json['clients'] as Record<Socket, { connections: number }>
      return ipc.connections + http.connections < 10
    })
  })

  it.runIf(isRoot).each(sockets)(
    '%s.sock: for 2,000 connects at once, which the kernel does not refuse',
    async (socket) => {
      const daemon = await startUnit({ tokenBytes: 1_024 })
      const settings = { path: pathOf(daemon, socket), connections: 2_000, request: '', times: 0 }
      await expectUnnoticed(daemon, { withinMs: 2_000, forMs: 500 }, async () =>
        flood({ ...settings, ...OTHER_USER }),
      )
      const limited = { uid: 65_000 }
      expect(daemon.records('clients-limited')).toMatchObject([
        { level: 'warning', ...limited, setting: `${socket}.maxConnectionsPerUser` },
      ])
    },
  )
})

describe('nobody waits for 1 s', () => {
  it.runIf(isRoot).each(sockets)(
    '%s.sock: for 256 connections of two users that ask as fast as they can',
    async (socket) => {
      const daemon = await startUnit({ tokenBytes: 1_024 })
      const settings = { path: pathOf(daemon, socket), request: TOKEN[socket], connections: 128 }
      await expectUnnoticed(daemon, { withinMs: 1_000, forMs: 3_000 }, async () => floodAs(2, settings))
    },
  )

  it.each([
    ['7,680 subscriptions', 'token.subscribe', 16, {}],
    ['480 that wait for another token', 'token.get', 1, { waitSeconds: 60 }],
  ])('while a new token goes to %s', async (_what, type, each, wait) => {
    const daemon = await startUnit({ tokenBytes: 1_024 })
    const { json } = await httpAsk(daemon, '/v1/token')
    const requests = Array.from({ length: each }, (_, index) => {
      const data = { id: String(index), notFingerprint: json['fingerprint'], ...wait }
      return `${JSON.stringify({ type, data })}\f`
    })
    // An operator has 512 places.
    const settings = { connections: 480, first: requests.join(''), request: '', times: 0 }
    await flood({ path: daemon.ipcPath, ...settings })
    const refreshed = { data: { outcome: 'ok' } }
    await expectUnnoticed(daemon, { withinMs: 1_000, forMs: 1_000 }, async () => {
      for (let count = 0; count < 3; count += 1)
        expect(await askOnce(daemon.ipcPath, 'refresh.request', {})).toMatchObject(refreshed)
    })
  })
})
