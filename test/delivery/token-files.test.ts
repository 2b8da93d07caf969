// What token files hold, when they go, and what a reload changes. That each is replaced whole is in files/.
import { spawnSync } from 'node:child_process'
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { expect, onTestFinished, test, vi } from 'vitest'
import type { TokenFileConfig } from '../../src/config/config.ts'
import { createTokenFiles } from '../../src/delivery/token-files.ts'
import { failures } from '../support/failures.ts'
import { methodOf, watchFileCalls } from '../support/file-calls.ts'
import { runningKeeper, type KeeperOptions } from '../support/keeper-world.ts'
import { createRecords } from '../support/records.ts'
import { remedyOf } from '../support/remedies.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { eventually } from '../support/until.ts'

const MINUTE_MS = 60_000

const fileAt = (path: string, facts: Partial<TokenFileConfig> = {}): TokenFileConfig => {
  return { path, format: 'raw', template: null, mode: 0o600, uid: null, gid: null, ...facts }
}

/** Files of these entries, with a token `abc.def` of which nothing tells the life. */
async function start(config: readonly TokenFileConfig[], options: KeeperOptions = {}) {
  const world = await runningKeeper({ tokenOf: () => 'abc.def', ...options })
  const records = createRecords()
  /** Maintains them until `end` is called, or the test ends. */
  function run() {
    const files = createTokenFiles({ keeper: world.keeper, ...records, config, remedyOf })
    const stop = new AbortController()
    const done = files.run(stop.signal)
    const end = async (): Promise<void> => {
      stop.abort()
      await done
    }
    onTestFinished(end)
    return { files, end }
  }
  return { ...world, ...records, ...run(), again: run }
}

/** One file, which has the token. */
async function startWithFile(options?: KeeperOptions) {
  const path = join(await tempDirectory('memory'), 'token')
  const started = await start([fileAt(path)], options)
  await untilContent(path)
  return { ...started, path }
}

const contentOf = (path: string): string | null => {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return null
  }
}
/** Resolves when the file has this content; null: when it is gone. */
const untilContent = async (path: string, content: string | null = 'abc.def'): Promise<unknown> =>
  eventually(() => expect(contentOf(path)).toBe(content))

test('they hold the token in each format, with the header that the API wants, in quotes for shells where it needs them', async () => {
  const directory = await tempDirectory()
  const template = '[{token}] ${x} {other} {token}\n'
  const formats = ['raw', 'header', 'env', 'json', 'template'] as const
  const configs = formats.map((format) => fileAt(join(directory, format), { format, template }))
  const special = '~root|12|a!b$(id)`id`$&*?<>'
  const tokenOf = (number: number): string => (number === 1 ? 'abc.def' : special)
  const use = { header: 'X-Api-Token', prefix: 'Key ' }
  const { keeper, clock, records } = await start(configs, { tokenOf, use })
  for (const [index, quoted] of ['abc.def', `'${special}'`].entries()) {
    const token = tokenOf(index + 1)
    const obtainedAt = new Date(clock.now().wallMs).toISOString()
    const expiresAt = new Date(clock.now().wallMs + 15 * MINUTE_MS).toISOString()
    const json = { accessToken: token, expiresAt, obtainedAt, generation: index + 1 }
    const contents = [
      token,
      `X-Api-Token: Key ${token}\n`,
      `KYC_ACCESS_TOKEN=${quoted}\n`,
      `${JSON.stringify(json)}\n`,
      `[${token}] \${x} {other} ${token}\n`,
    ]
    await eventually(() => expect(configs.map(({ path }) => contentOf(path))).toEqual(contents))
    const shell = spawnSync('sh', ['-c', '. "$0" && printf %s "$KYC_ACCESS_TOKEN"', join(directory, 'env')])
    expect(shell.stdout.toString()).toBe(token)
    await keeper.refresh(new AbortController().signal)
  }
  expect(records).toEqual([])
})

test.each<[string, number, KeeperOptions]>([
  ['its expiry', MINUTE_MS, { lifeSeconds: 60, tokenOf: undefined }],
  ['twice the age assumed for it', 2 * MINUTE_MS, { policy: { maxAgeMs: MINUTE_MS } }],
])('they keep no token past %s, as `status` shows', async (_end, lastsMs, options) => {
  const path = join(await tempDirectory('memory'), 'token')
  const { clock, answer, files, keeper } = await start([fileAt(path)], options)
  answer(failures.network)
  await clock.advance(lastsMs - 1)
  await untilContent(path, keeper.state().token!.accessToken)
  await eventually(() => expect(files.status()).toMatchObject([{ present: true, ok: true }]))
  const [written] = files.status()
  await clock.advance(1)
  await untilContent(path, null)
  await eventually(() => expect(files.status()).toEqual([{ ...written, present: false, writtenAt: null }]))
})

