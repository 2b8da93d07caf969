// `npm run bench`: measures the built program against the least in Node that gives the same answers, with the
// same flags on both sides, in interleaved rounds; ends with 1 if an aim is missed. `--cli PATH` measures
// another build.
import { execFile, spawn, spawnSync, type ChildProcess } from 'node:child_process'
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

/** The daemon and the bare servers, each without flags and with those of the daemon's systemd unit. */
const contestants = ['ours', 'bare', 'oursUnit', 'bareUnit'] as const
type Contestant = (typeof contestants)[number]
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

function start(
  words: readonly string[],
  { isUnit = false, env = {} }: { isUnit?: boolean; env?: NodeJS.ProcessEnv } = {},
): ChildProcess {
  const child = spawn(process.execPath, [...(isUnit ? unitFlags : []), ...words], {
    stdio: 'ignore',
    env: { PATH: process.env['PATH'], ...(isUnit ? unitEnvironment : {}), ...env },
  })
  children.add(child)
  return child
}

function startDaemon(name: string, baseUrl: string, isUnit: boolean): Server {
  const [run, state] = [join(directory, name, 'run'), join(directory, name, 'state')]
  for (const path of [run, state]) mkdirSync(path, { recursive: true, mode: 0o700 })
  const config = join(directory, name, 'kyc-tokend.config.json')
  const credentials = { apiKey: 'bench-api-key', apiSecret: 'bench-api-secret' }
  const limits = { maxConnections: 1_024, maxConnectionsPerUser: 1_024 }
  writeFileSync(config, JSON.stringify({ baseUrl, credentials, ipc: limits, http: limits }), { mode: 0o600 })
  const env = { RUNTIME_DIRECTORY: run, STATE_DIRECTORY: state }
  const child = start([CLI, 'run', '--config', config], { isUnit, env })
  return { process: child, ipc: join(run, 'ipc.sock'), http: join(run, 'http.sock') }
}

function startBare(name: string, isUnit: boolean, body: string): Server {
  const [ipc, http] = [join(directory, `${name}.ipc`), join(directory, `${name}.http`)]
  return { process: start([here('bare.mjs'), ipc, http, body], { isUnit }), ipc, http }
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
  /** Ours against the bare one with the same flags. */
  readonly aim: { readonly atLeast: number } | { readonly atMost: number }
  readonly unitAim?: Row['aim']
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
  const loads: Load[][] = contestants.map(() => [])
  process.stderr.write(`${kind}, ${connections} connections …\n`)
  for (let round = 0; round < rounds; round += 1)
    for (const index of round % 2 === 0 ? [0, 1, 2, 3] : [3, 2, 1, 0]) {
      const server = servers[contestants[index]!]
      const path = kind === 'http' ? server.http : server.ipc
      const words = [kind, path, server.process.pid, connections, amount].map(String)
      const { stdout } = await promisify(execFile)(join(directory, 'load'), words)
      loads[index]!.push(JSON.parse(stdout) as Load)
    }
  return (pick) => {
    const [ours = [], bare = [], oursUnit = [], bareUnit = []] = loads.map((each) => each.map(pick))
    return { ours, bare, oursUnit, bareUnit }
  }
}

const paceOf = ({ count, seconds }: Load): number => count / seconds
const cpuOf = ({ cpuNs, count }: Load): number => cpuNs / count / 1_000
const p99Of = ({ p99Ns }: Load): number => p99Ns / 1e6

