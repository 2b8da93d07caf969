import {
  chmodSync,
  existsSync,
  fstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import { expect, onTestFinished, test, vi } from 'vitest'
import { createManagedFile, type Content } from '../../src/files/managed-file.ts'
import { inDirectory } from '../../src/files/in-directory.ts'
import { fs } from '../../src/files/fs.ts'
import { watchFileCalls } from '../support/file-calls.ts'
import { createRecords } from '../support/records.ts'
import { tempDirectory } from '../support/temp-directory.ts'

/** Work on the file system of the directory that ends when the returned function is called. */
function occupy(directory: string): () => Promise<void> {
  const { promise: ended, resolve: end } = Promise.withResolvers<void>()
  const done = inDirectory(directory, async () => ended).catch(() => undefined)
  return async () => {
    end()
    await done
  }
}

/** A content that may stay if it cannot be replaced. */
function content(text: string, mayStay = () => true): Content {
  return { text, mayStay }
}

/** A file in memory that should have the text `content`. */
async function fileInMemory() {
  const path = join(await tempDirectory('memory'), 'file')
  const counts = { writes: 0, repairs: 0, errors: 0 }
  const options = { desired: () => content('content'), log: createRecords().log, counts }
  return { path, counts, file: createManagedFile({ path, mode: 0o600 }, options) }
}

/** The same once nothing has changed it for 2 s. */
async function fileLeftAlone() {
  const { path, counts, file } = await fileInMemory()
  await file.reconcile()
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 2_000 })
  onTestFinished(() => void vi.useRealTimers())
  await file.reconcile()
  return { path, counts, file }
}

test.each([
  ['the newest content is written', 'newest'],
  ['a file that should no longer be there is not written', null],
])(
  'while its disk does not answer no caller waits; afterwards %s, and the error is over',
  async (_, last) => {
    const directory = await tempDirectory('disk')
    const path = join(directory, 'file')
    const { log, events, records } = createRecords()
    let desired: string | null = 'old'
    const file = createManagedFile(
      { path, mode: 0o600 },
      { desired: () => (desired === null ? null : content(desired)), log },
    )
    await file.reconcile()
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'setImmediate', 'clearImmediate'] })
    onTestFinished(() => void vi.useRealTimers())
    const release = occupy(directory)
    desired = 'stale'
    const waiting = file.reconcile()
    await vi.advanceTimersByTimeAsync(5_002)
    await waiting
    expect(file.error()).toMatchObject({ kind: 'stalled', path })
    desired = last
    await file.reconcile()
    expect(events()).toEqual(['file-error'])
    expect(records[0]?.sentence).toMatch(/^Cannot write a file/)
    expect(readFileSync(path, 'utf8')).toBe('old')
    vi.useRealTimers()
    await release()
    await expect.poll(async () => file.reconcile().then(file.error)).toBeNull()
    expect(readdirSync(directory)).toEqual(last === null ? [] : ['file'])
    if (last !== null) expect(readFileSync(path, 'utf8')).toBe(last)
    expect(events()).toEqual(['file-error', 'file-mended'])
  },
)

test('content that is no longer desired once it is written is replaced at once', async () => {
  const directory = await tempDirectory('memory')
  const path = join(directory, 'file')
  let desired = 'expired'
  const file = createManagedFile(
    { path, mode: 0o600 },
    { desired: () => content(desired), log: createRecords().log },
  )
  const end = watchFileCalls((name) => {
    if (name !== 'fsync') return
    end()
    desired = 'newest'
    void file.reconcile()
  })
  onTestFinished(end)
  await file.reconcile()
  await expect.poll(() => readFileSync(path, 'utf8')).toBe('newest')
  await expect.poll(() => readdirSync(directory)).toEqual(['file'])
})

test('a file that was written as it should be by a former run is left alone, and is present', async () => {
  const { path, counts, file } = await fileInMemory()
  writeFileSync(path, 'content', { mode: 0o600 })
  expect(file.isPresent()).toBe(false)
  const open = readdirSync('/proc/self/fd').length
  await file.reconcile()
  expect(readdirSync('/proc/self/fd')).toHaveLength(open)
  expect(file.isPresent()).toBe(true)
  expect(file.writtenAt()).not.toBeNull()
  expect(counts).toEqual({ writes: 0, repairs: 0, errors: 0 })
})

test.each([
  ['removed', () => undefined, { writes: 2, repairs: 1, errors: 0 }],
  ['exchanged for a link', (path: string) => symlinkSync('/etc', path), { writes: 1, repairs: 0, errors: 1 }],
])('a file that is %s while it is compared is seen as it then is', async (_, exchange, expected) => {
  const { path, counts, file } = await fileInMemory()
  await file.reconcile()
  const end = watchFileCalls((name, [opened]) => {
    if (name !== 'open' || opened !== path) return
    rmSync(path)
    exchange(path)
  })
  onTestFinished(end)
  await file.reconcile()
  end()
  expect(counts).toEqual(expected)
  if (expected.errors > 0) expect(file.error()).toMatchObject({ kind: 'odd-target', code: 'ELOOP' })
  else expect(readFileSync(path, 'utf8')).toBe('content')
})

test.each([true, false])(
  'a file of a former run that cannot be replaced stays if it may: %s',
  async (mayFormerStay) => {
    // The temporary name is longer than this one, and so too long.
    const path = join(await tempDirectory('memory'), 'x'.repeat(255))
    writeFileSync(path, 'former', { mode: 0o600 })
    const { log } = createRecords()
    const options = { desired: () => content('new'), log, mayFormerStay }
    const file = createManagedFile({ path, mode: 0o600 }, options)
    await file.reconcile()
    expect([existsSync(path), file.isPresent()]).toEqual([mayFormerStay, mayFormerStay])
  },
)

