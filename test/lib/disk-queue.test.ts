import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { createDiskQueue, DiskStalledError, onFileSystem as onThisHost } from '../../src/lib/disk-queue.ts'

beforeEach(() => {
  vi.useFakeTimers()
})
afterEach(() => {
  vi.useRealTimers()
})

/** Work that ends on command. */
function createWork(log: string[], name: string) {
  const { promise: ended, resolve: end } = Promise.withResolvers<void>()
  const work = async (): Promise<string> => {
    log.push(`begin ${name}`)
    await ended
    log.push(`end ${name}`)
    return name
  }
  return { work, end }
}
const settle = async (): Promise<unknown> => vi.advanceTimersByTimeAsync(0)

/** `/disk` holds mounts of its own, one of them over another and at a second path, too. */
const onFileSystem = createDiskQueue(() =>
  [
    '/ 8:1',
    '/disk 8:2',
    '/disk/a 8:3',
    '/disk/a 8:10',
    '/disk/a/deeper 8:11',
    '/disk/with\\040blank 8:12',
    '/bound 8:10',
  ]
    .map((mount) => mount.split(' '))
    .map(([point = '', device]) => `22 1 ${device} / ${point} rw,relatime - ext4 /dev/x rw\n`)
    .join(''),
)

test.each([
  ['/disk/a/one', '/disk/a/two', true],
  ['/disk/a', '/bound/x', true],
  ['/disk/a', '/disk/a/deeper', false],
  ['/disk/ab', '/disk/a', false],
  ['/disk/ab', '/disk/c', true],
  ['/disk/with blank/x', '/disk', false],
  ['/srv', '/disk', false],
])('%s and %s are on one file system: %s', async (first, second, isOne) => {
  const log: string[] = []
  const [one, two] = [createWork(log, 'one'), createWork(log, 'two')]
  const results = [onFileSystem(first, one.work), onFileSystem(second, two.work)]
  await settle()
  expect(log).toEqual(isOne ? ['begin one'] : ['begin one', 'begin two'])
  two.end()
  one.end()
  expect(await Promise.all(results)).toEqual(['one', 'two'])
})

test('the mounts are those of this host', async () => {
  const log: string[] = []
  const [one, two] = [createWork(log, 'one'), createWork(log, 'two')]
  const results = [onThisHost('/proc/never-there', one.work), onThisHost('/', two.work)]
  await settle()
  expect(log).toEqual(['begin one', 'begin two'])
  one.end()
  two.end()
  await Promise.all(results)
})

test('on a file system that does not answer for 5 s, no caller waits; others go on; the work is done in the end', async () => {
  const log: string[] = []
  const [stalled, good] = ['/disk/a', '/srv']
  const [stuck, next] = [createWork(log, 'stuck'), createWork(log, 'next')]
  next.end()
  const results = [onFileSystem(stalled, stuck.work), onFileSystem(stalled, next.work)].map(async (result) =>
    result.catch((error: unknown) => error),
  )
  await vi.advanceTimersByTimeAsync(4_999)
  expect(await Promise.race([results[0], Promise.resolve('waiting')])).toBe('waiting')
  await vi.advanceTimersByTimeAsync(1)
  for (const error of await Promise.all(results)) expect(error).toBeInstanceOf(DiskStalledError)
  expect(await onFileSystem(good, async () => Promise.resolve('good'))).toBe('good')
  await expect(onFileSystem(stalled, async () => Promise.resolve(log.push('third')))).rejects.toThrow(
    `the disk of ${stalled} has not answered for 5 s`,
  )
  expect(log).toEqual(['begin stuck'])
  stuck.end()
  await settle()
  expect(log).toEqual(['begin stuck', 'end stuck', 'begin next', 'end next', 'third'])
  expect(await onFileSystem(stalled, async () => Promise.resolve('well again'))).toBe('well again')
})

test('at most two file systems are worked on at once, and a busy pair lets a third one have its turn', async () => {
  const log: string[] = []
  const works = new Map(['a1', 'b1', 'a2', 'b2', 'c1'].map((name) => [name, createWork(log, name)] as const))
  const disks: Record<string, string> = { a: '/disk/a', b: '/disk', c: '/' }
  const all = [...works].map(async ([name, { work }]) => onFileSystem(disks[name.slice(0, 1)]!, work))
  await settle()
  expect(log).toEqual(['begin a1', 'begin b1'])
  works.get('a1')?.end()
  await settle()
  expect(log).toEqual(['begin a1', 'begin b1', 'end a1', 'begin c1'])
  for (const { end } of works.values()) end()
  await Promise.all(all)
})

test('what fails does not keep the next from its turn', async () => {
  const disk = '/disk/a'
  const failure = onFileSystem(disk, async () => Promise.reject(new Error('no space')))
  const next = onFileSystem(disk, async () => Promise.resolve('done'))
  await expect(failure).rejects.toThrow('no space')
  expect(await next).toBe('done')
})
