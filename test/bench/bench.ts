// `npm run bench`: measures the built program against the least in Node that gives the same answers, both with the
// flags of the unit, in interleaved rounds; ends with 1 if an aim is missed. `--cli PATH` measures another build.
import { execFile, spawn, type ChildProcess } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { cpus, loadavg, release, tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs, promisify } from 'node:util'
import { jwtOf } from '../support/jwt.ts'
import { granting, startService } from '../support/service.ts'

const { values: options } = parseArgs({ options: { cli: { type: 'string' } } })
const CLI = options.cli ?? join(import.meta.dirname, '../../dist/cli.cjs')
const here = (name: string): string => join(import.meta.dirname, name)

// ---- what is compared

type Contestant = 'ours' | 'bare'
interface Server {
  readonly process: ChildProcess
  readonly ipc: string
  readonly http: string
}

const directory = mkdtempSync(join(tmpdir(), 'kyc-tokend-bench-'))
const children = new Set<ChildProcess>()
let issued = 0

/** With 24 h of life, so that nothing is refreshed but what is meant to be. */
function freshToken(): string {
  const now = Math.floor(Date.now() / 1_000)
  issued += 1
  return jwtOf({
    sub: 'account-0123456789',
    iat: now,
    exp: now + 86_400,
    jti: String(issued).padStart(12, '0'),
  })
}

/** The flags of Node in the unit, and its settings of malloc. */
const unitText = readFileSync(here('../../systemd/kyc-tokend@.service'), 'utf8')
const unitFlags = /^ExecStart=\S+ (.*?) \S+cli\.cjs/m.exec(unitText)?.[1]?.split(' ') ?? []
const unitEnvironment = Object.fromEntries(
  (/^Environment=(MALLOC_.*)$/m.exec(unitText)?.[1] ?? '').split(' ').map((word) => word.split('=')),
) as Record<string, string>

function start(words: readonly string[], env: NodeJS.ProcessEnv = {}): ChildProcess {
  const child = spawn(process.execPath, [...unitFlags, ...words], {
    stdio: 'ignore',
    env: { PATH: process.env['PATH'], ...unitEnvironment, ...env },
  })
  children.add(child)
  return child
}

function startDaemon(baseUrl: string): Server {
  const [run, state] = [join(directory, 'run'), join(directory, 'state')]
  for (const path of [run, state]) mkdirSync(path, { recursive: true, mode: 0o700 })
  const config = join(directory, 'kyc-tokend.config.json')
  const credentials = { apiKey: 'bench-api-key', apiSecret: 'bench-api-secret' }
  const limits = { maxConnections: 1_024, maxConnectionsPerUser: 1_024 }
  writeFileSync(config, JSON.stringify({ baseUrl, credentials, ipc: limits, http: limits }), { mode: 0o600 })
  const env = { RUNTIME_DIRECTORY: run, STATE_DIRECTORY: state }
  const child = start([CLI, 'run', '--config', config], env)
  return { process: child, ipc: join(run, 'ipc.sock'), http: join(run, 'http.sock') }
}

function startBare(body: string): Server {
  const [ipc, http] = [join(directory, 'bare.ipc'), join(directory, 'bare.http')]
  return { process: start([here('bare.mjs'), ipc, http, body]), ipc, http }
}

/** One request of `ipc.sock` on a connection of its own. */
function ask(path: string, type: string): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = ''
    const socket = connect(path, () =>
      socket.write(`{"type":"${type}","data":{"id":"1","waitSeconds":10}}\f`),
    )
    socket.setEncoding('utf8').on('data', (chunk: string) => {
      text += chunk
      if (text.endsWith('\f')) socket.end()
    })
    socket.on('error', reject).on('close', () => resolve(text))
  })
}

/** The token as this server gives it, as JSON, once it does. */
async function answered(path: string): Promise<string> {
  for (const until = performance.now() + 30_000; performance.now() < until; await sleep(1)) {
    const frame = await ask(path, 'token.get').catch(() => '')
    if (frame.includes('accessToken'))
      return JSON.stringify({ ...JSON.parse(frame.slice(0, -1)).data, id: undefined })
  }
  throw new Error(`Nothing answers at ${path}`)
}

// ---- rows

interface Row {
  readonly what: string
  readonly unit: string
  readonly samples: Record<Contestant, number[]>
  /** Ours against the bare one. */
  readonly aim: { readonly atLeast: number } | { readonly atMost: number }
}
interface Load {
  readonly count: number
  readonly seconds: number
  readonly cpuNs: number
  readonly p99Ns: number
}