async function rowsOf(servers: Record<Contestant, Server>): Promise<Row[]> {
  async function rowsOfRequests(kind: 'ipc' | 'http', connections: number, atLeast: number): Promise<Row[]> {
    const samples = await measured(servers, kind, { connections, amount: 0.5, rounds: 9 })
    const request = kind === 'ipc' ? 'token.get' : 'GET /v1/token'
    const what = `${request}, ${connections.toLocaleString('en')} connections`
    const [aim, unitAim] = [{ atMost: 1.15 }, { atMost: 1.25 }]
    return [
      { what, unit: 'requests/s', samples: samples(paceOf), aim: { atLeast } },
      { what: '… CPU for each', unit: 'µs', samples: samples(cpuOf), aim, unitAim },
      { what: '… wait of the slowest hundredth', unit: 'ms', samples: samples(p99Of), aim: { atMost: 2 } },
    ]
  }

  async function rowOfPush(): Promise<Row> {
    const push = { amount: 5, rounds: 3 }
    const samples = (await measured(servers, 'push', { ...push, connections: 1_000 }))(cpuOf)
    // Less what the refresh itself takes, which writes files and asks the service.
    const refresh = (await measured(servers, 'push', { ...push, connections: 1 }))(cpuOf)
    for (const who of contestants)
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

function ratioOf({ samples }: Row, who: 'ours' | 'oursUnit'): number {
  const other = samples[who === 'ours' ? 'bare' : 'bareUnit']
  return median(samples[who].map((value, round) => value / (other[round] ?? NaN)))
}

function isMissed(row: Row, who: 'ours' | 'oursUnit'): boolean {
  const aim = who === 'ours' ? row.aim : (row.unitAim ?? row.aim)
  return 'atLeast' in aim ? ratioOf(row, who) < aim.atLeast : ratioOf(row, who) > aim.atMost
}

const figure = (value: number): string =>
  value >= 1_000 ? Math.round(value).toLocaleString('en') : value.toPrecision(3)

function tableOf(rows: readonly Row[]): string {
  const aimOf = (aim: Row['aim']): string => ('atLeast' in aim ? `≥ ${aim.atLeast}` : `≤ ${aim.atMost}`)
  const lines = rows.map((row) => [
    `${row.what}, ${row.unit}`,
    ...contestants.map((who) => figure(median(row.samples[who]))),
    `${ratioOf(row, 'ours').toFixed(2)} (${aimOf(row.aim)})`,
    `${ratioOf(row, 'oursUnit').toFixed(2)} (${aimOf(row.unitAim ?? row.aim)})`,
  ])
  const head = ['', 'daemon', 'bare', 'daemon, unit', 'bare, unit', 'daemon: bare', 'unit: bare, unit']
  const line = (cells: readonly string[]): string => `| ${cells.join(' | ')} |\n`
  const date = new Date().toISOString().slice(0, 10)
  const host = `${cpus().length} × ${cpus()[0]?.model.trim()}, Linux ${release()}, Node ${process.version}`
  const on = `${host}, ${date}, load ${loadavg()[0]?.toFixed(1)}`
  return `${on}\n\n${[head, head.map(() => '---'), ...lines].map(line).join('')}`
}

// ---- run

const compiled = spawnSync('cc', ['-O2', '-o', join(directory, 'load'), here('load.c')], { encoding: 'utf8' })
if (compiled.status !== 0)
  throw new Error(`load.c cannot be compiled; the benchmarks need gcc: ${compiled.stderr}`)
const service = await startService({ answer: () => granting(freshToken()) })
try {
  const [ours, oursUnit] = [startDaemon('ours', service.url, false), startDaemon('unit', service.url, true)]
  const [body] = await Promise.all([answered(ours.ipc), answered(oursUnit.ipc)])
  const [bare, bareUnit] = [startBare('bare', false, body), startBare('bare-unit', true, body)]
  await Promise.all([answered(bare.ipc), answered(bareUnit.ipc)])
  const servers = { ours, bare, oursUnit, bareUnit }
  const rows = await rowsOf(servers)
  process.stdout.write(tableOf(rows))
  const flags = { ours: 'without flags', oursUnit: 'with the flags of the unit' }
  for (const who of ['ours', 'oursUnit'] as const)
    for (const row of rows.filter((each) => isMissed(each, who))) {
      process.stdout.write(`Missed: ${row.what}, ${flags[who]}\n`)
      process.exitCode = 1
    }
} finally {
  for (const child of children) child.kill('SIGKILL')
  await service.stop()
  rmSync(directory, { recursive: true, force: true })
}
