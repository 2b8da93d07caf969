import { renameSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest'

import type { Config } from '../../src/config/config.ts'
import { loadConfig } from '../../src/config/load.ts'
import { createReload } from '../../src/running/reload.ts'
import { createFollower, type Follower } from '../../src/running/follower.ts'
import { untilAborted } from '../../src/lib/tasks.ts'
import type { ReloadResult } from '../../src/protocol.ts'
import type { FetchOutcome } from '../../src/token/outcome.ts'
import { initialState } from '../../src/token/state.ts'
import type { Files } from '../../src/token/state.ts'
import { createAuthority, createCertificate } from '../support/certificates.ts'
import { smallConfig, useConfigFiles } from '../support/config-files.ts'
import { createFakeClock, type FakeClock } from '../support/fake-clock.ts'
import { createRecords, type Records } from '../support/records.ts'

await import('p-retry')

const TICK_MS = 15_000
/** A change is noticed at a tick, and used once it has been there for 30 s. */
const SETTLED_MS = 3 * TICK_MS
const FILE_REQUESTS = new Set(['FSReqPromise', 'FSReqCallback', 'FileHandleCloseReq', 'CloseReq'])
const OLD = 'key-of-old secret-of-old'
const fileSources = { apiKey: { file: 'vol/key' }, apiSecret: { file: 'vol/secret' } }
const refused: FetchOutcome = { kind: 'permanent', reason: 'account-not-found', detail: 'no', status: 404 }
const rejected: FetchOutcome = { kind: 'transient', reason: 'rejected', detail: 'no' }
const failed = (detail: string) => ({ kind: 'transient', reason: 'network', detail }) as const
const never = new AbortController().signal

const files = useConfigFiles()
let clock: FakeClock
let recorder: Records
let load: (running?: Config) => Promise<Config>
/** Pairs that were asked with, but the one in use. */
let tried: string[]
let asked: string[]
/** What the service answers to a pair; a token, if it is undefined. */
let answer: (
  pair: string,
  signal: AbortSignal,
) => FetchOutcome | undefined | Promise<FetchOutcome | undefined>
let running: Follower
let stop: AbortController
let isLoading = false

const pairOf = ({ apiKey, apiSecret }: Config['pair']): string => `${apiKey!.reveal()} ${apiSecret!.reveal()}`
const configure = (settings: object = {}): string =>
  files.write('c.json', {
    ...smallConfig(),
    credentials: fileSources,
    refresh: { maxAge: '24h' },
    ...settings,
  })
const write = (name: 'key' | 'secret', content: string): string => files.write(`vol/${name}`, content)
const givenUp = async (signal: AbortSignal): Promise<FetchOutcome> =>
  untilAborted(signal).then(() => failed('given up'))
const state = () => running.configuration()

/** What is in use with the configuration on disk, of a daemon that asks nothing. */
async function createUnasked(): Promise<Follower> {
  stop = new AbortController()
  const reading = (inForce?: Config): Promise<Config> => {
    isLoading = true
    return load(inForce).finally(() => (isLoading = false))
  }
  let tokens = 0
  return createFollower(await reading(), {
    env: {},
    clock,
    random: () => 0.5,
    log: recorder.log,
    stop: stop.signal,
    load: reading,
    store: {
      load: (read: Files) => Promise.resolve(initialState(read, clock.now())),
      save: () => Promise.resolve(),
      fingerprintOf: (text: string) => text,
    },
    createFetchToken(options) {
      return async (signal, { beforeRequest }) => {
        await beforeRequest()
        const pair = pairOf(options.pair)
        asked.push(pair)
        if (pair !== pairOf(running.config().pair)) tried.push(pair)
        const outcome = await answer(pair, signal)
        return outcome ?? { kind: 'ok', accessToken: `token-${(tokens += 1)}` }
      }
    },
  })
}

/** A daemon that begins with the configuration on disk, after this time. */
async function begin(ms = TICK_MS): Promise<void> {
  stop?.abort()
  running = await createUnasked()
  const own = stop
  const { signal } = own
  const parts = Promise.all([running.keeper.run(signal), running.share.run(signal), running.run(signal)])
  onTestFinished(async () => {
    own.abort()
    await parts
  })
  await clock.advance(ms)
}

beforeEach(async () => {
  const isBusy = (): boolean =>
    isLoading || process.getActiveResourcesInfo().some((name) => FILE_REQUESTS.has(name))
  clock = createFakeClock({ isBusy })
  recorder = createRecords()
  tried = []
  asked = []
  answer = () => undefined
  load = (inForce) => loadConfig({ configPath: join(files.directory, 'c.json'), env: {}, inForce })
  write('key', 'key-of-old')
  write('secret', 'secret-of-old')
  configure()
  await begin()
})

/** Files that were changed are noticed, and settle. */
const settled = (): Promise<void> => clock.advance(SETTLED_MS)

describe('secret files that change', () => {
  it('are tried once and in use where they give a token, and no former secret is forgotten', async () => {
    await settled()
    expect(tried).toEqual([])
    write('secret', 'secret-of-new')
    await settled()
    expect(tried).toEqual(['key-of-old secret-of-new'])
    const vol = ['vol/key', 'vol/secret'].map((name) => join(files.directory, name))
    expect(recorder.of('credentials-taken-over')).toMatchObject([{ level: 'notice', files: vol }])
    expect(state()).toEqual({ state: 'current', problem: null })
    expect(pairOf(running.config().pair)).toBe('key-of-old secret-of-new')
    write('secret', 'secret-of-third')
    await settled()
    const known = ['secret-of-old', 'secret-of-new', 'secret-of-third', 'token-3']
    expect(running.secrets()).toEqual(expect.arrayContaining(known))
  })

  it('are those of the client certificate, too, also behind a link that is swapped', async () => {
    const authority = createAuthority()
    const at = (name: string): string => join(files.directory, 'vol', name)
    /** As Kubernetes projects a volume. */
    const project = (generation: string): void => {
      const { cert, key } = createCertificate(authority, { names: ['us'] })
      files.write(`vol/${generation}/client.pem`, cert)
      files.write(`vol/${generation}/client.key`, key)
      symlinkSync(generation, at('..next'))
      renameSync(at('..next'), at('..data'))
    }
    project('..1')
    for (const name of ['client.pem', 'client.key']) symlinkSync(`..data/${name}`, at(name))
    configure({
      request: { clientCertificate: { certFile: 'vol/client.pem', key: { file: 'vol/client.key' } } },
    })
    await begin()
    const before = running.config().pair.clientCertificate!.cert
    project('..2')
    await settled()
    expect(running.config().pair.clientCertificate!.cert).not.toBe(before)
    expect(recorder.events()).toEqual(['credentials-taken-over'])
  })

  it('are left alone until both have been the same for 30 s', async () => {
    write('key', 'key-of-new')
    await clock.advance(22_000)
    write('secret', 'secret-of-new')
    await clock.advance(29_000)
    expect(tried).toEqual([])
    await clock.advance(TICK_MS)
    expect(tried).toEqual(['key-of-new secret-of-new'])
  })

  it('are used after 2 s where the service has refused the running pair', async () => {
    answer = (pair) => (pair === OLD ? refused : undefined)
    void running.refresh(never)
    await clock.advance(100)
    write('secret', 'secret-of-new')
    await clock.advance(TICK_MS + 2_000)
    expect(tried).toEqual(['key-of-old secret-of-new'])
    expect(running.keeper.state().running).toBe(running.keeper.state().newest)
  })

  it('are reported once for each reason where they give no token', async () => {
    let outcome: FetchOutcome = failed('down')
    answer = (pair) => (pair === OLD ? undefined : outcome)
    write('secret', 'secret-of-new')
    await settled()
    expect(state()).toMatchObject({
      state: 'changed',
      pair: 'tried',
      problem: expect.stringMatching(/has given no token yet \(network: down\)$/) as string,
    })
    outcome = rejected
    await clock.advance(5 * 60_000)
    expect(running.secrets()).toContain('secret-of-new')
    const records = recorder.of('credentials-not-taken-over')
    expect(records).toMatchObject([{ error: 'network: down' }, { error: 'rejected: no', level: 'error' }])
  })

  it.each([
    ['empty', /apiSecret: is empty/, () => write('secret', '')],
    ['readable by all', /chmod o-rwx/, () => files.write('vol/secret', 'secret-of-new', 0o644)],
  ])('count as not changed while one is %s, and that is logged once', async (_, error, change) => {
    change()
    await settled()
    const record = { level: 'error', error: expect.stringMatching(error) as string }
    expect(recorder.of('configuration-faulty')).toEqual([expect.objectContaining(record)])
    expect([tried, state().state]).toEqual([[], 'faulty'])
    write('secret', 'secret-of-old')
    await settled()
    expect([tried, state().state]).toEqual([[], 'current'])
  })
})

describe('an operator who asks', () => {
  it('has changed files used at once, and shares the request of another one', async () => {
    write('secret', 'secret-of-new')
    asked = []
    const both = Promise.all([running.refresh(never), running.refresh(never)])
    await clock.advance(100)
    const [first, second] = await both
    expect(first?.outcome).toBe(second?.outcome)
    expect(asked).toEqual(['key-of-old secret-of-new'])
  })

  it('waits for 5 s for a disk that does not answer, and has the running pair asked', async () => {
    await settled()
    write('secret', 'secret-of-new')
    load = () => {
      setTimeout(() => (isLoading = false), 0)
      return new Promise(() => undefined)
    }
    asked = []
    void running.refresh(never)
    await clock.advance(4_900)
    expect(asked).toEqual([])
    await clock.advance(200)
    expect(asked).toEqual([OLD])
  })
})

describe('a reload', () => {
  type Prepare = (next: Config) => Promise<() => Promise<void>>
  const createReloads = (prepare: Prepare) =>
    createReload({
      follower: running,
      prepare,
      notifier: { reloading: () => undefined, ready: () => undefined },
      log: recorder.log,
      stop: stop.signal,
    })

  /** Returns its result once it is there. */
  function reload(prepare: Prepare = async () => async () => undefined) {
    const result: { value: ReloadResult | null } = { value: null }
    const reloadNow = createReloads(prepare)
    isLoading = true
    void reloadNow().then((value) => (result.value = value))
    setTimeout(() => (isLoading = false), 0)
    return result
  }

  it('of a refused pair says so, does not ask again, and an operator does', async () => {
    answer = (pair) => (pair === OLD ? undefined : refused)
    write('secret', 'secret-of-new')
    const result = reload()
    await clock.advance(100)
    expect(result.value).toMatchObject({ outcome: 'failed', pair: 'refused' })
    const again = reload()
    await clock.advance(100)
    expect(again.value).toMatchObject({ outcome: 'failed', pair: 'refused' })
    expect(tried).toHaveLength(1)
    answer = () => undefined
    void running.refresh(never)
    await clock.advance(100)
    expect(pairOf(running.config().pair)).toBe('key-of-old secret-of-new')
    const same = reload()
    await clock.advance(100)
    expect(same.value).toMatchObject({ outcome: 'ok', pair: null })
  })

  it('of another pair is ok once that gives a token; other settings count for the running pair at once', async () => {
    const gate = Promise.withResolvers<undefined>()
    answer = async (pair) => (pair === OLD ? undefined : gate.promise)
    write('secret', 'secret-of-new')
    configure({ refresh: { maxAge: '7m' } })
    await settled()
    expect(tried).toEqual([])
    const result = reload()
    await clock.advance(100)
    expect(result.value).toBeNull()
    expect(running.keeper.state().policy.maxAgeMs).toBe(420_000)
    gate.resolve(undefined)
    await clock.advance(100)
    expect(result.value).toMatchObject({ outcome: 'ok', pair: 'in-use' })
    configure({ baseUrl: 'https://other.example.com' })
    const other = reload()
    await clock.advance(100)
    expect(other.value).toMatchObject({ outcome: 'ok', pair: null })
  })

  it('answers after 60 s where the service does not', async () => {
    answer = async (_, signal) => givenUp(signal)
    write('secret', 'secret-of-new')
    const result = reload()
    await clock.advance(59_000)
    expect(result.value).toBeNull()
    await clock.advance(2_000)
    expect(result.value).toMatchObject({ outcome: 'failed', pair: 'tried' })
  })

  it('begins when the one before is in force', async () => {
    const gate = Promise.withResolvers<void>()
    const prepared: string[] = []
    const reloadNow = createReloads(async ({ log }) => {
      prepared.push(log.level)
      if (prepared.length === 1) await gate.promise
      return async () => undefined
    })
    const levels = (['debug', 'warning'] as const).map(async (level) => {
      await clock.advance(100)
      configure({ log: { level } })
      return reloadNow()
    })
    await clock.advance(200)
    expect(prepared).toHaveLength(1)
    gate.resolve()
    await Promise.all(levels)
    expect(prepared).toHaveLength(2)
    expect(running.config().log.level).toBe('warning')
  })
})

describe('the configuration on disk', () => {
  const share = { servers: ['h:1'], tls: true, key: '0123456789abcdef' }
  const ofRestart = 'stateDirectory and http can be changed by a restart alone'
  it.each<[string, object, object, string | null]>([
    ['a setting', {}, { log: { level: 'debug' } }, null],
    ['settings that need a restart', {}, { stateDirectory: '/srv/x', http: false }, ofRestart],
    ['a secret in it', { share }, { share: { ...share, key: '0123456789abcdeX' } }, null],
  ])('is changed by %s, and by another pair before all', async (_what, before, after, problem) => {
    configure(before)
    running = await createUnasked()
    configure(after)
    await running.disk.read()
    expect(state()).toEqual({ state: 'changed', problem })
    write('secret', 'secret-of-new')
    await running.disk.read()
    const words = /key with \S+secret holds another pair, which has given no token yet$/
    const other = { pair: 'tried', problem: expect.stringMatching(words) as string }
    expect(state()).toEqual({ state: 'changed', ...other })
  })
})
