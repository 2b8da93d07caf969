// What is in use after a reading of the disk, a reload or a token: the one value and its function, pure.
import { expect, test } from 'vitest'
import type { Config } from '../../src/config/config.ts'
import { Secret } from '../../src/lib/secret.ts'
import {
  initialInUse,
  isCurrent,
  needingRestart,
  nextInUse,
  type InUse,
  type InUseEvent,
  type Loaded,
} from '../../src/running/in-use.ts'

const IN_FILES = { 'credentials.apiKey': '/key', 'credentials.apiSecret': '/secret' }

/** A configuration with this pair, in files unless `change` says otherwise. */
function configWith(pair: string, change: object = {}): Config {
  const secret = new Secret(pair)
  return {
    file: '/c.json',
    baseUrl: 'https://service.test',
    service: { description: null },
    credentials: { apiKey: secret, apiSecret: secret },
    secretFiles: IN_FILES,
    endsAtMs: { pair: null, certificate: null },
    request: { ca: null },
    warnings: [],
    ipc: { path: '/run/ipc.sock', mode: 0o600 },
    http: { path: '/run/http.sock', mode: 0o600 },
    runtimeDirectory: '/run',
    wantedRuntimeDirectory: '/run',
    stateDirectory: '/var',
    ...change,
  } as unknown as Config
}

const start = (config = configWith('a'), hasOwnSockets = true): InUse =>
  initialInUse(config, { hasOwnSockets })
const disk = (config: Config): Loaded => ({ kind: 'loaded', config })
const diskRead = (onDisk: InUse['onDisk'], isSettled = true): InUseEvent => ({
  type: 'disk-read',
  onDisk: onDisk!,
  isSettled,
})
const after = (state: InUse, ...events: InUseEvent[]): InUse => events.reduce(nextInUse, state)
const pairs = ({ config, candidate }: InUse): (string | null)[] =>
  [config, candidate?.config ?? null].map((one) => one && one.credentials.apiKey!.reveal())

test('files that hold another pair make it the candidate once they have settled', () => {
  const found = disk(configWith('b'))
  expect(pairs(after(start(), diskRead(found, false)))).toEqual(['a', null])
  const tried = after(start(), diskRead(found))
  expect(pairs(tried)).toEqual(['a', 'b'])
  expect(after(tried, diskRead(found)).candidate).toBe(tried.candidate)
  // Written again.
  const again = after(tried, diskRead(disk(configWith('b'))))
  expect(again.candidate?.config).not.toBe(tried.candidate?.config)
})

test.each<[string, InUse['onDisk']]>([
  ['are put back', disk(configWith('a'))],
  ['are faulty', { kind: 'faulty', problem: 'The file is empty' }],
  ['come with other settings', disk(configWith('c', { refresh: { maxAgeMs: 1 } }))],
])('there is no candidate any more once the files %s', (_what, onDisk) => {
  const tried = after(start(), diskRead(disk(configWith('b'))))
  expect(pairs(after(tried, diskRead(onDisk, false)))).toEqual(['a', null])
})

test.each<[string, object]>([
  ['come with other settings', { refresh: { maxAgeMs: 1 } }],
  ['come with another end of theirs', { endsAtMs: { pair: 7, certificate: null } }],
  ['are none: the pair is written in the configuration', { secretFiles: {} }],
])('another pair is not tried where the files %s', (_what, change) => {
  const onDisk = disk(configWith('b', change))
  expect(pairs(after(start(), diskRead(onDisk)))).toEqual(['a', null])
  expect(isCurrent(start(), onDisk)).toBe(false)
})

test('an update of the host that changes the authorities does not hold up a rotation', () => {
  const [same, rotated] = ['a', 'b'].map((pair) => disk(configWith(pair, { request: { ca: 'renewed' } })))
  expect(isCurrent(start(), same!)).toBe(false)
  expect(pairs(after(start(), diskRead(same!)))).toEqual(['a', null])
  expect(pairs(after(start(), diskRead(rotated!)))).toEqual(['a', 'b'])
})

test('a disk that hangs changes nothing', () => {
  const tried = after(start(), diskRead(disk(configWith('b'))))
  expect(after(tried, diskRead({ kind: 'stalled', problem: 'hangs' })).candidate).toBe(tried.candidate)
})

