import {
  chmodSync,
  chownSync,
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
import { dirname, join } from 'node:path'
import { expect, onTestFinished, test, vi } from 'vitest'
import { createManagedFile } from '../../src/lib/managed-file.ts'
import { inDirectory } from '../../src/lib/in-directory.ts'
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

/** A file in memory that should have the text `content`. */
async function fileInMemory() {
  const path = join(await tempDirectory('memory'), 'file')
  const counts = { writes: 0, repairs: 0, errors: 0 }
  const options = { desired: () => 'content', log: createRecords().log, counts }
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
    const file = createManagedFile({ path, mode: 0o600 }, { desired: () => desired, log })
    await file.reconcile()
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'setImmediate', 'clearImmediate'] })
    onTestFinished(() => void vi.useRealTimers())
    const release = occupy(directory)
    desired = 'stale'
    const waiting = file.reconcile()
    await vi.advanceTimersByTimeAsync(5_002)
    await waiting
    expect(file.error()).toContain('has not answered for 5 s')
    desired = last
    await file.reconcile()
    expect(events()).toEqual(['file-error'])
    expect(records[0]?.sentence).toMatch(/^A file cannot be kept/)
    expect(readFileSync(path, 'utf8')).toBe('old')
    vi.useRealTimers()
    await release()
    await expect.poll(async () => file.reconcile().then(file.error)).toBeNull()
    expect(readdirSync(directory)).toEqual(last === null ? [] : ['file'])
    if (last !== null) expect(readFileSync(path, 'utf8')).toBe(last)
    expect(events()).toEqual(['file-error', 'file-mended'])
  },
)

test('content that is no longer desired when it is written does not get its name', async () => {
  const directory = await tempDirectory('memory')
  const path = join(directory, 'file')
  let desired: string | null = 'first'
  const file = createManagedFile({ path, mode: 0o600 }, { desired: () => desired, log: createRecords().log })
  await file.reconcile()
  desired = 'expired'
  const contents: string[] = []
  const end = watchFileCalls((name) => {
    if (name === 'fsync') desired = 'newest'
    contents.push(readFileSync(path, 'utf8'))
  })
  onTestFinished(end)
  await file.reconcile()
  end()
  expect(new Set([...contents, readFileSync(path, 'utf8')])).toEqual(new Set(['first', 'newest']))
  expect(readdirSync(directory)).toEqual(['file'])
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

test.skipIf(process.geteuid!() !== 0).each([0o700, 0o2700])(
  'a file of a former run is left alone with the group that its directory of mode %o gave it',
  async (mode) => {
    const { path, counts, file } = await fileInMemory()
    chownSync(dirname(path), 0, 12_345)
    chmodSync(dirname(path), mode)
    writeFileSync(path, 'content', { mode: 0o600 })
    await file.reconcile()
    expect(counts).toEqual({ writes: 0, repairs: 0, errors: 0 })
  },
)

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
  if (expected.errors > 0) expect(file.error()).toContain('is a symbolic link, which is never replaced')
  else expect(readFileSync(path, 'utf8')).toBe('content')
})

test.each([true, false])(
  'a file that cannot be replaced is removed if its content is revocable: %s',
  async (isRevocable) => {
    // The temporary name is longer than this one, and so too long.
    const path = join(await tempDirectory('memory'), 'x'.repeat(255))
    writeFileSync(path, 'former', { mode: 0o600 })
    const { log } = createRecords()
    const file = createManagedFile({ path, mode: 0o600 }, { desired: () => 'new', log, isRevocable })
    await file.reconcile()
    expect([existsSync(path), file.isPresent()]).toEqual([!isRevocable, !isRevocable])
  },
)

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
    { desired: () => desired, log: createRecords().log },
  )
  await file.reconcile()
  expect(file.isPresent()).toBe(true)
  rmSync(directory, { recursive: true })
  exchange(directory)
  desired = 'new'
  await file.reconcile()
  expect(file.isPresent()).toBe(false)
})
