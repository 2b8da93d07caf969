// The programs that are measured, and their surroundings: directories, a stand-in of the service, daemons, bare servers, the load.
import { execFile, spawn, spawnSync, type ChildProcessByStdio } from 'node:child_process'
import { once } from 'node:events'
import {
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { createAuthority, createCertificate } from '../support/certificates.ts'
import { jwtOf } from '../support/jwt.ts'
import { granting, startService, type Service } from '../support/service.ts'

export const CLI = join(import.meta.dirname, '../../dist/cli.cjs')
const NODE = process.execPath

export interface World {
  /** In memory, as `/run` is. */
  readonly directory: string
  /** Grants a new token at each request: over plain HTTP, and over TLS. */
  readonly service: Service
  readonly tlsService: Service
  readonly caFile: string
  /** Programs in C. */
  readonly load: string
  readonly starts: string
  close(): Promise<void>
}

let issued = 0

/** A token with 24 h of life, so that nothing is refreshed but what is meant to be. */
export function freshToken(): string {
  const now = Math.floor(Date.now() / 1000)
  issued += 1
  const id = String(issued).padStart(12, '0')
  return jwtOf({ sub: 'account-0123456789', iat: now, exp: now + 86_400, jti: id })
}

export async function createWorld(): Promise<World> {
  const directory = mkdtempSync(join(existsSync('/dev/shm') ? '/dev/shm' : tmpdir(), 'kyc-tokend-bench-'))
  const programs = mkdtempSync(join(tmpdir(), 'kyc-tokend-bench-'))
  const authority = createAuthority()
  const caFile = join(directory, 'ca.pem')
  writeFileSync(caFile, authority.cert)
  const answer = () => granting(freshToken())
  const service = await startService({ answer })
  const tls = createCertificate(authority, { names: ['localhost'] })
  const tlsService = await startService({ answer, tls })
  return {
    directory,
    service,
    tlsService,
    caFile,
    load: compile('load', programs),
    starts: compile('starts', programs),
    async close() {
      await Promise.all([...running].map(async (child) => end(child, 'SIGKILL')))
      await Promise.all([service.stop(), tlsService.stop()])
      for (const path of [directory, programs]) rmSync(path, { recursive: true, force: true })
    },
  }
}

function compile(name: string, directory: string): string {
  const program = join(directory, name)
  const source = join(import.meta.dirname, `${name}.c`)
  const { status, stderr } = spawnSync('cc', ['-O2', '-o', program, source], { encoding: 'utf8' })
  if (status !== 0) throw new Error(`${name}.c cannot be compiled; the benchmarks need gcc: ${stderr}`)
  return program
}

// ---- programs -------------------------------------------------------------------------------------------------------

export type Running = ChildProcessByStdio<null, Readable, null>
const running = new Set<Running>()

export interface Program {
  readonly command: readonly string[]
  readonly env: NodeJS.ProcessEnv
}
export interface Home extends Program {
  readonly runtime: string
  readonly state: string
  readonly ipcPath: string
  readonly httpPath: string
}
export interface Server {
  readonly process: Running
  readonly pid: number
  readonly path: string
}

/** The command line of a file of the suite. */
export function ownProgram(name: string, ...words: readonly string[]): Program {
  return { command: [NODE, join(import.meta.dirname, name), ...words], env: {} }
}

/** Starts a program; what it prints on stderr goes to `logFile`. */
export function start({ command, env }: Program, logFile: string): Running {
  const [program = '', ...words] = command
  const log = openSync(logFile, 'a')
  const child = spawn(program, words, {
    stdio: ['ignore', 'pipe', log],
    env: { PATH: process.env['PATH'], ...env },
  }) as Running
  closeSync(log)
  running.add(child)
  child.once('exit', () => running.delete(child))
  return child
}

export async function end(child: Running, signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  child.kill(signal)
  await once(child, 'exit')
}

/** Runs a program to its end and gives what it has printed. */
export async function outputOf({ command, env }: Program): Promise<string> {
  const [program = '', ...words] = command
  const { stdout } = await promisify(execFile)(program, words, { env: { PATH: process.env['PATH'], ...env } })
  return stdout
}

/** The flags of Node in the systemd unit, and its settings of malloc. */
const unit = unitSettings(readFileSync(new URL('../../systemd/kyc-tokend@.service', import.meta.url), 'utf8'))
function unitSettings(text: string): { flags: string[]; environment: Record<string, string> } {
  const wordsOf = (line: RegExp): string[] => line.exec(text)?.[1]?.split(' ') ?? []
  const settings = wordsOf(/^Environment=(MALLOC_.*)$/m).map((word) => word.split('=') as [string, string])
  return {
    flags: wordsOf(/^ExecStart=\S+ (.*?) \S+cli\.cjs/m),
    environment: Object.fromEntries(settings),
  }
}

/** The program with the flags of the unit. */
export function withUnitFlags({ command: [program = '', ...words], env }: Program): Program {
  return { command: [program, ...unit.flags, ...words], env: { ...env, ...unit.environment } }
}

/** A directory with all that a daemon needs, and its command line; as its unit starts it with `isUnit`. */
export function prepareHome(
  world: World,
  name: string,
  { isUnit = false, service = world.service }: { isUnit?: boolean; service?: Service } = {},
): Home {
  const directory = join(world.directory, name)
  const [runtime, state] = [join(directory, 'run'), join(directory, 'state')]
  for (const path of [runtime, state]) mkdirSync(path, { recursive: true, mode: 0o700 })
  const configFile = join(directory, 'kyc-tokend.config.json')
  const settings = {
    baseUrl: service.url,
    credentials: { apiKey: 'bench-api-key', apiSecret: 'bench-api-secret' },
    log: { level: 'info', format: 'json' },
    ipc: { maxConnections: 2_000, maxConnectionsPerUser: 2_000, maxRequestsPerSecond: 1_000_000 },
    http: { maxConnections: 2_000, maxConnectionsPerUser: 2_000, maxRequestsPerSecond: 1_000_000 },
  }
  writeFileSync(configFile, JSON.stringify(settings), { mode: 0o600 })
  return {
    runtime,
    state,
    ipcPath: join(runtime, 'ipc.sock'),
    httpPath: join(runtime, 'http.sock'),
    env: {
      RUNTIME_DIRECTORY: runtime,
      STATE_DIRECTORY: state,
      NODE_EXTRA_CA_CERTS: world.caFile,
      ...(isUnit ? unit.environment : {}),
    },
    command: [NODE, ...(isUnit ? unit.flags : []), CLI, 'run', '--config', configFile],
  }
}

/** Starts a server and waits until it gives a token at this path. */
export async function startServer(world: World, program: Program, path: string): Promise<Server> {
  const process = start(program, join(world.directory, 'log'))
  const until = performance.now() + 20_000
  while (performance.now() < until) {
    const answer = await ask(path, { type: 'token.get', data: { id: '1', waitSeconds: 10 } }).catch(() => '')
    if (answer.includes('accessToken')) return { process, pid: process.pid ?? 0, path }
    await sleep(20)
  }
  throw new Error(`Nothing answers at ${path}`)
}

export async function startDaemon(world: World, home: Home): Promise<Server> {
  return startServer(world, home, home.ipcPath)
}

/** One request on a connection of its own. */
export function ask(path: string, request: object): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = ''
    const socket = connect(path, () => socket.write(`${JSON.stringify(request)}\f`))
    socket.setEncoding('utf8').on('data', (chunk: string) => {
      text += chunk
      if (text.endsWith('\f')) socket.end()
    })
    socket.on('error', reject).on('close', () => resolve(text))
  })
}

