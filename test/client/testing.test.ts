import { expect, onTestFinished, test } from 'vitest'
import { TokenClientError } from '../../src/client/index.ts'
import { createFakeTokenClient } from '../../src/client/testing.ts'

function fake(): ReturnType<typeof createFakeTokenClient> {
  const tokens = createFakeTokenClient()
  onTestFinished(() => tokens.close())
  return tokens
}

test('a fake gives its tokens at once, another one on command or after a report, also for authorize', async () => {
  const tokens = fake()
  const first = await tokens.authorize({ minValidSeconds: 3_000 })
  const notFingerprint = first.token.fingerprint
  // Nothing will bring another one.
  expect((await tokens.get({ notFingerprint, waitSeconds: 20 })).accessToken).toBe('fake-token-1')
  const seen: string[] = []
  const end = tokens.subscribe((token) => void seen.push(token.accessToken))
  const second = await first.refused()
  expect(second?.headers).toEqual({ Authorization: 'Bearer fake-token-2' })
  expect(await tokens.reject(first.token)).toEqual({ verdict: 'replaced' })
  expect(await tokens.reject('fake-token-2')).toEqual({ verdict: 'refreshing' })
  await tokens.get()
  end()
  tokens.rotate()
  expect((await tokens.get({ notFingerprint })).accessToken).toBe('fake-token-4')
  expect(seen).toEqual(['fake-token-1', 'fake-token-2', 'fake-token-3'])
  expect(await tokens.status()).toMatchObject({ state: 'ready', token: { generation: 4 } })
})

test('a fault is the error of all calls until there is another token, and `closed` for ever', async () => {
  const tokens = fake()
  tokens.fail('account-inactive')
  const error: unknown = await tokens.get().catch((thrown: unknown) => thrown)
  expect(error).toBeInstanceOf(TokenClientError)
  expect(error).toMatchObject({ code: 'account-inactive' })
  await expect(tokens.status()).rejects.toMatchObject({ code: 'account-inactive' })
  tokens.rotate()
  expect((await tokens.get()).accessToken).toBe('fake-token-2')
  tokens.close()
  await expect(tokens.get()).rejects.toMatchObject({ code: 'closed' })
  expect(() => tokens.subscribe(() => undefined)).toThrow(/was closed/)
})
