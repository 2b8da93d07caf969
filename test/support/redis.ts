// A real redis-server or redis-sentinel as a process of its own, ended by its pid when the test ends.
import { spawn, spawnSync, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import type { ShareConfig } from '../../src/config/config.ts'
import { missingOf } from './lacks.ts'
import { expectUntil } from './until.ts'

export type RedisServer = Awaited<ReturnType<typeof startRedis>>

/** The settings of a host for this server. */
export const settingsOf = (
  server: Pick<RedisServer, 'address'>,
  change: Partial<ShareConfig> = {},
): ShareConfig => ({
  servers: [server.address],
  sentinel: null,
  cluster: false,
  tls: null,
  user: null,
  password: null,
  database: 0,
  prefix: 'kyc-tokend',
  key: null,
  // Longer than a busy machine makes a process wait: a test about time says its own.
  timeoutMs: 10_000,
  asks: true,
  whenAlone: 'fetch',
  ...change,
})

/** Reports whether tests with Redis are left out here, in one line; in CI they fail instead. */
export function isWithoutRedis(suite: string): boolean {
  const missing = missingOf(['redis-server', 'redis-sentinel', 'redis-cli']).join(', ')
  if (missing === '' || process.env['KYC_TOKEND_REQUIRE_SYSTEMD'] === '1') return false
  const packages = 'packages redis-server, redis-sentinel, redis-tools'
  process.stderr.write(`${suite} is skipped: the shared store needs ${missing} (${packages})\n`)
  return true
}

export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return port
}

/**
 * Starts one until the test ends: on a Unix socket, or with `port` on loopback, too. `args` are further settings, such
 * as `--requirepass x`; with `sentinel`, the lines of its file, it is a sentinel.
 */
export async function startRedis({
  args = [],
  port = 0,
  tls = false,
  sentinel,
}: {
  args?: readonly string[]
  port?: number
  tls?: boolean
  sentinel?: string
} = {}) {
  const directory = mkdtempSync(join(tmpdir(), 'kyc-tokend-redis-'))
  const path = join(directory, 'redis.sock')
  const ports = tls ? { port: 0, 'tls-port': port } : { port }
  const common = { ...ports, bind: '127.0.0.1', unixsocket: path, dir: directory }
  const lines = Object.entries(common).map(([name, value]) => `${name} ${value}`)
  if (sentinel === undefined) lines.push('unixsocketperm 700', 'save ""', 'appendonly no')
  const configFile = join(directory, 'redis.conf')
  writeFileSync(configFile, [...lines, sentinel ?? '', ''].join('\n'))
  const program = sentinel === undefined ? 'redis-server' : 'redis-sentinel'
  const launch = (): ChildProcess => spawn(program, [configFile, ...args], { stdio: 'ignore' })
  let child = launch()

  /** Runs redis-cli; gives what it prints. */
  function cli(...words: readonly string[]): string {
    const options = { encoding: 'utf8', timeout: 5_000 } as const
    const { stdout, stderr } = spawnSync('redis-cli', ['-s', path, ...words], options)
    return (stdout + stderr).trim()
  }
  async function ready(): Promise<void> {
    await expectUntil('redis-server to answer', () => /PONG|NOAUTH|NOPERM/.test(cli('ping')))
  }
  /** Ends it at once; keeps its directory and port. */
  async function kill(): Promise<void> {
    if (child.exitCode !== null || child.signalCode !== null) return
    const ended = once(child, 'exit')
    child.kill('SIGKILL')
    await ended
  }
  const host = tls ? 'localhost' : '127.0.0.1'
  const address: ShareConfig['servers'][number] = port === 0 ? { path } : { host, port }
  const server = {
    /** Its address for hosts. */
    address,
    directory,
    cli,
    signal: (signal: NodeJS.Signals) => void child.kill(signal),
    kill,
    /** Starts it again with the same arguments. */
    async start() {
      child = launch()
      await ready()
    },
    /** Ends it and removes its directory. */
    async stop() {
      await kill()
      rmSync(directory, { recursive: true, force: true })
    },
  }
  onTestFinished(() => server.stop())
  await ready()
  return server
}
