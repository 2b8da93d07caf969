import { existsSync, statSync } from 'node:fs'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { DiskStalledError, isQuick, noteDevice, onFileSystem } from '../../src/lib/serial.ts'

beforeEach(() => {
  vi.useFakeTimers()
})
afterEach(() => {
  vi.useRealTimers()
})

/** Work that ends on command. */
function createWork(log: string[], name: string) {
  let end = (): void => undefined
  const ended = new Promise<void>((resolve) => {
    end = resolve
  })
  const work = async (): Promise<string> => {
    log.push(`begin ${name}`)
    await ended
    log.push(`end ${name}`)
    return name
  }
  return { work, end }
}
const settle = async (): Promise<unknown> => vi.advanceTimersByTimeAsync(0)

let lastDevice = 1_000
function directories(count: number): string[] {
  return Array.from({ length: count }, () => {
    lastDevice += 1
    noteDevice(`/disk/${lastDevice}`, lastDevice)
    return `/disk/${lastDevice}`
  })
}

test('work on one file system is done one after the other, in order, also in other directories of it', async () => {
  const log: string[] = []
  noteDevice('/disk/a', 7)
  noteDevice('/disk/b', 7)
  const [one, two] = [createWork(log, 'one'), createWork(log, 'two')]
  const results = [onFileSystem('/disk/a', one.work), onFileSystem('/disk/b', two.work)]
  two.end()
  await settle()
  expect(log).toEqual(['begin one'])
  one.end()
  expect(await Promise.all(results)).toEqual(['one', 'two'])
  expect(log).toEqual(['begin one', 'end one', 'begin two', 'end two'])
})

test('directories that were never opened have the file system that the mount table says', async () => {
  const log: string[] = []
  const [one, two, three] = ['one', 'two', 'three'].map((name) => createWork(log, name))
  void onFileSystem('/dev/shm/kyc-tokend-never-there', one!.work)
  void onFileSystem('/dev/shm/kyc-tokend-nor-there', two!.work)
  void onFileSystem('/proc/kyc-tokend-nor-there', three!.work)
  await settle()
  expect(log).toEqual(['begin one', 'begin three'])
  for (const { end } of [one!, two!, three!]) end()
  await settle()
  expect(log).toContain('end two')
})

test('on a file system that does not answer for 5 s, no caller waits; others go on; the work is done in the end', async () => {
  const log: string[] = []
  const [stalled = '', good = ''] = directories(2)
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
  const [a = '', b = '', c = ''] = directories(3)
  const works = new Map(['a1', 'b1', 'a2', 'b2', 'c1'].map((name) => [name, createWork(log, name)] as const))
  const disks: Record<string, string> = { a, b, c }
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
  const [disk = ''] = directories(1)
  const failure = onFileSystem(disk, async () => Promise.reject(new Error('no space')))
  const next = onFileSystem(disk, async () => Promise.resolve('done'))
  await expect(failure).rejects.toThrow('no space')
  expect(await next).toBe('done')
})

test.skipIf(!existsSync('/dev/shm'))('only a directory that was opened, and is in memory, is quick', () => {
  expect(isQuick('/dev/shm')).toBe(false)
  noteDevice('/dev/shm', statSync('/dev/shm').dev)
  expect(isQuick('/dev/shm')).toBe(true)
  noteDevice('/proc', statSync('/proc').dev)
  expect(isQuick('/proc')).toBe(false)
})

test.skipIf(!existsSync('/dev/shm'))('only a file system that may stall has a timer', async () => {
  noteDevice('/dev/shm', statSync('/dev/shm').dev)
  const [disk = ''] = directories(1)
  const works = new Map([disk, '/dev/shm'].map((directory) => [directory, createWork([], directory)]))
  const timers = [...works].map(([directory, { work }]) => {
    void onFileSystem(directory, work)
    return vi.getTimerCount()
  })
  for (const { end } of works.values()) end()
  await settle()
  expect(timers).toEqual([1, 1])
})
