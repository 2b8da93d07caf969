import { renameSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest'

import type { Config } from '../../src/config/config.ts'
import { loadConfig } from '../../src/config/load.ts'
import { createReload } from '../../src/running/reload.ts'
import { createFollower, type Follower } from '../../src/running/follower.ts'
import { UserError } from '../../src/lib/error.ts'
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

/** A change is noticed within 15 s, and used once it has been there for 30 s. */
const SETTLED_MS = 45_000
const FILE_REQUESTS = new Set(['FSReqPromise', 'FSReqCallback', 'FileHandleCloseReq', 'CloseReq'])
const OLD = 'key-of-old secret-of-old'
const NEW = 'key-of-old secret-of-new'
const fileSources = { apiKey: { file: 'vol/key' }, apiSecret: { file: 'vol/secret' } }
const refused: FetchOutcome = { kind: 'permanent', reason: 'account-not-found', detail: 'no', status: 404 }
const rejected: FetchOutcome = { kind: 'transient', reason: 'rejected', detail: 'no' }
const down: FetchOutcome = { kind: 'transient', reason: 'network', detail: 'down' }
const never = new AbortController().signal

const files = useConfigFiles()
let clock: FakeClock
let recorder: Records
let load: (inForce?: Config) => Promise<Config>
/** The pairs that the service was asked with. */
let asked: string[]
/** What the service answers to a pair; a token, if it is undefined. */
let answer: (pair: string) => FetchOutcome | undefined | Promise<FetchOutcome | undefined>
let follower: Follower
let stop: AbortController
let isLoading = false

const pairOf = ({ apiKey, apiSecret }: Config['pair']): string => `${apiKey!.reveal()} ${apiSecret!.reveal()}`
const runningPair = (): string => pairOf(follower.config().pair)
const tried = (): string[] => asked.filter((pair) => pair !== OLD)
const configure = (settings: object = {}): string =>
  files.write('c.json', {
    ...smallConfig(),
    credentials: fileSources,
    refresh: { maxAge: '24h' },
    ...settings,
  })
const write = (name: 'key' | 'secret', content: string): string => files.write(`vol/${name}`, content)
const state = () => follower.configuration()
/** Files that were changed are noticed, and settle. */
const settled = (): Promise<void> => clock.advance(SETTLED_MS)
/** What an act has resolved to after this time; null: nothing yet. */
async function after<T>(ms: number, act: Promise<T>): Promise<T | null> {
  const result: { value: T | null } = { value: null }
  void act.then((value) => (result.value = value))
  await clock.advance(ms)
  return result.value
}

/** What follows the configuration on disk, of a daemon that asks nothing. */
async function createUnasked(): Promise<Follower> {
  stop = new AbortController()
  const reading = (inForce?: Config): Promise<Config> => {
    isLoading = true
    return load(inForce).finally(() => (isLoading = false))
  }
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
    createFetchToken: ({ pair }) => {
      return async (signal, { beforeRequest }) => {
        await beforeRequest()
        const count = asked.push(pairOf(pair))
        const outcome = await Promise.race([answer(pairOf(pair)), untilAborted(signal).then(() => down)])
        return outcome ?? { kind: 'ok', accessToken: `token-${count}` }
      }
    },
  })
}

/** A daemon that begins with the configuration on disk. */
async function begin(): Promise<void> {
  stop?.abort()
  follower = await createUnasked()
  const own = stop
  const { signal } = own
  const parts = Promise.all([follower.keeper.run(signal), follower.share.run(signal), follower.run(signal)])
  onTestFinished(async () => {
    own.abort()
    await parts
  })
  await clock.advance(15_000)
}

beforeEach(async () => {
  const isBusy = (): boolean =>
    isLoading || process.getActiveResourcesInfo().some((name) => FILE_REQUESTS.has(name))
  clock = createFakeClock({ isBusy })
  recorder = createRecords()
  asked = []
  answer = () => undefined
  load = (inForce) => loadConfig({ configPath: join(files.directory, 'c.json'), env: {}, inForce })
  write('key', 'key-of-old')
  write('secret', 'secret-of-old')
  configure()
  await begin()
})

