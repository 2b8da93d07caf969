// fetch and authorize: the header, the origins, and a token that the API refuses.
import { Readable } from 'node:stream'
import { expect, test, vi } from 'vitest'
import type { RejectResult } from '../../src/client/index.ts'
import { clientOf, codeOf, pass, renewingDaemon, strict, useFakeTime } from '../support/client-world.ts'
import { serviceOf } from '../support/outside.ts'
import type { Service } from '../support/service.ts'
import { holds } from '../support/until.ts'

const API = 'https://api.example.com'
/** `METHOD path authorization body` of each call. */
const seenBy = ({ requests }: Service): string[] =>
  requests.map(({ method, path, headers, body }) => `${method} ${path} ${headers.authorization} ${body}`)

test('fetch sets the header for the origin of baseUrl, or those of the option alone, and keeps the others', async () => {
  const api = await serviceOf(({ headers }) => ({ body: String(headers['x-own']) }))
  const elsewhere = await serviceOf({})
  const daemon = await renewingDaemon(`${api.url}/base/path`)
  const { fetch: given } = clientOf(daemon)
  expect(await (await given(`${api.url}/a`, { headers: { 'x-own': 'kept' } })).text()).toBe('kept')
  const request = new Request(`${api.url}/b`, { method: 'POST', headers: { 'x-own': 'also' }, body: 'text' })
  expect(await (await given(request)).text()).toBe('also')
  expect(seenBy(api)).toEqual(['GET /a Bearer token-1 ', 'POST /b Bearer token-1 text'])
  const refusal = `not sent to ${elsewhere.url}: name it in the option origins`
  await expect(given(`${elsewhere.url}/a`)).rejects.toThrow(refusal)
  expect(await codeOf(given('data:text/plain,x'))).toBe('bad-request')
  expect(seenBy(elsewhere)).toEqual([])
  const other = clientOf(daemon, { origins: [`${elsewhere.url}/some/path`] })
  expect((await other.fetch(elsewhere.url)).status).toBe(200)
  expect(await codeOf(other.fetch(api.url))).toBe('bad-request')
  expect(() => clientOf(daemon, { origins: ['no url'] })).toThrow(TypeError)
})

test('a redirect is the platform’s with Authorization, which no other origin gets, and an error else', async () => {
  const other = await serviceOf({ status: 401, body: 'theirs' })
  const api = await serviceOf({ status: 302, headers: { location: `${other.url}/b` } })
  const response = await clientOf(await renewingDaemon(api.url)).fetch(`${api.url}/a`)
  expect([response.status, await response.text()]).toEqual([401, 'theirs'])
  expect(seenBy(other)).toEqual(['GET /b undefined '])
  expect(api.requests).toHaveLength(1)
  const withKey = clientOf(await renewingDaemon(api.url, { fields: { header: 'X-Key', prefix: '' } }))
  await expect(withKey.fetch(`${api.url}/a`)).rejects.toThrow(TypeError)
  expect((await withKey.fetch(`${api.url}/a`, { redirect: 'manual' })).status).toBe(302)
  expect(other.requests).toHaveLength(1)
})

test('a thousand refused calls are one report, and other calls go on', async () => {
  const api = await serviceOf((request) => (request.path === '/good' ? {} : strict(request)))
  const daemon = await renewingDaemon(api.url, { isPrompt: false })
  const client = clientOf(daemon)
  const calls = Array.from({ length: 1_000 }, () => client.fetch(api.url))
  await holds(() => api.requests.length === 1_000 && daemon.reports() === 1)
  expect((await client.fetch(`${api.url}/good`)).status).toBe(200)
  daemon.renew()
  expect((await Promise.all(calls)).every(({ status }) => status === 200)).toBe(true)
  expect(daemon.asked.map(({ type }) => type)).toEqual(['token.subscribe', 'token.reject'])
})

test.each<[RejectResult, boolean]>([
  [{ verdict: 'held', retryAfterSeconds: 25 }, false],
  [{ verdict: 'refused' }, false],
  [{ verdict: 'unchanged' }, false],
  [{ verdict: 'held', retryAfterSeconds: 9 }, true],
])('where no other token can come in time (%j) the refusal is the answer at once', async (result, waits) => {
  // No time passes: a call that waits for a token gets it, or no answer.
  useFakeTime()
  const api = await serviceOf(strict)
  const daemon = await renewingDaemon(api.url, { result, isPrompt: false })
  const client = clientOf(daemon)
  const call = client.fetch(api.url)
  await holds(() => daemon.reports() === 1)
  if (waits) daemon.renew()
  expect((await call).status).toBe(waits ? 200 : 401)
  expect((await client.fetch(api.url)).status).toBe(waits ? 200 : 401)
  expect(daemon.reports()).toBe(1)
})

test('a call waits 10 s, and then the refusal is its answer', async () => {
  useFakeTime()
  const api = await serviceOf(strict)
  const daemon = await renewingDaemon(api.url, { isPrompt: false })
  const ended = vi.fn<() => void>()
  const call = clientOf(daemon).fetch(api.url).finally(ended)
  await holds(() => daemon.asked.length >= 1)
  await pass(9_500)
  expect(daemon.reports()).toBe(1)
  expect(ended).not.toHaveBeenCalled()
  await pass(2_000)
  expect((await call).status).toBe(401)
})

