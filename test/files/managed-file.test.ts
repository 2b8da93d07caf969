import {
  chmodSync,
  existsSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { expect, onTestFinished, test, vi } from 'vitest'
import { createManagedFile } from '../../src/files/managed-file.ts'
import { methodOf, watchFileCalls } from '../support/file-calls.ts'
import { createRecords } from '../support/records.ts'
import { tempDirectory } from '../support/temp-directory.ts'

/** A file that should be as `wanted`; where its text is null, there should be none. */
async function createFile({ mayFormerStay = true } = {}) {
  const directory = await tempDirectory('memory')
  const path = join(directory, 'file')
  const wanted = { text: 'content' as string | null, mayStay: true, gid: null as number | null }
  const desired = () => {
    const { text, gid } = wanted
    return text === null ? null : { text, attributes: { mode: 0o600, gid }, mayStay: () => wanted.mayStay }
  }
  const counts = { writes: 0, repairs: 0, errors: 0 }
  const { log, events } = createRecords()
  const file = createManagedFile(path, { desired, log, mayFormerStay, counts })
  const text = (): string | null => (existsSync(path) ? readFileSync(path, 'utf8') : null)
  const isPresent = (): boolean => file.status().writtenAt !== null
  return { directory, path, wanted, counts, events, file, text, isPresent }
}

test('while its disk does not answer no caller waits for long, and afterwards the newest content is written', async () => {
  const { path, wanted, events, file, text } = await createFile()
  const disk = Promise.withResolvers<void>()
  const spy = vi.spyOn(...methodOf('fsync')).mockImplementation(async () => disk.promise)
  const uptimeS = process.uptime()
  const uptime = vi.spyOn(process, 'uptime').mockReturnValue(uptimeS)
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  onTestFinished(() => void vi.useRealTimers().restoreAllMocks())
  const waiting = [file.reconcile(), file.reconcile()]
  while (spy.mock.calls.length === 0) await new Promise((resolve) => setImmediate(resolve))
  uptime.mockReturnValue(uptimeS + 7.5)
  await vi.advanceTimersByTimeAsync(5_000)
  await Promise.all(waiting)
  expect(file.error()).toMatchObject({ kind: 'stalled', path, seconds: 7 })
  wanted.text = 'newest'
  await file.reconcile()
  expect(spy).toHaveBeenCalledTimes(1)
  disk.resolve()
  vi.useRealTimers()
  await expect.poll(async () => file.reconcile().then(file.error)).toBeNull()
  expect([text(), events()]).toEqual(['newest', ['file-error', 'file-mended']])
})

test('content that is no longer desired once it is written is replaced at once', async () => {
  const { wanted, file, text } = await createFile()
  const end = watchFileCalls((name) => {
    if (name !== 'fsync') return
    end()
    wanted.text = 'newest'
    void file.reconcile()
  })
  await file.reconcile()
  expect(text()).toBe('newest')
})

test('a file that a former run wrote is left alone, and what a crash left goes', async () => {
  const { directory, path, wanted, counts, file, isPresent } = await createFile()
  writeFileSync(path, 'content', { mode: 0o600 })
  await file.reconcile()
  expect([isPresent(), counts]).toEqual([true, { writes: 0, repairs: 0, errors: 0 }])
  const other = await createFile()
  writeFileSync(join(other.directory, '.file.kyc'), 'torn')
  other.wanted.text = null
  await other.file.reconcile()
  expect(readdirSync(other.directory)).toEqual([])
  wanted.text = null
  await file.reconcile()
  expect([isPresent(), readdirSync(directory)]).toEqual([false, []])
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

test.each([
  ['stays if it may', 'former', 'writeFile', true, true],
  ['goes if it may not stay', 'former', 'writeFile', false, false],
  ['stays where it holds the same', 'content', 'fchown', false, true],
] as const)('what a former run wrote and cannot be replaced %s', async (_, former, call, may, isLeft) => {
  const { path, wanted, file, isPresent } = await createFile({ mayFormerStay: may })
  writeFileSync(path, former, { mode: 0o600 })
  wanted.gid = 12_345
  const error = Object.assign(new Error('EPERM: not here'), { code: 'EPERM', syscall: call })
  const spy = vi.spyOn(...methodOf(call)).mockRejectedValue(error)
  onTestFinished(() => spy.mockRestore())
  await file.reconcile()
  expect([existsSync(path), isPresent(), file.error()?.code]).toEqual([isLeft, isLeft, 'EPERM'])
})
