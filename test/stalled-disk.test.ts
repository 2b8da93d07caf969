// A disk that does not answer: the whole daemon goes on without it.
import { spawnSync } from 'node:child_process'
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, rmSync } from 'node:fs'
import { basename, join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import { startDaemon, type Daemon, type DaemonOptions } from './support/daemon.ts'
import { freshToken, httpAsk, serviceOf } from './support/outside.ts'
import { granting } from './support/service.ts'
import { tempDirectory } from './support/temp-directory.ts'
import { expectUntil } from './support/until.ts'

const LIFE_S = 8
const PRELOAD = new URL('support/stalled-disk.cjs', import.meta.url).pathname

interface Places {
  /** On a disk that hangs on command. */
  readonly slow: string
  /** In memory. */
  readonly directory: string
}

/** A disk with all below the one directory, which hangs on command; what commands it is in the other one. */
function createStalledDisk({ slow, directory }: Places) {
  const fifo = join(directory, 'stalled')
  return {
    env: { NODE_OPTIONS: `--require=${PRELOAD}`, STALL_BELOW: slow, STALL_WHILE: fifo },
    stall: () => spawnSync('mkfifo', [fifo]),
    /** Reports whether a call has met the stall. */
    isMet: () => existsSync(`${fifo}.met`),
    goOn: (): void => {
      if (!existsSync(fifo)) return
      const writer = openSync(fifo, 'r+')
      rmSync(fifo)
      closeSync(writer)
    },
  }
}

/** A service whose tokens live 8 s, a disk that hangs on command, and daemons with this configuration. */
async function stalling(configOn: (places: Places) => object) {
  const [slow, directory] = await Promise.all([tempDirectory('disk'), tempDirectory('memory')])
  const places = { slow, directory }
  const disk = createStalledDisk(places)
  onTestFinished(() => disk.goOn())
  const grant = () => granting(freshToken(LIFE_S))
  const service = await serviceOf(grant)
  const config = { retry: { maxDelay: '2s' }, ...configOn(places) }
  const start = (options: Partial<DaemonOptions> = {}) =>
    startDaemon({ directory, baseUrl: service.url, config, env: disk.env, ...options })
  /** It runs, with all its token files. */
  const started = async (options: Partial<DaemonOptions> = {}) => {
    const daemon = start(options)
    await daemon.listening()
    const { tokenFiles = [] } = config as { tokenFiles?: { path: string }[] }
    await expectUntil('the token files', () => tokenFiles.every(({ path }) => existsSync(path)))
    return daemon
  }
  return { ...places, disk, service, grant, start, started }
}

/** State and one of the token files are on the disk; the configuration and the other one are in memory. */
async function stalledWorld() {
  const world = await stalling(({ slow, directory }) => ({
    ...stateOn({ slow }),
    tokenFiles: [{ path: join(slow, 'token') }, { path: join(directory, 'run', 'token') }],
  }))
  const paths = { good: join(world.directory, 'run', 'token'), slow: join(world.slow, 'token') }
  return { ...world, daemon: await world.started(), paths }
}

function stateOn({ slow }: Pick<Places, 'slow'>): { stateDirectory: string } {
  mkdirSync(join(slow, 'state'), { mode: 0o700 })
  return { stateDirectory: join(slow, 'state') }
}

async function expectEnd(daemon: Daemon, withinMs: number): Promise<void> {
  const before = performance.now()
  expect(await daemon.end()).toBe(0)
  expect(performance.now() - before).toBeLessThan(withinMs)
}

const healthOf = async (daemon: Daemon) => (await httpAsk(daemon, '/healthz')).status

describe('a disk that does not answer', () => {
  test('holds up neither the refresh, nor other files, nor the health, and is logged once', async () => {
    const { daemon, disk, service, grant, paths } = await stalledWorld()
    const held = () => readFileSync(paths.good, 'utf8')
    disk.stall()
    const first = held()
    await expectUntil('a refresh', () => held() !== first, { withinMs: 20_000 })
    service.answer({ status: 503 })
    await expectUntil('the end of the expired token', () => !existsSync(paths.good), { withinMs: 40_000 })
    expect(await healthOf(daemon)).toBe(200)
    const stalls = daemon.log().filter(({ error }) => /: not written for \d+ s: /.test(String(error)))
    expect(stalls.filter(({ path }) => path === paths.slow)).toHaveLength(1)
    expect(stalls.map(({ path }) => basename(String(path)))).toContain('state.json')
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
    await expectEnd(daemon, 3_000)
  }, 60_000)
})

describe('a start while the disk of the state directory does not answer', () => {
  test('ends in time while it waits for the disk', async () => {
    const { disk, start } = await stalling(stateOn)
    disk.stall()
    const daemon = start()
    await expectUntil('a call to the disk', () => disk.isMet())
    await expectEnd(daemon, 2_500)
    expect(daemon.stderr()).toBe('')
  }, 60_000)
})