test('a token brings the candidate into use, and the former pair stays known as a secret', () => {
  const renewed = configWith('b', { endsAtMs: { pair: null, certificate: 7 }, warnings: ['It is short'] })
  const state = after(start(), diskRead(disk(renewed)), { type: 'answered' })
  expect(pairs(state)).toEqual(['b', null])
  expect(state.config.endsAtMs.certificate).toBe(7)
  expect(state.former?.credentials.apiKey!.reveal()).toBe('a')
  expect(after(state, { type: 'answered' })).toBe(state)
})

test('a reload has its settings in force at once, and another pair tried', () => {
  const loaded = configWith('b', { refresh: { maxAgeMs: 1 } })
  const state = after(start(), { type: 'reload', loaded })
  expect(pairs(state)).toEqual(['a', 'b'])
  expect(state.config).toMatchObject({ refresh: { maxAgeMs: 1 } })
  // What the disk is found to hold then is what was read: no second act.
  const found = after(state, diskRead(disk(configWith('b', { refresh: { maxAgeMs: 1 } }))))
  expect(found.candidate?.config).toBe(state.candidate?.config)
  expect(pairs(after(found, { type: 'reload', loaded: configWith('a') }))).toEqual(['a', null])
  // It was written before the reload that read another one, or after it.
  const later = disk(configWith('c', { refresh: { maxAgeMs: 1 } }))
  expect(pairs(after(state, diskRead(later)))).toEqual(['a', 'c'])
  const seen = after(start(), diskRead(later, false), { type: 'reload', loaded })
  expect(pairs(after(seen, diskRead(later)))).toEqual(['a', 'c'])
})

test('a reload of a pair that is written in the configuration keeps it a candidate at each reading', () => {
  const literal = { secretFiles: {} }
  const loaded = configWith('b', literal)
  const state = after(start(configWith('a', literal)), { type: 'reload', loaded }, diskRead(disk(loaded)))
  expect(pairs(state)).toEqual(['a', 'b'])
  expect(isCurrent(state, disk(configWith('b', literal)))).toBe(true)
  expect(isCurrent(state, disk(configWith('c', literal)))).toBe(false)
})

test.each([{ baseUrl: 'https://other.test' }, { service: { description: 'another' } }])(
  'another service is in use at once, with its pair',
  (change) => {
    const state = after(start(), diskRead(disk(configWith('b'))), {
      type: 'reload',
      loaded: configWith('b', change),
    })
    expect(pairs(state)).toEqual(['b', null])
    expect(state.former?.credentials.apiKey!.reveal()).toBe('a')
  },
)

test('what needs a restart stays as it is, and is named', () => {
  const loaded = configWith('a', {
    wantedRuntimeDirectory: '/srv/run',
    stateDirectory: '/srv/var',
    ipc: { path: '/srv/ipc.sock', mode: 0o660 },
    http: null,
  })
  const state = after(start(), { type: 'reload', loaded })
  expect(needingRestart(loaded, state)).toEqual(['runtimeDirectory', 'stateDirectory', 'ipc.path', 'http'])
  expect(state.config).toMatchObject({
    runtimeDirectory: '/run',
    stateDirectory: '/var',
    ipc: { path: '/run/ipc.sock', mode: 0o660 },
    http: { path: '/run/http.sock' },
  })
  // A rotation is noticed nevertheless.
  const rotated = { ...loaded, credentials: configWith('b').credentials }
  const tried = after(state, diskRead(disk(rotated)))
  expect(pairs(tried)).toEqual(['a', 'b'])
  const { config } = after(tried, { type: 'answered' })
  expect([config.stateDirectory, config.ipc.path]).toEqual(['/var', '/run/ipc.sock'])
  const moved = configWith('a', { http: { path: '/srv/http.sock', mode: 0o600 } })
  expect(needingRestart(moved, start())).toEqual(['http.path'])
  // Their paths mean nothing where systemd binds the sockets.
  expect(needingRestart(moved, start(configWith('a'), false))).toEqual([])
  expect(needingRestart(configWith('a'), start(configWith('a', { http: null })))).toEqual(['http'])
})
