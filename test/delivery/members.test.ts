// Members whose programs never read, flood, send garbage, or connect in thousands, against the real program
// with the unit's flags: the others are answered in time, by the same process, in the unit's memory.
import { spawn } from 'node:child_process'
import { chmodSync, readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { PROGRAM, startDaemon, type Daemon } from '../support/daemon.ts'
import { askOnce, connectRaw } from '../support/ipc-client.ts'
import { freshToken, httpAsk, serviceOf } from '../support/outside.ts'
import { granting } from '../support/service.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { timeoutFactor } from '../support/timeout-factor.ts'
import { expectUntil } from '../support/until.ts'

vi.setConfig({ testTimeout: 180_000 * timeoutFactor })

const UNIT_FILE = new URL('../../systemd/kyc-tokend@.service', import.meta.url)
const [, UNIT_FLAGS = ''] = /^ExecStart=\S+ (--.*) \S+cli\.cjs/m.exec(readFileSync(UNIT_FILE, 'utf8')) ?? []
/** `MemoryMax=` of the unit. */
const UNIT_MIB = 256
const isRoot = process.getuid?.() === 0
const HEAD = 'HTTP/1.1\r\nHost: x\r\n'
const POST = `POST /v1/token/reject ${HEAD}`
const TOKEN = { ipc: '{"type":"token.get","data":{"id":"1"}}\f', http: `GET /v1/token ${HEAD}\r\n` }
const ASKING = {
  ipc: [TOKEN.ipc, TOKEN.ipc.replace('token', 'status')],
  http: [TOKEN.http, TOKEN.http.replace('token', 'status')],
}
type Socket = 'ipc' | 'http'

/** A daemon whose tokens have so many bytes, and at whose sockets everybody may connect. */
async function startUnit(tokenBytes: number): Promise<Daemon> {
  const { url } = await serviceOf(() => granting(freshToken().padEnd(tokenBytes, 'x')))
  const directory = await tempDirectory()
  const config = { log: { level: 'info', format: 'json' }, ipc: { mode: '0666' }, http: { mode: '0666' } }
  const env = { MALLOC_ARENA_MAX: '1', MALLOC_TRIM_THRESHOLD_: '65536' }
  const program = [PROGRAM[0], ...UNIT_FLAGS.split(' '), PROGRAM[1]]
  const daemon = startDaemon({ directory, baseUrl: url, config, env, program })
  await daemon.listening()
  for (const path of ['', '/run']) chmodSync(`${directory}${path}`, 0o755)
  await expectUntil('a token', async () => (await httpAsk(daemon, '/readyz')).status === 200)
  return daemon
}

/** Starts test/support/flood.mjs with these settings; resolves when all of it is connected. */
async function flood(settings: object): Promise<void> {
  const script = new URL('../support/flood.mjs', import.meta.url).pathname
  const child = spawn(process.execPath, [script, JSON.stringify(settings)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  onTestFinished(() => void child.kill('SIGKILL'))
  let text = ''
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => (text += chunk))
  await expectUntil('the flood', () => text.includes('flooding'))
}

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

type Requests = string | readonly string[]
interface Flood {
  /** By the socket at which it is tried. */
  readonly request: Readonly<Partial<Record<Socket, Requests>>>
  readonly connections?: number
  /** Each has so many connections; else it is one user. */
  readonly users?: number
  readonly tokenBytes?: number
  readonly withinMs?: number
  /** Further settings of test/support/flood.mjs. */
  readonly more?: object
}

const bothOf = (request: Requests) => ({ ipc: request, http: request })
const SUBSCRIBE = Array.from({ length: 16 }, (_, id) => `{"type":"token.subscribe","data":{"id":"${id}"}}\f`)
const HALF = {
  ipc: `{"type":"${'x'.repeat(30_000)}`,
  http: `${POST}Content-Length: 32768\r\n\r\n${'x'.repeat(32_000)}`,
}
const GARBAGE = [
  '\0'.repeat(4_000),
  '\r\n'.repeat(2_000),
  'null\f[]\f1\f{"type":1}\foops\f',
  `${POST}Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
  `GET /healthz ${HEAD}a: ${'b'.repeat(20_000)}\r\n\r\n`,
  `CONNECT x:1 ${HEAD}\r\n`,
  // With --disable-proto=throw Node fails as a whole.
  `GET /healthz ${HEAD}__proto__: x\r\n\r\n`,
]
const once = { burst: 1, times: 1 }
const together = { burst: 4_000, times: 1, reads: false, together: true }

describe('nobody waits', () => {
  it.each<[string, Flood]>([
    // Without the hook before Node's parser each connection becomes thousands of requests, and the heap is full.
    [
      'for who asks for tokens of 16 KiB and for the status, and never reads',
      { request: ASKING, users: 8, tokenBytes: 16_000, more: { burst: 400, reads: false } },
    ],
    [
      'for 4,000 pipelined requests at the same moment, unread',
      { request: { http: TOKEN.http }, more: together },
    ],
    [
      'for subscriptions that are not read',
      { request: { ipc: SUBSCRIBE.join('') }, more: { ...once, reads: false } },
    ],
    ['for half a frame or half a body for ever', { request: HALF, more: once }],
    [
      'for garbage, on connections that are made again and again',
      { request: bothOf(GARBAGE), connections: 20, more: { bytes: 10_000, again: true } },
    ],
    ['for 2,000 connects at once', { request: bothOf(''), connections: 2_000, more: { times: 0 } }],
    [
      'for 1 s beside 256 connections that ask as fast as they can',
      { request: TOKEN, connections: 128, users: 2, withinMs: 1_000 },
    ],
  ])('%s', async (_what, { request: requests, users = 1, connections = 100, ...how }) => {
    const { tokenBytes = 1_024, withinMs = 2_000, more } = how
    // Only root can play other users, whose connections are limited.
    const played = isRoot ? Array.from({ length: users }, (_, index) => ({ uid: 65_000 + index })) : [{}]
    for (const [socket, request] of Object.entries(requests)) {
      const daemon = await startUnit(tokenBytes)
      const path = socket === 'ipc' ? daemon.ipcPath : daemon.httpPath
      await expectUnnoticed(daemon, { withinMs, forMs: 2_000 }, async () =>
        Promise.all(played.map((user) => flood({ path, connections, request, ...user, ...more }))),
      )
    }
  })

  it.each([
    ['7,680 subscriptions', 'token.subscribe', 16, {}],
    ['480 that wait for another token', 'token.get', 1, { waitSeconds: 60 }],
  ])('for 1 s while a new token goes to %s', async (_what, type, each, wait) => {
    const daemon = await startUnit(1_024)
    const { json } = await httpAsk(daemon, '/v1/token')
    const requests = Array.from({ length: each }, (_, index) => {
      const data = { id: String(index), notFingerprint: json['fingerprint'], ...wait }
      return `${JSON.stringify({ type, data })}\f`
    })
    // An operator has 512 places.
    const settings = { connections: 480, first: requests.join(''), request: '', times: 0 }
    await flood({ path: daemon.ipcPath, ...settings })
    await expectUnnoticed(daemon, { withinMs: 1_000, forMs: 1_000 }, async () => {
      for (let count = 0; count < 3; count += 1)
        expect(await askOnce(daemon.ipcPath, 'refresh.request', {})).toMatchObject({
          data: { outcome: 'ok' },
        })
    })
  })
})
