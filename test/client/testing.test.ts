import { expect, onTestFinished, test } from 'vitest'
import { TokenClientError } from '../../src/client/index.ts'
import { createFakeTokenClient } from '../../src/client/testing.ts'

function fake(): ReturnType<typeof createFakeTokenClient> {
  const tokens = createFakeTokenClient()
  onTestFinished(() => tokens.close())
  return tokens
}

test('a fake gives its tokens, and another one on command', async () => {
  const tokens = fake()
  const { accessToken, fingerprint } = await tokens.get({ minValidSeconds: 3_000 })
  expect(accessToken).toBe('fake-token-1')
  expect((await tokens.get({ notFingerprint: fingerprint })).accessToken).toBe('fake-token-1')
  const seen: string[] = []
  const end = tokens.subscribe((token) => void seen.push(token.accessToken))
  tokens.fail('expired')
  tokens.rotate()
  expect((await tokens.get({ notFingerprint: fingerprint })).accessToken).toBe('fake-token-2')
  end()
  expect(seen).toEqual(['fake-token-1', 'fake-token-2'])
  expect(await tokens.status()).toMatchObject({ state: 'ready', token: { generation: 2 } })
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

test('it answers at once, also where nothing will bring another token; a closed fake is closed', async () => {
  const tokens = fake()
  const { fingerprint } = await tokens.get()
  expect(await tokens.get({ notFingerprint: fingerprint, waitSeconds: 20 })).toMatchObject({ fingerprint })
  tokens.close()
  await expect(tokens.get()).rejects.toMatchObject({ code: 'closed' })
  expect(() => tokens.subscribe(() => undefined)).toThrow(/was closed/)
})
