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
import { join } from 'node:path'
import { expect, onTestFinished, test, vi } from 'vitest'
import { createManagedFile } from '../../src/files/managed-file.ts'
import { inDirectory } from '../../src/files/in-directory.ts'
import { fs } from '../../src/files/fs.ts'
import { watchFileCalls } from '../support/file-calls.ts'
import { createRecords } from '../support/records.ts'
import { tempDirectory } from '../support/temp-directory.ts'

/** A file that should have the text of `wanted`, where that is null none, and the text that it has. */
async function createFile(
  options: {
    where?: 'disk' | 'memory'
    directory?: string
    name?: string
    gid?: number
    mayFormerStay?: boolean
  } = {},
) {
  const { where = 'memory', name = 'file', gid = null, mayFormerStay = true } = options
  const directory = options.directory ?? (await tempDirectory(where))
  const path = join(directory, name)
  const wanted: { text: string | null; mayStay: boolean } = { text: 'content', mayStay: true }
  const desired = () => {
    const { text } = wanted
    return text === null ? null : { text, mayStay: () => wanted.mayStay }
  }
  const counts = { writes: 0, repairs: 0, errors: 0 }
  const { log, events, records } = createRecords()
  const file = createManagedFile({ path, mode: 0o600, gid }, { desired, log, mayFormerStay, counts })
  const text = (): string | null => (existsSync(path) ? readFileSync(path, 'utf8') : null)
  return { directory, path, wanted, counts, events, records, file, text }
}

/** The same once it was written, and nothing has changed it for 2 s. */
async function fileLeftAlone() {
  const written = await createFile()
  await written.file.reconcile()
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 2_000 })
  onTestFinished(() => void vi.useRealTimers())
  await written.file.reconcile()
  return written
}

/** Work on the file system of the directory that ends when the returned function is called. */
function occupy(directory: string): () => Promise<void> {
  const { promise: ended, resolve: end } = Promise.withResolvers<void>()
  const done = inDirectory(directory, async () => ended).catch(() => undefined)
  return async () => {
    end()
    await done
  }
}

/** The call, of those of fs.ts, that fails from now on with this error. */
function failing(name: keyof typeof fs, code: string) {
  const error = Object.assign(new Error(`${code}: not here`), { code, syscall: name })
  const spy = vi.spyOn(fs, name as 'rename').mockRejectedValue(error)
  onTestFinished(() => spy.mockRestore())
  return spy
}

test.each([
  ['the newest content is written', 'newest'],
  ['a file that should no longer be there is not written', null],
])(
  'while its disk does not answer no caller waits; afterwards %s, and the error is over',
  async (_, last) => {
    const { directory, path, wanted, events, records, file, text } = await createFile({ where: 'disk' })
    await file.reconcile()
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'setImmediate', 'clearImmediate'] })
    onTestFinished(() => void vi.useRealTimers())
    const release = occupy(directory)
    wanted.text = 'stale'
    const waiting = file.reconcile()
    await vi.advanceTimersByTimeAsync(5_002)
    await waiting
    expect(file.error()).toMatchObject({ kind: 'stalled', path })
    wanted.text = last
    await file.reconcile()
    expect(events()).toEqual(['file-error'])
    expect(records[0]?.sentence).toMatch(/^Cannot write a file/)
    expect(text()).toBe('content')
    vi.useRealTimers()
    await release()
    await expect.poll(async () => file.reconcile().then(file.error)).toBeNull()
    expect([readdirSync(directory), text()]).toEqual([last === null ? [] : ['file'], last])
    expect(events()).toEqual(['file-error', 'file-mended'])
  },
)

test('content that is no longer desired once it is written is replaced at once', async () => {
  const { directory, wanted, file, text } = await createFile()
  const end = watchFileCalls((name) => {
    if (name !== 'fsync') return
    end()
    wanted.text = 'newest'
    void file.reconcile()
  })
  onTestFinished(end)
  await file.reconcile()
  await expect.poll(text).toBe('newest')
  await expect.poll(() => readdirSync(directory)).toEqual(['file'])
})

test('a file that was written as it should be by a former run is left alone, and is present', async () => {
  const { path, counts, file } = await createFile()
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
  const { path, counts, file, text } = await createFile()
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
  else expect(text()).toBe('content')
})

test.each([true, false])(
  'a file of a former run that cannot be replaced stays if it may: %s',
  async (mayFormerStay) => {
    // The temporary name is longer than this one, and so too long.
    const { path, file } = await createFile({ name: 'x'.repeat(255), mayFormerStay })
    writeFileSync(path, 'former', { mode: 0o600 })
    await file.reconcile()
    expect([existsSync(path), file.isPresent()]).toEqual([mayFormerStay, mayFormerStay])
  },
)

