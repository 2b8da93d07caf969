// Two daemons for the same directories: the first lives, and only that one asks the service.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, readdirSync, renameSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { beforeEach, expect, onTestFinished, test } from 'vitest'
import { configOf, PROGRAM, startDaemon } from '../support/daemon.ts'
import { askOnce } from '../support/ipc-client.ts'
import { lacks } from '../support/lacks.ts'
import { httpAsk, serviceOf, tokenOf } from '../support/outside.ts'
import type { Service } from '../support/service.ts'
import { canMount, smallDisk } from '../support/small-disk.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'

let directory: string
let service: Service

beforeEach(async () => {
  directory = await tempDirectory()
  service = await serviceOf()
})

test('of two that are started at once one lives, ten times over', async () => {
  for (let round = 1; round <= 10; round += 1) {
    const own = join(directory, String(round))
    const both = [0, 1].map(() => startDaemon({ directory: own, baseUrl: service.url }))
    const status = await Promise.race(both.map((daemon) => daemon.ended()))
    expect(status, both.map((d) => d.stderr()).join()).toBe(69)
    const [loser, winner] = both.toSorted((one) => (one.process.exitCode === null ? 1 : -1))
    if (loser === undefined || winner === undefined) throw new Error('There are two')
    expect(loser.stderr().trim().split('\n')).toHaveLength(1)
    await winner.listening()
    expect((await tokenOf(winner)).state).toBe('ready')
    expect(await askOnce(winner.ipcPath, 'status.get', {})).toMatchObject({
      data: { daemon: { pid: winner.process.pid } },
    })
    expect(service.requests).toHaveLength(round)
    expect(await winner.end()).toBe(0)
  }
}, 90_000)

test.each(['state', 'state/'.padEnd(120, 'x')])(
  'two with one state directory (%s) and different sockets: the second ends with 69, names the setting, touches nothing',
  async (name) => {
    const stateDirectory = join(directory, name)
    const start = (folder: string) =>
      startDaemon({ directory: join(directory, folder), baseUrl: service.url, config: { stateDirectory } })
    const first = start('one')
    await first.listening()
    await tokenOf(first)
    await expectUntil('its last file', () => existsSync(join(stateDirectory, 'written-files.json')))
    // No file of it is being written now.
    await expectUntil(
      'names that stay',
      () => !readdirSync(stateDirectory).some((file) => file.endsWith('.kyc')),
    )
    const before = readdirSync(stateDirectory)
    const second = start('two')
    expect(await second.ended()).toBe(69)
    expect(second.stderr()).toBe(
      `Another kyc-tokend runs with ${stateDirectory}: stop it, or set another \`stateDirectory\`\n`,
    )
    expect(readdirSync(stateDirectory)).toEqual(before)
    expect(service.requests).toHaveLength(1)
    expect(await first.end('SIGKILL')).toBe('SIGKILL')
    const third = start('two')
    await third.listening()
    expect(await third.end()).toBe(0)
  },
)

test('one directory may be both the runtime and the state directory', async () => {
  const both = join(directory, 'run')
  const config = { stateDirectory: both }
  const daemon = startDaemon({ directory, baseUrl: service.url, config })
  await daemon.listening()
  const second = startDaemon({
    directory,
    baseUrl: service.url,
    config: { ...config, ipc: { path: 'o' }, http: false },
  })
  expect(await second.ended()).toBe(69)
  expect(second.stderr()).toContain('runtimeDirectory')
  expect(await daemon.end()).toBe(0)
})

test.each(['run', 'state'])(
  'a daemon of 1.1.0, which answers at `lock` in the directory %s, lives; one that is dead is replaced',
  async (name) => {
    const former = join(directory, name, 'lock')
    mkdirSync(join(directory, name), { mode: 0o700 })
    const server = createServer().listen(former)
    await once(server, 'listening')
    const daemon = startDaemon({
      directory,
      baseUrl: service.url,
      config: { ipc: { path: 'other.sock' }, http: false },
    })
    expect(await daemon.ended()).toBe(69)
    expect(daemon.stderr()).toContain(`A process answers at ${former}`)
    expect(readdirSync(join(directory, name))).toEqual(['lock'])
    expect(service.requests).toHaveLength(0)
    renameSync(former, `${former}.kept`)
    server.close()
    await once(server, 'close')
    renameSync(`${former}.kept`, former)
    const next = startDaemon({ directory, baseUrl: service.url })
    await next.listening()
    expect(existsSync(former)).toBe(false)
    expect(await next.end()).toBe(0)
  },
)

