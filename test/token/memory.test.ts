import * as fc from 'fast-check'
import { spawnSync } from 'node:child_process'
import { mkdirSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { chmod, chown, mkdir, rm, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { Secret } from '../../src/lib/secret.ts'
import { parseKept, parseRemembered } from '../../src/token/memory-format.ts'
import { createMemory, type Memory } from '../../src/token/memory.ts'
import type { FetchOutcome } from '../../src/token/outcome.ts'
import {
  afterAsked,
  dueAtMs,
  failureOf,
  heldToken,
  initialState,
  nextState,
  phaseOf,
  presumedFailed,
  usableToken,
  type Policy,
  type TokenState,
} from '../../src/token/state.ts'
import { createFakeClock, type FakeClock } from '../support/fake-clock.ts'
import { jwtOf } from '../support/jwt.ts'
import { createRecords } from '../support/records.ts'
import { tempDirectory } from '../support/temp-directory.ts'

const isRoot = process.geteuid?.() === 0
const MINUTE = 60_000
const HOUR = 60 * MINUTE
const BASE_URL = 'https://api.example.com'
const ELSEWHERE = 'https://other.example.com'
const FIRST = { apiKey: new Secret('key-one'), apiSecret: new Secret('secret-one') }
const SECOND = { apiKey: new Secret('key-one'), apiSecret: new Secret('secret-two') }
const policy: Policy = { maxAgeMs: 15 * MINUTE, initialDelayMs: 1_000, maxDelayMs: 5 * MINUTE }
const refused: FetchOutcome = {
  kind: 'permanent',
  reason: 'account-inactive',
  detail: 'Your account is not active – pâ',
  status: 500,
}
const down: FetchOutcome = { kind: 'transient', reason: 'network', detail: 'connection refused' }
const limited: FetchOutcome = {
  kind: 'transient',
  reason: 'rate-limited',
  detail: 'slow down',
  status: 429,
  retryAfterMs: 10 * MINUTE,
}

interface Scene {
  readonly clock: FakeClock
  readonly runtimeDirectory: string
  readonly stateDirectory: string
  readonly records: ReturnType<typeof createRecords>
  /** Starts a daemon's memory: a process's first moments. */
  readonly start: (asking?: {
    baseUrl?: string
    credentials?: typeof FIRST
    boot?: string
  }) => Promise<{ memory: Memory; state: TokenState }>
  /** What the state becomes when the service answers so. */
  readonly answered: (state: TokenState, outcome: FetchOutcome) => TokenState
  readonly ok: (lifeMs?: number) => FetchOutcome
}

async function scene(): Promise<Scene> {
  const clock = createFakeClock()
  const runtimeDirectory = await tempDirectory('memory')
  const stateDirectory = await tempDirectory()
  const records = createRecords()
  const step = () => ({ now: clock.now(), policy, random: () => 0.5 })
  let tokens = 0
  return {
    clock,
    runtimeDirectory,
    stateDirectory,
    records,
    async start({ baseUrl = BASE_URL, credentials = FIRST, boot = 'boot-one' } = {}) {
      const bootIdFile = join(stateDirectory, `${boot}.id`)
      if (boot !== 'hidden') await writeFile(bootIdFile, `${boot}\n`)
      const { log } = records
      const memory = await createMemory({ runtimeDirectory, stateDirectory, clock, log, bootIdFile })
      return {
        memory,
        state: await memory.recall({ baseUrl, subject: memory.subjectOf(baseUrl, credentials) }),
      }
    },
    answered: (state, outcome) => nextState(afterAsked(state, 'start', clock.now()), outcome, step()).state,
    ok(lifeMs = HOUR) {
      const iat = clock.now().wallMs / 1000
      return { kind: 'ok', accessToken: jwtOf({ iat, exp: iat + lifeMs / 1000 }, ++tokens) }
    },
  }
}

/** Until the daemon may ask, in ms. */
const waitOf = (state: TokenState, clock: FakeClock): number => dueAtMs(state) - clock.now().bootMs

describe('after a crash', () => {
  it('a refusal stands: nothing is asked, and a good token is served', async () => {
    const { start, answered, ok, clock } = await scene()
    const before = await start()
    const held = answered(before.state, ok())
    await before.memory.remember(held)
    const state = answered(held, refused)
    await before.memory.remember(state)
    await clock.advance(MINUTE)
    const after = await start()
    expect(after.state).toMatchObject({ kind: 'refused', generation: 1, askNow: null })
    expect(dueAtMs(after.state)).toBe(Infinity)
    expect(heldToken(after.state)).toEqual(heldToken(state))
    expect(after.state.alert).toEqual(state.alert)
    expect(after.state.kind === 'refused' && after.state.refusal).toEqual(
      state.kind === 'refused' && state.refusal,
    )
  })

  it('a failure keeps its count and the time of the next attempt', async () => {
    const { start, answered, clock } = await scene()
    let { memory, state } = await start()
    for (let attempts = 1; attempts <= 20; attempts += 1) {
      state = answered(state, down)
      await memory.remember(state)
      const dueMs = dueAtMs(state)
      await clock.advance(100)
      ;({ memory, state } = await start())
      expect(failureOf(state)).toMatchObject({ attempts, reason: 'network' })
      expect(dueAtMs(state)).toBe(dueMs)
    }
  })

  it('a request that was never answered counts as failed', async () => {
    const { start, clock } = await scene()
    const { memory, state } = await start()
    const asked = afterAsked(state, 'start', clock.now())
    await memory.remember(presumedFailed(asked, { now: clock.now(), policy, random: () => 0.5 }))
    const after = await start()
    expect(failureOf(after.state)?.attempts).toBe(1)
    expect(waitOf(after.state, clock)).toBeGreaterThan(0)
  })

  it('in another boot the wait goes on by the wall clock, at most 72 minutes', async () => {
    const { start, answered, clock } = await scene()
    const { memory, state } = await start()
    const failed = answered(state, limited)
    await memory.remember(failed)
    const waitMs = waitOf(failed, clock)
    clock.suspend(MINUTE)
    const rebooted = createFakeClock({ wallMs: clock.now().wallMs, bootMs: 5_000 })
    Object.assign(clock, rebooted)
    const after = await start({ boot: 'boot-two' })
    expect(waitOf(after.state, clock)).toBeCloseTo(waitMs - MINUTE, 0)
    expect(failureOf(after.state)?.since.bootMs).toBeCloseTo(5_000 - MINUTE, 0)
    await after.memory.remember(after.state)
    clock.jumpWall(-30 * 24 * HOUR)
    const early = await start({ boot: 'boot-three' })
    expect(waitOf(early.state, clock)).toBeLessThanOrEqual(72 * MINUTE)
    expect(failureOf(early.state)?.since.bootMs).toBeLessThanOrEqual(clock.now().bootMs)
  })

  it('in the same boot the wait goes on by the boot clock, whatever the wall clock does', async () => {
    const { start, answered, clock } = await scene()
    const { memory, state } = await start()
    const failed = answered(state, limited)
    await memory.remember(failed)
    clock.jumpWall(30 * 24 * HOUR)
    expect(dueAtMs((await start()).state)).toBe(dueAtMs(failed))
  })
})

describe('after an orderly stop', () => {
  it('a refused account is asked about once, at once, and the refusal stays until the answer', async () => {
    const { start, answered, ok } = await scene()
    const { memory, state } = await start()
    const held = answered(state, ok())
    const stopped = answered(held, refused)
    await memory.end(stopped)
    const after = await start()
    expect(after.state).toMatchObject({ kind: 'refused', askNow: 'start' })
    expect(heldToken(after.state)).toEqual(heldToken(held))
    const crashed = await start()
    expect(crashed.state).toMatchObject({ kind: 'refused', askNow: null })
  })

  it('a failure is forgotten, save for the time the service asked us to keep away', async () => {
    const { start, answered, clock } = await scene()
    const first = await start()
    await first.memory.end(answered(first.state, down))
    const second = await start()
    expect(failureOf(second.state)).toBeNull()
    const limitedState = answered(second.state, limited)
    await second.memory.end(limitedState)
    const third = await start()
    expect(waitOf(third.state, clock)).toBeGreaterThanOrEqual(10 * MINUTE)
    await third.memory.end(third.state)
    await clock.advance(13 * MINUTE)
    expect(failureOf((await start()).state)).toBeNull()
  })

  it('a good token is served at once, with its plan, and nothing is asked', async () => {
    const { start, answered, ok, clock, runtimeDirectory } = await scene()
    const { memory, state } = await start()
    const held = answered(state, ok())
    await memory.remember(held)
    await memory.end(held)
    await clock.advance(10 * MINUTE)
    const after = await start()
    expect(after.state).toMatchObject({ kind: 'held', failure: null, askNow: null })
    expect(heldToken(after.state)).toEqual(heldToken(held))
    expect(dueAtMs(after.state)).toBe(dueAtMs(held))
    expect(phaseOf(after.state, clock.now())).toBe('ready')
    await clock.advance(HOUR)
    expect((await start()).state).toMatchObject({ kind: 'waiting', generation: 1 })
    expect(readdirSync(runtimeDirectory)).toEqual([])
  })
})

describe('other credentials', () => {
  it('forget refusal, failure and alert; the token is served, and another asked for at once', async () => {
    const { start, answered, ok } = await scene()
    const { memory, state } = await start()
    const held = answered(state, ok())
    await memory.remember(held)
    await memory.remember(answered(held, refused))
    const after = await start({ credentials: SECOND })
    expect(after.state).toMatchObject({ kind: 'held', failure: null, alert: null, askNow: 'start' })
    const crashed = await start({ credentials: SECOND })
    expect(crashed.state).toMatchObject({ kind: 'held', askNow: 'start' })
    const got = answered(crashed.state, ok())
    await crashed.memory.remember(got)
    const settled = await start({ credentials: SECOND })
    expect(settled.state).toMatchObject({ kind: 'held', askNow: null, generation: 2 })
  })

  it('for another service drop the token too', async () => {
    const { start, answered, ok, runtimeDirectory } = await scene()
    const { memory, state } = await start()
    await memory.remember(answered(state, ok()))
    expect(readdirSync(runtimeDirectory)).toEqual(['kept.json'])
    const after = await start({ baseUrl: ELSEWHERE })
    expect(after.state).toMatchObject({ kind: 'waiting', baseUrl: ELSEWHERE, generation: 1 })
    expect(readdirSync(runtimeDirectory)).toEqual([])
  })

  it('that a reload brought are those a restart remembers', async () => {
    const { start, answered, ok } = await scene()
    const { memory, state } = await start()
    const held = answered(state, ok())
    await memory.remember(held)
    memory.changeSubject(memory.subjectOf(BASE_URL, SECOND))
    await memory.remember(answered(held, refused))
    expect((await start({ credentials: SECOND })).state).toMatchObject({ kind: 'refused', askNow: 'start' })
    expect((await start({ credentials: FIRST })).state).toMatchObject({ kind: 'held', askNow: null })
  })

  it('are told apart by a key that is lost with its file', async () => {
    const { start, answered, ok, stateDirectory } = await scene()
    const { memory, state } = await start()
    await memory.remember(answered(answered(state, ok()), refused))
    expect(memory.subjectOf(BASE_URL, FIRST)).toMatch(/^[0-9a-f]{64}$/)
    expect(memory.subjectOf(BASE_URL, FIRST)).not.toBe(memory.subjectOf(BASE_URL, SECOND))
    await rm(join(stateDirectory, 'key'))
    expect((await start()).state).toMatchObject({ kind: 'held', askNow: 'start' })
  })
})

describe('the boot', () => {
  it('another one ends a kept token', async () => {
    const { start, answered, ok } = await scene()
    const { memory, state } = await start()
    await memory.remember(answered(state, ok()))
    expect((await start({ boot: 'boot-two' })).state.kind).toBe('waiting')
  })

  it('whose clock says what cannot be is in doubt, and the token is not served', async () => {
    const { start, answered, ok, runtimeDirectory, clock } = await scene()
    const { memory, state } = await start()
    const held = answered(state, ok())
    const token = heldToken(held)
    const bootMs = clock.now().bootMs
    for (const facts of [
      { received: { bootMs: bootMs + 1_001, wallMs: 0 } },
      { expiresAtMs: bootMs + (token?.lifeMs ?? 0) + 1_001 },
      { expiresAtMs: bootMs },
    ]) {
      await memory.remember(held)
      const path = join(runtimeDirectory, 'kept.json')
      const file = JSON.parse(readFileSync(path, 'utf8')) as { kept: { token: object } }
      Object.assign(file.kept.token, facts)
      await writeFile(path, JSON.stringify(file))
      expect((await start()).state.kind).toBe('waiting')
      await memory.remember(state)
    }
  })

  it('whose clock is behind by less than a second is this one: whole seconds may be all it tells', async () => {
    const { start, answered, ok, clock } = await scene()
    const { memory, state } = await start()
    const held = answered(state, ok())
    await memory.remember(held)
    // As the next process would tell it.
    clock.suspend(-999)
    expect(heldToken((await start()).state)).toEqual(heldToken(held))
  })

  it('that cannot be told is this one where the directory lives in memory, else another', async () => {
    const kept = await scene()
    const before = await kept.start({ boot: 'hidden' })
    await before.memory.remember(kept.answered(before.state, kept.ok()))
    expect((await kept.start({ boot: 'hidden' })).state.kind).toBe('held')
    const stateDirectory = await tempDirectory()
    const runtimeDirectory = await tempDirectory('disk')
    const { clock, records, answered, ok } = kept
    const open = async () =>
      createMemory({ runtimeDirectory, stateDirectory, clock, log: records.log, bootIdFile: '/nowhere' })
    const memory = await open()
    const asking = { baseUrl: BASE_URL, subject: memory.subjectOf(BASE_URL, FIRST) }
    await memory.remember(answered(await memory.recall(asking), ok()))
    expect((await (await open()).recall(asking)).kind).toBe('waiting')
  })
})

describe('the files', () => {
  it('are private, hold no credential, and only kept.json holds the token', async () => {
    const { start, answered, ok, runtimeDirectory, stateDirectory } = await scene()
    const { memory, state } = await start()
    const held = answered(state, ok())
    await memory.remember(held)
    await memory.remember(answered(held, refused))
    const files = [
      join(runtimeDirectory, 'kept.json'),
      ...['key', 'memory.json'].map((n) => join(stateDirectory, n)),
    ]
    for (const file of files) expect((statSync(file).mode & 0o7777).toString(8)).toBe('600')
    const [kept = '', ...rest] = files.map((file) => readFileSync(file, 'utf8'))
    const token = heldToken(held)?.accessToken ?? ''
    expect(kept).toContain(token)
    expect(rest.join('')).not.toContain(token)
    for (const secret of ['key-one', 'secret-one']) expect(kept + rest.join('')).not.toContain(secret)
  })

  it('are not written again where nothing changed', async () => {
    const { start, answered, ok, runtimeDirectory, stateDirectory, clock } = await scene()
    const { memory, state } = await start()
    const held = answered(state, ok())
    await memory.remember(held)
    const inodes = () =>
      [join(runtimeDirectory, 'kept.json'), join(stateDirectory, 'memory.json')].map(
        (file) => statSync(file).ino,
      )
    const before = inodes()
    await clock.advance(MINUTE)
    await memory.remember({ ...held, requests: 7, lastRequestAt: clock.now() })
    await start()
    expect(inodes()).toEqual(before)
  })

  it('that cannot be used are told in one record each, and survived', async () => {
    const damages: Record<string, (file: string) => Promise<void>> = {
      torn: async (file) => writeFile(file, readFileSync(file).subarray(0, 50)),
      foreign: async (file) => writeFile(file, '{"hello":"world"}'),
      empty: async (file) => writeFile(file, ''),
      old: async (file) => writeFile(file, readFileSync(file, 'utf8').replace('"version":1', '"version":0')),
      huge: async (file) => writeFile(file, Buffer.alloc(1_000_000, 0x20)),
      open: async (file) => chmod(file, 0o644),
      directory: async (file) => rm(file).then(async () => mkdir(file)),
      link: async (file) => rm(file).then(async () => symlink('/etc/hostname', file)),
      fifo: async (file) => rm(file).then(() => void spawnSync('mkfifo', ['-m', '600', file])),
      ...(isRoot ? { foreignOwner: async (file: string) => chown(file, 12345, 12345) } : {}),
    }
    for (const [name, damage] of Object.entries(damages)) {
      const { start, answered, ok, runtimeDirectory, stateDirectory, records } = await scene()
      const { memory, state } = await start()
      await memory.remember(answered(answered(state, ok()), refused))
      await damage(join(runtimeDirectory, 'kept.json'))
      await damage(join(stateDirectory, 'memory.json'))
      const after = await start()
      const ignored = records.events().filter((event) => event === 'state-file-ignored').length
      await after.memory.remember(answered(after.state, ok()))
      await after.memory.remember(answered(after.state, down))
      const errors = records.events().filter((event) => event === 'state-file-error').length
      expect({ name, kind: after.state.kind, failure: failureOf(after.state), ignored, errors }).toEqual({
        name,
        kind: 'waiting',
        failure: null,
        ignored: 2,
        errors: name === 'directory' || name === 'link' || name === 'fifo' ? 2 : 0,
      })
    }
  })

  it('that cannot be written are told once, and the daemon goes on', async () => {
    const { start, answered, ok, stateDirectory, runtimeDirectory, records } = await scene()
    const { memory, state } = await start()
    await rm(stateDirectory, { recursive: true })
    await rm(runtimeDirectory, { recursive: true })
    const held = answered(state, ok())
    await memory.remember(held)
    await memory.remember(answered(held, down))
    await memory.end(held)
    expect(records.events()).toEqual(['state-file-error', 'state-file-error'])
    mkdirSync(runtimeDirectory)
    mkdirSync(stateDirectory)
    await memory.end(held)
    expect(readdirSync(runtimeDirectory)).toEqual(['kept.json'])
    expect(readdirSync(stateDirectory)).toEqual(['memory.json'])
  })

  it('leave nothing of a crash in the middle of writing', async () => {
    const { start, stateDirectory, runtimeDirectory } = await scene()
    await writeFile(join(runtimeDirectory, '.kept.json.0123456789ab.kyc'), 'torn')
    await writeFile(join(stateDirectory, '.memory.json.0123456789ab.kyc'), 'torn')
    await writeFile(join(stateDirectory, '.key.0123456789ab.kyc'), 'torn')
    await start()
    expect(readdirSync(runtimeDirectory)).toEqual([])
    expect(readdirSync(stateDirectory).filter((name) => name.startsWith('.'))).toEqual([])
  })
})

describe('any bytes in the files', () => {
  it('are nothing, or exactly what they say', () => {
    fc.assert(
      fc.property(fc.oneof(fc.string(), fc.json()), (text) => {
        expect(parseKept(text)).toBeUndefined()
        expect(parseRemembered(text)).toBeUndefined()
      }),
    )
  })

  it('give a state and never a throw, and none that is better than what was stored', async () => {
    const { start, answered, ok, clock, runtimeDirectory, stateDirectory } = await scene()
    const { memory, state } = await start()
    const held = answered(state, ok(10 * MINUTE))
    await memory.end(held)
    await memory.remember(answered(held, limited))
    const stored = ['kept.json', 'memory.json'].map((name) =>
      readFileSync(join(name === 'kept.json' ? runtimeDirectory : stateDirectory, name)),
    )
    const token = heldToken(held)
    const edits = fc.array(
      fc.record({
        at: fc.nat(1_500),
        byte: fc.constantFrom(...Buffer.from('0123456789-e.,:"{}[]ntx\0\xff')),
      }),
      { minLength: 1, maxLength: 3 },
    )
    await fc.assert(
      fc.asyncProperty(edits, edits, fc.nat(20 * MINUTE), async (keptEdits, memoryEdits, laterMs) => {
        const edited = [keptEdits, memoryEdits].map((list, index) => {
          const bytes = Buffer.from(stored[index] ?? '')
          for (const { at, byte } of list) bytes[at % bytes.length] = byte
          return bytes
        })
        await writeFile(join(runtimeDirectory, 'kept.json'), edited[0] ?? '', { mode: 0o600 })
        await writeFile(join(stateDirectory, 'memory.json'), edited[1] ?? '', { mode: 0o600 })
        const later = createFakeClock({
          wallMs: clock.now().wallMs + laterMs,
          bootMs: clock.now().bootMs + laterMs,
        })
        const bootIdFile = join(stateDirectory, 'boot-one.id')
        const options = { runtimeDirectory, stateDirectory, clock: later, log: () => undefined, bootIdFile }
        const again = await createMemory(options)
        const subject = again.subjectOf(BASE_URL, FIRST)
        const recalled = await again.recall({ baseUrl: BASE_URL, subject })
        const now = later.now()
        const usable = usableToken(recalled, now)
        expect(heldToken(recalled)).toBe(usable)
        expect([token?.accessToken, undefined]).toContain(usable?.accessToken)
        expect(usable === null || usable.expiresAtMs - now.bootMs <= usable.lifeMs + 1_000).toBe(true)
        const failure = failureOf(recalled)
        expect(failure === null || failure.retryAtMs - now.bootMs <= 72 * MINUTE).toBe(true)
        expect(Object.keys(recalled)).toEqual(expect.arrayContaining(Object.keys(initialState(BASE_URL))))
      }),
      { numRuns: 300 },
    )
  })
})