describe('secret files that change', () => {
  it('are tried once and in use where they give a token, and no former secret is forgotten', async () => {
    await settled()
    expect(tried()).toEqual([])
    write('secret', 'secret-of-new')
    await settled()
    expect([tried(), runningPair()]).toEqual([[NEW], NEW])
    const vol = ['vol/key', 'vol/secret'].map((name) => join(files.directory, name))
    expect(recorder.of('credentials-taken-over')).toMatchObject([{ level: 'notice', files: vol }])
    expect(state()).toEqual({ state: 'current', problem: null })
    write('secret', 'secret-of-third')
    await settled()
    const known = ['secret-of-old', 'secret-of-new', 'secret-of-third', 'token-3']
    expect(follower.secrets()).toEqual(expect.arrayContaining(known))
  })

  it('are those of the client certificate, too, also behind a link that is swapped', async () => {
    const authority = createAuthority()
    const at = (name: string): string => join(files.directory, 'vol', name)
    /** As Kubernetes projects a volume. */
    const project = (generation: string): void => {
      const { cert, key } = createCertificate(authority, { names: ['us'] })
      files.write(`vol/${generation}/client.pem`, `${cert}${key}`)
      symlinkSync(generation, at('..next'))
      renameSync(at('..next'), at('..data'))
    }
    project('..1')
    symlinkSync('..data/client.pem', at('client.pem'))
    const certFile = 'vol/client.pem'
    configure({ request: { clientCertificate: { certFile, key: { file: certFile } } } })
    await begin()
    const before = follower.config().pair.clientCertificate!.cert
    project('..2')
    await settled()
    expect(follower.config().pair.clientCertificate!.cert).not.toBe(before)
    expect(recorder.events()).toEqual(['credentials-taken-over'])
  })

  it('are left alone until both have been the same for 30 s', async () => {
    write('key', 'key-of-new')
    await clock.advance(22_000)
    write('secret', 'secret-of-new')
    await clock.advance(29_000)
    expect(tried()).toEqual([])
    await clock.advance(15_000)
    expect(tried()).toEqual(['key-of-new secret-of-new'])
  })

  it('are used after 2 s where the service has refused the running pair', async () => {
    answer = (pair) => (pair === OLD ? refused : undefined)
    await after(100, follower.refresh(never))
    write('secret', 'secret-of-new')
    await clock.advance(15_000 + 2_000)
    expect([tried(), runningPair()]).toEqual([[NEW], NEW])
  })

  it('are reported once for each reason where they give no token', async () => {
    let outcome = down
    answer = (pair) => (pair === OLD ? undefined : outcome)
    write('secret', 'secret-of-new')
    await settled()
    const problem = expect.stringMatching(/has given no token yet \(network: down\)$/) as string
    expect(state()).toEqual({ state: 'changed', pair: 'tried', problem })
    outcome = rejected
    await clock.advance(5 * 60_000)
    expect(follower.secrets()).toContain('secret-of-new')
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
    expect([tried(), state().state]).toEqual([[], 'faulty'])
    write('secret', 'secret-of-old')
    await settled()
    expect([tried(), state().state]).toEqual([[], 'current'])
  })
})

describe('an operator who asks', () => {
  it('has changed files used at once, and shares the request of another one', async () => {
    write('secret', 'secret-of-new')
    asked = []
    const both = await after(100, Promise.all([follower.refresh(never), follower.refresh(never)]))
    expect(both![0]?.outcome).toBe(both![1]?.outcome)
    expect(asked).toEqual([NEW])
  })

  it('waits for 5 s for a disk that does not answer, and has the running pair asked', async () => {
    await settled()
    write('secret', 'secret-of-new')
    load = () => {
      setTimeout(() => (isLoading = false), 0)
      return new Promise(() => undefined)
    }
    asked = []
    await after(4_900, follower.refresh(never))
    expect(asked).toEqual([])
    await clock.advance(200)
    expect(asked).toEqual([OLD])
  })
})

