import { spawnSync } from 'node:child_process'
import { mkdirSync, readdirSync, readFileSync, statSync, symlinkSync } from 'node:fs'
import { chown, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { TokenFileConfig } from '../../src/config/config.ts'
import { remedyOf } from '../support/remedies.ts'
import { createTokenFiles } from '../../src/delivery/token-files.ts'
import type { TokenUse } from '../../src/protocol.ts'
import type { KeeperEvent } from '../../src/token/keeper.ts'
import type { TokenState } from '../../src/token/state.ts'
import type { Token } from '../../src/token/token.ts'
import { firstState, serviceFacts, tokenAt } from '../support/facts.ts'
import { createFakeClock, type FakeClock } from '../support/fake-clock.ts'
import { watchFileCalls } from '../support/file-calls.ts'
import { createRecords } from '../support/records.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { eventually } from '../support/until.ts'

const isRoot = process.geteuid?.() === 0
const MINUTE = 60_000
const BASE_URL = 'https://api.example.com'
const SERVICE = serviceFacts('service', BASE_URL)

/**
 * A keeper that holds what the test gives it, on a wall clock that begins with the real one: file times are
 * real.
 */
function createHolder(clock: FakeClock) {
  let state: TokenState = firstState(clock.now(), { service: SERVICE })
  const listeners = new Set<(event: KeeperEvent) => void>()
  const emit = (event: KeeperEvent): void => {
    for (const listener of listeners) listener(event)
  }
  return {
    state: () => state,
    now: () => clock.now(),
    onEvent(listener: (event: KeeperEvent) => void) {
      listeners.add(listener)
      return (): void => void listeners.delete(listener)
    },
    tick: () => emit({ type: 'tick' }),
    hold(accessToken: string, { lifeMs = 15 * MINUTE, ...facts }: Partial<Token> = {}) {
      const now = clock.now()
      const baseUrl = BASE_URL
      const token = tokenAt(now, { accessToken, generation: state.generation + 1, baseUrl, lifeMs, ...facts })
      state = firstState(now, { service: SERVICE, token, generation: token.generation })
      emit({ type: 'changed' })
      return token
    },
  }
}

function fileAt(
  path: string,
  format: TokenFileConfig['format'] = 'raw',
  facts: Partial<TokenFileConfig> = {},
) {
  return { path, format, template: null, mode: 0o600, uid: null, gid: null, ...facts }
}

/** Maintains these files until `end` is called, or the test ends; another run may follow in the same scene. */
async function start(
  tokenFiles: readonly TokenFileConfig[],
  { use, scene = createScene() }: { use?: TokenUse; scene?: ReturnType<typeof createScene> } = {},
) {
  const { keeper, log } = scene
  const using =
    use === undefined
      ? keeper
      : { ...keeper, state: () => ({ ...keeper.state(), service: { ...SERVICE, use } }) }
  const files = createTokenFiles({ config: tokenFiles, keeper: using, log, remedyOf })
  const stop = new AbortController()
  const done = files.run(stop.signal)
  const end = async (): Promise<void> => {
    stop.abort()
    await done
  }
  onTestFinished(end)
  return { ...scene, scene, files, end }
}

/** On a wall clock that begins with the real one: file times are real. */
function createScene() {
  const clock = createFakeClock({ wallMs: Date.now() + MINUTE, bootMs: 5_000_250 })
  return { clock, keeper: createHolder(clock), ...createRecords() }
}

/** One file, which has the token. */
async function startWithFile() {
  const directory = await tempDirectory('memory')
  const path = join(directory, 'token')
  const started = await start([fileAt(path)])
  started.keeper.hold('abc.def')
  await untilContent(path)
  return { ...started, directory, path }
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
const modeOf = (path: string): string => (statSync(path).mode & 0o7777).toString(8)

describe('token files', () => {
  it('hold the token in the four formats, and what a template makes of it', async () => {
    const directory = await tempDirectory()
    const template = '[{token}] ${x} {other} {token}\n'
    const formats = ['raw', 'header', 'env', 'json', 'template'] as const
    const { keeper, clock, events } = await start(
      formats.map((format) => fileAt(join(directory, format), format, { template })),
    )
    const { received } = keeper.hold('abc.def')
    const obtainedAt = new Date(received.wallMs).toISOString()
    const expiresAt = new Date(clock.now().wallMs + 15 * MINUTE).toISOString()
    const json = { accessToken: 'abc.def', expiresAt, obtainedAt, generation: 1 }
    await eventually(() =>
      expect(formats.map((format) => contentOf(join(directory, format)))).toEqual([
        'abc.def',
        'Authorization: Bearer abc.def\n',
        'KYC_ACCESS_TOKEN=abc.def\n',
        `${JSON.stringify(json)}\n`,
        '[abc.def] ${x} {other} abc.def\n',
      ]),
    )
    expect(events()).toEqual([])
  })

  it('have a token that needs quotes in quotes for shells, and the header that the API wants', async () => {
    const directory = await tempDirectory()
    const formats = ['raw', 'header', 'env', 'template'] as const
    const { keeper, events, records } = await start(
      formats.map((format) => fileAt(join(directory, format), format, { template: 'token={token}' })),
      { use: { header: 'X-Api-Token', prefix: '' } },
    )
    const token = '~root|12|a!b$(id)`id`&*?<>'
    keeper.hold(token)
    await eventually(() =>
      expect(formats.map((format) => contentOf(join(directory, format)))).toEqual([
        token,
        `X-Api-Token: ${token}\n`,
        `KYC_ACCESS_TOKEN='${token}'\n`,
        `token=${token}`,
      ]),
    )
    const shell = spawnSync('sh', ['-c', '. "$0" && printf %s "$KYC_ACCESS_TOKEN"', join(directory, 'env')])
    expect(shell.stdout.toString()).toBe(token)
    keeper.hold(`${token}2`)
    await untilContent(join(directory, 'template'), `token=${token}2`)
    expect(events()).toEqual([])
    expect(JSON.stringify(records)).not.toContain('12|')
  })

  it('keep no token past its expiry or twice the age assumed for it, as `status` shows', async () => {
    const { path, keeper, clock, files } = await startWithFile()
    for (const [expirySource, lastsMs] of [
      ['jwt', MINUTE],
      ['assumed', 2 * MINUTE],
    ] as const) {
      keeper.hold('abc.def', { lifeMs: MINUTE, expirySource })
      await untilContent(path)
      await clock.advance(lastsMs - 1)
      keeper.tick()
      await clock.settle()
      expect(contentOf(path)).toBe('abc.def')
      await eventually(() => expect(files.status()).toMatchObject([{ present: true, ok: true }]))
      const [written] = files.status()
      await clock.advance(1)
      keeper.tick()
      await untilContent(path, null)
      await eventually(() => expect(files.status()).toEqual([{ ...written, present: false }]))
    }
  })

  it('of a former run are removed where there is no token, with what a crash left', async () => {
    const directory = await tempDirectory()
    await writeFile(join(directory, 'token'), 'of a former run')
    await writeFile(join(directory, '.token.kyc'), 'torn')
    await start([fileAt(join(directory, 'token'))])
    await eventually(() => expect(readdirSync(directory)).toEqual([]))
  })

  it('are left at a stop, and as they are at the next start, unless the token has expired by then', async () => {
    const { scene, path, clock, end } = await startWithFile()
    const { ino } = statSync(path)
    await end()
    const again = await start([fileAt(path)], { scene })
    await eventually(() => expect(again.files.status()).toMatchObject([{ ok: true, present: true }]))
    expect([statSync(path).ino, again.files.counts().writes]).toEqual([ino, 0])
    clock.suspend(15 * MINUTE)
    await again.end()
    expect(contentOf(path)).toBeNull()
  })

  it('report once what is wrong with a target, go on with the others, and try again', async () => {
    const directory = await tempDirectory()
    const paths = ['absent/token', 'good'].map((name) => join(directory, name))
    const { keeper, clock, records, events, files } = await start(paths.map((path) => fileAt(path)))
    keeper.hold('abc.def')
    for (let ticks = 0; ticks < 3; ticks += 1) {
      keeper.tick()
      await clock.settle()
    }
    const error = expect.stringContaining('is not there') as string
    await eventually(() => {
      expect(paths.map(contentOf)).toEqual([null, 'abc.def'])
      expect(files.status()).toMatchObject([{ ok: false, error }, { ok: true }])
    })
    expect(events()).toEqual(['file-error'])
    mkdirSync(join(directory, 'absent'))
    keeper.tick()
    await eventually(() => {
      expect(files.status().every(({ ok }) => ok)).toBe(true)
      expect(paths.map(contentOf)).toEqual(['abc.def', 'abc.def'])
    })
    expect(events()).toEqual(['file-error', 'file-mended'])
    expect(JSON.stringify(records)).not.toContain('abc.def')
  })

  it.skipIf(!isRoot)('get back their group, configured or not, which is counted', async () => {
    const directory = await tempDirectory('memory')
    const [given, own] = [join(directory, 'given'), join(directory, 'own')]
    await writeFile(own, 'abc.def', { mode: 0o600 })
    await chown(own, 0, 54321)
    const scene = createScene()
    const { keeper, clock, events } = scene
    keeper.hold('abc.def')
    const { files } = await start([fileAt(given, 'raw', { gid: 12345, mode: 0o640 }), fileAt(own)], { scene })
    const groups = (): number[] => [given, own].map((path) => statSync(path).gid)
    await eventually(() => expect(groups()).toEqual([12345, process.getegid?.()]))
    await clock.advance(1_000)
    await Promise.all([chown(given, 0, 999), chown(own, 0, 999)])
    keeper.tick()
    await eventually(() => {
      expect(groups()).toEqual([12345, process.getegid?.()])
      expect(files.counts()).toEqual({ writes: 4, repairs: 2, errors: 0 })
    })
    expect(files.status()).toMatchObject([{ repairs: 1 }, { repairs: 1 }])
    expect(events()).toEqual(['file-restored', 'file-restored'])
  })
})

describe('a reload', () => {
  it('removes the files of entries that are gone, and leaves what is no regular file', async () => {
    const directory = await tempDirectory('memory')
    const fileOf = (name: string) => fileAt(join(directory, name))
    symlinkSync('/etc/hostname', join(directory, 'link'))
    const { keeper, events, files } = await start(['token', 'kept', 'link', 'absent'].map(fileOf))
    keeper.hold('abc.def')
    await eventually(() => {
      expect(readdirSync(directory)).toEqual(['absent', 'kept', 'link', 'token'])
      expect(events()).toEqual(['file-error'])
      expect(files.status()[1]?.writtenAt).not.toBeNull()
    })
    const writtenAt = files.status()[1]?.writtenAt
    await files.reconfigure([fileOf('kept'), fileOf('added')])
    expect(readdirSync(directory)).toEqual(['added', 'kept', 'link'])
    expect(files.status()).toMatchObject([{ ok: true, writtenAt }, { ok: true }])
    expect(files.counts().writes).toBe(6)
  })

  it('changes mode or format without a moment without the file, and writes it for nothing else', async () => {
    const { path, files } = await startWithFile()
    const use = async (facts: Partial<TokenFileConfig>) => files.reconfigure([{ ...fileAt(path), ...facts }])
    const { ino, gid } = statSync(path)
    await use({ gid })
    expect(statSync(path).ino).toBe(ino)
    const seen = new Set<string>()
    const see = () => seen.add(`${modeOf(path)} ${contentOf(path)}`)
    onTestFinished(watchFileCalls(see))
    await use({ mode: 0o640 })
    await use({ mode: 0o640, format: 'header' })
    see()
    expect([...seen]).toEqual(['600 abc.def', '640 abc.def', '640 Authorization: Bearer abc.def\n'])
    expect(files.counts()).toEqual({ writes: 3, repairs: 0, errors: 0 })
  })
})
