// Faulty clients beside 50 good ones, against the real program with the unit's flags and tokens of 16 KiB:
// the good ones get an answer to each request, and the daemon stays below the memory of its unit.
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, readFileSync } from 'node:fs'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { PROGRAM, startDaemon, type Daemon } from '../support/daemon.ts'
import { askOnce } from '../support/ipc-client.ts'
import { httpAsk, serviceOf } from '../support/outside.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { flood, startUnit, UNIT_MIB } from '../support/unit-daemon.ts'
import { expectUntil } from '../support/until.ts'

vi.setConfig({ testTimeout: 180_000 })

/** Only root can play another user, whose connections are limited. */
const OTHER_USER = process.getuid?.() === 0 ? { uid: 65_000 } : {}

const support = (name: string): string => new URL(`../support/${name}`, import.meta.url).pathname
let good: ChildProcess | undefined
afterEach(() => void good?.kill('SIGKILL'))

interface Counts {
  readonly answered: number
  readonly lost: number
  /** Answers of the client that got the fewest. */
  readonly least: number
}

/** 50 good clients, each of which asks ten times a second. Returns what ends them and gives their counts. */
async function startGood({ ipcPath, httpPath }: Daemon): Promise<() => Promise<Counts>> {
  const words = [support('asking.mjs'), ipcPath, httpPath, '25', '100']
  const child = spawn(process.execPath, words, { stdio: ['pipe', 'pipe', 'inherit'] })
  good = child
  let said = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => (said += text))
  await expectUntil('good clients', () => said.includes('asking'))
  return async () => {
    child.stdin.end()
    await once(child, 'exit')
    return JSON.parse(/\{.*\}/.exec(said)?.[0] ?? '{}') as Counts
  }
}

/** The most that was resident so far, in MiB; with the pages of the program itself. */
function peakMiB({ process: { pid } }: Daemon): number {
  return Number(/VmHWM:\s*(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024
}

/**
 * Does harm, as long as the good clients take for ten more answers each, and looks at them and at the daemon.
 */
async function expectUnnoticed(daemon: Daemon, harm: () => Promise<unknown>): Promise<void> {
  const endGood = await startGood(daemon)
  await harm()
  for (let count = 0; count < 10; count += 1) {
    expect(await askOnce(daemon.ipcPath, 'token.get', {})).toMatchObject({ type: 'token.result' })
    expect((await httpAsk(daemon, '/v1/token')).status).toBe(200)
  }
  const { lost, least } = await endGood()
  expect(lost).toBe(0)
  expect(least).toBeGreaterThan(0)
  expect(daemon.process.exitCode).toBeNull()
  expect(peakMiB(daemon)).toBeLessThan(UNIT_MIB)
  expect(daemon.records('alert')).toEqual([])
}

const HEAD = 'HTTP/1.1\r\nHost: x\r\n'
const POST = `POST /v1/token/reject ${HEAD}`
const GET = `GET /v1/token ${HEAD}\r\n`
const ASK = '{"type":"token.get","data":{"id":"1"}}\f'
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

describe('50 good clients do not notice', () => {
  const oneRequest = { connections: 100, burst: 1, times: 1 }
  const pipeline = { connections: 4, burst: 10_000, times: 1 }
  it.each<[string, readonly ('ipcPath' | 'httpPath')[], object]>([
    [
      '100 that pipeline 4,000 requests at the same moment and never read, on http.sock',
      ['httpPath'],
      { connections: 100, request: GET, burst: 4_000, times: 1, reads: false, together: true },
    ],
    ['100 that subscribe and never read', ['ipcPath'], { ...oneRequest, request: SUBSCRIBE, reads: false }],
    ['10,000 pipelined requests on ipc.sock', ['ipcPath'], { ...pipeline, request: ASK }],
    ['10,000 pipelined requests on http.sock', ['httpPath'], { ...pipeline, request: GET }],
    ['half a frame for ever', ['ipcPath'], { ...oneRequest, request: `{"type":"${'x'.repeat(30_000)}` }],
    [
      'half a head for ever',
      ['httpPath'],
      { ...oneRequest, request: `GET / ${HEAD}a: ${'b'.repeat(8_000)}` },
    ],
    [
      'half a body for ever',
      ['httpPath'],
      { ...oneRequest, request: `${POST}Content-Length: 32768\r\n\r\n${'x'.repeat(32_000)}` },
    ],
    [
      'garbage, on connections that are made again and again',
      ['ipcPath', 'httpPath'],
      { connections: 20, request: GARBAGE, bytes: 10_000, again: true },
    ],
  ])('%s', async (_what, paths, settings) => {
    const daemon = await startUnit()
    await expectUnnoticed(daemon, async () => {
      for (const path of paths) await flood({ path: daemon[path], ...OTHER_USER, ...settings })
    })
  })

  it('clients that are killed in the midst of requests and answers', async () => {
    const daemon = await startUnit()
    await expectUnnoticed(daemon, async () => {
      for (let count = 0; count < 5; count += 1) {
        const floods = [
          await flood({ path: daemon.ipcPath, connections: 20, request: ASK, burst: 100, ...OTHER_USER }),
          await flood({ path: daemon.httpPath, connections: 20, request: GET, burst: 100, ...OTHER_USER }),
        ]
        for (const each of floods) each.kill('SIGKILL')
      }
    })
    await expectUntil('no connection of theirs', async () => {
      const status = await httpAsk(daemon, '/v1/status')
      const { ipc, http } = status.json['clients'] as Record<'ipc' | 'http', { connections: number }>
      return ipc.connections + http.connections < 10
    })
  })

  it.each([
    ['1,000 that wait for another token', 'token.get', 1, { waitSeconds: 60 }],
    ['10,000 subscriptions', 'token.subscribe', 10, {}],
  ])('%s, and two rotations', async (_what, type, each, wait) => {
    const daemon = await startUnit()
    const { json } = await httpAsk(daemon, '/v1/token')
    const requests = Array.from({ length: each }, (_, index) => {
      const data = { id: String(index), notFingerprint: json['fingerprint'], ...wait }
      return `${JSON.stringify({ type, data })}\f`
    })
    await expectUnnoticed(daemon, async () => {
      const settings = { connections: 1_000, first: requests.join(''), request: '', times: 0 }
      await flood({ path: daemon.ipcPath, ...settings })
      for (let count = 0; count < 2; count += 1)
        expect(await askOnce(daemon.ipcPath, 'refresh.request', {})).toMatchObject({
          data: { outcome: 'ok' },
        })
    })
  })
})

it('connections leave descriptors for the service and for files, also of only 128', async () => {
  const { url } = await serviceOf()
  const directory = await tempDirectory()
  const limited = ['sh', '-c', 'ulimit -n 128; exec "$@"', 'sh', ...PROGRAM]
  const daemon = startDaemon({ directory, baseUrl: url, program: limited })
  await daemon.listening()
  for (const path of [daemon.ipcPath, daemon.httpPath]) {
    chmodSync(path, 0o666)
    for (const each of ['', '/run']) chmodSync(`${directory}${each}`, 0o755)
    await flood({ path, connections: 1_000, request: '', times: 0, ...OTHER_USER })
  }
  await expectUntil('ten tokens', () => {
    daemon.process.kill('SIGUSR2')
    return daemon.records('token-obtained').length > 10
  })
  expect(daemon.log().filter(({ level }) => level === 'error')).toEqual([])
})