/** In each round everybody is measured once, so that what disturbs one disturbs all. */
async function measured(
  servers: Record<Contestant, Server>,
  kind: 'ipc' | 'http' | 'push',
  { connections, amount, rounds }: { connections: number; amount: number; rounds: number },
): Promise<(pick: (load: Load) => number) => Row['samples']> {
  const loads: Record<Contestant, Load[]> = { ours: [], bare: [] }
  process.stderr.write(`${kind}, ${connections} connections …\n`)
  for (let round = 0; round < rounds; round += 1)
    for (const who of round % 2 === 0 ? (['ours', 'bare'] as const) : (['bare', 'ours'] as const)) {
      const server = servers[who]
      const path = kind === 'http' ? server.http : server.ipc
      const words = [here('load.mjs'), kind, path, server.process.pid, connections, amount].map(String)
      const { stdout } = await promisify(execFile)(process.execPath, words)
      loads[who].push(JSON.parse(stdout) as Load)
    }
  return (pick) => ({ ours: loads.ours.map(pick), bare: loads.bare.map(pick) })
}

const paceOf = ({ count, seconds }: Load): number => count / seconds
const cpuOf = ({ cpuNs, count }: Load): number => cpuNs / count / 1_000
const p99Of = ({ p99Ns }: Load): number => p99Ns / 1e6

async function rowsOf(servers: Record<Contestant, Server>): Promise<Row[]> {
  async function rowsOfRequests(kind: 'ipc' | 'http', connections: number, atLeast: number): Promise<Row[]> {
    const samples = await measured(servers, kind, { connections, amount: 0.5, rounds: 9 })
    const request = kind === 'ipc' ? 'token.get' : 'GET /v1/token'
    const what = `${request}, ${connections.toLocaleString('en')} connections`
    const aim = { atMost: 1.25 }
    return [
      { what, unit: 'requests/s', samples: samples(paceOf), aim: { atLeast } },
      { what: '… CPU for each', unit: 'µs', samples: samples(cpuOf), aim },
      { what: '… wait of the slowest hundredth', unit: 'ms', samples: samples(p99Of), aim: { atMost: 2 } },
    ]
  }

  async function rowOfPush(): Promise<Row> {
    const push = { amount: 5, rounds: 3 }
    const samples = (await measured(servers, 'push', { ...push, connections: 1_000 }))(cpuOf)
    // Less what the refresh itself takes, which writes files and asks the service.
    const refresh = (await measured(servers, 'push', { ...push, connections: 1 }))(cpuOf)
    for (const who of ['ours', 'bare'] as const)
      samples[who] = samples[who].map((us, round) => (us - refresh[who][round]!) / 1_000)
    return { what: 'a new token to 10,000 subscriptions, CPU', unit: 'ms', samples, aim: { atMost: 1.5 } }
  }

  return [
    ...(await rowsOfRequests('ipc', 100, 0.9)),
    ...(await rowsOfRequests('ipc', 1_000, 0.9)),
    ...(await rowsOfRequests('http', 100, 0.95)),
    await rowOfPush(),
  ]
}

// ---- the table

function median(values: readonly number[]): number {
  const sorted = values.toSorted((one, other) => one - other)
  return sorted[Math.floor(sorted.length / 2)] ?? NaN
}

function ratioOf({ samples: { ours, bare } }: Row): number {
  return median(ours.map((value, round) => value / (bare[round] ?? NaN)))
}

function isMissed(row: Row): boolean {
  return 'atLeast' in row.aim ? ratioOf(row) < row.aim.atLeast : ratioOf(row) > row.aim.atMost
}

const figure = (value: number): string =>
  value >= 1_000 ? Math.round(value).toLocaleString('en') : value.toPrecision(3)

function tableOf(rows: readonly Row[]): string {
  const aimOf = (aim: Row['aim']): string => ('atLeast' in aim ? `≥ ${aim.atLeast}` : `≤ ${aim.atMost}`)
  const lines = rows.map((row) => [
    `${row.what}, ${row.unit}`,
    figure(median(row.samples.ours)),
    figure(median(row.samples.bare)),
    `${ratioOf(row).toFixed(2)} (${aimOf(row.aim)})`,
  ])
  const head = ['', 'daemon', 'bare', 'daemon: bare']
  const line = (cells: readonly string[]): string => `| ${cells.join(' | ')} |\n`
  const date = new Date().toISOString().slice(0, 10)
  const host = `${cpus().length} × ${cpus()[0]?.model.trim()}, Linux ${release()}, Node ${process.version}`
  const on = `${host}, ${date}, load ${loadavg()[0]?.toFixed(1)}`
  return `${on}\n\n${[head, head.map(() => '---'), ...lines].map(line).join('')}`
}

// ---- run

const service = await startService({ answer: () => granting(freshToken()) })
try {
  const ours = startDaemon(service.url)
  const bare = startBare(await answered(ours.ipc))
  await answered(bare.ipc)
  const rows = await rowsOf({ ours, bare })
  process.stdout.write(tableOf(rows))
  for (const row of rows.filter(isMissed)) {
    process.stdout.write(`Missed: ${row.what}\n`)
    process.exitCode = 1
  }
} finally {
  for (const child of children) child.kill('SIGKILL')
  await service.stop()
  rmSync(directory, { recursive: true, force: true })
}