test('a file of a former run that holds the same stays where it cannot be given another group', async () => {
  const path = join(await tempDirectory('memory'), 'file')
  writeFileSync(path, 'old', { mode: 0o600 })
  const spy = failing('fchown', 'EPERM')
  let desired = 'old'
  let mayStay = true
  const counts = { writes: 0, repairs: 0, errors: 0 }
  const options = { log: createRecords().log, mayFormerStay: false, counts }
  const file = createManagedFile(
    { path, mode: 0o600, gid: 12_345 },
    { ...options, desired: () => content(desired, () => mayStay) },
  )
  for (const text of ['old', 'new']) {
    desired = text
    await file.reconcile()
    expect([readFileSync(path, 'utf8'), file.isPresent(), counts.errors > 0]).toEqual(['old', true, true])
  }
  mayStay = false
  await file.reconcile()
  expect(existsSync(path)).toBe(false)
  spy.mockRestore()
  file.reconfigure({ mode: 0o600 })
  await file.reconcile()
  expect([readFileSync(path, 'utf8'), file.error(), counts.repairs]).toEqual(['new', null, 0])
})

/** The call, of those of fs.ts, that fails from now on with this error. */
function failing(name: keyof typeof fs, code: string) {
  const error = Object.assign(new Error(`${code}: not here`), { code, syscall: name })
  const spy = vi.spyOn(fs, name as 'rename').mockRejectedValue(error)
  onTestFinished(() => spy.mockRestore())
  return spy
}

test.each([
  ['writeFile', 'ENOSPC'],
  ['fchown', 'EPERM'],
  ['fsync', 'EIO'],
  ['rename', 'EBUSY'],
] as const)('a file of which %s fails keeps its content as long as that may stay', async (name, code) => {
  const path = join(await tempDirectory('memory'), 'file')
  let desired = 'old'
  let mayStay = true
  const gid = name === 'fchown' ? { gid: 12_345 } : {}
  const options = { desired: () => content(desired, () => mayStay), log: createRecords().log }
  const file = createManagedFile({ path, mode: 0o600 }, options)
  await file.reconcile()
  const spy = failing(name, code)
  desired = 'new'
  file.reconfigure({ mode: 0o600, ...gid })
  await file.reconcile()
  expect(readFileSync(path, 'utf8')).toBe('old')
  expect(file.error()).toMatchObject({ kind: 'system', code })
  expect(file.isPresent()).toBe(true)
  mayStay = false
  await file.reconcile()
  expect([existsSync(path), file.isPresent()]).toEqual([false, false])
  expect(readdirSync(dirname(path))).toEqual([])
  spy.mockRestore()
  file.reconfigure({ mode: 0o600 })
  await file.reconcile()
  expect([readFileSync(path, 'utf8'), file.error()]).toEqual(['new', null])
})

test('a directory that cannot be synced is a warning, once, and no error', async () => {
  const directory = await tempDirectory('memory')
  const { log, records } = createRecords()
  const fsync = fs.fsync
  const spy = vi
    .spyOn(fs, 'fsync')
    .mockImplementation(async (fd) =>
      fstatSync(fd).isDirectory()
        ? Promise.reject(Object.assign(new Error('EINVAL'), { code: 'EINVAL' }))
        : fsync(fd),
    )
  onTestFinished(() => spy.mockRestore())
  for (const name of ['one', 'two']) {
    const options = { desired: () => content(name), log }
    const file = createManagedFile({ path: join(directory, name), mode: 0o600 }, options)
    await file.reconcile()
    expect([file.error(), readFileSync(join(directory, name), 'utf8')]).toEqual([null, name])
  }
  expect(records).toMatchObject([
    { level: 'warning', fields: { event: 'directory-unsynced', path: directory, warning: 'EINVAL' } },
  ])
})

test('a file that nothing has changed for a second is neither read nor written again', async () => {
  const { counts, file } = await fileLeftAlone()
  const calls: string[] = []
  const end = watchFileCalls((name) => void calls.push(name))
  onTestFinished(end)
  await file.reconcile()
  end()
  expect(calls.filter((name) => name === 'open' || name === 'rename')).toEqual([])
  expect(counts).toEqual({ writes: 1, repairs: 0, errors: 0 })
})

test.each([
  ['removed', (path: string) => rmSync(path)],
  ['given another content of the same length', (path: string) => writeFileSync(path, 'CONTENT')],
  ['given another mode', (path: string) => chmodSync(path, 0o644)],
  ['exchanged', (path: string) => renameSync(path, `${path}.old`)],
])('a file in memory that was left alone for long and is then %s is restored', async (_, change) => {
  const { path, counts, file } = await fileLeftAlone()
  await file.reconcile()
  change(path)
  await file.reconcile()
  expect(readFileSync(path, 'utf8')).toBe('content')
  expect(statSync(path).mode & 0o777).toBe(0o600)
  expect(counts).toEqual({ writes: 2, repairs: 1, errors: 0 })
})

test.each([
  ['removed', () => undefined],
  ['exchanged for a file', (directory: string) => writeFileSync(directory, '')],
])('a file whose directory was %s is not present, also where another content is due', async (_, exchange) => {
  const directory = join(await tempDirectory('memory'), 'directory')
  mkdirSync(directory)
  let desired = 'old'
  const file = createManagedFile(
    { path: join(directory, 'file'), mode: 0o600 },
    { desired: () => content(desired), log: createRecords().log },
  )
  await file.reconcile()
  expect(file.isPresent()).toBe(true)
  rmSync(directory, { recursive: true })
  exchange(directory)
  desired = 'new'
  await file.reconcile()
  expect(file.isPresent()).toBe(false)
})
