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
  expect((await tokens.get({ notFingerprint: fingerprint })).accessToken).toBe('first')
  tokens.rotate()
  expect((await tokens.get({ notFingerprint: fingerprint })).accessToken).toBe('fake-token-2')
  expect(await tokens.status()).toMatchObject({ state: 'ready', token: { generation: 2 } })
})

test('its listeners are called as a client calls them', async () => {
  const tokens = fake()
  const seen: string[] = []
  const end = tokens.subscribe(({ accessToken }) => void seen.push(accessToken))
  await holds(() => seen.length === 1)
  tokens.fail('expired')
  tokens.rotate('second')
  await holds(() => seen.length === 2)
  end()
  tokens.rotate('third')
  await tokens.get()
  expect(seen).toEqual(['fake-token-1', 'second'])
})

test('a fault is the error of all calls until there is another token', async () => {
  const tokens = fake()
  tokens.fail('account-inactive')
  const error: unknown = await tokens.get().catch((thrown: unknown) => thrown)
  expect(error).toBeInstanceOf(TokenClientError)
  expect(error).toMatchObject({ code: 'account-inactive' })
  tokens.fail('denied')
  await expect(tokens.status()).rejects.toMatchObject({ code: 'denied' })
  tokens.rotate()
  expect((await tokens.get()).accessToken).toBe('fake-token-2')
})

test('a report of its token brings another one, also for authorize', async () => {
  const tokens = fake()
  const first = await tokens.authorize()
  const second = await first.refused()
  expect(second?.headers).toEqual({ Authorization: 'Bearer fake-token-2' })
  expect(await tokens.reject(first.token)).toEqual({ verdict: 'replaced' })
  expect(await tokens.reject('fake-token-2')).toEqual({ verdict: 'refreshing' })
})

test('it works under fake timers, its token expires by them, and a closed fake is closed', async () => {
  vi.useFakeTimers({
    toFake: ['setTimeout', 'clearTimeout', 'setImmediate', 'Date', 'performance', 'hrtime'],
  })
  onTestFinished(() => {
    vi.useRealTimers()
  })
  const tokens = fake({ lifeSeconds: 60 })
  const { fingerprint } = await tokens.get({ minValidSeconds: 30 })
  // Nothing will bring another one.
  expect(await tokens.get({ notFingerprint: fingerprint, waitSeconds: 20 })).toMatchObject({ fingerprint })
  vi.advanceTimersByTime(60_000)
  await expect(tokens.get()).rejects.toMatchObject({ code: 'expired' })
  tokens.close()
  await expect(tokens.get()).rejects.toMatchObject({ code: 'closed' })
})