test.skipIf(!canMount)(
  'a start with a state directory that is read-only serves, and says that nothing keeps a second daemon out',
  async () => {
    smallDisk(join(directory, 'state')).readOnly(true)
    const daemon = startDaemon({ directory, baseUrl: service.url })
    await daemon.listening()
    expect((await tokenOf(daemon)).state).toBe('ready')
    expect(await daemon.logged('state-unlocked')).toMatchObject({
      level: 'warning',
      path: join(directory, 'state'),
      error: expect.stringMatching(
        /cannot be locked: .* is read-only.*ReadWritePaths=.*`stateDirectory`/,
      ) as string,
    })
    expect(await daemon.end()).toBe(0)
  },
)

test('a state directory that is removed keeps a second daemon away again when it is made again', async () => {
  const daemon = startDaemon({ directory, baseUrl: service.url })
  await daemon.listening()
  const state = join(directory, 'state')
  renameSync(state, `${state}.gone`)
  daemon.process.kill('SIGUSR2')
  await expectUntil('the lock', () => existsSync(join(state, 'instance.lock')))
  const other = join(directory, 'other')
  const second = startDaemon({ directory: other, baseUrl: service.url, config: { stateDirectory: state } })
  expect(await second.ended()).toBe(69)
  expect(second.stderr()).toContain('`stateDirectory`')
})

interface Launched {
  readonly ipcPath: string
  readonly httpPath: string
  stderr(): string
  /** The exit statuses of those that have ended. */
  ended(): number[]
  /** Ends all with SIGTERM. */
  stop(): void
}

/** So many daemons at once, with sockets that were made for them. */
function launch(count: number, config: string): Launched {
  const file = join(directory, 'kyc-tokend.config.json')
  writeFileSync(file, config, { mode: 0o600 })
  const [ipcPath, httpPath] = [join(directory, 'given-ipc.sock'), join(directory, 'given-http.sock')]
  const script = new URL('../support/launch-with-sockets.py', import.meta.url).pathname
  const words = [
    script,
    `ipc=${ipcPath}`,
    `http=${httpPath}`,
    String(count),
    ...PROGRAM,
    'run',
    '--config',
    file,
  ]
  const launcher = spawn('python3', words, { stdio: ['ignore', 'pipe', 'pipe'] })
  onTestFinished(() => void launcher.kill('SIGTERM'))
  let stdout = ''
  let stderr = ''
  launcher.stdout.on('data', (chunk: Buffer) => (stdout += chunk.toString()))
  launcher.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()))
  return {
    ipcPath,
    httpPath,
    stderr: () => stderr,
    ended: () => [...stdout.matchAll(/^\d+ (-?\d+)\n/gm)].map(([, status]) => Number(status)),
    stop: () => void launcher.kill('SIGTERM'),
  }
}

test.skipIf(lacks('python3'))('of two that inherit the same sockets one lives', async () => {
  for (let round = 1; round <= 3; round += 1) {
    directory = await tempDirectory()
    const launched = launch(2, JSON.stringify(configOf({ directory, baseUrl: service.url })))
    await expectUntil('one to end', () => launched.ended().length === 1)
    expect(launched.ended()).toEqual([69])
    expect((await tokenOf(launched)).state).toBe('ready')
    expect(await askOnce(launched.ipcPath, 'token.get', {})).toMatchObject({ type: 'token.result' })
    expect(service.requests).toHaveLength(round)
    launched.stop()
    await expectUntil('the other to end', () => launched.ended().length === 2)
    expect(launched.ended()).toEqual([69, 0])
  }
})

test.skipIf(lacks('python3'))(
  'with inherited sockets a faulty configuration is the answer to waiting clients, for 2 s, and ends with 78',
  async () => {
    const launched = launch(1, JSON.stringify({ baseUrl: 'http://elsewhere.example', retries: 3 }))
    const begunMs = performance.now()
    await expectUntil('the answer', async () => {
      const answer = await askOnce(launched.ipcPath, 'token.get', { waitSeconds: 10 }).catch(() => undefined)
      return answer?.type === 'fault' && answer.data['code'] === 'misconfigured'
    })
    expect(await httpAsk(launched, '/v1/token')).toMatchObject({
      status: 503,
      json: { code: 'misconfigured' },
    })
    expect((await httpAsk(launched, '/readyz')).status).toBe(503)
    expect(launched.ended()).toEqual([])
    await expectUntil('the end', () => launched.ended().length === 1)
    expect(launched.ended()).toEqual([78])
    expect(performance.now() - begunMs).toBeGreaterThan(1_900)
    expect(launched.stderr()).toContain('retries')
    expect(launched.stderr()).toContain('baseUrl')
    expect(service.requests).toHaveLength(0)
  },
)