export async function refresh(path: string): Promise<void> {
  const answer = await ask(path, { type: 'refresh.request', data: { id: '1' } })
  if (!answer.includes('"ok"')) throw new Error(`A refresh failed: ${answer}`)
}

// ---- counts of the kernel -------------------------------------------------------------------------------------------

/** Private memory in MiB; of a daemon without core dumps only root sees it, so that it is its anonymous memory otherwise. */
export function privateMiB(pid: number): number {
  const kilobytes = (file: string, lines: RegExp): number =>
    [...readFileSync(`/proc/${pid}/${file}`, 'utf8').matchAll(lines)].reduce(
      (sum, [, kb]) => sum + Number(kb),
      0,
    )
  return process.getuid?.() === 0
    ? kilobytes('smaps_rollup', /^Private_\w+:\s+(\d+) kB/gm) / 1024
    : kilobytes('status', /^RssAnon:\s+(\d+) kB/gm) / 1024
}

/** Waits of all its threads: each ends with a wake-up. */
export function wakeUps(pid: number): number {
  return readdirSync(`/proc/${pid}/task`)
    .map((task) => readFileSync(`/proc/${pid}/task/${task}/status`, 'utf8'))
    .reduce((sum, status) => sum + Number(/^voluntary_ctxt_switches:\s+(\d+)/m.exec(status)?.[1]), 0)
}
