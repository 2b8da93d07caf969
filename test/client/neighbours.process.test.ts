// Programs of three styles beside a neighbour whose calls are refused for their own reason, while the API revokes
// tokens at random: what a call costs the others. A real daemon, which paces what clients ask for.
import { spawn } from 'node:child_process'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import { clientOf } from '../support/client-world.ts'
import { commandWorld, hourToken } from '../support/daemon-world.ts'
import { lacks } from '../support/lacks.ts'
import { granting, type ArrivedRequest, type ScriptedAnswer } from '../support/service.ts'
import { expectUntil } from '../support/until.ts'

const EXAMPLES = new URL('../../systemd/examples', import.meta.url).pathname
const RUNS_MS = 40_000
/** The daemon fetches another token for reports once in 30 s: two revocations within that are held. */
const REVOCATIONS_AT_MS = [5_000, 9_000 + Math.random() * 20_000]
const PYTHON = `
import sys, time, kyc_token
url, ends = sys.argv[1], time.monotonic() + float(sys.argv[2])
while time.monotonic() < ends:
    began = time.monotonic()
    with kyc_token.urlopen(url + "/good") as answer:
        print(answer.status, int((time.monotonic() - began) * 1000), flush=True)
    time.sleep(0.05)
`

interface Call {
  readonly status: number
  readonly tookMs: number
}

test.skipIf(lacks('python3'))(
  'a neighbour with a 401 of its own costs the others one token, and a revocation costs what the daemon holds it',
  async () => {
    const api = { tokens: 0, valid: '', atMs: [] as number[] }
    const answer = async ({ path, headers }: ArrivedRequest): Promise<ScriptedAnswer> => {
      if (path === '/token/external/jwt') {
        await sleep(200)
        api.tokens += 1
        api.atMs.push(Date.now())
        api.valid = hourToken(api.tokens)
        return granting(api.valid)
      }
      return { status: path === '/good' && headers.authorization === `Bearer ${api.valid}` ? 200 : 401 }
    }
    const { daemon, service } = await commandWorld({ answer })
    await expectUntil('a token', () => api.tokens === 1)
    const url = service.url
    const endsAtMs = Date.now() + RUNS_MS
    const calls: Record<string, Call[]> = { fetch: [], authorize: [], python: [], neighbour: [] }
    const on = async (name: string, call: () => Promise<number>): Promise<void> => {
      for (; Date.now() < endsAtMs; await sleep(50)) {
        const beganMs = performance.now()
        const status = await call()
        calls[name]!.push({ status, tookMs: performance.now() - beganMs })
      }
    }
    const [one, two, three] = ['fetch', 'authorize', 'neighbour'].map((name) =>
      clientOf({ path: daemon.ipcPath }, { name }),
    )
    async function authorized(path: string, client = two!): Promise<number> {
      const first = await client.authorize({ url: url + path })
      const response = await fetch(url + path, { headers: first.headers })
      const second = first.refusedBy.includes(response.status) ? await first.refused() : undefined
      if (second === undefined) return response.status
      const again = await fetch(url + path, { headers: second.headers })
      if (second.refusedBy.includes(again.status)) await second.refused()
      return again.status
    }
    const python = spawn('python3', ['-c', PYTHON, url, String(RUNS_MS / 1_000)], {
      cwd: EXAMPLES,
      env: {
        ...process.env,
        KYC_TOKEND_HTTP_SOCKET: daemon.httpPath,
        PYTHONDONTWRITEBYTECODE: '1',
        no_proxy: '*',
      },
    })
    onTestFinished(() => void python.kill('SIGKILL'))
    let output = ''
    python.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()))
    const ended = new Promise((resolve) => python.on('close', resolve))
    const revoked = REVOCATIONS_AT_MS.map(async (ms) => {
      await sleep(ms)
      api.valid = 'none'
    })
    await Promise.all([
      on('fetch', async () => (await one!.fetch(`${url}/good`)).status),
      on('authorize', async () => authorized('/good')),
      on('neighbour', async () => (await three!.fetch(`${url}/bad`)).status),
      ended,
      ...revoked,
    ])
    calls['python'] = output
      .trim()
      .split('\n')
      .map((line) => {
        const [status = 0, tookMs = 0] = line.split(' ').map(Number)
        return { status, tookMs }
      })
    const table = Object.entries(calls).map(([name, made]) => {
      const sorted = made.map(({ tookMs }) => tookMs).toSorted((a, b) => a - b)
      const refused = made.filter(({ status }) => status !== 200).length
      const slow = sorted.filter((ms) => ms > 250).length
      return {
        name,
        calls: made.length,
        refused,
        slow,
        medianMs: sorted[made.length >> 1],
        slowestMs: sorted.at(-1),
      }
    })
    process.stderr.write(`${JSON.stringify({ tokens: api.tokens, table })}\n`)
    // The first token, the neighbour's one report, and one for each revocation.
    expect(api.tokens).toBeLessThanOrEqual(2 + REVOCATIONS_AT_MS.length)
    for (const { name, calls: made, medianMs, slowestMs } of table) {
      expect(made, name).toBeGreaterThan(20)
      expect(medianMs, name).toBeLessThan(250)
      expect(slowestMs, name).toBeLessThan(12_000)
    }
    // The others are refused only while the daemon holds a revocation: at once, and not after a wait.
    expect(new Set(calls['neighbour']!.map(({ status }) => status))).toEqual(new Set([401]))
    for (const name of ['fetch', 'authorize', 'python']) expect(calls[name]!.at(-1)?.status, name).toBe(200)
  },
  RUNS_MS + 60_000,
)
