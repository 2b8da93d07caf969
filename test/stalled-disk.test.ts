// A disk that does not answer: the whole daemon goes on without it.
import { existsSync, mkdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import { startDaemon, type Daemon } from './support/daemon.ts'
import { jwtOf } from './support/jwt.ts'
import { httpAsk, serviceOf } from './support/outside.ts'
import { canStall, createStalledDisk } from './support/stalled-disk.ts'
import { tempDirectory } from './support/temp-directory.ts'
import { expectUntil } from './support/until.ts'

const LIFE_S = 8

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

describe.skipIf(!canStall)('a disk that does not answer', () => {
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