describe('a reload', () => {
  const createReloads = (prepare: (next: Config) => Promise<() => Promise<void>>) =>
    createReload({
      follower,
      prepare,
      notifier: { reloading: () => undefined, ready: () => undefined },
      log: recorder.log,
      stop: stop.signal,
    })
  const reload = (): Promise<ReloadResult> => createReloads(async () => async () => undefined)()

  it('of a refused pair says so, does not ask again, and an operator does', async () => {
    answer = (pair) => (pair === OLD ? undefined : refused)
    write('secret', 'secret-of-new')
    for (const _ of ['first', 'again'])
      expect(await after(100, reload())).toMatchObject({ outcome: 'failed', pair: 'refused' })
    expect(tried()).toHaveLength(1)
    answer = () => undefined
    await after(100, follower.refresh(never))
    expect(runningPair()).toBe(NEW)
    expect(await after(100, reload())).toMatchObject({ outcome: 'ok', pair: null })
  })

  it('of another pair is ok once that gives a token; other settings count for the running pair at once', async () => {
    const gate = Promise.withResolvers<undefined>()
    answer = async (pair) => (pair === OLD ? undefined : gate.promise)
    write('secret', 'secret-of-new')
    configure({ refresh: { maxAge: '7m' } })
    await settled()
    expect(tried()).toEqual([])
    const reloaded = reload()
    expect(await after(100, reloaded)).toBeNull()
    expect(follower.keeper.state().policy.maxAgeMs).toBe(420_000)
    gate.resolve(undefined)
    expect(await after(100, reloaded)).toMatchObject({ outcome: 'ok', pair: 'in-use' })
    configure({ baseUrl: 'https://other.example.com' })
    expect(await after(100, reload())).toMatchObject({ outcome: 'ok', pair: null })
  })

  it('answers after 60 s where the service does not', async () => {
    answer = async () => new Promise(() => undefined)
    write('secret', 'secret-of-new')
    const reloaded = reload()
    expect(await after(59_000, reloaded)).toBeNull()
    expect(await after(2_000, reloaded)).toMatchObject({ outcome: 'failed', pair: 'tried' })
  })

  it('begins when the one before is in force', async () => {
    const gate = Promise.withResolvers<void>()
    const prepared: string[] = []
    const reloadNow = createReloads(async ({ log }) => {
      prepared.push(log.level)
      if (prepared.length === 1) await gate.promise
      return async () => undefined
    })
    const reloads = (['debug', 'warning'] as const).map(async (level) => {
      await clock.advance(100)
      configure({ log: { level } })
      return reloadNow()
    })
    await clock.advance(200)
    expect(prepared).toHaveLength(1)
    gate.resolve()
    await Promise.all(reloads)
    expect([prepared.length, follower.config().log.level]).toEqual([2, 'warning'])
  })
})

describe('the configuration on disk', () => {
  const share = { servers: ['h:1'], tls: true, key: '0123456789abcdef' }
  const ofRestart = 'stateDirectory and http can be changed by a restart alone'
  it.each<[string, object, object, string | null]>([
    ['a setting', {}, { log: { level: 'debug' } }, null],
    ['settings that need a restart', {}, { stateDirectory: '/srv/x', http: false }, ofRestart],
    ['a secret in it', { share }, { share: { ...share, key: '0123456789abcdeX' } }, null],
  ])('is changed by %s, and by another pair before all', async (_what, before, changed, problem) => {
    configure(before)
    follower = await createUnasked()
    configure(changed)
    await follower.disk.read()
    expect(state()).toEqual({ state: 'changed', problem })
    write('secret', 'secret-of-new')
    await follower.disk.read()
    const words = /key with \S+secret holds another pair, which has given no token yet$/
    const other = { pair: 'tried', problem: expect.stringMatching(words) as string }
    expect(state()).toEqual({ state: 'changed', ...other })
  })

  it('is good again once its fault has gone by itself, though no file has changed', async () => {
    const before = load
    load = () => Promise.reject(new UserError('there is no group app', 78))
    configure({ log: { level: 'debug' } })
    await follower.disk.read()
    expect(state()).toEqual({ state: 'faulty', problem: 'there is no group app' })
    load = before
    await follower.disk.read()
    expect(state()).toEqual({ state: 'changed', problem: null })
  })
})
