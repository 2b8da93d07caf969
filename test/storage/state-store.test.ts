import { spawnSync } from 'node:child_process'
import { hash } from 'node:crypto'
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { createStateStore, type StateStore } from '../../src/storage/state-store.ts'
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

interface Daemon {
  readonly store: StateStore
  readonly state: TokenState
}

/** A host with both directories, the runtime directory in memory, on which a daemon has started. */
async function createHost({ runtime = 'memory' }: { runtime?: 'memory' | 'disk' } = {}) {
  const clock = createFakeClock()
  const records = createRecords()
  const runtimeDirectory = await tempDirectory(runtime)
  const stateDirectory = await tempDirectory()
  let tokens = 0
  const step = () => ({ now: clock.now(), drawn: 0.5 })
  function stateAfter(state: TokenState, outcome: FetchOutcome): TokenState {
    const begun = afterBegin(state, { pair: state.newest, by: 'plan' })
    return afterAnswer(afterRequest(begun, step()), outcome, step()).state
  }
  /** Opens the store as a process does that starts. */
  const start = async () => {
    const directories = { runtimeDirectory, stateDirectory }
    const store = await createStateStore({ ...directories, clock, log: records.log })
    const read = { service: serviceFacts(), policy: POLICY, pair: store.fingerprintOf('first') }
    return { store, state: await store.load(read, 0.5) }
  }
  return {
    clock,
    records,
    directories: [runtimeDirectory, stateDirectory] as const,
    files: {
      runtime: join(runtimeDirectory, 'state.json'),
      state: join(stateDirectory, 'state.json'),
      key: join(stateDirectory, 'key'),
    },
    daemon: await start(),
    start,
    /** The service answers so, in turn, and the daemon saves that. */
    answered: async ({ store, state }: Daemon, ...outcomes: FetchOutcome[]): Promise<TokenState> => {
      const saved = outcomes.reduce(stateAfter, state)
      await store.save(saved)
      return saved
    },
    ok: (): FetchOutcome => grantAt(clock.now().wallMs, HOUR, (tokens += 1)),
  }
}
const tokenOf = ({ token }: TokenState): string => token?.accessToken ?? 'none'
const textOf = (file: string): string => readFileSync(file, 'utf8')

describe('a start', () => {
  it('in the same boot has the whole state, as it was saved', async () => {
    const { daemon, start, answered, ok } = await createHost()
    const saved = await answered(daemon, ok(), failures.network)
    expect((await start()).state).toEqual({ ...saved, requests: 0 })
  })

  it('reads one file: that of the state directory only where the other one is not there', async () => {
    const { daemon, start, answered, ok, files } = await createHost()
    await answered(daemon, failures.inactive)
    const refusing = textOf(files.state)
    const held = await answered(daemon, ok())
    writeFileSync(files.state, refusing)
    const kept = (await start()).state
    expect([tokenOf(kept), refusalOf(kept)]).toEqual([tokenOf(held), null])
    rmSync(files.runtime)
    writeFileSync(files.state, refusing)
    const remembered = (await start()).state
    expect([tokenOf(remembered), refusalOf(remembered)]).toEqual(['none', 'account-inactive'])
  })

  it('where the runtime directory is on a disk keeps no token, and writes none', async () => {
    const { daemon, start, answered, ok, files } = await createHost({ runtime: 'disk' })
    await answered(daemon, ok())
    expect(existsSync(files.runtime)).toBe(false)
    expect((await start()).state).toMatchObject({ token: null, generation: 1 })
  })

  it.each([
    ['1 min later', MINUTE, 10 * MINUTE],
    ['1 h later', HOUR, 0],
    ['by a clock that was set back', -24 * HOUR, 11 * MINUTE],
  ])(
    'after a boot %s has the waits by the wall clock, and none longer than drawn',
    async (_, byMs, waitMs) => {
      const { daemon, start, answered, clock, files } = await createHost()
      await answered(daemon, limited)
      rmSync(files.runtime)
      Object.assign(clock, createFakeClock({ wallMs: clock.now().wallMs + byMs, bootMs: 5_000 }))
      const { state } = await start()
      expect(dueAtMs(state, clock.now()) - 5_000).toBe(waitMs)
      expect(recordOf(state, state.newest).failure?.since.bootMs).toBeLessThanOrEqual(5_000)
    },
  )
})

