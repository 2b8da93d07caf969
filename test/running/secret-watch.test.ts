import { rmSync } from 'node:fs'
import { join } from 'node:path'
import { beforeEach, describe, expect, it, vi } from 'vitest'

import type { Config } from '../../src/config/config.ts'
import { ConfigError } from '../../src/config/issues.ts'
import { loadConfig } from '../../src/config/load.ts'
import { createLook } from '../../src/config/on-disk.ts'
import { createSecretWatch } from '../../src/running/secret-watch.ts'
import { FileError } from '../../src/files/file-error.ts'
import { inDirectory } from '../../src/files/in-directory.ts'
import { untilAborted } from '../../src/lib/tasks.ts'
import type { FetchOutcome, TrialOptions } from '../../src/token/outcome.ts'
import { createAuthority, createCertificate } from '../support/certificates.ts'
import { smallConfig, useConfigFiles } from '../support/config-files.ts'
import { createFakeClock, type FakeClock } from '../support/fake-clock.ts'
import { createRecords, type Records } from '../support/records.ts'

const TICK_MS = 15_000
const fileSources = { apiKey: { file: 'vol/key' }, apiSecret: { file: 'vol/secret' } }
const granted: FetchOutcome = { kind: 'ok', accessToken: 'token' }
const refused: FetchOutcome = { kind: 'permanent', reason: 'account-not-found', detail: 'no', status: 404 }
const failed = (detail: string) => ({ kind: 'transient', reason: 'network', detail }) as const
const never = new AbortController().signal

const files = useConfigFiles()
let clock: FakeClock
let recorder: Records
let running: Config
let load: () => Promise<Config>
/** Pairs that were tried. */
let tried: string[]
/** What comes of a trial. */
let answer: (
  pair: string,
  trial: Required<TrialOptions>,
) => FetchOutcome | undefined | Promise<FetchOutcome | undefined>
let watch: ReturnType<typeof createSecretWatch>

const pairOf = ({ credentials: { apiKey, apiSecret } }: Config): string =>
  `${apiKey!.reveal()} ${apiSecret!.reveal()}`
const configure = (settings: object = {}): string =>
  files.write('c.json', { ...smallConfig(), credentials: fileSources, ...settings })
const write = (name: 'key' | 'secret', content: string): string => files.write(`vol/${name}`, content)
const untilEnded = async ({ signal }: TrialOptions): Promise<undefined> =>
  untilAborted(signal).then(() => undefined)

beforeEach(async () => {
  clock = createFakeClock()
  recorder = createRecords()
  tried = []
  answer = () => granted
  load = () =>
    loadConfig({ configPath: join(files.directory, 'c.json'), env: { RUNTIME_DIRECTORY: '/run/x' } })
  write('key', 'key-of-old')
  write('secret', 'secret-of-old')
  configure()
  running = await load()
  watch = createSecretWatch({
    look: createLook(
      () => load(),
      () => running,
    ),
    running: () => running,
    async tryCredentials(next, trial) {
      tried.push(pairOf(next))
      const outcome = await answer(pairOf(next), trial as Required<TrialOptions>)
      if (outcome?.kind === 'ok') running = { ...running, credentials: next.credentials }
      return outcome
    },
    clock,
    log: recorder.log,
  })
  await clock.advance(TICK_MS)
})

