import type { IncomingMessage, ServerResponse } from 'node:http'
import { Readable } from 'node:stream'
import { describe, expect, test } from 'vitest'
import {
  clientOf,
  codeOf,
  daemonWith,
  generous,
  renewingDaemon,
  startApi,
  strict,
} from '../support/client-world.ts'
import { tokenFields } from '../support/scripted-daemon.ts'

test('fetch sets the header for the origin of baseUrl alone, and keeps the others', async () => {
  const api = await startApi((request, response) => response.end(String(request.headers['x-own'])))
  const daemon = await daemonWith(({ answer }) =>
    answer('token.result', tokenFields('token-1', { baseUrl: `${api.url}/base/path` })),
  )
  const client = clientOf(daemon)
  const { fetch: given } = client
  const response = await given(`${api.url}/a`, { headers: { 'x-own': 'kept' } })
  expect(await response.text()).toBe('kept')
  const request = new Request(`${api.url}/b`, { headers: { 'x-own': 'also' } })
  expect(await (await given(request)).text()).toBe('also')
  expect(api.seen).toEqual(['GET /a Bearer token-1 ', 'GET /b Bearer token-1 '])
  const elsewhere = await startApi((_, other) => other.end())
  expect(await codeOf(client.fetch(`${elsewhere.url}/a`))).toBe('bad-request')
  expect(await codeOf(client.fetch('data:text/plain,x'))).toBe('bad-request')
  expect(elsewhere.seen).toEqual([])
})

test('the option origins says where else the token may go, and where not', async () => {
  const [one, two] = await Promise.all([startApi((_, r) => r.end()), startApi((_, r) => r.end())])
  const daemon = await daemonWith(generous)
  const client = clientOf(daemon, { origins: [`${one.url}/some/path`] })
  expect((await client.fetch(one.url)).status).toBe(200)
  expect(await codeOf(client.fetch(two.url))).toBe('bad-request')
  expect(daemon.asked.length).toBe(1)
})

