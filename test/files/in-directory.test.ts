import { setTimeout as sleep } from 'node:timers/promises'
import { afterEach, beforeEach, expect, onTestFinished, test, vi } from 'vitest'
import { FileError } from '../../src/files/file-error.ts'
import { inDirectory } from '../../src/files/in-directory.ts'

beforeEach(() => {
  vi.useFakeTimers()
})
afterEach(() => {
  vi.useRealTimers()
})

/** Work that ends on command. */
function createWork() {
  const { promise: ended, resolve: end } = Promise.withResolvers<void>()
  let givenUp: AbortSignal | undefined
  const work = async (signal: AbortSignal): Promise<string> => {
    givenUp = signal
    await ended
    return 'done'
  }
  return { work, end, hasBegun: () => givenUp !== undefined, isGivenUp: () => givenUp?.aborted }
}
/** Fake immediates come a millisecond later. */
const ONE_MORE_TURN_MS = 2
const settle = async (): Promise<unknown> => vi.advanceTimersByTimeAsync(0)
const errorOf = async (result: Promise<unknown>): Promise<unknown> => result.catch((error: unknown) => error)

test('one call is under way in a directory; others are elsewhere or follow, also if it fails', async () => {
  const [first, second, other] = [createWork(), createWork(), createWork()]
  const results = [
    inDirectory('/a', async (signal) => first.work(signal).then(() => Promise.reject(new Error('no space')))),
    inDirectory('/a', second.work),
    inDirectory('/a/deeper', other.work),
  ]
  await settle()
  expect([first, second, other].map(({ hasBegun }) => hasBegun())).toEqual([true, false, true])
  first.end()
  await expect(results[0]).rejects.toThrow('no space')
  await settle()
  expect(second.hasBegun()).toBe(true)
  second.end()
  other.end()
  expect(await Promise.all(results.slice(1))).toEqual(['done', 'done'])
})

test('a directory that does not answer for 5 s keeps nobody waiting, and is used again later', async () => {
  const [stuck, behind] = [createWork(), createWork()]
  const results = [inDirectory('/b', stuck.work), inDirectory('/b', behind.work)].map(errorOf)
  await vi.advanceTimersByTimeAsync(4_999)
  expect(stuck.isGivenUp()).toBe(false)
  await vi.advanceTimersByTimeAsync(ONE_MORE_TURN_MS)
  results.push(errorOf(inDirectory('/b', behind.work)))
  for (const error of await Promise.all(results)) {
    expect(error).toBeInstanceOf(FileError)
    expect(error).toMatchObject({ kind: 'stalled', path: '/b', directory: '/b' })
  }
  expect(stuck.isGivenUp()).toBe(true)
  stuck.end()
  await settle()
  expect(behind.hasBegun()).toBe(false)
  expect(await inDirectory('/b', async () => Promise.resolve('well again'))).toBe('well again')
})

test('at most eight calls are under way; what waits for 5 s for its turn is told so', async () => {
  const stuck = Array.from({ length: 8 }, createWork)
  const stalls = stuck.map(async ({ work }, index) => errorOf(inDirectory(`/stuck/${index}`, work)))
  await vi.advanceTimersByTimeAsync(1_000)
  const healthy = createWork()
  const early = errorOf(inDirectory('/healthy', healthy.work))
  await vi.advanceTimersByTimeAsync(4_000 + ONE_MORE_TURN_MS)
  for (const error of await Promise.all(stalls)) expect(error).toMatchObject({ kind: 'stalled' })
  await vi.advanceTimersByTimeAsync(1_000)
  expect(await early).toMatchObject({ kind: 'busy' })
  expect(healthy.hasBegun()).toBe(false)
  const late = inDirectory('/healthy', healthy.work)
  stuck[3]?.end()
  await settle()
  expect(healthy.hasBegun()).toBe(true)
  for (const { end } of [...stuck, healthy]) end()
  expect(await late).toBe('done')
})

test('a loop that is late at each turn takes no disk for dead', async () => {
  vi.useRealTimers()
  const busy = setInterval(() => {
    const endMs = performance.now() + 600
    while (performance.now() < endMs);
  })
  onTestFinished(() => clearInterval(busy))
  const answered = inDirectory('/late', async () => {
    for (let call = 0; call < 12; call += 1) await sleep(20)
    return 'answered'
  })
  expect(await answered).toBe('answered')
})
