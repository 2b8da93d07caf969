import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync } from 'node:fs'
import { chmod, chown, rm, utimes, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { TokenFileConfig } from '../../../src/config/config.ts'
import { unitPlace } from '../../../src/host/remedy.ts'
import { createTokenFiles, type TokenFilesConfig } from '../../../src/delivery/files/token-files.ts'
import { describeCurrent } from '../../../src/delivery/status.ts'
import type { Log } from '../../../src/lib/log.ts'
import type { Keeper, KeeperEvent } from '../../../src/token/keeper.ts'
import { initialState, type TokenState } from '../../../src/token/state.ts'
import { fingerprintOf, type Token } from '../../../src/token/token.ts'
import { createFakeClock, type FakeClock } from '../../support/fake-clock.ts'
import { createKeeperWorld } from '../../support/keeper-world.ts'
import { watchFileCalls } from '../../support/file-calls.ts'
import { createRecords } from '../../support/records.ts'
import { tempDirectory } from '../../support/temp-directory.ts'
import { eventually, expectUntil } from '../../support/until.ts'

const isRoot = process.geteuid?.() === 0
const MINUTE = 60_000
const BASE_URL = 'https://api.example.com'
const SETTINGS = { baseUrl: BASE_URL, credentialsId: 'first' }

/**
 * A keeper that holds what the test gives it, on a wall clock that begins with the real one: file times are
 * real.
 */
function createHolder(clock: FakeClock) {
  let state: TokenState = initialState(SETTINGS, clock.now())
  const listeners = new Set<(event: KeeperEvent) => void>()
  const emit = (event: KeeperEvent): void => {
    for (const listener of listeners) listener(event)
  }
  return {
    state: () => state,
    now: () => clock.now(),
    onEvent(listener: (event: KeeperEvent) => void) {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
    tick: () => emit({ type: 'tick' }),
    hold(accessToken: string, facts: Partial<Token> = {}) {
      const now = clock.now()
      const lifeMs = facts.lifeMs ?? 15 * MINUTE
      const token: Token = {
        accessToken,
        fingerprint: fingerprintOf(accessToken),
        generation: state.generation + 1,
        ...SETTINGS,
        answer: 1,
        isOfClients: false,
        isSameUntilEnd: false,
        known: null,
        received: now,
        lifeMs,
        expiresAtMs: now.bootMs + lifeMs,
        expirySource: 'jwt',
        refreshAtMs: now.bootMs + (lifeMs * 2) / 3,
        ...facts,
      }
      state = { ...initialState(SETTINGS, now), token, generation: token.generation }
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
  return { path, format, mode: 0o600, uid: null, gid: null, ...facts }
}

/** Real time has to pass between a change and the tick at which the file's times may be trusted. */
function createScene() {
  const clock = createFakeClock({ wallMs: Date.now() + MINUTE, bootMs: 5_000_250 })
  const keeper = createHolder(clock)
  const { log, records, events } = createRecords()
  return { clock, keeper, log, records, events }
}

function filesFor(
  tokenFiles: readonly TokenFileConfig[],
  {
    keeper,
    log,
    stateDirectory = ownDirectory(),
  }: {
    keeper: Pick<Keeper, 'state' | 'now' | 'onEvent'>
    log: Log
    stateDirectory?: string
  },
): ReturnType<typeof createTokenFiles> & { config: TokenFilesConfig } {
  const config = { tokenFiles, stateDirectory }
  return { ...createTokenFiles({ config, keeper, log, place: unitPlace(undefined) }), config }
}

function ownDirectory(): string {
  const directory = mkdtempSync('/tmp/kyc-tokend-test-')
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }))
  return directory
}

/** Runs it until the returned function is called, or the test ends. */
function running(part: { run: (signal: AbortSignal) => Promise<void> }): () => Promise<void> {
  const stop = new AbortController()
  const done = part.run(stop.signal)
  const end = async (): Promise<void> => {
    stop.abort()
    await done
  }
  onTestFinished(end)
  return end
}

/** Maintains these files until `end` is called, or the test ends. */
function start(tokenFiles: readonly TokenFileConfig[]) {
  const scene = createScene()
  const files = filesFor(tokenFiles, scene)
  return { ...scene, files, end: running(files) }
}

/** The same for one file, which has the token. */
async function startWithFile(where: 'disk' | 'memory') {
  const directory = await tempDirectory(where)
  const path = join(directory, 'token')
  const started = start([fileAt(path)])
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

describe('a token that needs quotes, for an API that wants another header', () => {
  const use = { header: 'X-Api-Token', prefix: '' }

  it('is in quotes for shells, in that header', async () => {
    const { keeper, log, events, records } = createScene()
    const directory = ownDirectory()
    const at = (format: TokenFileConfig['format'], template: string | null = null) =>
      fileAt(join(directory, format), format, { template })
    const entries = [at('raw'), at('header'), at('env'), at('template', 'token=${accessToken}')]
    const other = { ...keeper, state: () => ({ ...keeper.state(), use }) }
    running(filesFor(entries, { keeper: other, log }))
    const token = '~root|12|a!b$(id)`id`&*?<>'
    keeper.hold(token)
    await eventually(() => {
      expect(contentOf(join(directory, 'raw'))).toBe(token)
      expect(contentOf(join(directory, 'header'))).toBe(`X-Api-Token: ${token}\n`)
      expect(contentOf(join(directory, 'env'))).toBe(`KYC_ACCESS_TOKEN='${token}'\n`)
      expect(contentOf(join(directory, 'template'))).toBe(`token=${token}`)
    })
    const shell = spawnSync('sh', ['-c', '. "$0" && printf %s "$KYC_ACCESS_TOKEN"', join(directory, 'env')])
    expect(shell.stdout.toString()).toBe(token)
    keeper.hold(`${token}2`)
    await eventually(() => expect(contentOf(join(directory, 'raw'))).toBe(`${token}2`))
    expect(events().filter((event) => event === 'template-characters')).toHaveLength(1)
    expect(JSON.stringify(records)).not.toContain('12|')
  })
})

describe.each(['disk', 'memory'] as const)('token files on %s', (where) => {
  it('hold the token in the four formats, and what a template makes of it', async () => {
    const directory = await tempDirectory(where)
    const template = '[${baseUrl}] $${x} ${accessToken} ${fingerprint} ${obtainedAt} ${expiresAt}\n'
    const entries = (['raw', 'header', 'env', 'json', 'template'] as const).map((format) =>
      fileAt(join(directory, format), format, { template }),
    )
    const { keeper, clock } = start(entries)
    const { received, fingerprint } = keeper.hold('abc.def')
    const obtainedAt = new Date(received.wallMs).toISOString()
    const expiresAt = new Date(clock.now().wallMs + 15 * MINUTE).toISOString()
    await eventually(() => {
      expect(contentOf(join(directory, 'raw'))).toBe('abc.def')
      expect(contentOf(join(directory, 'header'))).toBe('Authorization: Bearer abc.def\n')
      expect(contentOf(join(directory, 'env'))).toBe('KYC_ACCESS_TOKEN=abc.def\n')
      expect(JSON.parse(contentOf(join(directory, 'json')) ?? '')).toEqual({
        accessToken: 'abc.def',
        obtainedAt,
        expiresAt,
        generation: 1,
      })
      expect(contentOf(join(directory, 'template'))).toBe(
        `[${BASE_URL}] \${x} abc.def ${fingerprint} ${obtainedAt} ${expiresAt}\n`,
      )
    })
  })

  it('are restored when changed, removed or given another mode, and that is counted', async () => {
    const { directory, path, keeper, clock, events, files } = await startWithFile(where)
    await clock.advance(1_000)
    // So long that its times would show another change: the file is compared all the same.
    await expectUntil('an old directory', () => Date.now() - statSync(directory).ctimeMs > 1_000)
    const tamperings = [
      async () => writeFile(path, 'forged!'),
      async () => rm(path),
      async () => chmod(path, 0o644),
      async () => utimes(path, 1, 1).then(() => writeFile(path, 'abc.deg')),
    ]
    for (const [done, tamper] of tamperings.entries()) {
      keeper.tick()
      await clock.settle()
      await tamper()
      keeper.tick()
      await eventually(() => {
        expect([contentOf(path), modeOf(path)]).toEqual(['abc.def', '600'])
        expect(files.status()[0]?.repairs).toBe(done + 1)
      })
    }
    expect(files.counts()).toEqual({ writes: 5, repairs: 4, errors: 0 })
    expect(events().filter((event) => event === 'file-restored')).toHaveLength(4)
  })

  it('are not written again when the token is the same, also after a restart', async () => {
    const directory = await tempDirectory(where)
    const configs = [fileAt(join(directory, 'token')), fileAt(join(directory, 'json'), 'json')]
    const { keeper, log, clock, end } = start(configs)
    keeper.hold('abc.def')
    await eventually(() => {
      expect(contentOf(join(directory, 'json'))).toContain('abc.def')
      expect(contentOf(join(directory, 'token'))).toBe('abc.def')
    })
    const inodes = (): number[] => configs.map(({ path }) => statSync(path).ino)
    const before = inodes()
    for (let ticks = 0; ticks < 3; ticks += 1) {
      await clock.advance(15_000)
      keeper.tick()
    }
    await end()
    const again = filesFor(configs, { keeper, log })
    const endAgain = running(again)
    await clock.advance(15_000)
    keeper.tick()
    await endAgain()
    expect(inodes()).toEqual(before)
    expect(again.counts()).toEqual({ writes: 0, repairs: 0, errors: 0 })
    expect(again.status().map(({ ok, writtenAt }) => [ok, writtenAt !== null])).toEqual([
      [true, true],
      [true, true],
    ])
  })

  it('end with the newest token, however quickly they come', async () => {
    const path = join(await tempDirectory(where), 'token')
    const { keeper } = start([fileAt(path)])
    for (let number = 1; number <= 200; number += 1) {
      keeper.hold(`token-${number}`)
      if (number % 7 === 0) await new Promise(setImmediate)
    }
    await eventually(() => expect(contentOf(path)).toBe('token-200'))
  })

  it('keep no token past its expiry or twice the age assumed for it, as `status` shows', async () => {
    const path = join(await tempDirectory(where), 'token')
    const { keeper, clock, files } = start([fileAt(path)])
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
    const directory = await tempDirectory(where)
    await writeFile(join(directory, 'token'), 'of a former run')
    await writeFile(join(directory, '.token.0123456789ab.kyc'), 'torn')
    start([fileAt(join(directory, 'token'))])
    await eventually(() => expect(readdirSync(directory)).toEqual([]))
  })

  it('are left at a stop, unless the token has expired by then', async () => {
    const path = join(await tempDirectory(where), 'token')
    const { keeper, log, clock, end } = start([fileAt(path)])
    keeper.hold('abc.def')
    await end()
    expect(contentOf(path)).toBe('abc.def')
    const endAgain = running(filesFor([fileAt(path)], { keeper, log }))
    clock.suspend(15 * MINUTE)
    await endAgain()
    expect(contentOf(path)).toBeNull()
  })

  it('report once what is wrong with a target, go on with the others, and try again', async () => {
    const directory = await tempDirectory(where)
    const [link, absent, good] = ['link', 'absent/token', 'good'].map((name) => join(directory, name))
    symlinkSync('/etc/passwd', link ?? '')
    const configs = [link, absent, good].map((path) => fileAt(path ?? ''))
    const { keeper, clock, records, files } = start(configs)
    keeper.hold('abc.def')
    for (let ticks = 0; ticks < 3; ticks += 1) {
      keeper.tick()
      await clock.settle()
    }
    await eventually(() => {
      expect(contentOf(good ?? '')).toBe('abc.def')
      expect(files.status().map(({ ok }) => ok)).toEqual([false, false, true])
      expect(files.status()[0]?.error).toContain('symbolic link')
      expect(files.status()[1]?.error).toContain('is not there')
    })
    const said = (): string[] => records.map(({ fields }) => `${fields.event} ${String(fields['path'])}`)
    expect(said().toSorted()).toEqual([`file-error ${absent}`, `file-error ${link}`])
    mkdirSync(join(directory, 'absent'))
    await rm(link ?? '')
    keeper.tick()
    await eventually(() => {
      expect(files.status().every(({ ok }) => ok)).toBe(true)
      expect(contentOf(absent ?? '')).toBe('abc.def')
    })
    expect(said().filter((record) => record.startsWith('file-mended'))).toHaveLength(2)
    expect(JSON.stringify(records)).not.toContain('abc.def')
  })
})

describe('token files', () => {
  it('in JSON show the instants of `status` from the next tick on', async () => {
    const { log, clock } = createScene()
    const world = createKeeperWorld({ clock })
    const { keeper } = world
    onTestFinished(world.stop)
    world.start()
    await clock.settle()
    const path = join(await tempDirectory('memory'), 'token')
    running(filesFor([fileAt(path, 'json')], { keeper, log }))
    const shown = () => describeCurrent(keeper.state(), keeper.now())
    const atTick = async (setByMs: number): Promise<string | undefined> => {
      clock.jumpWall(setByMs)
      await clock.advance(15_000)
      const { expiresAt, obtainedAt } = shown() ?? {}
      await eventually(() =>
        expect(JSON.parse(contentOf(path) ?? '{}')).toMatchObject({ expiresAt, obtainedAt }),
      )
      return expiresAt
    }
    const before = await atTick(0)
    expect(await atTick(1_900)).toBe(before)
    const after = await atTick(3_600_000)
    expect(Date.parse(after ?? '') - Date.parse(before ?? '')).toBe(3_601_900)
    // Less than 2 s from what is shown now: a correction of the clock changes no text.
    expect(await atTick(-700)).toBe(after)
  })

  it.skipIf(!isRoot)('get back their group, configured or not', async () => {
    const { keeper, log, clock } = createScene()
    const directory = await tempDirectory('memory')
    const [given, own] = [join(directory, 'given'), join(directory, 'own')]
    await writeFile(own, 'abc.def', { mode: 0o600 })
    await chown(own, 0, 54321)
    const configs = [fileAt(given, 'raw', { gid: 12345, mode: 0o640 }), fileAt(own)]
    const files: ReturnType<typeof createTokenFiles> = filesFor(configs, { keeper, log })
    keeper.hold('abc.def')
    running(files)
    const groups = (): number[] => [given, own].map((path) => statSync(path).gid)
    await eventually(() => expect(groups()).toEqual([12345, process.getegid?.()]))
    await clock.advance(1_000)
    await Promise.all([chown(given, 0, 999), chown(own, 0, 999)])
    keeper.tick()
    await eventually(() => {
      expect(groups()).toEqual([12345, process.getegid?.()])
      expect(files.counts().repairs).toBe(2)
    })
  })
})

describe('a reload', () => {
  it('removes the files of entries that are gone, and leaves what is no regular file', async () => {
    const directory = await tempDirectory('memory')
    const fileOf = (name: string) => fileAt(join(directory, name))
    symlinkSync('/etc/hostname', join(directory, 'link'))
    const { keeper, events, files } = start(['token', 'kept', 'link', 'absent'].map(fileOf))
    keeper.hold('abc.def')
    await eventually(() => {
      expect(readdirSync(directory)).toEqual(['absent', 'kept', 'link', 'token'])
      expect(events()).toEqual(['file-error'])
    })
    const writtenAt = files.status()[1]?.writtenAt
    await files.reconfigure({ ...files.config, tokenFiles: [fileOf('kept'), fileOf('added')] })
    expect(readdirSync(directory)).toEqual(['added', 'kept', 'link'])
    expect(files.status()).toMatchObject([{ ok: true, writtenAt }, { ok: true }])
    expect(files.counts().writes).toBe(6)
  })

  it('changes mode or format without a moment without the file, and writes it for nothing else', async () => {
    const { path, files } = await startWithFile('memory')
    const { ino } = statSync(path)
    await files.reconfigure({ ...files.config, tokenFiles: [{ ...fileAt(path), gid: statSync(path).gid }] })
    expect(statSync(path).ino).toBe(ino)
    const seen = new Set<string>()
    onTestFinished(watchFileCalls(() => seen.add(`${modeOf(path)} ${contentOf(path)}`)))
    await files.reconfigure({ ...files.config, tokenFiles: [{ ...fileAt(path), mode: 0o640 }] })
    await files.reconfigure({ ...files.config, tokenFiles: [{ ...fileAt(path, 'header'), mode: 0o640 }] })
    const header = 'Authorization: Bearer abc.def\n'
    seen.add(`${modeOf(path)} ${contentOf(path)}`)
    expect(seen).toEqual(new Set(['600 abc.def', '640 abc.def', `640 ${header}`]))
    expect(files.counts()).toEqual({ writes: 3, repairs: 0, errors: 0 })
  })
})

describe('a directory that its group can write', () => {
  it('is used, with a warning, once for all files in it', async () => {
    const { keeper, log, records } = createScene()
    const directory = await tempDirectory('memory')
    await chmod(directory, 0o770)
    const paths = ['a', 'b'].map((name) => join(directory, name))
    running(
      filesFor(
        paths.map((path) => fileAt(path)),
        { keeper, log },
      ),
    )
    keeper.hold('abc.def')
    await eventually(() => expect(paths.map(contentOf)).toEqual(['abc.def', 'abc.def']))
    expect(records.map(({ level, fields }) => [level, fields.event, fields['warning']])).toEqual([
      ['warning', 'directory-shared', expect.objectContaining({ kind: 'unsafe-directory', directory })],
    ])
  })
})

describe('written-files.json', () => {
  it('lists the files that were written: a former one is removed by a reload and at a start', async () => {
    const { keeper, log } = createScene()
    const directory = await tempDirectory('memory')
    const stateDirectory = await tempDirectory('memory')
    const [a = '', b = '', absent = ''] = ['a', 'b', 'absent/c'].map((name) => join(directory, name))
    const list = (): unknown => JSON.parse(contentOf(join(stateDirectory, 'written-files.json')) ?? 'null')
    const options = { keeper, log, stateDirectory }
    const end = running(filesFor([fileAt(a), fileAt(absent)], options))
    keeper.hold('abc.def')
    await eventually(() => expect(list()).toEqual([a]))
    expect(modeOf(join(stateDirectory, 'written-files.json'))).toBe('600')
    await end()
    const files = filesFor([fileAt(b)], options)
    running(files)
    await eventually(() => expect(list()).toEqual([b]))
    expect(readdirSync(directory)).toEqual(['b'])
    await files.reconfigure({ ...files.config, tokenFiles: [fileAt(a)] })
    expect(list()).toEqual([a])
    expect(readdirSync(directory)).toEqual(['a'])
  })

  it('is not believed about a file that a reload configures while it is read', async () => {
    const { keeper, log } = createScene()
    const [directory, stateDirectory] = [await tempDirectory('memory'), await tempDirectory('memory')]
    const path = join(directory, 'again')
    await writeFile(path, 'abc.def', { mode: 0o600 })
    await writeFile(join(stateDirectory, 'written-files.json'), JSON.stringify([path]), { mode: 0o600 })
    const files = filesFor([], { keeper, log, stateDirectory })
    keeper.hold('abc.def')
    let reloaded: Promise<void> | undefined
    // It is read first for its owner.
    onTestFinished(
      watchFileCalls((name, [at]) => {
        if (name === 'lstat' && at === path)
          reloaded ??= files.reconfigure({ ...files.config, tokenFiles: [fileAt(path)] })
      }),
    )
    running(files)
    await eventually(() => expect(files.status()).toMatchObject([{ path, ok: true, present: true }]))
    await reloaded
    keeper.hold('ghi.jkl')
    await untilContent(path, 'ghi.jkl')
  })

  it('keeps a file that cannot be removed yet', async () => {
    const { keeper, log } = createScene()
    const [directory, stateDirectory] = [await tempDirectory('memory'), await tempDirectory('memory')]
    const path = join(directory, 'former')
    symlinkSync('/nowhere', path)
    await writeFile(join(stateDirectory, 'written-files.json'), JSON.stringify([path]), { mode: 0o600 })
    const files = filesFor([], { keeper, log, stateDirectory })
    const end = running(files)
    await eventually(() => expect(files.counts().errors).toBeGreaterThan(0))
    await end()
    expect(contentOf(join(stateDirectory, 'written-files.json'))).toContain(path)
  })

  it('is not there where no file was written, and what is no list counts as none', async () => {
    const { keeper, log } = createScene()
    const [directory, stateDirectory] = [await tempDirectory('memory'), await tempDirectory('memory')]
    const list = join(stateDirectory, 'written-files.json')
    await writeFile(list, '{"no": "list"}')
    running(filesFor([fileAt(join(directory, 'token'))], { keeper, log, stateDirectory }))
    await eventually(() => expect(contentOf(list)).toBeNull())
  })
})
