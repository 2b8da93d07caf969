import { spawnSync } from 'node:child_process'
import {
  chmodSync,
  chownSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { chmod, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { Secret } from '../../src/lib/secret.ts'
import { createStateStore } from '../../src/storage/state-store.ts'
import type { FetchOutcome } from '../../src/token/outcome.ts'
import {
  notBeforeMs,
  dueAtMs,
  noTokenSince,
  refusalOf,
  type Policy,
  type TokenState,
} from '../../src/token/state.ts'
import { afterCandidate, afterTrial, hasCandidate } from '../../src/token/candidate.ts'
import { afterReload, afterRequest, nextState } from '../../src/token/transitions.ts'
import { createFakeClock, type FakeClock } from '../support/fake-clock.ts'
import { grantAt } from '../support/jwt.ts'
import { createRecords } from '../support/records.ts'
import { canMount, smallDisk } from '../support/small-disk.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { kindOf } from '../support/kind-of.ts'

const isRoot = process.geteuid?.() === 0
const MINUTE = 60_000
const HOUR = 60 * MINUTE
const BASE_URL = 'https://api.example.com'
const FIRST = { apiKey: new Secret('key-one'), apiSecret: new Secret('secret-one') }
const SECOND = { apiKey: new Secret('key-one'), apiSecret: new Secret('secret-two') }
const policy: Policy = { maxAgeMs: 15 * MINUTE, initialDelayMs: 1_000, maxDelayMs: 5 * MINUTE }
const refused: FetchOutcome = {
  kind: 'permanent',
  reason: 'account-inactive',
  detail: 'Your account is not active – pâ',
  status: 500,
  says: 'is not active',
}
const down: FetchOutcome = { kind: 'transient', reason: 'network', detail: 'connection refused' }
const RETRY_AFTER = { status: 429, retryAfterMs: 10 * MINUTE }
const limited: FetchOutcome = { kind: 'transient', reason: 'rate-limited', detail: 'slow', ...RETRY_AFTER }

async function scene() {
  const clock = createFakeClock()
  const runtimeDirectory = await tempDirectory('memory')
  const stateDirectory = await tempDirectory()
  const records = createRecords()
  const step = () => ({ now: clock.now(), awakeMs: clock.awakeMs(), policy, drawn: 0.5 })
  let tokens = 0
  return {
    clock,
    runtimeDirectory,
    stateDirectory,
    files: {
      token: join(runtimeDirectory, 'kept.json'),
      state: join(stateDirectory, 'memory.json'),
      key: join(stateDirectory, 'key'),
    },
    records,
    /** Opens the store as a process does that starts. */
    start: async ({
      baseUrl = BASE_URL,
      credentials = FIRST,
      boot = 'boot-one',
      bootMark = null as string | null,
    } = {}) => {
      const bootIdFile = join(stateDirectory, `${boot}.id`)
      if (boot !== 'hidden') await writeFile(bootIdFile, `${boot}\n`)
      const { log } = records
      const directories = { runtimeDirectory, stateDirectory }
      const store = await createStateStore({ ...directories, clock, log, bootIdFile, bootMark })
      const credentialsId = store.credentialsIdOf(baseUrl, credentials)
      return { store, state: await store.load({ baseUrl, credentialsId }) }
    },
    /** The state when the service answers so. */
    answered: (state: TokenState, outcome: FetchOutcome) =>
      nextState(afterRequest(state, 'start', clock.now()), outcome, step()).state,
    reloaded: (state: TokenState, next: { baseUrl: string; credentialsId: string }) =>
      afterReload(state, next, step()),
    ok: (lifeMs = HOUR): FetchOutcome => grantAt(clock.now().wallMs, lifeMs, (tokens += 1)),
  }
}

/** The same, with a store that is open. */
async function opened() {
  const world = await scene()
  return { ...world, ...(await world.start()) }
}

/** Until the daemon may ask, in ms. */
const waitOf = (state: TokenState, clock: FakeClock): number => dueAtMs(state) - clock.now().bootMs

describe('facts that outlive the process', () => {
  it('are the instants of the last request and of the last success, and the pace of clients', async () => {
    const { start, answered, ok, clock, store, state } = await opened()
    const succeededAt = clock.now()
    const held = answered(state, ok())
    await clock.advance(MINUTE)
    const pace = { requestedMs: clock.now().bootMs, reported: 2 }
    await store.save({ ...answered(held, down), pace })
    const requestedAt = clock.now()
    await clock.advance(MINUTE)
    const after = await start()
    expect(after.state).toMatchObject({ lastSuccessAt: succeededAt, lastRequestAt: requestedAt, requests: 0 })
    expect(after.state.notBefore).toEqual({})
    expect(after.state.pace).toEqual(pace)
    const elsewhere = await start({ credentials: SECOND })
    expect(elsewhere.state).toMatchObject({ lastSuccessAt: succeededAt, pace })
  })
})

describe('the id of credentials', () => {
  it('is another for another service, description, key or secret, and the same for the same', async () => {
    const { store } = await (await scene()).start()
    const of = (baseUrl: string, ...[apiKey, apiSecret, description]: [string, string, string?]) => {
      const credentials = { apiKey: new Secret(apiKey), apiSecret: new Secret(apiSecret) }
      return store.credentialsIdOf(baseUrl, credentials, description)
    }
    const first = of('a', 'b', 'c')
    const others = [of('x', 'b', 'c'), of('a', 'x', 'c'), of('a', 'b', 'x'), of('a', 'bc', '')]
    const ids = [first, ...others, of('a', 'b', 'c', '{}'), of('a', 'b', 'c', '{"send":"form"}')]
    expect(new Set(ids).size).toBe(7)
    expect(of('a', 'b', 'c')).toBe(first)
  })
})

describe('the count of tokens', () => {
  it('goes on from the larger of what was kept and what was remembered', async () => {
    const { start, answered, ok, files, store, state } = await opened()
    await store.save(answered(answered(state, ok()), ok()))
    await rm(files.state)
    const kept = await start()
    expect(kept.state).toMatchObject({ token: expect.anything(), objection: null, generation: 2 })
    await rm(files.token)
    expect((await start()).state).toMatchObject({ token: null, objection: null, generation: 2 })
  })
})

it('a kept token that is older than the state remembers was replaced, and is not served', async () => {
  const { start, answered, ok, files, store, state } = await opened()
  const held = answered(state, ok())
  await store.save(held)
  const kept = readFileSync(files.token)
  await store.save(answered(held, ok()))
  writeFileSync(files.token, kept)
  expect((await start()).state).toMatchObject({ token: null, generation: 2 })
})

describe('a kill between the two files', () => {
  it('revives nothing that the token’s answer had ended, also where that was the same token', async () => {
    for (const ending of [refused, limited, down])
      for (const isSame of [false, true]) {
        const { start, answered, ok, files, store, state } = await opened()
        const token = ok()
        const before = answered(answered(state, token), ending)
        await store.save(before)
        const older = readFileSync(files.state)
        const after = answered(before, isSame ? token : ok())
        await store.save(after)
        writeFileSync(files.state, older)
        const { state: restored } = await start()
        expect(restored).toMatchObject({ token: after.token, objection: null, failure: null, notBefore: {} })
        expect(dueAtMs(restored)).toBe(after.token?.refreshAtMs)
      }
  })

  it('leaves what came after the token, and what is known of other credentials', async () => {
    const { start, answered, ok, files, store, state } = await opened()
    const held = answered(state, ok())
    await store.save(held)
    const kept = readFileSync(files.token)
    const refusing = answered(held, refused)
    await store.save(refusing)
    writeFileSync(files.token, kept)
    expect((await start()).state).toMatchObject({ token: held.token, objection: refusing.objection })
    await store.save(answered(state, limited))
    const older = readFileSync(files.state)
    await store.save(answered(answered(state, limited), ok()))
    writeFileSync(files.state, older)
    const { credentialsId } = state
    const elsewhere = (await start({ credentials: SECOND })).state
    expect(elsewhere.notBefore).not.toHaveProperty(credentialsId)
  })
})

describe('another pair, which was tried', () => {
  /** The state while the service has answered so to the pair `SECOND`. */
  async function tried(...outcomes: FetchOutcome[]) {
    const own = await scene()
    const { store, state } = await own.start()
    const held = own.answered(state, own.ok())
    const now = own.clock.now()
    const step = { now, awakeMs: own.clock.awakeMs(), policy, drawn: 0.5 }
    const candidate = afterCandidate(held, store.credentialsIdOf(BASE_URL, SECOND), now)
    const answer = (before: TokenState, outcome: FetchOutcome): TokenState =>
      hasCandidate(before) ? afterTrial(before, outcome, step).state : before
    const after = outcomes.reduce(answer, candidate)
    return { ...own, store, held, after }
  }

  it('is refused after a crash, if the files hold it still, and is not asked with', async () => {
    const { start, store, after, held } = await tried(refused)
    await store.save(after)
    const { state } = await start({ credentials: SECOND })
    expect(refusalOf(state)).toMatchObject({ reason: 'account-inactive' })
    expect([dueAtMs(state), state.token?.accessToken]).toEqual([Infinity, held.token?.accessToken])
    const former = (await start()).state
    expect([refusalOf(former), former.failure, former.candidate]).toEqual([null, null, null])
  })

  it('may be asked once after an orderly stop', async () => {
    const { start, store, after, clock } = await tried(refused)
    await store.close(after)
    expect(dueAtMs((await start({ credentials: SECOND })).state)).toBe(clock.now().bootMs)
  })

  it('keeps its backoff, its Retry-After and the pace of `rejected` after a crash', async () => {
    const rejected = { kind: 'transient', reason: 'rejected', detail: 'No', status: 401 } as const
    for (const [outcome, leastMs, boundMs] of [
      [{ kind: 'transient', reason: 'server-error', detail: '503' } as const, 500, 0],
      [limited, MINUTE, MINUTE],
      [rejected, 5 * MINUTE, 5 * MINUTE],
    ] as const) {
      const { start, store, after, clock } = await tried(outcome)
      await store.save(after)
      const { state } = await start({ credentials: SECOND })
      expect(waitOf(state, clock)).toBeGreaterThanOrEqual(leastMs)
      // Neither a client nor a reload asks before.
      expect(Math.max(0, notBeforeMs(state) - clock.now().bootMs)).toBeGreaterThanOrEqual(boundMs)
      expect(state.objection?.reason).toBe(outcome === rejected ? 'rejected' : undefined)
    }
  })

  it('has its count after a reboot, and its instants on the clock of that boot', async () => {
    for (const outcome of [limited, refused]) {
      const { start, store, after, clock } = await tried(down, outcome)
      await store.save(after)
      const { wallMs } = clock.now()
      Object.assign(clock, createFakeClock({ wallMs: wallMs + MINUTE, bootMs: 5 * MINUTE }))
      const { state } = await start({ credentials: SECOND, boot: 'boot-two' })
      const since = { bootMs: 4 * MINUTE, wallMs }
      if (outcome === refused) expect(state.objection).toMatchObject({ since })
      else expect(state.failure).toMatchObject({ since, attempts: 2, retryAtMs: 15 * MINUTE })
    }
  })

  it('that gave a token is not what it was before, whatever the disk kept of it', async () => {
    const { start, store, after, held, files, ok, answered } = await tried(refused)
    await store.save(after)
    const older = readFileSync(files.state)
    const second = { ...held, credentialsId: store.credentialsIdOf(BASE_URL, SECOND) }
    await store.save(answered(second, ok()))
    writeFileSync(files.state, older)
    const { state } = await start({ credentials: SECOND })
    expect([refusalOf(state), state.token?.generation]).toEqual([null, 2])
  })
})

describe('the boot', () => {
  it('whose clock says what cannot be is in doubt, by more than the grain of whole seconds', async () => {
    const { start, answered, ok, files, clock, store, state } = await opened()
    const held = answered(state, ok())
    const { bootMs } = clock.now()
    const lifeMs = held.token?.lifeMs ?? 0
    for (const [facts, kind] of [
      [{ received: { bootMs: bootMs + 1_000, wallMs: 0 } }, 'held'],
      [{ received: { bootMs: bootMs + 1_001, wallMs: 0 } }, 'waiting'],
      [{ expiresAtMs: bootMs + lifeMs + 1_000 }, 'held'],
      [{ expiresAtMs: bootMs + lifeMs + 1_001 }, 'waiting'],
      [{ expiresAtMs: bootMs }, 'waiting'],
    ] as const) {
      await store.save(state)
      await store.save(held)
      const file = JSON.parse(readFileSync(files.token, 'utf8')) as { facts: object }
      Object.assign(file.facts, facts)
      writeFileSync(files.token, JSON.stringify(file))
      expect(kindOf((await start()).state)).toBe(kind)
    }
  })

  it('that began again, or cannot be reported, leaves only the wall clock', async () => {
    const boots = [
      { boot: 'boot-one', next: 'boot-one', bootMs: 5_000 },
      { boot: 'boot-one', next: 'boot-two', bootMs: 10 * HOUR },
      { boot: 'hidden', next: 'hidden', bootMs: 5_000 },
      { boot: 'hidden', next: 'hidden', bootMs: 10 * HOUR },
    ]
    for (const { boot, next, bootMs } of boots) {
      const { start, answered, clock } = await scene()
      const { store, state } = await start({ boot })
      const failed = answered(state, limited)
      await store.save(failed)
      const waitMs = waitOf(failed, clock)
      Object.assign(clock, createFakeClock({ wallMs: clock.now().wallMs + MINUTE, bootMs }))
      const after = await start({ boot: next })
      expect(waitOf(after.state, clock)).toBe(waitMs - MINUTE)
      expect(after.state.failure).toMatchObject({ since: { bootMs: bootMs - MINUTE } })
      const wallMs = clock.now().wallMs - MINUTE
      expect(noTokenSince(after.state, clock.now())).toEqual({ bootMs: bootMs - MINUTE, wallMs })
    }
  })

  it('whose wall clock was set back begins nothing in the future, and waits no longer than it did', async () => {
    const { start, answered, clock, store, state } = await opened()
    const wallMs = clock.now().wallMs - 24 * HOUR
    await store.save(answered(answered(state, refused), limited))
    Object.assign(clock, createFakeClock({ wallMs, bootMs: 5_000 }))
    const { state: failed } = await start({ boot: 'boot-two' })
    // The Retry-After of 10 minutes, and the minute that was drawn.
    const latest = 5_000 + 11 * MINUTE
    expect(failed.failure).toMatchObject({ since: { bootMs: 5_000 }, retryAtMs: latest })
    expect(notBeforeMs(failed)).toBe(latest)
    expect(failed.objection?.since.bootMs).toBe(5_000)
    await store.save(answered(state, refused))
    const { state: refusing } = await start({ boot: 'boot-two' })
    expect(refusing.objection?.since.bootMs).toBe(5_000)
  })

  it.each([
    ['mark-one', -HOUR, MINUTE],
    ['mark-one', HOUR, MINUTE],
    // Another boot, or this one: a wait becomes no longer.
    ['mark-two', -HOUR, 0],
  ])(
    'without an id is this one by the same mark: %s, the clock set by %d ms',
    async (mark, jumpMs, goneMs) => {
      const { start, answered, clock } = await scene()
      const { store, state } = await start({ boot: 'hidden', bootMark: 'mark-one' })
      const failed = answered(state, limited)
      await store.save(failed)
      const waitMs = waitOf(failed, clock)
      await clock.advance(MINUTE)
      clock.jumpWall(jumpMs)
      const second = await start({ boot: 'hidden', bootMark: mark })
      expect(waitOf(second.state, clock)).toBe(waitMs - goneMs)
    },
  )

  it('that cannot be reported is this one where the directory lives in memory, else another', async () => {
    const kept = await scene()
    const before = await kept.start({ boot: 'hidden' })
    await before.store.save(kept.answered(before.state, kept.ok()))
    expect(kindOf((await kept.start({ boot: 'boot-one' })).state)).toBe('held')
    await before.store.save(before.state)
    const known = await kept.start({ boot: 'boot-one' })
    await known.store.save(kept.answered(known.state, kept.ok()))
    for (const boot of ['hidden', 'boot-one']) expect(kindOf((await kept.start({ boot })).state)).toBe('held')
    expect(kindOf((await kept.start({ boot: 'boot-two' })).state)).toBe('waiting')
    const stateDirectory = await tempDirectory()
    const runtimeDirectory = await tempDirectory('disk')
    const { clock, records, answered, ok } = kept
    const open = async () =>
      createStateStore({ runtimeDirectory, stateDirectory, clock, log: records.log, bootIdFile: '/nowhere' })
    const store = await open()
    const asking = { baseUrl: BASE_URL, credentialsId: store.credentialsIdOf(BASE_URL, FIRST) }
    await store.save(answered(await store.load(asking), ok()))
    expect(kindOf(await (await open()).load(asking))).toBe('waiting')
  })
})

describe('the files', () => {
  it('are private, hold no credential, and only kept.json holds the token', async () => {
    const { answered, ok, files, store, state } = await opened()
    const held = answered(state, ok())
    await store.save(held)
    await store.save(answered(held, refused))
    for (const file of Object.values(files)) expect((statSync(file).mode & 0o7777).toString(8)).toBe('600')
    const [kept = '', ...rest] = Object.values(files).map((file) => readFileSync(file, 'utf8'))
    const token = held.token?.accessToken ?? ''
    expect(kept).toContain(token)
    expect(rest.join('')).not.toContain(token)
    for (const secret of ['key-one', 'secret-one']) expect(kept + rest.join('')).not.toContain(secret)
  })

  it('are not written again where nothing changed', async () => {
    const { answered, ok, clock, files, store, state } = await opened()
    const held = answered(state, ok())
    await store.save(held)
    const inodes = () => Object.values(files).map((file) => statSync(file).ino)
    const before = inodes()
    await clock.advance(MINUTE)
    await store.save({ ...held, requests: 7 })
    expect(inodes()).toEqual(before)
  })

  const torn = 'it is torn, foreign or of another version'
  const odd = 'it is too long, or may not be read'
  const open = 'others may read or write it'
  const damages: [fault: string, damage: (file: string) => unknown][] = [
    [torn, (file) => writeFileSync(file, readFileSync(file).subarray(0, 50))],
    [torn, (file) => writeFileSync(file, '{"hello":"world"}')],
    [torn, (file) => writeFileSync(file, readFileSync(file, 'utf8').replace('"version":3', '"version":1'))],
    [torn, (file) => truncateSync(file, 0)],
    [torn, (file) => truncateSync(file, 256 * 1024)],
    [odd, (file) => truncateSync(file, 256 * 1024 + 1)],
    ['it cannot be read (EISDIR)', (file) => rmSync(file) ?? mkdirSync(file)],
    ['it cannot be read (odd-target)', (file) => rmSync(file) ?? spawnSync('mkfifo', ['-m', '600', file])],
    ['it cannot be read (ELOOP)', (file) => rmSync(file) ?? symlinkSync('/etc/hostname', file)],
    [open, (file) => chmodSync(file, 0o604)],
    [open, (file) => chmodSync(file, 0o620)],
    [open, (file) => chmodSync(file, 0o601)],
  ]
  if (isRoot) damages.push(['it belongs to another user (12345)', (file) => chownSync(file, 12345, 0)])
  it.each(damages)('that cannot be used (%s) are reported once each, and survived', async (fault, damage) => {
    const { start, answered, ok, records, files, store, state } = await opened()
    await store.save(answered(answered(state, ok()), refused))
    const paths = [files.token, files.state]
    for (const path of paths) damage(path)
    const inTheWay = paths.filter((path) => !lstatSync(path).isFile())
    const after = await start()
    const ignored = records.records.filter(({ fields }) => fields.event === 'state-file-ignored')
    expect(ignored).toHaveLength(paths.length)
    for (const path of paths)
      expect(ignored).toContainEqual({
        level: 'warning',
        sentence: 'A state file cannot be used and is ignored',
        fields: { event: 'state-file-ignored', path, fault },
      })
    await after.store.save(answered(after.state, ok()))
    await after.store.save(answered(after.state, down))
    const errors = records.events().filter((event) => event === 'state-file-error')
    expect(errors).toHaveLength(inTheWay.length)
    expect([kindOf(after.state), after.state.failure]).toEqual(['waiting', null])
  })

  it('that were removed are written again at the next tick, and only those', async () => {
    const { answered, ok, files, store, state } = await opened()
    await store.save(answered(state, ok()))
    const paths = Object.values(files)
    const seen = () => paths.map((path) => readFileSync(path, 'utf8'))
    const before = { texts: seen(), inodes: paths.map((path) => statSync(path).ino) }
    await store.tick()
    expect(paths.map((path) => statSync(path).ino)).toEqual(before.inodes)
    for (const path of paths) await rm(path)
    await store.tick()
    expect(seen()).toEqual(before.texts)
    for (const path of paths) expect(statSync(path).mode & 0o777).toBe(0o600)
  })

  it('that could not be written are written at the next tick, as they would be now', async () => {
    const { start, answered, ok, stateDirectory, runtimeDirectory, records, files, store, state } =
      await opened()
    const held = answered(state, ok())
    for (const directory of [stateDirectory, runtimeDirectory]) await rm(directory, { recursive: true })
    await store.save(answered(held, down))
    await store.tick()
    await store.tick()
    const told = { level: 'error', sentence: 'Cannot save the state for a restart' }
    expect(records.of('state-file-error')).toMatchObject(
      Object.values(files).map((path) => ({ ...told, path })),
    )
    for (const directory of [stateDirectory, runtimeDirectory]) mkdirSync(directory)
    await store.tick()
    const again = await start()
    expect(again.state.failure?.attempts).toBe(1)
    expect(again.state.token).toEqual(held.token)
    expect(readdirSync(runtimeDirectory)).toEqual(['kept.json'])
  })

  it.skipIf(!canMount)('hold no token that was replaced while the disk was full', async () => {
    const { start, answered, ok, runtimeDirectory, files } = await scene()
    await rm(runtimeDirectory, { recursive: true })
    const disk = smallDisk(runtimeDirectory)
    const { store, state } = await start()
    const held = answered(state, ok())
    await store.save(held)
    disk.fill()
    await chmod(files.token, 0o640)
    await store.tick()
    expect(readdirSync(runtimeDirectory).toSorted()).toEqual(['filler', 'kept.json'])
    await store.save(answered(held, ok()))
    // To remove the former one has made space for it.
    expect(readFileSync(files.token, 'utf8')).not.toContain(held.token?.accessToken)
    expect(store.problem()).toBeNull()
  })

  it('hold no token any more once what was in the way is gone', async () => {
    const { answered, ok, runtimeDirectory, files, store, state } = await opened()
    await store.save(answered(state, ok()))
    await rm(files.token)
    mkdirSync(files.token)
    await store.save(state)
    await rm(files.token, { recursive: true })
    await writeFile(files.token, 'token')
    await store.tick()
    expect(readdirSync(runtimeDirectory)).toEqual([])
  })

  it('that cannot be written are the store’s problem, whichever it is', async () => {
    const { start, files } = await scene()
    const { store } = await start()
    expect(store.problem()).toBeNull()
    for (const path of [files.state, files.key]) {
      await rm(path)
      mkdirSync(path)
      await store.tick()
      expect(store.problem()).toMatchObject({ kind: 'odd-target', path })
      await rm(path, { recursive: true })
      await store.tick()
      expect(store.problem()).toBeNull()
    }
  })

  it('whose key is gone or none get another, and nothing is remembered of anybody', async () => {
    const key = 'a'.repeat(64)
    const unfit = [key, `x${key}\n`, `${key.slice(1)}\n`, `${key.toUpperCase()}\n`, `${key}\n\n`]
    for (const text of [null, ...unfit]) {
      const { start, answered, records, files, store, state } = await opened()
      await store.save(answered(state, refused))
      if (text === null) rmSync(files.key)
      else writeFileSync(files.key, text)
      expect(kindOf((await start()).state)).toBe('waiting')
      expect(records.events()).toEqual(text === null ? [] : ['state-file-ignored'])
      expect(readFileSync(files.key, 'utf8')).toMatch(/^[0-9a-f]{64}\n$/)
    }
  })
})
