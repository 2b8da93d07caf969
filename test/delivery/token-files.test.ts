// What token files hold, when they go, and what a reload changes. That each is replaced whole is in files/.
import { spawnSync } from 'node:child_process'
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import type { TokenFileConfig } from '../../src/config/config.ts'
import { createTokenFiles } from '../../src/delivery/token-files.ts'
import { STANDARD_USE } from '../../src/protocol.ts'
import type { KeeperEvent } from '../../src/token/variable.ts'
import type { Token } from '../../src/token/token.ts'
import { firstState, serviceFacts, tokenAt } from '../support/facts.ts'
import { createFakeClock } from '../support/fake-clock.ts'
import { watchFileCalls } from '../support/file-calls.ts'
import { createRecords } from '../support/records.ts'
import { remedyOf } from '../support/remedies.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { eventually } from '../support/until.ts'

const MINUTE = 60_000
const baseUrl = 'https://api.example.com'

/** A keeper that holds what the test gives it, on a wall clock that begins with the real one, as times of files do. */
function createScene(use = STANDARD_USE) {
  const clock = createFakeClock({ wallMs: Date.now() + MINUTE, bootMs: 5_000_250 })
  const service = { ...serviceFacts('service', baseUrl), use }
  let state = firstState(clock.now(), { service })
  const listeners = new Set<(event: KeeperEvent) => void>()
  const emit = (event: KeeperEvent): void => listeners.forEach((listener) => listener(event))
  const keeper = {
    state: () => state,
    now: () => clock.now(),
    onEvent(listener: (event: KeeperEvent) => void) {
      listeners.add(listener)
      return (): void => void listeners.delete(listener)
    },
  }
  return {
    clock,
    keeper,
    ...createRecords(),
    tick: () => emit({ type: 'tick' }),
    hold: (accessToken: string, { lifeMs = 15 * MINUTE, ...facts }: Partial<Token> = {}) => {
      const generation = state.generation + 1
      const token = tokenAt(clock.now(), { accessToken, lifeMs, ...facts })
      state = firstState(clock.now(), { service, token, generation })
      emit({ type: 'changed' })
      return token
    },
  }
}

const fileAt = (path: string, facts: Partial<TokenFileConfig> = {}): TokenFileConfig => {
  return { path, format: 'raw', template: null, mode: 0o600, uid: null, gid: null, ...facts }
}

/** Maintains these files until `end` is called, or the test ends; another run may follow in the same scene. */
function start(config: readonly TokenFileConfig[], scene = createScene()) {
  const files = createTokenFiles({ ...scene, config, remedyOf })
  const stop = new AbortController()
  const done = files.run(stop.signal)
  const end = async (): Promise<void> => {
    stop.abort()
    await done
  }
  onTestFinished(end)
  return { ...scene, scene, files, end }
}

/** One file, which has the token. */
async function startWithFile() {
  const path = join(await tempDirectory('memory'), 'token')
  const started = start([fileAt(path)])
  started.hold('abc.def')
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
  const { hold, clock, records } = start(configs, createScene({ header: 'X-Api-Token', prefix: 'Key ' }))
  for (const [index, [token, quoted]] of [
    ['abc.def', 'abc.def'],
    ['~root|12|a!b$(id)`id`$&*?<>', "'~root|12|a!b$(id)`id`$&*?<>'"],
  ].entries()) {
    hold(token!)
    const obtainedAt = new Date(clock.now().wallMs).toISOString()
    const expiresAt = new Date(clock.now().wallMs + 15 * MINUTE).toISOString()
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
  }
  expect(records).toEqual([])
})

test('they keep no token past its expiry or twice the age assumed for it, as `status` shows', async () => {
  const { path, hold, tick, clock, files } = await startWithFile()
  for (const [expirySource, lastsMs] of [
    ['jwt', MINUTE],
    ['assumed', 2 * MINUTE],
  ] as const) {
    hold('abc.def', { lifeMs: MINUTE, expirySource })
    await untilContent(path)
    await clock.advance(lastsMs - 1)
    tick()
    await clock.settle()
    expect(contentOf(path)).toBe('abc.def')
    await eventually(() => expect(files.status()).toMatchObject([{ present: true, ok: true }]))
    const [written] = files.status()
    await clock.advance(1)
    tick()
    await untilContent(path, null)
    await eventually(() => expect(files.status()).toEqual([{ ...written, present: false, writtenAt: null }]))
  }
})

test('they are left at a stop, and as they are at the next start, unless the token has expired by then', async () => {
  const { scene, path, clock, end } = await startWithFile()
  const { ino } = statSync(path)
  await end()
  const again = start([fileAt(path)], scene)
  await eventually(() => expect(again.files.status()).toMatchObject([{ ok: true, present: true }]))
  expect([statSync(path).ino, again.files.counts().writes]).toEqual([ino, 0])
  clock.suspend(15 * MINUTE)
  await again.end()
  expect(contentOf(path)).toBeNull()
})

test('a target that cannot be written is one record, the others go on, and it is tried again', async () => {
  const directory = await tempDirectory()
  const paths = ['absent/token', 'good'].map((name) => join(directory, name))
  const { hold, tick, clock, events, files } = start(paths.map((path) => fileAt(path)))
  hold('abc.def')
  for (let ticks = 0; ticks < 3; ticks += 1) {
    tick()
    await clock.settle()
  }
  const error = expect.stringContaining('open (ENOENT)') as string
  await eventually(() => {
    expect(paths.map(contentOf)).toEqual([null, 'abc.def'])
    expect(files.status()).toMatchObject([{ ok: false, error }, { ok: true }])
  })
  expect(events()).toEqual(['file-error'])
  mkdirSync(join(directory, 'absent'))
  tick()
  await untilContent(paths[0]!)
  await eventually(() => expect(files.status()).toMatchObject([{ ok: true }, { ok: true }]))
})

test('one that somebody removed comes back, which is counted', async () => {
  const { path, tick, files, events } = await startWithFile()
  await eventually(() => expect(files.counts().writes).toBe(1))
  rmSync(path)
  tick()
  await untilContent(path)
  await eventually(() => expect(files.counts()).toEqual({ writes: 2, repairs: 1, errors: 0 }))
  expect(files.status()).toMatchObject([{ repairs: 1 }])
  expect(events()).toEqual(['file-restored'])
})

test('a reload removes the files of entries that are gone, and leaves what is no regular file', async () => {
  const directory = await tempDirectory('memory')
  const fileOf = (name: string) => fileAt(join(directory, name))
  symlinkSync('/etc/hostname', join(directory, 'link'))
  const { hold, events, files } = start(['token', 'kept', 'link'].map(fileOf))
  hold('abc.def')
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
