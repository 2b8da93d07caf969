// A disk that does not answer: the whole daemon goes on without it.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, onTestFinished, test } from 'vitest'
import { createAuthority } from './support/certificates.ts'
import { PROGRAM, startDaemon, textOf, type Daemon } from './support/daemon.ts'
import { jwtOf } from './support/jwt.ts'
import { httpAsk, serviceOf, tokenOf } from './support/outside.ts'
import { lacks } from './support/lacks.ts'
import { createStalledDisk } from './support/preloaded.ts'
import { canMount, smallDisk } from './support/small-disk.ts'
import { tempDirectory } from './support/temp-directory.ts'
import { expectUntil } from './support/until.ts'

const LIFE_S = 8

/** A service, and a disk that stalls before the daemon is started. */
async function stalledStart(configOn: (slow: string) => object) {
  const slow = await tempDirectory('disk')
  const directory = await tempDirectory('memory')
  const disk = createStalledDisk(slow, directory)
  const service = await serviceOf()
  disk.stall()
  onTestFinished(() => disk.goOn())
  const start = () => startDaemon({ directory, baseUrl: service.url, config: configOn(slow), env: disk.env })
  return { slow, disk, start }
}

/** State and one of the token files are on the disk that stalls; the configuration and the other one are in memory. */
async function stalledWorld() {
  const slow = await tempDirectory('disk')
  const directory = await tempDirectory('memory')
  const disk = createStalledDisk(slow, directory)
  const service = await serviceOf()
  let issued = 0
  const grant = () => {
    const now = Date.now() / 1000
    issued += 1
    return { status: 200, json: { accessToken: jwtOf({ iat: now, exp: now + LIFE_S }, issued) } }
  }
  service.answer(grant)
  const paths = { good: join(directory, 'run', 'token'), slow: join(slow, 'token') }
  const config = {
    stateDirectory: join(slow, 'state'),
    // Two attempts are waited for.
    retry: { maxDelay: '2s' },
    tokenFiles: [{ path: paths.slow }, { path: paths.good }],
  }
  mkdirSync(join(slow, 'state'), { mode: 0o700 })
  const daemon = startDaemon({ directory, baseUrl: service.url, config, env: disk.env })
  onTestFinished(() => disk.goOn())
  await daemon.listening()
  await expectUntil('both token files', () => existsSync(paths.good) && existsSync(paths.slow))
  return { daemon, disk, service, grant, paths }
}

const healthOf = async (daemon: Daemon) => (await httpAsk(daemon, '/healthz')).status

describe.skipIf(lacks('cc'))('a disk that does not answer', () => {
  test('keeps neither the refresh, nor other files, nor the health from their work, and is logged once', async () => {
    const { daemon, disk, service, grant, paths } = await stalledWorld()
    const held = () => readFileSync(paths.good, 'utf8')
    disk.stall()
    const first = held()
    await expectUntil('a refresh', () => held() !== first, { withinMs: 20_000 })
    service.answer({ status: 503 })
    await expectUntil('the end of the expired token', () => !existsSync(paths.good), { withinMs: 40_000 })
    expect(await healthOf(daemon)).toBe(200)
    const stalls = daemon.log().filter(({ error }) => String(error).includes('has not answered for 5 s'))
    expect(stalls.filter(({ path }) => path === paths.slow)).toHaveLength(1)
    expect(stalls.map(({ event }) => event)).toContain('state-file-error')
    const asked = service.requests.length
    await expectUntil('that it goes on asking', () => service.requests.length >= asked + 2)
    disk.goOn()
    service.answer(grant)
    await expectUntil('both files again', () => existsSync(paths.good) && existsSync(paths.slow), {
      withinMs: 60_000,
    })
    await expectUntil('a record of that', () =>
      daemon.log().find(({ event, path }) => event === 'file-mended' && path === paths.slow),
    )
  }, 120_000)

  test('does not keep the process from its end', async () => {
    const { daemon, disk, paths } = await stalledWorld()
    const first = readFileSync(paths.good, 'utf8')
    disk.stall()
    await expectUntil('a refresh', () => readFileSync(paths.good, 'utf8') !== first, { withinMs: 20_000 })
    const before = performance.now()
    expect(await daemon.end()).toBe(0)
    expect(performance.now() - before).toBeLessThan(5_000)
    expect(existsSync(daemon.ipcPath)).toBe(false)
  }, 60_000)
})

