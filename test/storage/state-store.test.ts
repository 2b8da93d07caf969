import { spawnSync } from 'node:child_process'
import { hash } from 'node:crypto'
import {
  chmodSync,
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
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { createStateStore } from '../../src/storage/state-store.ts'
import type { FetchOutcome } from '../../src/token/outcome.ts'
import { dueAtMs, refusalOf } from '../../src/token/selectors.ts'
import { NO_RECORD, recordOf, type TokenState } from '../../src/token/state.ts'
import { afterAnswer, afterBegin, afterRequest } from '../../src/token/transitions.ts'
import { POLICY, serviceFacts, tokenAt } from '../support/facts.ts'
import { createFakeClock } from '../support/fake-clock.ts'
import { grantAt } from '../support/jwt.ts'
import { createRecords } from '../support/records.ts'
import { canMount, smallDisk } from '../support/small-disk.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { failures } from '../support/failures.ts'

const MINUTE = 60_000
const HOUR = 60 * MINUTE
const limited = { kind: 'transient', reason: 'rate-limited', detail: '', retryAfterMs: 10 * MINUTE } as const

/** A host with both directories, the runtime directory in memory. */
async function scene({ runtime = 'memory' }: { runtime?: 'memory' | 'disk' } = {}) {
  const clock = createFakeClock()
  const runtimeDirectory = await tempDirectory(runtime)
  const stateDirectory = await tempDirectory()
  const records = createRecords()
  const step = () => ({ now: clock.now(), drawn: 0.5 })
  let tokens = 0
  const plan = (state: TokenState) => ({ pair: state.newest, atMs: 0, by: 'plan' }) as const
  return {
    clock,
    runtimeDirectory,
    stateDirectory,
    files: {
      runtime: join(runtimeDirectory, 'state.json'),
      state: join(stateDirectory, 'state.json'),
      key: join(stateDirectory, 'key'),
    },
    records,
    /** Opens the store as a process does that starts. */
    start: async () => {
      const directories = { runtimeDirectory, stateDirectory }
      const store = await createStateStore({ ...directories, clock, log: records.log })
      const read = { service: serviceFacts(), policy: POLICY, pair: store.fingerprintOf('first') }
      return { store, state: await store.load(read, 0.5) }
    },
    /** The host starts anew: the runtime directory is empty, and the boot clock begins again. */
    reboot: ({ wallMs = clock.now().wallMs + MINUTE, bootMs = 5_000 } = {}): void => {
      for (const name of readdirSync(runtimeDirectory)) rmSync(join(runtimeDirectory, name))
      Object.assign(clock, createFakeClock({ wallMs, bootMs }))
    },
    /** The state when the service answers so. */
    answered: (state: TokenState, outcome: FetchOutcome): TokenState =>
      afterAnswer(afterRequest(afterBegin(state, plan(state)), step()), outcome, step()).state,
    ok: (lifeMs = HOUR): FetchOutcome => grantAt(clock.now().wallMs, lifeMs, (tokens += 1)),
    waitMs: (state: TokenState): number => dueAtMs(state, clock.now()) - clock.now().bootMs,
  }
}
async function opened() {
  const world = await scene()
  return { ...world, ...(await world.start()) }
}
const tokenOf = ({ token }: TokenState): string | undefined => token?.accessToken

describe('a start', () => {
  it('in the same boot has the whole state, as it was saved', async () => {
    const { start, answered, ok, clock, store, state } = await opened()
    const saved = { ...answered(answered(state, ok()), failures.network), notes: { since: clock.now() } }
    await store.save(saved)
    expect((await start()).state).toEqual({ ...saved, requests: 0 })
  })

  it('reads one file: that of the state directory only where the other one is not there', async () => {
    const { start, answered, ok, files, store, state } = await opened()
    await store.save(answered(state, failures.inactive))
    const refusing = readFileSync(files.state)
    const held = answered(state, ok())
    await store.save(held)
    writeFileSync(files.state, refusing)
    const kept = (await start()).state
    expect([tokenOf(kept), refusalOf(kept)]).toEqual([tokenOf(held), null])
    rmSync(files.runtime)
    writeFileSync(files.state, refusing)
    const remembered = (await start()).state
    expect([tokenOf(remembered), refusalOf(remembered)]).toEqual([undefined, 'account-inactive'])
  })

  it('where the runtime directory is on a disk keeps no token, and writes none', async () => {
    const { start, answered, ok, files } = await scene({ runtime: 'disk' })
    const { store, state } = await start()
    await store.save(answered(state, ok()))
    expect(() => readFileSync(files.runtime)).toThrow('ENOENT')
    expect((await start()).state).toMatchObject({ token: null, generation: 1 })
  })

  it('after a boot has the waits by the wall clock, none longer than one that is drawn', async () => {
    for (const [wallAfterMs, wait] of [
      [MINUTE, 10 * MINUTE],
      [HOUR, 0],
      [-24 * HOUR, 11 * MINUTE],
    ] as const) {
      const { start, answered, store, state, clock, reboot, waitMs } = await opened()
      await store.save(answered(state, limited))
      const { wallMs } = clock.now()
      reboot({ wallMs: wallMs + wallAfterMs })
      const after = (await start()).state
      expect(waitMs(after)).toBe(wait)
      expect(recordOf(after, after.newest).failure?.since.bootMs).toBeLessThanOrEqual(5_000)
    }
  })
})

describe('the files', () => {
  it('are of another version where a state has other facts: raise VERSION with this list', async () => {
    const { store, state, files, clock } = await opened()
    await store.save({ ...state, token: tokenAt(clock.now()), pairs: { id: NO_RECORD } })
    const names = new Set(readFileSync(files.runtime, 'utf8').match(/"\w+":/g))
    expect([names.size, hash('sha256', [...names].toSorted().join('')).slice(0, 8)]).toEqual([57, 'd87dea89'])
  })

  it('are for the daemon alone, and that of the state directory holds no token', async () => {
    const { answered, ok, files, store, state } = await opened()
    const held = answered(state, ok())
    await store.save(held)
    expect(readFileSync(files.runtime, 'utf8')).toContain(tokenOf(held)!)
    expect(readFileSync(files.state, 'utf8')).not.toContain(tokenOf(held)!)
    await store.save({ ...held, token: { ...held.token!, expiresAtMs: 0, lifeMs: 0 } })
    expect(readFileSync(files.runtime, 'utf8')).not.toContain(tokenOf(held)!)
    for (const path of Object.values(files)) expect(statSync(path).mode & 0o777).toBe(0o600)
  })

  it('name a pair by a fingerprint with a key of this host', async () => {
    const [store, other] = [(await opened()).store, (await opened()).store]
    expect(store.fingerprintOf('a')).toMatch(/^[0-9a-f]{64}$/)
    expect(store.fingerprintOf('a')).not.toBe(other.fingerprintOf('a'))
  })

  const replaced = (from: string, to: string) => (file: string) =>
    writeFileSync(file, readFileSync(file, 'utf8').replace(from, to))
  const damages: [what: string, damage: (file: string) => unknown][] = [
    ['torn', (file) => writeFileSync(file, readFileSync(file).subarray(0, 50))],
    ['foreign', (file) => writeFileSync(file, '{"hello":"world"}')],
    ['edited', replaced('"attempts":1', '"attempts":-1')],
    ['empty', (file) => truncateSync(file, 0)],
    ['directories', (file) => rmSync(file) ?? mkdirSync(file)],
    ['pipes', (file) => rmSync(file) ?? spawnSync('mkfifo', ['-m', '600', file])],
    ['links', (file) => rmSync(file) ?? symlinkSync('/etc/hostname', file)],
    ['open to others', (file) => chmodSync(file, 0o604)],
  ]
  it.each(damages)('that are %s are not used, and survived', async (_, damage) => {
    const { start, answered, ok, records, files, store, state } = await opened()
    await store.save(answered(answered(state, ok()), failures.network))
    const paths = [files.runtime, files.state]
    for (const path of paths) damage(path)
    const inTheWay = paths.filter((path) => !lstatSync(path).isFile())
    const after = await start()
    await after.store.save(answered(after.state, ok()))
    expect(records.of('file-error')).toHaveLength(inTheWay.length)
    expect(after.state).toMatchObject({ token: null, pairs: {} })
  })

  it('that were removed or could not be written are written at the next tick', async () => {
    const { start, answered, ok, stateDirectory, runtimeDirectory, files, store, state } = await opened()
    const held = answered(state, ok())
    await store.save(held)
    for (const path of Object.values(files)) rmSync(path)
    await store.maintain()
    expect(tokenOf((await start()).state)).toBe(tokenOf(held))
    for (const directory of [stateDirectory, runtimeDirectory]) await rm(directory, { recursive: true })
    await store.save(answered(held, failures.network))
    expect(store.problem()).not.toBeNull()
    for (const directory of [stateDirectory, runtimeDirectory]) mkdirSync(directory)
    await store.maintain()
    const again = (await start()).state
    expect([recordOf(again, again.newest).attempts, tokenOf(again)]).toEqual([1, tokenOf(held)])
    expect(store.problem()).toBeNull()
  })

  it.skipIf(!canMount)('hold no token that was replaced while the disk was full', async () => {
    const { start, answered, ok, runtimeDirectory, files } = await scene()
    await rm(runtimeDirectory, { recursive: true })
    const disk = smallDisk(runtimeDirectory)
    const { store, state } = await start()
    const held = answered(state, ok())
    await store.save(held)
    disk.fill()
    await store.save(answered(held, ok()))
    const left = readdirSync(runtimeDirectory).includes('state.json')
      ? readFileSync(files.runtime, 'utf8')
      : ''
    expect(left).not.toContain(tokenOf(held))
  })

  it('whose key is gone or none get another, and nothing is remembered of anybody', async () => {
    for (const text of [null, 'a'.repeat(64), `x${'a'.repeat(64)}\n`, `${'A'.repeat(64)}\n`]) {
      const { start, answered, files, store, state } = await opened()
      await store.save(answered(state, failures.inactive))
      if (text === null) rmSync(files.key)
      else writeFileSync(files.key, text)
      expect(refusalOf((await start()).state)).toBeNull()
      expect(readFileSync(files.key, 'utf8')).toMatch(/^[0-9a-f]{64}\n$/)
    }
  })
})
