import {
  chmodSync,
  existsSync,
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
import { createManagedFile, type ManagedFile } from '../../src/files/managed-file.ts'
import { methodOf, watchFileCalls } from '../support/file-calls.ts'
import { createRecords } from '../support/records.ts'
import { tempDirectory } from '../support/temp-directory.ts'

/** A file that should be as `wanted`; where its text is null, there should be none. */
async function createFile(options: { directory?: string; mayFormerStay?: boolean } = {}) {
  const { mayFormerStay = true, directory = await tempDirectory('memory') } = options
  const path = join(directory, 'file')
  const wanted = { text: 'content' as string | null, mayStay: true, gid: null as number | null }
  const desired = () => {
    const { text, mayStay, gid } = wanted
    return text === null
      ? null
      : { text, attributes: { mode: 0o600, gid }, mayStay: () => mayStay && wanted.mayStay }
  }
  const counts = { writes: 0, repairs: 0, errors: 0 }
  const { log, events } = createRecords()
  const file = createManagedFile(path, { desired, log, mayFormerStay, counts })
  const text = (): string | null => (existsSync(path) ? readFileSync(path, 'utf8') : null)
  return { directory, path, wanted, counts, events, file, text }
}

const isPresent = (file: ManagedFile): boolean => file.status().writtenAt !== null

/** The call fails from now on with this error. */
function failing(name: Parameters<typeof methodOf>[0], code: string) {
  const error = Object.assign(new Error(`${code}: not here`), { code, syscall: name })
  const spy = vi.spyOn(...methodOf(name)).mockRejectedValue(error)
  onTestFinished(() => spy.mockRestore())
  return spy
}

test.each([
  ['the newest content is written', 'newest'],
  ['a file that should no longer be there is not written', null],
])('while its disk does not answer no caller waits for long; afterwards %s', async (_, last) => {
  const { directory, path, wanted, events, file, text } = await createFile()
  await file.reconcile()
  const disk = Promise.withResolvers<void>()
  const spy = vi.spyOn(...methodOf('fsync')).mockImplementation(async () => disk.promise)
  onTestFinished(() => spy.mockRestore())
  let uptime = process.uptime()
  const time = vi.spyOn(process, 'uptime').mockImplementation(() => uptime)
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  onTestFinished(() => {
    vi.useRealTimers()
    time.mockRestore()
  })
  wanted.text = 'stale'
  const waiting = file.reconcile()
  const more = file.reconcile()
  while (spy.mock.calls.length === 0) await new Promise((resolve) => setImmediate(resolve))
  uptime += 7.5
  await vi.advanceTimersByTimeAsync(5_000)
  await Promise.all([waiting, more])
  expect(file.error()).toMatchObject({ kind: 'stalled', path, seconds: 7 })
  wanted.text = last
  await file.reconcile()
  expect(spy).toHaveBeenCalledTimes(1)
  expect([events(), text()]).toEqual([['file-error'], 'content'])
  disk.resolve()
  vi.useRealTimers()
  await expect.poll(async () => file.reconcile().then(file.error)).toBeNull()
  expect([readdirSync(directory), text()]).toEqual([last === null ? [] : ['file'], last])
  expect(events()).toEqual(['file-error', 'file-mended'])
})

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
  expect(isPresent(file)).toBe(false)
  const open = readdirSync('/proc/self/fd').length
  await file.reconcile()
  await file.reconcile()
  expect(readdirSync('/proc/self/fd')).toHaveLength(open)
  expect(file.status().writtenAt).not.toBeNull()
  expect(counts).toEqual({ writes: 0, repairs: 0, errors: 0 })
})

test('what a crash left goes, where there should be no file', async () => {
  const { directory, wanted, file } = await createFile()
  writeFileSync(join(directory, '.file.kyc'), 'torn')
  wanted.text = null
  await file.reconcile()
  expect(readdirSync(directory)).toEqual([])
})

