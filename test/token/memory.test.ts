import * as fc from 'fast-check'
import { spawnSync } from 'node:child_process'
import {
  chmodSync,
  chownSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
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

  it('the time the service asked for is what is left to wait, at the pace of a first failure', async () => {
    const { start, answered, clock } = await scene()
    const { memory, state } = await start()
    const failed = answered(answered(state, down), limited)
    const notBeforeMs = failureOf(failed)?.notBeforeMs ?? 0
    await memory.end(failed)
    const after = await start()
    expect(failureOf(after.state)).toMatchObject({ attempts: 1, retryAtMs: notBeforeMs })
    await after.memory.end(failed)
    await clock.advance(notBeforeMs - clock.now().bootMs)
    expect(failureOf((await start()).state)).toBeNull()
  })

  it('a request that was rejected is made again, with the alert still standing', async () => {
    const { start, answered } = await scene()
    const { memory, state } = await start()
    await memory.end(
      answered(state, { kind: 'transient', reason: 'rejected', detail: 'Forbidden', status: 403 }),
    )
    const after = await start()
    expect(after.state).toMatchObject({ kind: 'waiting', failure: null, alert: { reason: 'rejected' } })
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

  it('are told apart by a key that is made once', async () => {
    const { start, stateDirectory } = await scene()
    await start()
    const made = statSync(join(stateDirectory, 'key'))
    await start()
    expect(statSync(join(stateDirectory, 'key')).ino).toBe(made.ino)
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

describe('the subject', () => {
  it('is another for another service, key or secret, and the same for the same', async () => {
    const { memory } = await (await scene()).start()
    const of = (baseUrl: string, apiKey: string, apiSecret: string) =>
      memory.subjectOf(baseUrl, { apiKey: new Secret(apiKey), apiSecret: new Secret(apiSecret) })
    const subjects = [
      of('a', 'b', 'c'),
      of('x', 'b', 'c'),
      of('a', 'x', 'c'),
      of('a', 'b', 'x'),
      of('a', 'bc', ''),
    ]
    expect(new Set(subjects).size).toBe(5)
    expect(of('a', 'b', 'c')).toBe(subjects[0])
  })
})

describe('the count of tokens', () => {
  it('goes on from the larger of what was kept and what was remembered', async () => {
    const { start, answered, ok, runtimeDirectory, stateDirectory } = await scene()
    const { memory, state } = await start()
    await memory.remember(answered(answered(state, ok()), ok()))
    await rm(join(stateDirectory, 'memory.json'))
    const kept = await start()
    expect(kept.state).toMatchObject({ kind: 'held', generation: 2 })
    await rm(join(runtimeDirectory, 'kept.json'))
    expect((await start()).state).toMatchObject({ kind: 'waiting', generation: 2 })
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

  it('whose clock is behind by a second and no more is this one', async () => {
    const { start, answered, ok, runtimeDirectory, clock } = await scene()
    const { memory, state } = await start()
    const held = answered(state, ok())
    const bootMs = clock.now().bootMs
    const lifeMs = heldToken(held)?.lifeMs ?? 0
    for (const facts of [
      { received: { bootMs: bootMs + 1_000, wallMs: 0 } },
      { expiresAtMs: bootMs + lifeMs + 1_000 },
    ]) {
      await memory.remember(state)
      await memory.remember(held)
      const path = join(runtimeDirectory, 'kept.json')
      const file = JSON.parse(readFileSync(path, 'utf8')) as { kept: { token: object } }
      Object.assign(file.kept.token, facts)
      await writeFile(path, JSON.stringify(file))
      expect((await start()).state.kind).toBe('held')
    }
  })

  it('that began anew, or cannot be told, leaves only the wall clock', async () => {
    const boots = [
      { boot: 'boot-one', next: 'boot-one', bootMs: 5_000 },
      { boot: 'boot-one', next: 'boot-two', bootMs: 10 * HOUR },
      { boot: 'hidden', next: 'hidden', bootMs: 5_000 },
      { boot: 'hidden', next: 'hidden', bootMs: 10 * HOUR },
    ]
    for (const { boot, next, bootMs } of boots) {
      const { start, answered, clock } = await scene()
      const { memory, state } = await start({ boot })
      const failed = answered(state, limited)
      await memory.remember(failed)
      const waitMs = waitOf(failed, clock)
      Object.assign(clock, createFakeClock({ wallMs: clock.now().wallMs + MINUTE, bootMs }))
      const after = await start({ boot: next })
      expect(waitOf(after.state, clock)).toBe(waitMs - MINUTE)
      expect(failureOf(after.state)).toMatchObject({ since: { bootMs: bootMs - MINUTE } })
    }
  })

  it('whose wall clock was set back begins nothing in the future and waits for nothing longer than 72 min', async () => {
    const { start, answered, clock } = await scene()
    const { memory, state } = await start()
    const wallMs = clock.now().wallMs - 24 * HOUR
    await memory.remember(answered(answered(state, refused), limited))
    Object.assign(clock, createFakeClock({ wallMs, bootMs: 5_000 }))
    const { state: failed } = await start({ boot: 'boot-two' })
    const latest = 5_000 + 72 * MINUTE
    expect(failureOf(failed)).toMatchObject({
      since: { bootMs: 5_000 },
      retryAtMs: latest,
      notBeforeMs: latest,
    })
    expect(failed.alert?.since.bootMs).toBe(5_000)
    await memory.remember(answered(state, refused))
    const { state: refusing } = await start({ boot: 'boot-two' })
    expect(refusing.kind === 'refused' && refusing.refusal.since.bootMs).toBe(5_000)
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
  it('name the boot as the kernel does', async () => {
    const { clock, records, answered, ok, runtimeDirectory, stateDirectory } = await scene()
    const memory = await createMemory({ runtimeDirectory, stateDirectory, clock, log: records.log })
    const asking = { baseUrl: BASE_URL, subject: memory.subjectOf(BASE_URL, FIRST) }
    await memory.remember(answered(await memory.recall(asking), ok()))
    const bootId = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()
    expect(readFileSync(join(runtimeDirectory, 'kept.json'), 'utf8')).toContain(JSON.stringify(bootId))
  })

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

  it('that cannot be used are told with their path and the reason', async () => {
    const torn = 'it is torn, foreign or of another version'
    const odd = 'it is too long, or no regular file'
    const open = 'others may read or write it (not 0600)'
    const damages: [fault: string, damage: (file: string) => unknown][] = [
      [torn, (file) => writeFileSync(file, '{')],
      [torn, (file) => truncateSync(file, 0)],
      [torn, (file) => truncateSync(file, 256 * 1024)],
      [odd, (file) => truncateSync(file, 256 * 1024 + 1)],
      [odd, (file) => rmSync(file) ?? mkdirSync(file)],
      ['it cannot be read (ELOOP)', (file) => rmSync(file) ?? symlinkSync('/etc/hostname', file)],
      [open, (file) => chmodSync(file, 0o604)],
      [open, (file) => chmodSync(file, 0o620)],
      [open, (file) => chmodSync(file, 0o601)],
    ]
    if (isRoot) damages.push(['it belongs to another user (12345)', (file) => chownSync(file, 12345, 0)])
    for (const [fault, damage] of damages) {
      const { start, stateDirectory, records } = await scene()
      await start()
      const path = join(stateDirectory, 'memory.json')
      damage(path)
      records.records.length = 0
      await start()
      expect(records.records[0]).toEqual({
        level: 'warning',
        sentence: 'A state file cannot be used and counts as not there',
        fields: { event: 'state-file-ignored', path, fault },
      })
    }
  })

  it('may have a mode that is narrower than it was', async () => {
    const { start, answered, stateDirectory, records } = await scene()
    const { memory, state } = await start()
    await memory.remember(answered(state, down))
    await chmod(join(stateDirectory, 'memory.json'), 0o400)
    expect(failureOf((await start()).state)).not.toBeNull()
    expect(records.events()).toEqual([])
  })

  it('that were removed are written again at the next look, and those that stand are left alone', async () => {
    const { start, answered, ok, stateDirectory, runtimeDirectory } = await scene()
    const { memory, state } = await start()
    await memory.remember(answered(state, ok()))
    const paths = [
      join(runtimeDirectory, 'kept.json'),
      join(stateDirectory, 'memory.json'),
      join(stateDirectory, 'key'),
    ]
    const seen = () => paths.map((path) => readFileSync(path, 'utf8'))
    const before = { texts: seen(), inodes: paths.map((path) => statSync(path).ino) }
    await memory.look()
    expect(paths.map((path) => statSync(path).ino)).toEqual(before.inodes)
    for (const path of paths) await rm(path)
    await memory.look()
    expect(seen()).toEqual(before.texts)
    for (const path of paths) expect(statSync(path).mode & 0o777).toBe(0o600)
  })

  it('that could not be written are written at the next look, as they would be now', async () => {
    const { start, answered, ok, stateDirectory, runtimeDirectory, records } = await scene()
    const { memory, state } = await start()
    const held = answered(state, ok())
    for (const directory of [stateDirectory, runtimeDirectory]) await rm(directory, { recursive: true })
    await memory.remember(answered(held, down))
    await memory.look()
    await memory.look()
    expect(
      records.records.map(({ level, sentence, fields }) => [level, sentence, fields.event, fields['path']]),
    ).toEqual(
      [
        join(runtimeDirectory, 'kept.json'),
        join(stateDirectory, 'memory.json'),
        join(stateDirectory, 'key'),
      ].map((path) => ['error', 'Cannot keep what a restart must know', 'state-file-error', path]),
    )
    for (const directory of [stateDirectory, runtimeDirectory]) mkdirSync(directory)
    await memory.look()
    const again = await start()
    expect(failureOf(again.state)?.attempts).toBe(1)
    expect(heldToken(again.state)).toEqual(heldToken(held))
  })

  it('whose directory became a file are told, and written when it is one again', async () => {
    const { start, answered, stateDirectory, records } = await scene()
    const { memory, state } = await start()
    await memory.remember(answered(state, down))
    await rm(stateDirectory, { recursive: true })
    await writeFile(stateDirectory, '')
    await memory.look()
    expect(records.events()).toEqual(['state-file-error', 'state-file-error'])
    await rm(stateDirectory)
    mkdirSync(stateDirectory)
    await memory.look()
    expect(readdirSync(stateDirectory).toSorted()).toEqual(['key', 'memory.json'])
  })

  it('that need not be there are not missed with their directory', async () => {
    const { start, runtimeDirectory, records } = await scene()
    const { memory } = await start()
    await rm(runtimeDirectory, { recursive: true })
    await writeFile(runtimeDirectory, '')
    await memory.look()
    expect(records.events()).toEqual([])
  })

  it('that fail, hold and fail again are told again', async () => {
    const { start, answered, stateDirectory, records } = await scene()
    const { memory, state } = await start()
    for (let times = 1; times <= 2; times += 1) {
      await rm(stateDirectory, { recursive: true })
      await memory.remember(answered(state, down))
      await memory.look()
      mkdirSync(stateDirectory)
      await memory.look()
      await memory.remember(answered(state, limited))
    }
    expect(records.events().filter((event) => event === 'state-file-error').length).toBeGreaterThanOrEqual(4)
  })

  it('whose key is none get another, and nothing is remembered of anybody', async () => {
    const key = 'a'.repeat(64)
    for (const text of [
      key,
      `${key}a\n`,
      `x${key}\n`,
      `${key.slice(1)}\n`,
      `${key.toUpperCase()}\n`,
      `${key}\n\n`,
    ]) {
      const { start, answered, stateDirectory, records } = await scene()
      const { memory, state } = await start()
      await memory.remember(answered(state, refused))
      await writeFile(join(stateDirectory, 'key'), text)
      expect((await start()).state.kind).toBe('waiting')
      expect(records.events()).toEqual(['state-file-ignored'])
      expect(readFileSync(join(stateDirectory, 'key'), 'utf8')).toMatch(/^[0-9a-f]{64}\n$/)
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