describe('a redirect', () => {
  const withKey = { header: 'X-Key', prefix: '' }

  test.each([{}, withKey])('to a foreign origin is an error, and nothing goes there: %j', async (use) => {
    const thief = await startApi((_, response) => response.end())
    const api = await startApi((request, response) =>
      response
        .writeHead(request.url === '/a' ? 302 : 307, { location: request.url === '/a' ? '/b' : thief.url })
        .end(),
    )
    const daemon = await renewingDaemon(api.url, use)
    const call = clientOf(daemon).fetch(`${api.url}/a`)
    await expect(call).rejects.toMatchObject({
      code: 'bad-request',
      message: expect.stringMatching(new RegExp(`not sent to ${thief.url}: .*redirect: 'manual'`)) as string,
    })
    expect(thief.seen).toEqual([])
    expect(api.seen).toHaveLength(2)
  })

  test.each([{}, withKey])('within the origins goes on with the token: %j', async (use) => {
    const seen: string[] = []
    const record = ({ method, url, headers }: IncomingMessage, body: string): void => {
      const { authorization, cookie = '-', 'x-key': key, 'x-own': own, 'content-type': type = '-' } = headers
      seen.push([method, url, authorization ?? key, cookie, own, type, body].join(' '))
    }
    const other = await startApi((request, response, body) => {
      record(request, body)
      response.end('arrived')
    })
    const api = await startApi((request, response, body) => {
      record(request, body)
      const status = Number(request.url?.slice(1))
      response.writeHead(status, { location: other.url }).end('moved')
    })
    const daemon = await renewingDaemon(api.url, use)
    const { fetch: call } = clientOf(daemon, { origins: [api.url, other.url] })
    const headers = { 'x-own': 'own', cookie: 'c=1', 'content-type': 'text/x' }
    const token = 'header' in use ? 'token-1' : 'Bearer token-1'
    const post = { method: 'POST', body: 'body', headers }
    for (const [status, init, expected] of [
      [301, { headers }, 'GET  text/x'],
      [302, post, 'GET  -'],
      [303, { ...post, method: 'PUT' }, 'GET  -'],
      [307, post, 'POST body text/x'],
      [308, { ...post, method: 'PUT' }, 'PUT body text/x'],
      [302, { ...post, method: 'PUT' }, 'PUT body text/x'],
      [303, { method: 'HEAD', headers }, 'HEAD  text/x'],
    ] as const) {
      const response = await call(`${api.url}/${status}`, init)
      expect([response.status, response.redirected, response.url]).toEqual([200, true, `${other.url}/`])
      const [method, body, type] = expected.split(' ')
      expect(seen.at(-1)).toBe([method, '/', token, '-', 'own', type, body].join(' '))
    }
    const another = new Request(`${api.url}/307`, post)
    expect(await (await call(another)).text()).toBe('arrived')
    expect(seen.at(-1)).toBe(`POST / ${token} - own text/x body`)
    const stream = call(`${api.url}/307`, { method: 'POST', body: once(), duplex: 'half', headers })
    await expect(stream).rejects.toThrow('was a stream')
  })

  test('of an endless kind is an error, and what `redirect` says holds', async () => {
    const api = await startApi((_, response) => response.writeHead(302, { location: '/again' }).end())
    const { fetch: call } = clientOf(await renewingDaemon(api.url))
    await expect(call(api.url)).rejects.toThrow('redirects over and over')
    expect(api.seen).toHaveLength(21)
    expect((await call(api.url, { redirect: 'manual' })).status).toBe(302)
    expect((await call(new Request(api.url, { redirect: 'manual' }))).status).toBe(302)
    await expect(call(api.url, { redirect: 'error' })).rejects.toThrow(TypeError)
    expect(api.seen).toHaveLength(24)
  })

  test('whose answer is a 401 of another origin is not reported, and one of the same origin is', async () => {
    const other = await startApi((_, response) => response.writeHead(401).end())
    const api = await startApi((request, response) =>
      request.url === '/b'
        ? strict(request, response)
        : response.writeHead(302, { location: request.url === '/a' ? '/b' : other.url }).end(),
    )
    const daemon = await renewingDaemon(api.url)
    const client = clientOf(daemon, { origins: [api.url, other.url] })
    expect((await client.fetch(`${api.url}/elsewhere`)).status).toBe(401)
    expect(daemon.asked.map(({ type }) => type)).toEqual(['token.get'])
    expect((await client.fetch(`${api.url}/a`)).status).toBe(200)
    expect(daemon.asked.filter(({ type }) => type === 'token.reject')).toHaveLength(1)
  })
})

test('arguments that change while the token is awaited change nothing', async () => {
  const api = await startApi((_, response) => response.end())
  const daemon = await daemonWith(({ answer }) =>
    setTimeout(answer, 20, 'token.result', tokenFields('token-1', { baseUrl: api.url })),
  )
  const client = clientOf(daemon)
  const url = new URL(api.url)
  const bytes = Buffer.from('body 0')
  const init: RequestInit = { method: 'POST', body: bytes }
  const form = new URLSearchParams()
  const calls = [1, 2, 3].flatMap((number) => {
    url.pathname = `/applicants/${number}`
    bytes.write(String(number), 5)
    form.set('number', String(number))
    return [client.fetch(url, init), client.fetch(url, { method: 'PUT', body: form })]
  })
  url.host = 'attacker.example'
  init.method = 'DELETE'
  await Promise.all(calls)
  const sent = [1, 2, 3].flatMap((number) => [
    `POST /applicants/${number} Bearer token-1 body ${number}`,
    `PUT /applicants/${number} Bearer token-1 number=${number}`,
  ])
  expect(api.seen.toSorted()).toEqual(sent.toSorted())
})

