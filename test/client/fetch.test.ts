import type { ServerResponse } from 'node:http'
import { Readable } from 'node:stream'
import { expect, test } from 'vitest'
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

test('fetch sets the header for the origin of baseUrl, keeps the others, and sends nothing elsewhere', async () => {
  const api = await startApi((request, response) => response.end(String(request.headers['x-own'])))
  const daemon = await daemonWith(({ answer }) =>
    answer('token.result', tokenFields('token-1', { baseUrl: `${api.url}/base/path` })),
  )
  const client = clientOf(daemon)
  const { fetch: given } = client
  const response = await given(`${api.url}/a`, { headers: { 'x-own': 'kept' } })
  expect(await response.text()).toBe('kept')
  expect(api.seen).toEqual(['GET /a Bearer token-1 '])
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

test('a redirect to another origin does not carry the token, and its 401 is not reported', async () => {
  const thief = await startApi((_, response) => response.writeHead(401).end())
  const api = await startApi((_, response) =>
    response.writeHead(302, { location: `${thief.url}/stolen` }).end(),
  )
  const daemon = await renewingDaemon(api.url)
  expect((await clientOf(daemon).fetch(api.url)).status).toBe(401)
  expect(thief.seen).toEqual(['GET /stolen - '])
  expect(daemon.asked.map(({ type }) => type)).toEqual(['token.get'])
})

const bodies: Record<string, () => RequestInit['body']> = {
  string: () => 'body',
  Buffer: () => Buffer.from('body'),
  ArrayBuffer: () => new TextEncoder().encode('body').buffer,
  URLSearchParams: () => new URLSearchParams({ body: '1' }),
  Blob: () => new Blob(['body']),
  FormData: () => {
    const form = new FormData()
    form.set('field', 'body')
    return form
  },
}
test.each(Object.keys(bodies))('after a 401 a %s body is sent once more with the new token', async (kind) => {
  const api = await startApi(strict)
  const daemon = await renewingDaemon(api.url)
  const response = await clientOf(daemon).fetch(`${api.url}/a`, {
    method: 'POST',
    body: bodies[kind]?.() as NonNullable<RequestInit['body']>,
  })
  expect(response.status).toBe(200)
  expect(api.seen.length).toBe(2)
  for (const request of api.seen) expect(request).toMatch(/^POST \/a Bearer token-[12] [^]*body/)
})

test('a Request object is sent once more, with its body, method and headers', async () => {
  const api = await startApi(strict)
  const daemon = await renewingDaemon(api.url)
  const request = new Request(`${api.url}/a`, {
    method: 'PUT',
    body: '{"a":1}',
    headers: { 'content-type': 'application/json' },
  })
  expect((await clientOf(daemon).fetch(request)).status).toBe(200)
  expect(api.seen).toEqual(['PUT /a Bearer token-1 {"a":1}', 'PUT /a Bearer token-2 {"a":1}'])
})

test('a stream is not sent again: the 401 is reported and given back', async () => {
  const api = await startApi(strict)
  const daemon = await renewingDaemon(api.url)
  const response = await clientOf(daemon).fetch(api.url, {
    method: 'POST',
    body: Readable.toWeb(Readable.from(['body'])) as ReadableStream,
    duplex: 'half',
  })
  expect(response.status).toBe(401)
  expect(api.seen.length).toBe(1)
  expect(daemon.asked.map(({ type }) => type)).toEqual(['token.get', 'token.reject'])
})

test('a Request with more body than is kept is not sent again', async () => {
  const api = await startApi(strict)
  const daemon = await renewingDaemon(api.url)
  const request = new Request(api.url, { method: 'POST', body: 'x'.repeat(2 * 1024 * 1024) })
  expect((await clientOf(daemon).fetch(request)).status).toBe(401)
  expect(api.seen.length).toBe(1)
})

test('it is sent once more and no third time', async () => {
  const api = await startApi((_, response) => response.writeHead(401).end())
  const daemon = await renewingDaemon(api.url)
  expect((await clientOf(daemon).fetch(api.url)).status).toBe(401)
  expect(api.seen.length).toBe(2)
})

test('a 401 that is held for less than 10 s waits for the other token', async () => {
  const api = await startApi(strict)
  const daemon = await daemonWith(({ type, answer, data }) => {
    if (type === 'token.reject') return answer('reject.result', { verdict: 'held', retryAfterSeconds: 1 })
    if (data['notFingerprint'] === undefined)
      return answer('token.result', tokenFields('token-1', { baseUrl: api.url }))
    return setTimeout(() => answer('token.result', tokenFields('token-2', { baseUrl: api.url })), 300)
  })
  expect((await clientOf(daemon).fetch(api.url)).status).toBe(200)
  expect(daemon.asked.at(-1)?.data['notFingerprint']).toBe(tokenFields('token-1')['fingerprint'])
})

test('a token of another service, which the daemon has since a reload, is not sent to the former', async () => {
  const api = await startApi(strict)
  let token = tokenFields('token-1', { baseUrl: api.url })
  const daemon = await daemonWith(({ type, answer }) => {
    if (type !== 'token.reject') return answer('token.result', token)
    token = tokenFields('token-2', { baseUrl: 'https://api.example.com' })
    return answer('reject.result', { verdict: 'replaced' })
  })
  expect((await clientOf(daemon).fetch(api.url)).status).toBe(401)
  expect(api.seen).toEqual(['GET / Bearer token-1 '])
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