test('a place that refused two tokens is neither reported nor waited for during 5 min', async () => {
  useFakeTime()
  const api = await serviceOf(({ path }) => ({ status: path.startsWith('/own') ? 401 : 200 }))
  const daemon = await renewingDaemon(api.url, { fields: { expiresAt: '2099-01-01' } })
  const client = clientOf(daemon)
  const call = async (path: string, method = 'GET'): Promise<number> =>
    (await client.fetch(`${api.url}${path}`, { method })).status
  expect(await call('/own?query=1')).toBe(401)
  expect(seenBy(api)).toEqual(['GET /own?query=1 Bearer token-1 ', 'GET /own?query=1 Bearer token-2 '])
  await pass(290_000, { stepMs: 10_000 })
  expect(await call('/own')).toBe(401)
  expect(daemon.reports()).toBe(1)
  // Another method and another path are other places.
  await call('/own', 'DELETE')
  expect(daemon.reports()).toBe(2)
  await call('/own/2')
  expect(daemon.reports()).toBe(3)
  await pass(20_000, { stepMs: 10_000 })
  await call('/own')
  expect(daemon.reports()).toBe(4)
})

test('a token of another service is not sent to the former', async () => {
  const api = await serviceOf(strict)
  const daemon = await renewingDaemon(api.url, { isPrompt: false })
  const call = clientOf(daemon).fetch(api.url)
  await holds(() => daemon.reports() === 1)
  daemon.renew({ baseUrl: API })
  expect((await call).status).toBe(401)
  expect(api.requests).toHaveLength(1)
})

test.each<[string, number, RequestInit, number]>([
  ['a GET', 403, { method: 'GET' }, 2],
  ['a HEAD', 403, { method: 'HEAD' }, 2],
  ['an OPTIONS', 403, { method: 'OPTIONS' }, 2],
  ['a POST', 403, { method: 'POST' }, 1],
  ['a POST', 401, { method: 'POST', body: 'body' }, 2],
  ['a Request', 401, { method: 'POST', body: 'body' }, 2],
  ['a stream', 401, { method: 'POST', body: Readable.from(['body']), duplex: 'half' } as object, 1],
])(
  '%s that is refused with %i is reported, and sent again if it may be',
  async (how, status, init, times) => {
    const api = await serviceOf((request) => (strict(request).status === 200 ? {} : { status }))
    const daemon = await renewingDaemon(api.url, { fields: { refusedBy: [401, 403] } })
    const { fetch: send } = clientOf(daemon)
    const response = await (how === 'a Request' ? send(new Request(api.url, init)) : send(api.url, init))
    expect(response.status).toBe(times === 2 ? 200 : status)
    const rest = init.body === undefined ? '' : 'body'
    const both = [1, 2].map((token) => `${init.method} / Bearer token-${token} ${rest}`)
    expect(seenBy(api)).toEqual(both.slice(0, times))
    await holds(() => daemon.reports() === 1)
  },
)

test('an abort ends the wait with its reason, and a close with the refusal', async () => {
  const api = await serviceOf(strict)
  const stop = new AbortController()
  const daemon = await renewingDaemon(api.url, { isPrompt: false })
  const aborted = clientOf(daemon).fetch(api.url, { signal: stop.signal }).catch(String)
  await holds(() => daemon.reports() === 1)
  stop.abort(new Error('enough'))
  expect(await aborted).toBe('Error: enough')
  const client = clientOf(daemon)
  const closed = client.fetch(api.url)
  await holds(() => daemon.reports() === 2)
  client.close()
  expect((await closed).status).toBe(401)
  await expect(client.fetch(api.url)).rejects.toMatchObject({ code: 'closed' })
})

test('authorize gives the header for a call and, if it is refused, for one repetition', async () => {
  const daemon = await renewingDaemon(API)
  const authorization = await clientOf(daemon).authorize({ minValidSeconds: 30 })
  expect(authorization).toMatchObject({
    headers: { Authorization: 'Bearer token-1' },
    token: { accessToken: 'token-1', refusedBy: [401] },
  })
  const next = await authorization.refused()
  expect(next?.headers).toEqual({ Authorization: 'Bearer token-2' })
  expect(await next?.refused()).toBeUndefined()
  // Another call that the first token had been given to is reported no second time.
  expect((await authorization.refused())?.headers).toEqual({ Authorization: 'Bearer token-2' })
  expect(daemon.reports()).toBe(1)
})

test('authorize names the place whose refusals are its own, which it shares with fetch', async () => {
  const api = await serviceOf({ status: 401 })
  const daemon = await renewingDaemon(api.url)
  const client = clientOf(daemon)
  const first = await client.authorize({ url: `${api.url}/own?query=1`, method: 'post' })
  const second = await first.refused()
  expect(await second?.refused()).toBeUndefined()
  expect(await (await client.authorize({ url: `${api.url}/own`, method: 'POST' })).refused()).toBeUndefined()
  expect((await client.fetch(`${api.url}/own`, { method: 'POST' })).status).toBe(401)
  expect(daemon.reports()).toBe(1)
  expect(await codeOf(client.authorize({ url: 'no address' }))).toBe('bad-request')
})
