// fetch and authorize: the header, the origins, and a token that the API refuses.
import { Readable } from 'node:stream'
import { expect, test, vi } from 'vitest'
import type { RejectResult, TokenSource } from '../../src/client/index.ts'
import {
  clientOf,
  codeOf,
  daemonWith,
  generous,
  pass,
  renewingDaemon,
  startApi,
  strict,
  useFakeTime,
  tokenFields,
  type ScriptedDaemon,
} from '../support/client-world.ts'
import { holds } from '../support/until.ts'

const API = 'https://api.example.com'
const reportsOf = ({ asked }: ScriptedDaemon): number =>
  asked.filter(({ type }) => type === 'token.reject').length

test('fetch sets the header for the origin of baseUrl alone, and keeps the others', async () => {
  const api = await startApi((request, response) => response.end(String(request.headers['x-own'])))
  const daemon = await daemonWith(({ answer }) =>
    answer('token.result', tokenFields('token-1', { baseUrl: `${api.url}/base/path` })),
  )
  const { fetch: given } = clientOf(daemon)
  expect(await (await given(`${api.url}/a`, { headers: { 'x-own': 'kept' } })).text()).toBe('kept')
  const request = new Request(`${api.url}/b`, { method: 'POST', headers: { 'x-own': 'also' }, body: 'text' })
  expect(await (await given(request)).text()).toBe('also')
  expect(api.seen).toEqual(['GET /a Bearer token-1 ', 'POST /b Bearer token-1 text'])
  const elsewhere = await startApi((_, other) => other.end())
  expect(await codeOf(given(`${elsewhere.url}/a`))).toBe('bad-request')
  expect(await codeOf(given('data:text/plain,x'))).toBe('bad-request')
  expect(elsewhere.seen).toEqual([])
})

test('the option origins says where else the token may go, and where not', async () => {
  const [one, two] = await Promise.all([startApi((_, r) => r.end()), startApi((_, r) => r.end())])
  const daemon = await daemonWith(generous)
  const client = clientOf(daemon, { origins: [`${one.url}/some/path`] })
  expect((await client.fetch(one.url)).status).toBe(200)
  await expect(client.fetch(two.url)).rejects.toThrow(`not sent to ${two.url}: name it in the option origins`)
  expect(two.seen).toEqual([])
  expect(() => clientOf(daemon, { origins: ['no url'] })).toThrow(TypeError)
})

test('a redirect is the platform’s with Authorization, which no other origin gets, and an error else', async () => {
  const other = await startApi((_, response) => response.writeHead(401).end('theirs'))
  const api = await startApi((_, response) => response.writeHead(302, { location: `${other.url}/b` }).end())
  const response = await clientOf(await renewingDaemon(api.url)).fetch(`${api.url}/a`)
  expect([response.status, await response.text()]).toEqual([401, 'theirs'])
  expect(other.seen).toEqual(['GET /b - '])
  expect(api.seen).toHaveLength(1)
  const withKey = clientOf(await renewingDaemon(api.url, { header: 'X-Key', prefix: '' }))
  await expect(withKey.fetch(`${api.url}/a`)).rejects.toThrow(TypeError)
  expect((await withKey.fetch(`${api.url}/a`, { redirect: 'manual' })).status).toBe(302)
  expect(other.seen).toHaveLength(1)
})

/** A daemon that has `token-1` until `renew`. */
async function waitingDaemon(baseUrl: string, verdict: RejectResult = { verdict: 'refreshing' }) {
  const daemon = await daemonWith(({ type, answer }) => {
    if (type === 'token.reject') answer('reject.result', verdict)
    else answer('token.result', tokenFields('token-1', { baseUrl }))
  })
  return {
    daemon,
    isReported: () => reportsOf(daemon) === 1,
    renew: (fields = {}) => daemon.publish('token.changed', tokenFields('token-2', { baseUrl, ...fields })),
  }
}

test('a thousand refused calls are one report, and other calls go on', async () => {
  const api = await startApi((request, response) =>
    request.url === '/good' ? response.end() : strict(request, response),
  )
  const { daemon, isReported, renew } = await waitingDaemon(api.url)
  const client = clientOf(daemon)
  const calls = Array.from({ length: 1_000 }, () => client.fetch(api.url))
  await holds(() => api.seen.length === 1_000 && isReported())
  expect((await client.fetch(`${api.url}/good`)).status).toBe(200)
  renew()
  expect((await Promise.all(calls)).every(({ status }) => status === 200)).toBe(true)
  expect(daemon.asked.map(({ type }) => type)).toEqual(['token.subscribe', 'token.reject'])
})

test.each<[RejectResult, boolean]>([
  [{ verdict: 'held', retryAfterSeconds: 25 }, false],
  [{ verdict: 'refused' }, false],
  [{ verdict: 'unchanged' }, false],
  [{ verdict: 'held', retryAfterSeconds: 9 }, true],
])('where no other token can come in time (%j) the refusal is the answer at once', async (verdict, waits) => {
  // No time passes: a call that waits for a token gets it, or no answer.
  useFakeTime()
  const api = await startApi(strict)
  const { daemon, isReported, renew } = await waitingDaemon(api.url, verdict)
  const client = clientOf(daemon)
  const call = client.fetch(api.url)
  await holds(isReported)
  if (waits) renew()
  expect((await call).status).toBe(waits ? 200 : 401)
  expect((await client.fetch(api.url)).status).toBe(waits ? 200 : 401)
  expect(reportsOf(daemon)).toBe(1)
})

