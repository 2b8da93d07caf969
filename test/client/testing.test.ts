import { expect, expectTypeOf, onTestFinished, test, vi } from 'vitest'
import { TokenClientError, type TokenClient, type TokenSource } from '../../src/client/index.ts'
import { createFakeTokenClient, type FakeTokenClientOptions } from '../../src/client/testing.ts'
import { holds } from '../support/until.ts'

function fake(options: FakeTokenClientOptions = {}): ReturnType<typeof createFakeTokenClient> {
  const tokens = createFakeTokenClient(options)
  onTestFinished(() => tokens.close())
  return tokens
}

test('a fake and a client are the same to a program', () => {
  expectTypeOf<TokenClient>().toExtend<TokenSource>()
  expectTypeOf(fake()).toExtend<TokenSource>()
})

test('a fake gives its tokens, and another one on command', async () => {
  const tokens = fake({ accessToken: 'first', lifeSeconds: 60 })
  const { accessToken, fingerprint, expiresAt } = await tokens.get({ minValidSeconds: 30 })
  expect(accessToken).toBe('first')
  expect(Date.parse(expiresAt) - Date.now()).toBeLessThanOrEqual(60_000)
  const other = tokens.get({ notFingerprint: fingerprint })
  tokens.rotate()
  expect((await other).accessToken).toBe('fake-token-2')
  expect(await tokens.status()).toMatchObject({ state: 'ready', token: { generation: 2 } })
  expect(await tokens.refresh()).toMatchObject({ outcome: 'ok' })
})

test('its listeners are called as a client calls them', async () => {
  const tokens = fake()
  const seen: string[] = []
  const faults: string[] = []
  const end = tokens.subscribe(({ accessToken }) => void seen.push(accessToken), {
    onFault: (fault) => void faults.push(fault?.code ?? 'over'),
  })
  await holds(() => seen.length === 1)
  tokens.fail('expired')
  await holds(() => faults.length === 1)
  tokens.rotate('second')
  await holds(() => seen.length === 2)
  end()
  tokens.rotate('third')
  await tokens.get()
  expect([seen, faults]).toEqual([
    ['fake-token-1', 'second'],
    ['expired', 'over'],
  ])
})

test('it fails on command, with the error of a client', async () => {
  const tokens = fake()
  tokens.fail('account-inactive', { message: 'Contact them.', reason: 'account-inactive' })
  const error: unknown = await tokens.get().catch((thrown: unknown) => thrown)
  expect(error).toBeInstanceOf(TokenClientError)
  expect(error).toMatchObject({ code: 'account-inactive', message: 'Contact them.' })
  expect(await tokens.status()).toMatchObject({ state: 'refused', token: null })
  tokens.rotate()
  expect((await tokens.get()).accessToken).toBe('fake-token-2')
})

test('away it gives the last token from memory, as a client does', async () => {
  const tokens = fake()
  tokens.goAway()
  await expect(tokens.get()).rejects.toMatchObject({ code: 'daemon-unreachable' })
  tokens.rotate()
  await tokens.get()
  tokens.goAway()
  expect(await tokens.get()).toMatchObject({ accessToken: 'fake-token-2', cached: true })
})

test('without a command a reported token is replaced at once', async () => {
  const tokens = fake()
  const { accessToken } = await tokens.get()
  expect(await tokens.reject(accessToken)).toEqual({ verdict: 'refreshing' })
  expect((await tokens.get()).accessToken).toBe('fake-token-2')
  expect(await tokens.reject(accessToken)).toEqual({ verdict: 'replaced' })
})

test('a closed or disposed fake is closed', async () => {
  const tokens = createFakeTokenClient()
  const { fingerprint } = await tokens.get()
  const waiting = tokens.get({ notFingerprint: fingerprint }).catch((error: unknown) => error)
  await new Promise((resolve) => setImmediate(resolve))
  tokens.close()
  expect(await waiting).toMatchObject({ code: 'closed' })
  await expect(tokens.get()).rejects.toMatchObject({ code: 'closed' })
  const disposed = createFakeTokenClient()
  disposed[Symbol.dispose]()
  await expect(disposed.get()).rejects.toMatchObject({ code: 'closed' })
  expectTypeOf<TokenClient[typeof Symbol.dispose]>().toEqualTypeOf<() => void>()
})

test.each([
  ['vitest', ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval', 'setImmediate', 'Date']],
  ['Jest', ['setTimeout', 'clearTimeout', 'setImmediate', 'Date', 'queueMicrotask', 'performance', 'hrtime']],
] as const)('it works under the fake timers of %s, and its token expires by them', async (_, toFake) => {
  vi.useFakeTimers({ toFake: [...toFake] })
  onTestFinished(() => {
    vi.useRealTimers()
  })
  const tokens = fake({ lifeSeconds: 60 })
  const seen: string[] = []
  tokens.subscribe(({ accessToken }) => void seen.push(accessToken))
  const { fingerprint } = await tokens.get({ minValidSeconds: 30 })
  expect(seen).toEqual(['fake-token-1'])
  const other = tokens.get({ notFingerprint: fingerprint, waitSeconds: 20 })
  await vi.advanceTimersByTimeAsync(20_000)
  expect(await other).toMatchObject({ fingerprint })
  vi.advanceTimersByTime(40_000)
  await expect(tokens.get()).rejects.toMatchObject({ code: 'expired' })
  tokens.goAway()
  await expect(tokens.get()).rejects.toMatchObject({ code: 'daemon-unreachable' })
  tokens.rotate()
  const second = await tokens.get()
  expect(second.accessToken).toBe('fake-token-2')
  // Nothing to wait for, or longer than the token lives.
  expect(await tokens.get({ notFingerprint: second.fingerprint, waitSeconds: 0 })).toEqual(second)
  const { fingerprint: notFingerprint } = second
  const later = tokens.get({ notFingerprint, waitSeconds: 60 }).catch((error: unknown) => error)
  await vi.advanceTimersByTimeAsync(60_000)
  expect(await later).toMatchObject({ code: 'expired' })
})

test('a good token with too little life comes after a second, or at once if none lives so long', async () => {
  vi.useFakeTimers()
  onTestFinished(() => void vi.useRealTimers())
  const tokens = fake({ lifeSeconds: 60 })
  await vi.advanceTimersByTimeAsync(30_000)
  const beganMs = Date.now()
  const tookMs = async (minValidSeconds: number): Promise<number> => {
    await tokens.get({ minValidSeconds })
    return Date.now() - beganMs
  }
  const took = [tookMs(20), tookMs(40), tookMs(90)]
  await vi.advanceTimersByTimeAsync(15_000)
  expect(await Promise.all(took)).toEqual([0, 1_000, 0])
})