test('a file of a former run that holds the same stays where it cannot be given another group', async () => {
  const { path, wanted, counts, file, text } = await createFile({ gid: 12_345, mayFormerStay: false })
  writeFileSync(path, 'content', { mode: 0o600 })
  const spy = failing('fchown', 'EPERM')
  for (const next of ['content', 'new']) {
    wanted.text = next
    await file.reconcile()
    expect([text(), file.isPresent(), counts.errors > 0]).toEqual(['content', true, true])
  }
  wanted.mayStay = false
  await file.reconcile()
  expect(text()).toBeNull()
  spy.mockRestore()
  file.reconfigure({ mode: 0o600 })
  await file.reconcile()
  expect([text(), file.error(), counts.repairs]).toEqual(['new', null, 0])
})

test.each([
  ['writeFile', 'ENOSPC'],
  ['fchown', 'EPERM'],
  ['fsync', 'EIO'],
  ['rename', 'EBUSY'],
] as const)('a file of which %s fails keeps its content as long as that may stay', async (name, code) => {
  const { directory, wanted, file, text } = await createFile()
  await file.reconcile()
  const spy = failing(name, code)
  wanted.text = 'new'
  file.reconfigure({ mode: 0o600, gid: name === 'fchown' ? 12_345 : null })
  await file.reconcile()
  expect([text(), file.isPresent()]).toEqual(['content', true])
  expect(file.error()).toMatchObject({ kind: 'system', code })
  wanted.mayStay = false
  await file.reconcile()
  expect([readdirSync(directory), file.isPresent()]).toEqual([[], false])
  spy.mockRestore()
  file.reconfigure({ mode: 0o600 })
  await file.reconcile()
  expect([text(), file.error()]).toEqual(['new', null])
})

test('a directory that cannot be synced is a warning, once, and no error', async () => {
  const { fsync } = fs
  const refusal = Object.assign(new Error('EINVAL'), { code: 'EINVAL' })
  const spy = vi
    .spyOn(fs, 'fsync')
    .mockImplementation(async (fd) => (fstatSync(fd).isDirectory() ? Promise.reject(refusal) : fsync(fd)))
  onTestFinished(() => spy.mockRestore())
  const { directory, ...one } = await createFile({ name: 'one' })
  const two = await createFile({ directory, name: 'two' })
  for (const { file, text } of [one, two]) {
    await file.reconcile()
    expect([file.error(), text()]).toEqual([null, 'content'])
  }
  expect([...one.records, ...two.records]).toMatchObject([
    { level: 'warning', fields: { event: 'directory-unsynced', path: directory, warning: 'EINVAL' } },
  ])
})

test('a directory that is not there is one error, also of a file that should not be, and is cleared later', async () => {
  const directory = join(await tempDirectory('memory'), 'directory')
  const { path, wanted, events, file } = await createFile({ directory })
  wanted.text = null
  await file.begin()
  await file.reconcile()
  expect([file.error(), events()]).toMatchObject([{ code: 'ENOENT', path }, ['file-error']])
  mkdirSync(directory)
  writeFileSync(join(directory, '.file.0123456789ab.kyc'), 'torn')
  await file.reconcile()
  expect([file.error(), events(), readdirSync(directory)]).toEqual([null, ['file-error', 'file-mended'], []])
})

test('what a crash left and cannot be removed is an error, and holds up no content', async () => {
  const { directory, file, text } = await createFile()
  writeFileSync(join(directory, '.file.0123456789ab.kyc'), 'torn')
  const spy = failing('unlink', 'EPERM')
  await file.reconcile()
  expect([text(), file.error()]).toMatchObject(['content', { code: 'EPERM' }])
  spy.mockRestore()
  await file.reconcile()
  expect([readdirSync(directory), file.error()]).toEqual([['file'], null])
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
  const { path, counts, file, text } = await fileLeftAlone()
  await file.reconcile()
  change(path)
  await file.reconcile()
  expect(text()).toBe('content')
  expect(statSync(path).mode & 0o777).toBe(0o600)
  expect(counts).toEqual({ writes: 2, repairs: 1, errors: 0 })
})

test.each([
  ['removed', () => undefined],
  ['exchanged for a file', (directory: string) => writeFileSync(directory, '')],
])('a file whose directory was %s is not present, also where another content is due', async (_, exchange) => {
  const directory = join(await tempDirectory('memory'), 'directory')
  mkdirSync(directory)
  const { wanted, file } = await createFile({ directory })
  await file.reconcile()
  expect(file.isPresent()).toBe(true)
  rmSync(directory, { recursive: true })
  exchange(directory)
  wanted.text = 'new'
  await file.reconcile()
  expect(file.isPresent()).toBe(false)
})
