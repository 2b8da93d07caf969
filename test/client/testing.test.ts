import { expect, onTestFinished, test, vi } from 'vitest'
import { TokenClientError } from '../../src/client/index.ts'
import { createFakeTokenClient, type FakeTokenClientOptions } from '../../src/client/testing.ts'
import { holds } from '../support/until.ts'

function fake(options: FakeTokenClientOptions = {}): ReturnType<typeof createFakeTokenClient> {
  const tokens = createFakeTokenClient(options)
  onTestFinished(() => tokens.close())
  return tokens
}

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

test('away it gives the last token from memory, as a client does', async () => {
  const tokens = fake()
  tokens.goAway()
  await expect(tokens.get()).rejects.toMatchObject({ code: 'daemon-unreachable' })
  tokens.rotate()
  await tokens.get()
  tokens.goAway()
  expect(await tokens.get()).toMatchObject({ accessToken: 'fake-token-2', cached: true })
})

test('a closed or disposed fake is closed', async () => {
  const tokens = createFakeTokenClient()
  const { accessToken, fingerprint } = await tokens.get()
  tokens.answerReports({ verdict: 'refreshing' })
  await tokens.reject(accessToken)
  const waiting = tokens.get({ notFingerprint: fingerprint }).catch((error: unknown) => error)
  await new Promise((resolve) => setImmediate(resolve))
  tokens.close()
  expect(await waiting).toMatchObject({ code: 'closed' })
  await expect(tokens.get()).rejects.toMatchObject({ code: 'closed' })
  const disposed = createFakeTokenClient()
  disposed[Symbol.dispose]()
  await expect(disposed.get()).rejects.toMatchObject({ code: 'closed' })
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
  // Nothing will bring another one.
  expect(await tokens.get({ notFingerprint: fingerprint, waitSeconds: 20 })).toMatchObject({ fingerprint })
  vi.advanceTimersByTime(60_000)
  await expect(tokens.get()).rejects.toMatchObject({ code: 'expired' })
  tokens.goAway()
  await expect(tokens.get()).rejects.toMatchObject({ code: 'daemon-unreachable' })
  tokens.rotate()
  const second = await tokens.get()
  expect(second.accessToken).toBe('fake-token-2')
  // Another one is to come: who waits is woken by it, or has what there is when the time is over.
  tokens.answerReports({ verdict: 'held', retryAfterSeconds: 9 })
  expect(await tokens.reject(second)).toEqual({ verdict: 'held', retryAfterSeconds: 9 })
  const waiting = [8, 30].map((waitSeconds) =>
    tokens.get({ notFingerprint: second.fingerprint, waitSeconds }).then((token) => token.accessToken),
  )
  await vi.advanceTimersByTimeAsync(9_000)
  tokens.rotate()
  expect(await Promise.all(waiting)).toEqual(['fake-token-2', 'fake-token-3'])
})

test('it judges tokens, reports, operators’ requests and absences as the daemon and its client do', async () => {
  const tokens = fake()
  const first = await tokens.get()
  for (const token of ['', 'two\nlines', ' '])
    expect(() => createFakeTokenClient({ accessToken: token }), token).toThrow(TypeError)

  expect(await tokens.refresh()).toMatchObject({ outcome: 'ok', generation: 2 })
  expect((await tokens.get()).accessToken).toBe('fake-token-2')
  expect(await tokens.reject(first)).toEqual({ verdict: 'replaced' })
  tokens.answerReports({ verdict: 'held' })
  expect(await tokens.reject(await tokens.get())).toEqual({ verdict: 'held', retryAfterSeconds: 30 })

  tokens.fail('account-inactive', { message: 'Contact them.', reason: 'account-inactive' })
  const error: unknown = await tokens.get().catch((thrown: unknown) => thrown)
  expect(error).toBeInstanceOf(TokenClientError)
  expect(error).toMatchObject({ code: 'account-inactive', message: 'Contact them.' })
  expect(await tokens.status()).toMatchObject({ state: 'refused', token: null })
  expect(await tokens.reject(first)).toEqual({ verdict: 'refused' })
  expect(await tokens.refresh()).toMatchObject({ outcome: 'failed', reason: 'account-inactive' })
  tokens.fail('no-token-yet')
  expect(await tokens.status()).toMatchObject({ state: 'starting' })
  tokens.fail('denied')
  await expect(tokens.status()).rejects.toMatchObject({ code: 'denied' })
  tokens.goAway()
  // The fault before said that there is no token, so that none is in memory.
  await expect(tokens.get({ waitSeconds: 5 })).rejects.toMatchObject({ code: 'daemon-unreachable' })
  await expect(tokens.refresh()).rejects.toMatchObject({ code: 'daemon-unreachable' })
  expect(tokens.reported).toHaveLength(3)
})