describe.skipIf(lacks('cc'))('a start while the disk of the state directory does not answer', () => {
  const stateOn = (slow: string) => {
    mkdirSync(join(slow, 'state'), { recursive: true, mode: 0o700 })
    return { stateDirectory: join(slow, 'state') }
  }

  test('serves, says that nothing keeps a second daemon out, and saves its state once the disk answers', async () => {
    const { slow, disk, start } = await stalledStart(stateOn)
    const daemon = start()
    await daemon.listening()
    await tokenOf(daemon)
    expect(await healthOf(daemon)).toBe(200)
    expect(await daemon.logged('state-unlocked')).toMatchObject({
      level: 'warning',
      path: join(slow, 'state'),
      error: expect.stringContaining('has not answered for 5 s') as string,
    })
    disk.goOn()
    await expectUntil('the saved state', () => existsSync(join(slow, 'state', 'memory.json')), {
      withinMs: 30_000,
    })
    expect(await daemon.end()).toBe(0)
  }, 90_000)

  test('ends in time while it waits for the disk', async () => {
    const { disk, start } = await stalledStart(stateOn)
    const daemon = start()
    await expectUntil('a call to the disk', () => disk.isMet())
    const before = performance.now()
    expect(await daemon.end()).toBe(0)
    expect(performance.now() - before).toBeLessThan(2_500)
    expect(daemon.stderr()).toBe('')
  }, 60_000)
})

test.skipIf(lacks('cc'))(
  'a start on a runtime directory that does not answer ends with 75, and names it',
  async () => {
    const { slow, start } = await stalledStart((disk) => ({ runtimeDirectory: join(disk, 'run') }))
    const daemon = start()
    expect(await daemon.ended()).toBe(75)
    expect(daemon.stderr()).toBe(
      `The directory ${join(slow, 'run')} cannot be used: the disk of ${join(slow, 'run')} has not answered for 5 s: check the disk or its server, or set another directory.\n`,
    )
  },
  60_000,
)

/** A daemon with its configuration, key, secret and CA on one disk and a token file on another; both hang on command. */
async function twoDisks({ fullToken = false } = {}) {
  const [inputs, slow, directory] = await Promise.all([
    tempDirectory('disk'),
    tempDirectory('disk'),
    tempDirectory('memory'),
  ])
  const disk = createStalledDisk([inputs, slow], directory)
  const service = await serviceOf()
  let issued = 0
  service.answer(() => {
    const now = Date.now() / 1000
    issued += 1
    return { status: 200, json: { accessToken: jwtOf({ iat: now, exp: now + LIFE_S }, issued) } }
  })
  const small = join(directory, 'small')
  const full = fullToken ? smallDisk(small) : undefined
  for (const [name, text] of Object.entries({ key: 'api-key-0815', secret: 'api-secret-4711' }))
    writeFileSync(join(inputs, name), text, { mode: 0o600 })
  writeFileSync(join(inputs, 'ca.pem'), createAuthority().cert)
  const paths = {
    good: join(directory, 'run', 'token'),
    slow: join(slow, 'token'),
    full: join(small, 'token'),
  }
  const config = {
    credentials: { apiKey: { file: 'key' }, apiSecret: { file: 'secret' } },
    request: { caFile: 'ca.pem' },
    retry: { maxDelay: '2s' },
    tokenFiles: [{ path: paths.slow }, { path: paths.good }, ...(fullToken ? [{ path: paths.full }] : [])],
  }
  onTestFinished(() => disk.goOn())
  const options = { directory, configDirectory: inputs, baseUrl: service.url, config, env: disk.env }
  return { disk, start: () => startDaemon(options), paths, full, inputs }
}

