// A real redis-server or redis-sentinel as a process of its own, ended by its pid when the test ends.
import { spawn, spawnSync, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { StoreSettings } from '../../src/share/store.ts'
import { missingOf } from './lacks.ts'
import { expectUntil } from './until.ts'

export type RedisServer = Awaited<ReturnType<typeof startRedis>>

/** The settings of a store on this server. */
export const settingsOf = (
  server: Pick<RedisServer, 'address'>,
  change: Partial<StoreSettings> = {},
): StoreSettings => ({
  servers: [server.address],
  sentinel: null,
  cluster: false,
  tls: null,
  user: null,
  password: null,
  database: 0,
  prefix: 'kyc-tokend',
  // Longer than a busy machine makes a process wait: a test about time says its own.
  timeoutMs: 10_000,
  ...change,
})

/** Why there is no Redis here, in one sentence; undefined where there is. */
export function whyNoRedis(): string | undefined {
  const missing = missingOf(['redis-server', 'redis-sentinel', 'redis-cli'])
  return missing.length === 0
    ? undefined
    : `the shared store needs ${missing.join(', ')} (packages redis-server, redis-sentinel, redis-tools)`
}

/** Reports whether tests with Redis are left out here, in one line; in CI they fail instead. */
export function isWithoutRedis(suite: string): boolean {
  const why = whyNoRedis()
  if (why === undefined || process.env['KYC_TOKEND_REQUIRE_SYSTEMD'] === '1') return false
  process.stderr.write(`${suite} is skipped: ${why}\n`)
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
 * Starts one: on a Unix socket, or with `port` on loopback. `args` are further settings, such as
 * `--requirepass x`; with `config` it is a sentinel. Register `stop` for the end of the test at once.
 */
export async function startRedis({
  args = [],
  port,
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
  const listen = [
    ...(tls ? ['--port', '0', '--tls-port', String(port)] : ['--port', String(port ?? 0)]),
    '--bind',
    '127.0.0.1',
    '--unixsocket',
    path,
    '--unixsocketperm',
    '700',
  ]
  const common = [...listen, '--dir', directory, '--save', '', '--appendonly', 'no', ...args]
  const configFile = join(directory, 'sentinel.conf')
  if (sentinel !== undefined) {
    writeFileSync(
      configFile,
      `port ${port}\nbind 127.0.0.1\nunixsocket ${path}\ndir ${directory}\n${sentinel}\n`,
    )
  }
  const command = sentinel === undefined ? ['redis-server', ...common] : ['redis-sentinel', configFile]
  let child = launch()

  function launch(): ChildProcess {
    const [program = '', ...words] = command
    return spawn(program, words, { stdio: 'ignore' })
  }
  /** Runs redis-cli; gives what it prints. */
  function cli(...words: readonly string[]): string {
    const { stdout, stderr } = spawnSync('redis-cli', ['-s', path, ...words], {
      encoding: 'utf8',
      timeout: 5_000,
    })
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
  const address: StoreSettings['servers'][number] =
    port === undefined ? { path } : { host: tls ? 'localhost' : '127.0.0.1', port }
  const server = {
    /** Its address for hosts. */
    address,
    get process() {
      return child
    },
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
  try {
    await ready()
  } catch (error) {
    await server.stop()
    throw error
  }
  return server
}