test('they are left at a stop, and as they are at the next start, unless the token has expired by then', async () => {
  const { path, clock, end, again } = await startWithFile()
  const { ino } = statSync(path)
  await end()
  const next = again()
  await eventually(() => expect(next.files.status()).toMatchObject([{ ok: true, present: true }]))
  expect([statSync(path).ino, next.files.counts().writes]).toEqual([ino, 0])
  clock.suspend(30 * MINUTE_MS)
  await next.end()
  expect(contentOf(path)).toBeNull()
})

test('one that cannot be written is one record, the others go on, and it is tried again every 15 s', async () => {
  const directory = await tempDirectory()
  const [absent = '', good = ''] = ['absent/token', 'good'].map((name) => join(directory, name))
  const { clock, events, files } = await start([absent, good].map((path) => fileAt(path)))
  await clock.advance(45_000)
  const error = expect.stringContaining('open (ENOENT)') as string
  await untilContent(good)
  await eventually(() => expect(files.status()).toMatchObject([{ ok: false, error }, { ok: true }]))
  expect([contentOf(absent), events()]).toEqual([null, ['file-error']])
  mkdirSync(join(directory, 'absent'))
  rmSync(good)
  await clock.advance(15_000)
  await Promise.all([absent, good].map(async (path) => untilContent(path)))
  await eventually(() =>
    expect(files.status()).toMatchObject([
      { ok: true, repairs: 0 },
      { ok: true, repairs: 1 },
    ]),
  )
})

test('six are worked on at once, also while their disks hang, which leaves threads to all else', async () => {
  const directory = await tempDirectory('memory')
  const disk = Promise.withResolvers<void>()
  const spy = vi.spyOn(...methodOf('fsync')).mockImplementation(async () => disk.promise)
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  onTestFinished(() => void vi.useRealTimers().restoreAllMocks())
  const { clock } = await start(Array.from({ length: 8 }, (_, index) => fileAt(join(directory, `${index}`))))
  await eventually(() => expect(spy).toHaveBeenCalledTimes(6))
  const uptimeS = process.uptime() + 5
  vi.spyOn(process, 'uptime').mockReturnValue(uptimeS)
  await vi.advanceTimersByTimeAsync(5_000)
  for (let ticks = 0; ticks < 20; ticks += 1) await clock.advance(15_000)
  expect(spy).toHaveBeenCalledTimes(6)
  vi.useRealTimers().restoreAllMocks()
  disk.resolve()
  await eventually(async () => {
    await clock.advance(15_000)
    expect(readdirSync(directory)).toHaveLength(8)
  })
})

test('a reload removes the files of entries that are gone, and leaves what is no regular file', async () => {
  const directory = await tempDirectory('memory')
  const fileOf = (name: string) => fileAt(join(directory, name))
  symlinkSync('/etc/hostname', join(directory, 'link'))
  const { events, files } = await start(['token', 'kept', 'link'].map(fileOf))
  await eventually(() => {
    expect(readdirSync(directory)).toEqual(['kept', 'link', 'token'])
    expect(events()).toEqual(['file-error'])
    expect(files.status()[1]?.writtenAt).not.toBeNull()
  })
  await files.reconfigure([fileOf('kept'), fileOf('added')])
  expect(readdirSync(directory)).toEqual(['added', 'kept', 'link'])
  expect(files.status()).toMatchObject([{ ok: true }, { ok: true }])
  expect(files.counts().writes).toBe(4)
})

test('a reload changes mode or format without a moment without the file, and writes it for nothing else', async () => {
  const { path, files } = await startWithFile()
  const use = async (facts: Partial<TokenFileConfig>) => files.reconfigure([fileAt(path, facts)])
  const { ino, gid } = statSync(path)
  await use({ gid })
  expect(statSync(path).ino).toBe(ino)
  const seen = new Set<string>()
  const see = () => seen.add(`${(statSync(path).mode & 0o7777).toString(8)} ${contentOf(path)}`)
  onTestFinished(watchFileCalls(see))
  await use({ mode: 0o640 })
  await use({ mode: 0o640, format: 'header' })
  see()
  expect([...seen]).toEqual(['600 abc.def', '640 abc.def', '640 Authorization: Bearer abc.def\n'])
  expect(files.counts()).toEqual({ writes: 3, repairs: 0, errors: 0 })
})