/** Looks at the file for this time, at the clients too; gives the faults that it saw. */
async function faultsOf(daemon: Daemon, path: string, forMs: number): Promise<string[]> {
  const faults: string[] = []
  const endMs = performance.now() + forMs
  while (performance.now() < endMs) {
    const askedMs = performance.now()
    await tokenOf(daemon).catch((error: unknown) => faults.push(String(error)))
    if (performance.now() - askedMs > 2_000) faults.push('an answer took over 2 s')
    const [, claims = ''] = textOf(path)?.split('.') ?? []
    const { exp = 0 } = JSON.parse(Buffer.from(claims, 'base64url').toString() || '{}') as { exp?: number }
    if (exp * 1000 < Date.now())
      faults.push(claims === '' ? 'there is no file' : 'the file holds an expired token')
    await sleep(50)
  }
  return faults
}

describe.skipIf(lacks('cc'))(
  'configuration, secrets and CA on a disk that hangs, and a token file on another',
  () => {
    test('cost no client its token, no healthy file its content, and blame no healthy disk; a reload and the stop go on', async () => {
      const { disk, start, paths } = await twoDisks()
      const daemon = start()
      await daemon.listening()
      await expectUntil('both token files', () => existsSync(paths.good) && existsSync(paths.slow))
      disk.stall()
      daemon.process.kill('SIGHUP')
      expect(await faultsOf(daemon, paths.good, 25_000)).toEqual([])
      expect(await daemon.logged('reload-failed')).toMatchObject({
        error: expect.stringContaining('has not answered for 5 s') as string,
      })
      const blamed = daemon.records('file-error', 'state-file-error', 'disk-busy')
      expect(blamed.map(({ path }) => path)).toEqual([paths.slow])
      expect(await healthOf(daemon)).toBe(200)
      daemon.process.kill('SIGHUP')
      const before = performance.now()
      expect(await daemon.end()).toBe(0)
      expect(performance.now() - before).toBeLessThan(5_000)
    }, 90_000)

    test.skipIf(!canMount)(
      'beside a full disk of a third: its good file stays',
      async () => {
        const { disk, start, paths, full } = await twoDisks({ fullToken: true })
        const daemon = start()
        await daemon.listening()
        await expectUntil('all token files', () => Object.values(paths).every((path) => existsSync(path)))
        const first = textOf(paths.full)
        disk.stall()
        full?.fill()
        const rotated = textOf(paths.good)
        await expectUntil('a refresh', () => textOf(paths.good) !== rotated)
        expect(textOf(paths.full)).toBe(first)
        expect(await faultsOf(daemon, paths.good, 8_000)).toEqual([])
      },
      90_000,
    )

    test('a start hears SIGTERM at once; without one it ends with 75 and names the disk', async () => {
      const { disk, start, inputs } = await twoDisks()
      disk.stall()
      const daemon = start()
      await expectUntil('a call to the disk', () => disk.isMet())
      const before = performance.now()
      expect(await daemon.end()).toBe(0)
      expect(performance.now() - before).toBeLessThan(2_500)
      const second = start()
      expect(await second.ended()).toBe(75)
      expect(second.stderr()).toContain(`the disk of ${inputs} has not answered for 5 s`)
    }, 60_000)
  },
)

test.skipIf(lacks('cc'))(
  'a log on a disk that hangs holds up no client, no refresh and no end, and is written once the disk answers',
  async () => {
    const [slow, directory] = [await tempDirectory('disk'), await tempDirectory('memory')]
    const disk = createStalledDisk(slow, directory)
    onTestFinished(() => disk.goOn())
    const service = await serviceOf()
    const file = join(slow, 'log')
    const program = ['sh', '-c', `exec "$@" 2>${file}`, 'sh', ...PROGRAM]
    const daemon = startDaemon({ directory, baseUrl: service.url, env: disk.env, program })
    const isLogged = (event: string) => () => textOf(file)?.includes(`"${event}"`)
    await expectUntil('the start', isLogged('started'))
    const { accessToken } = await tokenOf(daemon)
    disk.stall()
    daemon.process.kill('SIGHUP')
    daemon.process.kill('SIGUSR2')
    await expectUntil('a refresh', async () => (await tokenOf(daemon)).accessToken !== accessToken)
    expect(disk.isMet()).toBe(true)
    expect(await healthOf(daemon)).toBe(200)
    disk.goOn()
    await expectUntil('the records', isLogged('reloaded'))
    disk.stall()
    const before = performance.now()
    expect(await daemon.end()).toBe(0)
    expect(performance.now() - before).toBeLessThan(5_000)
  },
  60_000,
)
