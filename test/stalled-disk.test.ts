// A disk that does not answer: the whole daemon goes on without it.
import { spawnSync } from 'node:child_process'
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, rmSync } from 'node:fs'
import { basename, join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { startDaemon, type Daemon } from './support/daemon.ts'
import { freshToken, httpAsk, serviceOf } from './support/outside.ts'
import { granting } from './support/service.ts'
import { tempDirectory } from './support/temp-directory.ts'
import { expectUntil } from './support/until.ts'

const LIFE_S = 8
const PRELOAD = new URL('support/stalled-disk.cjs', import.meta.url).pathname

/**
 * A daemon whose state and one of its token files, `slow`, are on a disk that hangs on command; the configuration and
 * `good` are in memory, as is what commands the disk. The tokens of the service live 8 s.
 */
async function stalling() {
  const [disk, directory] = await Promise.all([tempDirectory('disk'), tempDirectory('memory')])
  mkdirSync(join(disk, 'state'), { mode: 0o700 })
  const fifo = join(directory, 'stalled')
  const goOn = (): void => {
    if (!existsSync(fifo)) return
    const writer = openSync(fifo, 'r+')
    rmSync(fifo)
    closeSync(writer)
  }
  onTestFinished(goOn)
  const paths = { good: join(directory, 'run', 'token'), slow: join(disk, 'token') }
  const grant = () => granting(freshToken(LIFE_S))
  const service = await serviceOf(grant)
  const config = {
    retry: { maxDelay: '2s' },
    stateDirectory: join(disk, 'state'),
    tokenFiles: Object.values(paths).map((path) => ({ path })),
  }
  const env = { NODE_OPTIONS: `--require=${PRELOAD}`, STALL_BELOW: disk, STALL_WHILE: fifo }
  return {
    paths,
    service,
    grant,
    start: () => startDaemon({ directory, baseUrl: service.url, config, env }),
    stall: () => spawnSync('mkfifo', [fifo]),
    /** Reports whether a call has met the stall. */
    isMet: () => existsSync(`${fifo}.met`),
    goOn,
    /** Waits for another token in the file in memory. */
    refreshed: async (): Promise<void> => {
      const first = readFileSync(paths.good, 'utf8')
      const isOther = () => existsSync(paths.good) && readFileSync(paths.good, 'utf8') !== first
      await expectUntil('a refresh', isOther, { withinMs: 20_000 })
    },
  }
}

async function expectEnd(daemon: Daemon, withinMs: number): Promise<void> {
  const before = performance.now()
  expect(await daemon.end()).toBe(0)
  expect(performance.now() - before).toBeLessThan(withinMs)
}

test('a disk that does not answer holds up neither refresh, nor other files, health or end, and is logged once', async () => {
  const { paths, service, grant, start, stall, goOn, refreshed } = await stalling()
  const isThere = (): boolean => existsSync(paths.good) && existsSync(paths.slow)
  const daemon = start()
  await daemon.listening()
  await expectUntil('the token files', isThere)
  stall()
  await refreshed()
  service.answer({ status: 503 })
  await expectUntil('the end of the expired token', () => !existsSync(paths.good), { withinMs: 40_000 })
  expect((await httpAsk(daemon, '/healthz')).status).toBe(200)
  const stalls = daemon.log().filter(({ error }) => /: not written for \d+ s: /.test(String(error)))
  expect(stalls.filter(({ path }) => path === paths.slow)).toHaveLength(1)
  expect(stalls.map(({ path }) => basename(String(path)))).toContain('state.json')
  const asked = service.requests.length
  await expectUntil('that it goes on asking', () => service.requests.length >= asked + 2)
  goOn()
  service.answer(grant)
  await expectUntil('both files again', isThere, { withinMs: 60_000 })
  await expectUntil('a record of that', () =>
    daemon.records('file-mended').find(({ path }) => path === paths.slow),
  )
  stall()
  await refreshed()
  await expectEnd(daemon, 3_000)
}, 150_000)

test('a start that waits for the disk of the state directory ends in time', async () => {
  const { start, stall, isMet } = await stalling()
  stall()
  const daemon = start()
  await expectUntil('a call to the disk', isMet)
  await expectEnd(daemon, 2_500)
  expect(daemon.stderr()).toBe('')
}, 60_000)
