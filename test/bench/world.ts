// The subjects of the measurements and their surroundings: directories, a stand-in of the service, daemons with a kept token, and the bare servers.
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { createAuthority, createCertificate } from '../support/certificates.ts'
import { jwtOf } from '../support/jwt.ts'
import { granting, startService, type Service } from '../support/service.ts'
import { unitFlags } from '../support/unit-flags.ts'
import { CLI, compile, NODE, ownFile, start, type Running } from './programs.ts'
import { contestants, type Contestant } from './rounds.ts'

export interface World {
  /** In memory, as `/run` is. */
  readonly directory: string
  /** Grants a new token at each request; plain HTTP. */
  readonly service: Service
  /** The same over TLS. */
  readonly tlsService: Service
  readonly caFile: string
  readonly load: string
  readonly starts: string
  readonly epollServer: string
  close(): Promise<void>
}

/** A token as services give them: 24 h of life, so that nothing is refreshed but what is meant to be. */
export function freshToken(): string {
  const now = Math.floor(Date.now() / 1000)
  issued += 1
  return jwtOf({
    sub: 'account-0123456789',
    iat: now,
    exp: now + 86_400,
    jti: String(issued).padStart(12, '0'),
  })
}
let issued = 0

export async function createWorld(): Promise<World> {
  const directory = mkdtempSync(join(existsSync('/dev/shm') ? '/dev/shm' : tmpdir(), 'kyc-tokend-bench-'))
  const onDisk = mkdtempSync(join(tmpdir(), 'kyc-tokend-bench-'))
  const authority = createAuthority()
  const caFile = join(directory, 'ca.pem')
  writeFileSync(caFile, authority.cert)
  const answer = () => granting(freshToken())
  const service = await startService({ answer })
  const tlsService = await startService({
    answer,
    tls: createCertificate(authority, { names: ['localhost'] }),
  })
  return {
    directory,
    service,
    tlsService,
    caFile,
    load: compile('load', onDisk),
    starts: compile('starts', onDisk),
    epollServer: compile('epoll-server', onDisk),
    async close() {
      await service.stop()
      await tlsService.stop()
      rmSync(directory, { recursive: true, force: true })
      rmSync(onDisk, { recursive: true, force: true })
    },
  }
}

// ---- daemons --------------------------------------------------------------------------------------------------------

export interface Home {
  readonly directory: string
  readonly runtime: string
  readonly ipcPath: string
  readonly httpPath: string
  readonly env: NodeJS.ProcessEnv
  /** The daemon's command line. */
  readonly command: readonly string[]
}

/** A directory with all that a daemon needs. */
export function prepareHome(
  world: World,
  name: string,
  options: { service?: Service; config?: object; isSandboxed?: boolean } = {},
): Home {
  const { service = world.service, config = {}, isSandboxed = false } = options
  const directory = join(world.directory, name)
  const runtime = join(directory, 'run')
  mkdirSync(runtime, { recursive: true, mode: 0o700 })
  mkdirSync(join(directory, 'state'), { mode: 0o700 })
  const configFile = join(directory, 'kyc-tokend.config.json')
  const settings = {
    baseUrl: service.url,
    credentials: { apiKey: 'bench-api-key', apiSecret: 'bench-api-secret' },
    log: { level: 'info', format: 'json' },
    ...config,
  }
  writeFileSync(configFile, JSON.stringify(settings), { mode: 0o600 })
  return {
    directory,
    runtime,
    ipcPath: join(runtime, 'ipc.sock'),
    httpPath: join(runtime, 'http.sock'),
    env: {
      RUNTIME_DIRECTORY: runtime,
      STATE_DIRECTORY: join(directory, 'state'),
      NODE_EXTRA_CA_CERTS: world.caFile,
    },
    command: [NODE, ...(isSandboxed ? unitFlags() : []), CLI, 'run', '--config', configFile],
  }
}

export async function startDaemon(home: Home): Promise<Running> {
  const daemon = start(home.command, { env: home.env, logFile: join(home.directory, 'log') })
  await answers(home.ipcPath)
  return daemon
}

/** Waits until a token is given at the socket. */
export async function answers(path: string): Promise<void> {
  const until = performance.now() + 20_000
  while (performance.now() < until) {
    const answer = await ask(path, { type: 'token.get', data: { id: '1', waitSeconds: 10 } }).catch(
      () => null,
    )
    if (answer?.includes('accessToken')) return
    await sleep(20)
  }
  throw new Error(`Nothing answers at ${path}`)
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

/** A trio to be compared on one socket. */
export interface Server {
  readonly process: Running
  readonly pid: number
  readonly path: string
}
export type Trio = Record<Contestant, Server>

/** The three on `ipc.sock`, each with a token. */
export async function startIpcTrio(
  world: World,
  name: string,
  options: { service?: Service; isPushing?: boolean } = {},
): Promise<Trio> {
  const { service = world.service, isPushing = false } = options
  const trio: Partial<Record<Contestant, Server>> = {}
  for (const who of contestants) {
    if (who === 'bare') {
      const path = join(world.directory, `${name}-bare.sock`)
      const source = isPushing ? [service.url] : []
      const process = start([NODE, ownFile('bare-ipc.mjs'), path, freshToken(), ...source])
      await answers(path)
      trio[who] = serverOf(process, path)
    } else {
      const home = prepareHome(world, `${name}-${who}`, { service, isSandboxed: who === 'sandboxed' })
      trio[who] = serverOf(await startDaemon(home), home.ipcPath)
    }
  }
  return trio as Trio
}

export function serverOf(process: Running, path: string): Server {
  return { process, pid: process.pid ?? 0, path }
}