test('the header and what stands before the token are those that the daemon names', async () => {
  const api = await startApi((request, response) => response.end(String(request.headers['x-key'])))
  const use = { header: 'X-Key', prefix: '', tokenType: null, baseUrl: api.url }
  const daemon = await daemonWith(({ answer }) => answer('token.result', tokenFields('token-1', use)))
  expect(await (await clientOf(daemon).fetch(api.url)).text()).toBe('token-1')
  expect((await clientOf(daemon).authorize()).headers).toEqual({ 'X-Key': 'token-1' })
  const former = { header: undefined, prefix: undefined, refusedBy: undefined }
  const older = await daemonWith(({ answer }) => answer('token.result', tokenFields('token-1', former)))
  const { headers, token } = await clientOf(older).authorize()
  expect([headers, token.refusedBy]).toEqual([{ Authorization: 'Bearer token-1' }, [401]])
})

const form = new FormData()
form.set('field', 'body')
const inRequest = (url: string, body: string): Request => new Request(url, { method: 'POST', body })
const once = (): ReadableStream => Readable.toWeb(Readable.from(['body'])) as ReadableStream

// The arguments of fetch, and how often they are sent.
test.each<[string, (url: string) => Parameters<typeof fetch>, times: number]>([
  ['a string', (url) => [url, { method: 'POST', body: 'body' }], 2],
  ['a Buffer', (url) => [new URL(url), { method: 'POST', body: Buffer.from('body') }], 2],
  ['an ArrayBuffer', (url) => [url, { method: 'POST', body: new TextEncoder().encode('body').buffer }], 2],
  ['URLSearchParams', (url) => [url, { method: 'POST', body: new URLSearchParams({ body: '1' }) }], 2],
  ['a Blob', (url) => [url, { method: 'POST', body: new Blob(['body']) }], 2],
  ['FormData', (url) => [url, { method: 'POST', body: form }], 2],
  ['a Request', (url) => [inRequest(url, 'body')], 2],
  ['a Request with another body', (url) => [inRequest(url, ''), { body: 'body' }], 2],
  ['a Request with too large a body to be kept', (url) => [inRequest(url, 'body'.repeat(2 ** 19))], 1],
  ['a stream', (url) => [url, { method: 'POST', body: once(), duplex: 'half' }], 1],
])('after a 401 %s is sent with another token only if it can be sent again', async (_, args, times) => {
  const api = await startApi(strict)
  const daemon = await renewingDaemon(api.url)
  const response = await clientOf(daemon).fetch(...args(`${api.url}/a`))
  expect(response.status).toBe(times === 2 ? 200 : 401)
  expect(api.seen.length).toBe(times)
  for (const request of api.seen) expect(request).toMatch(/^POST \/a Bearer token-[12] [^]*body/)
  expect(daemon.asked.filter(({ type }) => type === 'token.reject').length).toBe(1)
})

test('a 401 whose body breaks off is replayed all the same', async () => {
  const refused: ServerResponse[] = []
  const api = await startApi((request, response) => {
    if (request.headers.authorization === 'Bearer token-2') return response.end()
    response.writeHead(401, { 'content-length': 100 }).write('partly')
    return refused.push(response)
  })
  const daemon = await daemonWith(({ type, answer, data }) => {
    if (type === 'token.reject') {
      for (const response of refused) response.destroy()
      return answer('reject.result', { verdict: 'refreshing' })
    }
    const isRenewal = data['notFingerprint'] !== undefined
    const give = (): void =>
      answer('token.result', tokenFields(isRenewal ? 'token-2' : 'token-1', { baseUrl: api.url }))
    return isRenewal ? setTimeout(give, 100) : give()
  })
  expect((await clientOf(daemon).fetch(api.url)).status).toBe(200)
})

test('a daemon that goes away after the 401 leaves the answer of the service', async () => {
  const api = await startApi((_, response) => response.writeHead(401).end('why'))
  const daemon = await daemonWith(({ type, answer, cut }) => {
    if (type === 'token.get') answer('token.result', tokenFields('token-1', { baseUrl: api.url }))
    else cut()
  })
  const response = await clientOf(daemon).fetch(api.url)
  expect([response.status, await response.text()]).toEqual([401, 'why'])
})