test('a call waits 10 s, and then the refusal is its answer', async () => {
  useFakeTime()
  const api = await startApi(strict)
  const { daemon } = await waitingDaemon(api.url)
  const ended = vi.fn<() => void>()
  const call = clientOf(daemon).fetch(api.url).finally(ended)
  await holds(() => daemon.asked.length >= 1)
  await pass(9_500)
  expect(reportsOf(daemon)).toBe(1)
  expect(ended).not.toHaveBeenCalled()
  await pass(2_000)
  expect((await call).status).toBe(401)
})

test('a place that refused two tokens is neither reported nor waited for during 5 min', async () => {
  useFakeTime()
  const api = await startApi((request, response) =>
    response.writeHead(request.url?.startsWith('/own') === true ? 401 : 200).end(),
  )
  let count = 1
  const daemon = await daemonWith(({ type, answer }) => {
    const isReport = type === 'token.reject'
    if (isReport) answer('reject.result', { verdict: 'refreshing' })
    if (isReport) count += 1
    const token = tokenFields(`token-${count}`, { baseUrl: api.url, expiresAt: '2099-01-01' })
    if (isReport) daemon.publish('token.changed', token)
    else answer('token.result', token)
  })
  const client = clientOf(daemon)
  expect((await client.fetch(`${api.url}/own?query=1`)).status).toBe(401)
  expect(api.seen).toEqual(['GET /own?query=1 Bearer token-1 ', 'GET /own?query=1 Bearer token-2 '])
  await pass(290_000, { stepMs: 10_000 })
  expect((await client.fetch(`${api.url}/own`)).status).toBe(401)
  expect(reportsOf(daemon)).toBe(1)
  // Another method and another path are other places.
  await client.fetch(`${api.url}/own`, { method: 'DELETE' })
  expect(reportsOf(daemon)).toBe(2)
  await client.fetch(`${api.url}/own/2`)
  expect(reportsOf(daemon)).toBe(3)
  await pass(20_000, { stepMs: 10_000 })
  await client.fetch(`${api.url}/own`)
  expect(reportsOf(daemon)).toBe(4)
})

test('a token of another service is not sent to the former', async () => {
  const api = await startApi(strict)
  const { daemon, isReported, renew } = await waitingDaemon(api.url)
  const call = clientOf(daemon).fetch(api.url)
  await holds(isReported)
  renew({ baseUrl: API })
  expect((await call).status).toBe(401)
  expect(api.seen).toHaveLength(1)
})

test.each([
  ['GET', 2],
  ['HEAD', 2],
  ['OPTIONS', 2],
  ['POST', 1],
])('a status of refusedBy that is no 401 is reported, and %s is sent %i times', async (method, times) => {
  const api = await startApi(({ headers }, response) =>
    response.writeHead(headers.authorization === 'Bearer token-2' ? 200 : 403).end(),
  )
  const daemon = await renewingDaemon(api.url, { refusedBy: [401, 403] })
  const response = await clientOf(daemon).fetch(api.url, { method })
  expect(response.status).toBe(times === 2 ? 200 : 403)
  expect(api.seen.length).toBe(times)
  await holds(() => reportsOf(daemon) === 1)
})

test.each<[string, (url: string) => Parameters<TokenSource['fetch']>, number]>([
  ['a text', (url) => [url, { method: 'POST', body: 'body' }], 2],
  ['a Request', (url) => [new Request(url, { method: 'POST', body: 'body' })], 2],
  [
    'a stream',
    (url) => [url, { method: 'POST', body: Readable.from(['body']), duplex: 'half' } as object],
    1,
  ],
])('after a 401 %s is sent again if it can be read again', async (_, call, times) => {
  const api = await startApi(strict)
  const client = clientOf(await renewingDaemon(api.url))
  expect((await client.fetch(...call(api.url))).status).toBe(times === 2 ? 200 : 401)
  expect(api.seen).toEqual(['POST / Bearer token-1 body', 'POST / Bearer token-2 body'].slice(0, times))
})

test('an abort ends the wait with its reason, and a close with the refusal', async () => {
  const api = await startApi(strict)
  const stop = new AbortController()
  const first = await waitingDaemon(api.url)
  const aborted = clientOf(first.daemon).fetch(api.url, { signal: stop.signal }).catch(String)
  await holds(first.isReported)
  stop.abort(new Error('enough'))
  expect(await aborted).toBe('Error: enough')
  const second = await waitingDaemon(api.url)
  const client = clientOf(second.daemon)
  const closed = client.fetch(api.url)
  await holds(second.isReported)
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
  expect(reportsOf(daemon)).toBe(1)
})

test('authorize names the place whose refusals are its own, which it shares with fetch', async () => {
  const api = await startApi((_, response) => response.writeHead(401).end())
  const daemon = await renewingDaemon(api.url)
  const client = clientOf(daemon)
  const first = await client.authorize({ url: `${api.url}/own?query=1`, method: 'post' })
  const second = await first.refused()
  expect(await second?.refused()).toBeUndefined()
  expect(await (await client.authorize({ url: `${api.url}/own`, method: 'POST' })).refused()).toBeUndefined()
  expect((await client.fetch(`${api.url}/own`, { method: 'POST' })).status).toBe(401)
  expect(reportsOf(daemon)).toBe(1)
  expect(await codeOf(client.authorize({ url: 'no address' }))).toBe('bad-request')
})