/** One tick, and the time that the files get to settle; `meanwhile` comes 1 s after the tick. */
async function ticked(meanwhile: () => void = () => undefined): Promise<void> {
  const progress = { isOver: false }
  const check = watch.tick(never).finally(() => {
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

/** An operator's request, and the time that the files get to settle. */
async function refreshed(): Promise<{ outcome: Promise<FetchOutcome | undefined> }> {
  const outcome = watch.refresh(never)
  await expect.poll(() => clock.sleepers()).toBe(2)
  await clock.advance(2_000)
  return { outcome }
}

describe('secret files that change', () => {
  it('are tried once and taken over where they give a token', async () => {
    await ticked()
    expect(tried).toEqual([])
    write('secret', 'secret-of-new')
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
    const at = 'request.clientCertificate.certFile'
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
    const { further: before = {} } = running.credentials
    await ticked()
    expect(tried).toHaveLength(0)
    files.write('vol/third', 'third-of-new')
    await ticked()
    expect(running.credentials.further?.['service.parameters.realm']?.reveal()).toBe('third-of-new')
    renew()
    await ticked()
    await ticked()
    expect(running.credentials.further?.[at]?.reveal()).not.toBe(before[at]?.reveal())
    expect(recorder.events()).toEqual(['credentials-taken-over', 'credentials-taken-over'])
    expect(running.endsAtMs.certificate).toBeGreaterThan(Date.now())
  })

  it('are left alone until both have been the same for 2 s', async () => {
    write('key', 'key-of-new')
    await ticked(() => write('secret', 'secret-of-new'))
    expect(tried).toEqual([])
    await ticked()
    expect(tried).toEqual(['key-of-new secret-of-new'])
  })

  it('are not tried any more once the daemon stops', async () => {
    write('secret', 'secret-of-new')
    const stop = new AbortController()
    const check = watch.tick(stop.signal)
    await expect.poll(() => clock.sleepers()).toBe(1)
    stop.abort()
    await check
    expect(tried).toEqual([])
  })

  it('are tried again only when a file changes, where they are refused', async () => {
    const rejected = { kind: 'transient', reason: 'rejected', detail: 'no' } as const
    answer = (pair) => (pair === 'key-of-new secret-of-new' ? granted : rejected)
    write('key', 'key-of-new')
    for (let ticks = 0; ticks < 3; ticks += 1) await ticked()
    expect(tried).toEqual(['key-of-new secret-of-old'])
    expect(recorder.of('credentials-not-taken-over')).toEqual([
      {
        level: 'error',
        sentence: 'The credentials in the files were changed and give no token: the former ones stay in use',
        event: 'credentials-not-taken-over',
        files: [join(files.directory, 'vol/key'), join(files.directory, 'vol/secret')],
        error: 'rejected: no',
        remedy:
          'Correct the files: they are tried again when one changes. ' +
          'A reload or a restart uses them as they are',
      },
    ])
    expect(pairOf(running)).toBe('key-of-old secret-of-old')
    const words =
      /^\S+vol\/key with \S+vol\/secret holds a pair that the service refused at 08:0\d UTC \(rejected: no/
    expect(watch.state()).toMatchObject({
      state: 'faulty',
      pair: 'refused',
      problem: expect.stringMatching(words),
    })
    write('key', 'key-of-new')
    await ticked()
    expect(tried).toEqual(['key-of-new secret-of-old', 'key-of-new secret-of-old'])
    write('secret', 'secret-of-new')
    await ticked()
    expect(tried.slice(2)).toEqual(['key-of-new secret-of-new'])
    expect(recorder.events()).toEqual([
      'credentials-not-taken-over',
      'credentials-not-taken-over',
      'credentials-taken-over',
    ])
    expect(watch.state()).toEqual({ state: 'current', problem: null })
  })

  it('are told to be tried, once for each reason, and given up where they change meanwhile', async () => {
    answer = (_, trial) => {
      for (const detail of ['down', 'down', 'still down']) trial.onFailed(failed(detail), 0)
      return untilEnded(trial)
    }
    write('secret', 'secret-of-new')
    await ticked()
    expect(watch.state()).toMatchObject({
      state: 'changed',
      problem: expect.stringMatching(/tried until there is an answer \(network: still down\)$/),
    })
    expect(recorder.events()).toEqual(['credentials-not-taken-over', 'credentials-not-taken-over'])
    answer = () => granted
    write('secret', 'secret-of-newer')
    await ticked()
    expect(tried).toEqual(['key-of-old secret-of-new', 'key-of-old secret-of-newer'])
    expect(watch.state().state).toBe('current')
  })

  it('are given up where they are put back while they are tried', async () => {
    let isEnded = false
    answer = async (_, trial) => untilEnded(trial).finally(() => (isEnded = true))
    write('secret', 'secret-of-new')
    await ticked()
    write('secret', 'secret-of-old')
    await ticked()
    await expect.poll(() => isEnded).toBe(true)
    expect(tried).toEqual(['key-of-old secret-of-new'])
  })

  it('are tried again where a reload ended the trial', async () => {
    answer = () => undefined
    write('secret', 'secret-of-new')
    await ticked()
    answer = () => granted
    await ticked()
    expect(tried).toHaveLength(2)
    expect(recorder.events()).toEqual(['credentials-taken-over'])
  })

  it.each([
    ['empty', /vol\/secret is empty/, () => write('secret', '')],
    ['missing', /vol\/secret is not there/, () => rmSync(join(files.directory, 'vol/secret'))],
    ['readable by all', /chmod o-rwx/, () => files.write('vol/secret', 'secret-of-new', 0o644)],
    ['written with the same content', null, () => write('secret', 'secret-of-old')],
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
    write('secret', 'secret-of-new')
    await ticked()
    expect(tried).toEqual(['key-of-old secret-of-new'])
    expect(watch.isFaulty()).toBe(false)
  })

  it('are not tried while the configuration on disk is another one, but after its reload', async () => {
    configure({ baseUrl: 'https://other.example.com' })
    write('secret', 'secret-of-new')
    await ticked()
    expect(watch.state()).toEqual({ state: 'changed', problem: null })
    configure()
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
    answer = () => refused
    write('secret', 'secret-of-new')
    await ticked()
    expect(tried).toEqual(['key-of-old secret-of-new'])
    expect(watch.state().pair).toBe('refused')
  })

  it('are tried once, although a disk has not answered since', async () => {
    answer = () => refused
    write('secret', 'secret-of-new')
    await ticked()
    const volume = Promise.withResolvers<void>()
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
    const call = inDirectory(join(files.directory, 'vol'), async () => volume.promise)
    vi.advanceTimersByTime(5_000)
    vi.useRealTimers()
    await expect(call).rejects.toThrow(FileError)
    await ticked()
    const problem = expect.stringMatching(/has not answered/) as string
    expect(watch.state()).toMatchObject({ state: 'faulty', problem })
    volume.resolve()
    await ticked()
    await ticked()
    expect(watch.state().pair).toBe('refused')
    expect(tried).toHaveLength(1)
    expect(recorder.of('credentials-not-taken-over')).toHaveLength(1)
  })

  it('are tried once a fault of the configuration has gone by itself', async () => {
    const readable = load
    load = () => Promise.reject(new ConfigError([{ at: 'ipc.group', sentence: 'no' }], 'c'))
    write('secret', 'secret-of-new')
    await ticked()
    expect(watch.state().state).toBe('faulty')
    load = readable
    await ticked()
    expect(tried).toEqual(['key-of-old secret-of-new'])
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
    write('secret', 'secret-of-new')
    await ticked()
    expect(recorder.of('credentials-taken-over')).toMatchObject([
      { files: [join(files.directory, 'vol/secret')] },
    ])
  })
})

describe('an operator who asks', () => {
  it('has the pair in the files tried at once, also where it was refused before', async () => {
    expect(await watch.refresh(never)).toBeUndefined()
    answer = () => refused
    write('secret', 'secret-of-new')
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
      expect(await (await refreshed()).outcome).toBe(result)
    }
    expect(tried).toHaveLength(3)
  })

  it('replaces another trial of the same pair', async () => {
    const pending = new Set<() => void>()
    answer = async (_, { onFailed, signal }) =>
      new Promise((resolve) => {
        pending.add(() => resolve(granted))
        void untilAborted(signal).then(() => {
          onFailed(failed('late'), 0)
          return resolve(undefined)
        })
      })
    write('secret', 'secret-of-new')
    await ticked()
    const { outcome } = await refreshed()
    await expect.poll(() => tried.length).toBe(2)
    await ticked()
    expect(tried).toHaveLength(2)
    for (const grant of pending) grant()
    expect(await outcome).toBe(granted)
    expect(recorder.events()).toEqual(['credentials-taken-over'])
  })

  it('hears at once that there is no token where the trial goes on', async () => {
    answer = (_, trial) => {
      trial.onFailed(failed('down'), 0)
      return untilEnded(trial)
    }
    write('secret', 'secret-of-new')
    expect(await (await refreshed()).outcome).toBeUndefined()
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

  const share = { servers: ['h:1'], tls: true, key: '0123456789abcdef' }
  const ofRestart = 'stateDirectory can be changed by a restart alone'
  it.each<[string, object, object, string | null]>([
    ['a setting', {}, { log: { level: 'debug' } }, null],
    ['a directory, which needs a restart', {}, { stateDirectory: '/srv/x' }, ofRestart],
    ['a secret in it', { share }, { share: { ...share, key: '0123456789abcdeX' } }, null],
    ['a secret that is left out', { share }, { share: { ...share, key: null } }, null],
    ['a part that is left out', {}, { http: false }, null],
    ['a part that is added', { http: false }, {}, null],
  ])('is changed by %s', async (_what, before, after, problem) => {
    configure(before)
    running = await load()
    configure(after)
    await ticked()
    expect(watch.state()).toEqual({ state: 'changed', problem })
  })

  it('is loaded again only when a file has changed', async () => {
    const counted = vi.fn<() => Promise<Config>>(load)
    const look = createLook(counted, () => running)
    await look()
    await look()
    expect(counted).toHaveBeenCalledTimes(1)
    write('key', 'key-of-new')
    await look()
    expect(counted).toHaveBeenCalledTimes(2)
  })
})