test.each([
  ['removed', (path: string) => rmSync(path)],
  ['given another content of the same length', (path: string) => writeFileSync(path, 'CONTENT')],
  ['given another mode', (path: string) => chmodSync(path, 0o644)],
  ['exchanged', (path: string) => renameSync(path, `${path}.old`)],
])('a file that is %s is restored, and counted', async (_, change) => {
  const { path, counts, events, file, text } = await createFile()
  await file.reconcile()
  change(path)
  await file.reconcile()
  expect([text(), statSync(path).mode & 0o777]).toEqual(['content', 0o600])
  expect([counts, file.status().repairs]).toEqual([{ writes: 2, repairs: 1, errors: 0 }, 1])
  expect(events()).toEqual(['file-restored'])
})

test('a file that is exchanged for a link stays one, and is an error', async () => {
  const { path, counts, file } = await createFile()
  await file.reconcile()
  rmSync(path)
  symlinkSync('/etc', path)
  await file.reconcile()
  expect(file.error()).toMatchObject({ kind: 'odd-target' })
  expect(counts).toEqual({ writes: 1, repairs: 0, errors: 1 })
})

test.each([true, false])(
  'what a former run wrote and cannot be replaced stays if it may: %s',
  async (mayFormerStay) => {
    const { path, file } = await createFile({ mayFormerStay })
    writeFileSync(path, 'former', { mode: 0o600 })
    failing('writeFile', 'ENOSPC')
    await file.reconcile()
    expect([existsSync(path), isPresent(file)]).toEqual([mayFormerStay, mayFormerStay])
    expect(file.error()).toMatchObject({ code: 'ENOSPC' })
  },
)

test('what a former run wrote stays where it holds the same and cannot be given another group', async () => {
  const { path, wanted, file, text } = await createFile({ mayFormerStay: false })
  writeFileSync(path, 'content', { mode: 0o600 })
  wanted.gid = 12_345
  const spy = failing('fchown', 'EPERM')
  await file.reconcile()
  expect([text(), isPresent(file)]).toEqual(['content', true])
  expect(file.error()).toMatchObject({ code: 'EPERM', syscall: 'fchown' })
  spy.mockRestore()
  wanted.gid = null
  await file.reconcile()
  expect([text(), file.error(), file.status().repairs]).toEqual(['content', null, 0])
})

test.each([
  ['writeFile', 'ENOSPC'],
  ['fsync', 'EIO'],
  ['rename', 'EBUSY'],
] as const)('a file of which %s fails keeps its content as long as that may stay', async (name, code) => {
  const { directory, wanted, file, text } = await createFile()
  await file.reconcile()
  const spy = failing(name, code)
  wanted.text = 'new'
  await file.reconcile()
  expect([text(), isPresent(file)]).toEqual(['content', true])
  expect(file.error()).toMatchObject({ kind: 'system', code })
  if (name === 'fsync') return
  wanted.mayStay = false
  await file.reconcile()
  expect([readdirSync(directory), isPresent(file)]).toEqual([[], false])
  spy.mockRestore()
  await file.reconcile()
  expect([text(), file.error()]).toEqual(['new', null])
})

test.each([
  ['removed', () => undefined],
  ['exchanged for a file', (directory: string) => writeFileSync(directory, '')],
])('a file whose directory is %s is not present, and comes back with it', async (_, exchange) => {
  const directory = join(await tempDirectory('memory'), 'directory')
  mkdirSync(directory)
  const { wanted, events, file, text } = await createFile({ directory })
  await file.reconcile()
  rmSync(directory, { recursive: true })
  exchange(directory)
  wanted.text = 'new'
  await file.reconcile()
  await file.reconcile()
  expect([isPresent(file), events()]).toEqual([false, ['file-error']])
  rmSync(directory, { recursive: true, force: true })
  mkdirSync(directory)
  await file.reconcile()
  expect([text(), events()]).toEqual(['new', ['file-error', 'file-mended']])
})