describe('the files', () => {
  it('are of another version where a state has other facts: raise VERSION with this list', async () => {
    const { daemon, files, clock } = await createHost()
    await daemon.store.save({ ...daemon.state, token: tokenAt(clock.now()), pairs: { id: NO_RECORD } })
    const names = new Set(textOf(files.runtime).match(/"\w+":/g))
    expect([names.size, hash('sha256', [...names].toSorted().join('')).slice(0, 8)]).toEqual([57, 'd87dea89'])
  })

  it('are for the daemon alone, one holds the token, and none a token that has ended', async () => {
    const { daemon, answered, ok, files } = await createHost()
    const held = await answered(daemon, ok())
    const holders = () => Object.values(files).filter((file) => textOf(file).includes(tokenOf(held)))
    expect(holders()).toEqual([files.runtime])
    await daemon.store.save({ ...held, token: { ...held.token!, expiresAtMs: 0, lifeMs: 0 } })
    expect(holders()).toEqual([])
    for (const path of Object.values(files)) expect(statSync(path).mode & 0o777).toBe(0o600)
  })

  it('name a pair by a fingerprint with a key of this host', async () => {
    const [{ store }, { store: other }] = [(await createHost()).daemon, (await createHost()).daemon]
    expect(store.fingerprintOf('a')).toMatch(/^[0-9a-f]{64}$/)
    expect(store.fingerprintOf('a')).not.toBe(other.fingerprintOf('a'))
  })

  it.each<[what: string, damage: (file: string) => unknown]>([
    ['torn', (file) => truncateSync(file, 50)],
    ['foreign', (file) => writeFileSync(file, '{"hello":"world"}')],
    ['edited', (file) => writeFileSync(file, textOf(file).replace('"attempts":1', '"attempts":-1'))],
    ['empty', (file) => truncateSync(file, 0)],
    ['directories', (file) => rmSync(file) ?? mkdirSync(file)],
    ['pipes', (file) => rmSync(file) ?? spawnSync('mkfifo', ['-m', '600', file])],
    ['links', (file) => rmSync(file) ?? symlinkSync('/etc/hostname', file)],
    ['open to others', (file) => chmodSync(file, 0o604)],
  ])('that are %s are not used, and survived', async (_, damage) => {
    const { daemon, start, answered, ok, records, files } = await createHost()
    await answered(daemon, ok(), failures.network)
    const paths = [files.runtime, files.state]
    for (const path of paths) damage(path)
    const inTheWay = paths.filter((path) => !lstatSync(path).isFile())
    const next = await start()
    await answered(next, ok())
    expect(records.of('file-error')).toHaveLength(inTheWay.length)
    expect(next.state).toMatchObject({ token: null, pairs: {} })
  })

  it('that were removed or could not be written are written at the next tick', async () => {
    const { daemon, start, answered, ok, directories, files } = await createHost()
    const { store } = daemon
    const held = await answered(daemon, ok())
    for (const path of Object.values(files)) rmSync(path)
    await store.maintain()
    expect(tokenOf((await start()).state)).toBe(tokenOf(held))
    for (const directory of directories) rmSync(directory, { recursive: true })
    await answered({ store, state: held }, failures.network)
    expect(store.problem()).not.toBeNull()
    for (const directory of directories) mkdirSync(directory)
    await store.maintain()
    const again = (await start()).state
    expect([recordOf(again, again.newest).attempts, tokenOf(again)]).toEqual([1, tokenOf(held)])
    expect(store.problem()).toBeNull()
  })

  it.skipIf(!canMount)('hold no token that was replaced while the disk was full', async () => {
    const { start, answered, ok, directories, files } = await createHost()
    rmSync(directories[0], { recursive: true })
    const disk = smallDisk(directories[0])
    const { store, state } = await start()
    const held = await answered({ store, state }, ok())
    disk.fill()
    await answered({ store, state: held }, ok())
    expect(existsSync(files.runtime) ? textOf(files.runtime) : '').not.toContain(tokenOf(held))
  })

  it.each([null, 'a'.repeat(64), `x${'a'.repeat(64)}\n`, `${'A'.repeat(64)}\n`])(
    'whose key is %j get another, and remember nobody',
    async (text) => {
      const { daemon, start, answered, files } = await createHost()
      await answered(daemon, failures.inactive)
      if (text === null) rmSync(files.key)
      else writeFileSync(files.key, text)
      expect(refusalOf((await start()).state)).toBeNull()
      expect(textOf(files.key)).toMatch(/^[0-9a-f]{64}\n$/)
    },
  )
})
