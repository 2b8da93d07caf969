import { renameSync, rmSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { beforeEach, describe, expect, it, vi } from 'vitest'

import type { Config } from '../../src/config/config.ts'
import { ConfigError } from '../../src/config/issues.ts'
import { loadConfig } from '../../src/config/load.ts'
import { createLook, type OnDisk } from '../../src/config/on-disk.ts'
import { createSecretWatch } from '../../src/config/secret-watch.ts'
import { DiskError, inDirectory } from '../../src/lib/in-directory.ts'
import { untilAborted } from '../../src/lib/tasks.ts'
import type { FetchOutcome, TrialOptions } from '../../src/token/outcome.ts'
import { createAuthority, createCertificate } from '../support/certificates.ts'
import { smallConfig, useConfigFiles } from '../support/config-files.ts'
import { createFakeClock, type FakeClock } from '../support/fake-clock.ts'
import { createRecords, type Records } from '../support/records.ts'

const TICK_MS = 15_000
const fileSources = { apiKey: { file: 'vol/key' }, apiSecret: { file: 'vol/secret' } }

const files = useConfigFiles()
let clock: FakeClock
let recorder: Records
let running: Config
let look: () => Promise<OnDisk>
/** Pairs that were tried. */
let tried: string[]
let answer: (pair: string) => FetchOutcome | undefined
let watch: ReturnType<typeof createSecretWatch>
let during:
  | ((
      onFailed: NonNullable<TrialOptions['onFailed']>,
      signal: AbortSignal,
    ) => Promise<FetchOutcome | undefined>)
  | undefined
const granted: FetchOutcome = { kind: 'ok', accessToken: 'token' }

const load = (): Promise<Config> =>
  loadConfig({ configPath: join(files.directory, 'c.json'), env: { RUNTIME_DIRECTORY: '/run/x' } })
const pairOf = ({ credentials: { apiKey, apiSecret } }: Config): string =>
  `${apiKey.reveal()} ${apiSecret!.reveal()}`
const configure = (settings: object = {}): string =>
  files.write('c.json', { ...smallConfig(), credentials: fileSources, ...settings })

beforeEach(async () => {
  clock = createFakeClock()
  recorder = createRecords()
  tried = []
  answer = () => granted
  during = undefined
  files.write('vol/key', 'key-of-old')
  files.write('vol/secret', 'secret-of-old')
  configure()
  running = await load()
  look = createLook(load, () => running)
  createWatch()
  await clock.advance(TICK_MS)
})

function createWatch(): void {
  watch = createSecretWatch({
    look,
    running: () => running,
    async tryCredentials(next, { onFailed, signal }) {
      tried.push(pairOf(next))
      const trial = await (during?.(onFailed!, signal) ?? answer(pairOf(next)))
      if (trial?.kind === 'ok') running = { ...running, credentials: next.credentials }
      return trial
    },
    clock,
    log: recorder.log,
  })
}

/** One tick, and the time that the files get to settle; `meanwhile` comes 1 s after the tick. */
async function ticked(meanwhile: () => void = () => undefined): Promise<void> {
  const progress = { isOver: false }
  const check = watch.tick(new AbortController().signal).finally(() => {
    progress.isOver = true
  })
  // The files are real: their answers come when they come.
  await expect.poll(() => progress.isOver || clock.sleepers() > 0).toBe(true)
  await clock.advance(1_000)
  meanwhile()
  while (!progress.isOver) {
    await clock.advance(500)
    await new Promise((resolve) => setImmediate(resolve))
  }
  await check
  await clock.advance(TICK_MS)
}

describe('secret files that change', () => {
  it('are tried once and taken over where they give a token', async () => {
    await ticked()
    expect(tried).toEqual([])
    files.write('vol/secret', 'secret-of-new')
    await ticked()
    await ticked()
    expect(tried).toEqual(['key-of-old secret-of-new'])
    expect(recorder.of('credentials-taken-over')).toEqual([
      {
        level: 'notice',
        sentence: 'The credentials in the files were changed and are in use',
        event: 'credentials-taken-over',
        files: [join(files.directory, 'vol/key'), join(files.directory, 'vol/secret')],
      },
    ])
    expect(watch.state()).toEqual({ state: 'current', problem: null })
  })

  it('are those of the service, and a client certificate with its key, too', async () => {
    const authority = createAuthority()
    const renew = (): void => {
      const { cert, key } = createCertificate(authority, { names: ['us'] })
      files.write('vol/client.pem', cert)
      files.write('vol/client.key', key)
    }
    renew()
    files.write('vol/third', 'third-of-old')
    configure({
      service: { parameters: { realm: { file: 'vol/third' } } },
      request: { clientCertificate: { certFile: 'vol/client.pem', key: { file: 'vol/client.key' } } },
    })
    running = await load()
    await ticked()
    expect(tried).toHaveLength(0)
    files.write('vol/third', 'third-of-new')
    await ticked()
    expect(tried).toHaveLength(1)
    const { further = {} } = running.credentials
    expect(further['service.parameters.realm']?.reveal()).toBe('third-of-new')
    renew()
    await ticked()
    await ticked()
    expect(tried).toHaveLength(2)
    const at = 'request.clientCertificate.certFile'
    expect(running.credentials.further?.[at]?.reveal()).not.toBe(further[at]?.reveal())
    expect(recorder.events()).toEqual(['credentials-taken-over', 'credentials-taken-over'])
    const { certificate } = running.endsAtMs
    expect(certificate).toBeGreaterThan(Date.now())
  })

  it('are left alone until both have been the same for 2 s', async () => {
    files.write('vol/key', 'key-of-new')
    await ticked(() => files.write('vol/secret', 'secret-of-new'))
    expect(tried).toEqual([])
    await ticked()
    expect(tried).toEqual(['key-of-new secret-of-new'])
  })

  it('are not tried any more once the daemon stops', async () => {
    files.write('vol/secret', 'secret-of-new')
    const stop = new AbortController()
    const check = watch.tick(stop.signal)
    await expect.poll(() => clock.sleepers()).toBe(1)
    stop.abort()
    await check
    expect(tried).toEqual([])
  })

  it('are tried again only when a file changes, where they are refused, which is said until it is over', async () => {
    answer = (pair) =>
      pair.startsWith('key-of-new secret-of-new')
        ? granted
        : { kind: 'transient', reason: 'rejected', detail: 'no' }
    files.write('vol/key', 'key-of-new')
    await ticked()
    await ticked()
    await ticked()
    expect(tried).toEqual(['key-of-new secret-of-old'])
    expect(recorder.of('credentials-not-taken-over')).toEqual([
      {
        level: 'error',
        sentence: 'The credentials in the files were changed and give no token: the former ones stay in use',
        event: 'credentials-not-taken-over',
        files: [join(files.directory, 'vol/key'), join(files.directory, 'vol/secret')],
        error: 'rejected: no',
        remedy:
          'Correct the files: they are tried again when one changes. A reload or a restart uses them as they are',
      },
    ])
    expect(pairOf(running)).toBe('key-of-old secret-of-old')
    expect(watch.state()).toEqual({
      state: 'faulty',
      pair: 'refused',
      problem: expect.stringMatching(
        /^\S+vol\/key with \S+vol\/secret holds a pair that the service refused at 08:0\d UTC \(rejected: no\); the next restart will use it: correct these files$/,
      ) as string,
    })
    files.write('vol/key', 'key-of-new')
    await ticked()
    expect(tried).toEqual(['key-of-new secret-of-old', 'key-of-new secret-of-old'])
    files.write('vol/secret', 'secret-of-new')
    await ticked()
    expect(tried.slice(2)).toEqual(['key-of-new secret-of-new'])
    expect(recorder.events()).toEqual([
      'credentials-not-taken-over',
      'credentials-not-taken-over',
      'credentials-taken-over',
    ])
    expect(watch.state()).toEqual({ state: 'current', problem: null })
  })

  it('are said to be tried again, once for each reason, and given up where they change meanwhile', async () => {
    during = (onFailed, signal) => {
      for (const detail of ['down', 'down', 'still down'])
        onFailed({ kind: 'transient', reason: 'network', detail }, 0)
      return untilAborted(signal).then(() => undefined)
    }
    files.write('vol/secret', 'secret-of-new')
    await ticked()
    expect(watch.state()).toMatchObject({
      state: 'changed',
      problem: expect.stringMatching(/tried until there is an answer \(network: still down\)$/),
    })
    expect(recorder.events()).toEqual(['credentials-not-taken-over', 'credentials-not-taken-over'])
    during = undefined
    files.write('vol/secret', 'secret-of-newer')
    await ticked()
    expect(tried).toEqual(['key-of-old secret-of-new', 'key-of-old secret-of-newer'])
    expect(watch.state().state).toBe('current')
  })

  it('are given up where they are put back while they are tried', async () => {
    const trials: AbortSignal[] = []
    during = (_, signal) =>
      untilAborted(signal).then(() => {
        trials.push(signal)
        return undefined
      })
    files.write('vol/secret', 'secret-of-new')
    await ticked()
    files.write('vol/secret', 'secret-of-old')
    await ticked()
    await expect.poll(() => trials.length).toBe(1)
    expect(tried).toEqual(['key-of-old secret-of-new'])
  })

  it('are tried at once where an operator asks, also when they were refused before', async () => {
    const never = new AbortController().signal
    expect(await watch.refresh(never)).toBeUndefined()
    const refused = { kind: 'permanent', reason: 'account-not-found', detail: 'no', status: 404 } as const
    answer = () => refused
    files.write('vol/secret', 'secret-of-new')
    await ticked()
    expect(watch.isFaulty()).toBe(true)
    // As after a reload.
    running = { ...running }
    expect(watch.isFaulty()).toBe(false)
    for (const [outcome, result] of [
      [refused, undefined],
      [granted, granted],
    ] as const) {
      answer = () => outcome
      const refreshed = watch.refresh(never)
      await expect.poll(() => clock.sleepers()).toBe(2)
      await clock.advance(2_000)
      expect(await refreshed).toBe(result)
    }
    expect(tried).toHaveLength(3)
  })

  it('are tried by one trial, also where an operator asks during another of the same', async () => {
    const pending = new Set<() => void>()
    during = async (onFailed, signal) =>
      new Promise((resolve) => {
        pending.add(() => resolve(granted))
        void untilAborted(signal).then(() => {
          onFailed({ kind: 'transient', reason: 'network', detail: 'late' }, 0)
          return resolve(undefined)
        })
      })
    files.write('vol/secret', 'secret-of-new')
    await ticked()
    const refreshed = watch.refresh(new AbortController().signal)
    await expect.poll(() => clock.sleepers()).toBe(2)
    await clock.advance(2_000)
    await expect.poll(() => tried.length).toBe(2)
    await ticked()
    expect(tried).toHaveLength(2)
    for (const grant of pending) grant()
    expect(await refreshed).toBe(granted)
    expect(recorder.events()).toEqual(['credentials-taken-over'])
  })

  it('are said at once to give no token where an operator asks and the trial goes on', async () => {
    during = async (onFailed, signal) => {
      onFailed({ kind: 'transient', reason: 'network', detail: 'down' }, 0)
      return untilAborted(signal).then(() => undefined)
    }
    files.write('vol/secret', 'secret-of-new')
    const refreshed = watch.refresh(new AbortController().signal)
    await expect.poll(() => clock.sleepers()).toBe(2)
    await clock.advance(2_000)
    expect(await refreshed).toBeUndefined()
  })

  it('may be links that Kubernetes swaps', async () => {
    for (const name of ['key', 'secret']) {
      files.write(`vol/..1/${name}`, `${name}-of-old`, 0o440)
      files.write(`vol/..2/${name}`, `${name}-of-new`, 0o440)
      rmSync(join(files.directory, 'vol', name))
      symlinkSync(`..data/${name}`, join(files.directory, 'vol', name))
    }
    symlinkSync('..1', join(files.directory, 'vol/..data'))
    await ticked()
    expect(tried).toEqual([])
    symlinkSync('..2', join(files.directory, 'vol/..data_tmp'))
    renameSync(join(files.directory, 'vol/..data_tmp'), join(files.directory, 'vol/..data'))
    await ticked()
    expect(tried).toEqual(['key-of-new secret-of-new'])
  })

  it.each([
    ['empty', /vol\/secret is empty/, () => files.write('vol/secret', '')],
    ['missing', /vol\/secret is not there/, () => rmSync(join(files.directory, 'vol/secret'))],
    ['readable by all', /chmod o-rwx/, () => files.write('vol/secret', 'secret-of-new', 0o644)],
    ['written with the same content', null, () => files.write('vol/secret', 'secret-of-old')],
  ])('count as not changed while one is %s, and a fault is logged once', async (_, error, change) => {
    change()
    await ticked()
    await ticked()
    expect(tried).toEqual([])
    const records =
      error === null
        ? []
        : [expect.objectContaining({ level: 'error', error: expect.stringMatching(error) as string })]
    expect(recorder.of('configuration-faulty')).toEqual(records)
    expect(watch.isFaulty()).toBe(error !== null)
    files.write('vol/secret', 'secret-of-new')
    await ticked()
    expect(tried).toEqual(['key-of-old secret-of-new'])
    expect(watch.isFaulty()).toBe(false)
  })

  it('are not tried while the configuration on disk is another one, but after its reload', async () => {
    configure({ baseUrl: 'https://other.example.com' })
    files.write('vol/secret', 'secret-of-new')
    await ticked()
    expect(watch.state()).toEqual({ state: 'changed', problem: null })
    configure({ baseUrl: 'https://api.example.com' })
    await ticked()
    expect(tried).toEqual(['key-of-old secret-of-new'])
  })

  it('are tried where an update of the host has changed the authorities meanwhile', async () => {
    const old = createAuthority('Old').cert
    files.write('ca.pem', old)
    configure({ request: { caFile: 'ca.pem' } })
    running = await load()
    files.write('ca.pem', `${old}${createAuthority('New').cert}`)
    await ticked()
    expect(watch.state().state).toBe('changed')
    expect(tried).toEqual([])
    answer = () => ({ kind: 'permanent', reason: 'account-not-found', detail: 'No', status: 404 })
    files.write('vol/secret', 'secret-of-new')
    await ticked()
    expect(tried).toEqual(['key-of-old secret-of-new'])
    expect(watch.state().pair).toBe('refused')
  })

  it('are tried once, although a disk has not answered since', async () => {
    answer = () => ({ kind: 'permanent', reason: 'account-not-found', detail: 'No', status: 404 })
    files.write('vol/secret', 'secret-of-new')
    await ticked()
    const volume = Promise.withResolvers<void>()
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
    const call = inDirectory(join(files.directory, 'vol'), async () => volume.promise)
    vi.advanceTimersByTime(5_000)
    vi.useRealTimers()
    await expect(call).rejects.toThrow(DiskError)
    await ticked()
    expect(watch.state()).toMatchObject({
      state: 'faulty',
      problem: expect.stringMatching(/has not answered/),
    })
    volume.resolve()
    await ticked()
    await ticked()
    expect(watch.state().pair).toBe('refused')
    expect(tried).toHaveLength(1)
    expect(recorder.of('credentials-not-taken-over')).toHaveLength(1)
  })

  it('are tried once their fault has gone by itself', async () => {
    let isAbsent = true
    look = createLook(
      async () =>
        isAbsent ? Promise.reject(new ConfigError([{ at: 'ipc.group', sentence: 'no' }], 'c')) : load(),
      () => running,
    )
    createWatch()
    await clock.advance(TICK_MS)
    files.write('vol/secret', 'secret-of-new')
    await ticked()
    expect(watch.state().state).toBe('faulty')
    isAbsent = false
    await ticked()
    expect(tried).toEqual(['key-of-old secret-of-new'])
  })

  it('are tried again where a reload came in between', async () => {
    answer = () => undefined
    files.write('vol/secret', 'secret-of-new')
    await ticked()
    answer = () => granted
    await ticked()
    expect(tried).toHaveLength(2)
    expect(recorder.events()).toEqual(['credentials-taken-over'])
  })

  it('are not tried for a secret that is written in the configuration itself', async () => {
    configure({ credentials: { ...fileSources, apiSecret: 'secret-of-new' } })
    await ticked()
    running = await load()
    configure({ credentials: { ...fileSources, apiSecret: 'secret-of-2nd' } })
    await ticked()
    expect(tried).toEqual([])
    expect(watch.state().state).toBe('changed')
    configure({ credentials: { ...fileSources, apiKey: 'key-of-old' } })
    running = await load()
    files.write('vol/secret', 'secret-of-new')
    await ticked()
    expect(recorder.of('credentials-taken-over')).toMatchObject([
      { files: [join(files.directory, 'vol/secret')] },
    ])
  })
})

describe('the configuration on disk', () => {
  it('is faulty with its faults, and current again once it is corrected', async () => {
    configure({ refresh: { maxAge: 5 } })
    await ticked()
    expect(watch.state()).toEqual({
      state: 'faulty',
      problem: expect.stringMatching(/^No rotation .*c\.json: refresh\.maxAge: must/) as string,
    })
    const { secretFiles } = running
    running = { ...running, secretFiles: {} }
    expect(watch.state().problem).toMatch(/^\S*c\.json: refresh\.maxAge: must/)
    // No secret in a file: no look at the files.
    configure({ refresh: { maxAge: '1s' } })
    await ticked()
    expect(recorder.of('configuration-faulty')).toHaveLength(1)
    running = { ...running, secretFiles }
    configure()
    await ticked()
    expect(watch.state()).toEqual({ state: 'current', problem: null })
  })
  it('is changed, and for a directory only by a restart', async () => {
    configure({ log: { level: 'debug' } })
    await ticked()
    expect(watch.state()).toEqual({ state: 'changed', problem: null })
    configure({ stateDirectory: '/srv/x' })
    await ticked()
    const problem = 'stateDirectory can be changed by a restart alone'
    expect(watch.state()).toEqual({ state: 'changed', problem })
  })
  it('is changed where only a secret in it is another one', async () => {
    configure({ share: { servers: ['h:1'], tls: true, key: '0123456789abcdef' } })
    running = await load()
    configure({ share: { servers: ['h:1'], tls: true, key: '0123456789abcdeX' } })
    await ticked()
    expect(watch.state().state).toBe('changed')
    configure({ share: { servers: ['h:1'], tls: true } })
    await ticked()
    expect(watch.state().state).toBe('changed')
  })
  it('is changed where a part of it is left out or added', async () => {
    configure({ http: false })
    await ticked()
    expect(watch.state().state).toBe('changed')
    running = await load()
    configure()
    await ticked()
    expect(watch.state().state).toBe('changed')
  })
  it('is loaded again only when a file has changed', async () => {
    let loads = 0
    const count = async (): Promise<Config> => {
      loads += 1
      return load()
    }
    const counted = createLook(count, () => running)
    await counted()
    await counted()
    expect(loads).toBe(1)
    files.write('vol/key', 'key-of-new')
    await counted()
    expect(loads).toBe(2)
  })
})
