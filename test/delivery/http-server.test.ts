// What each path of `http.sock` answers, and what becomes of HTTP that is odd, broken or meant to deceive.
import { describe, expect, it, vi } from 'vitest'
import { asStranger, startDelivery } from '../support/delivery-world.ts'
import { failures } from '../support/failures.ts'
import { httpAsk } from '../support/outside.ts'
import { exchange } from '../support/raw-http.ts'

type Given = NonNullable<Parameters<typeof httpAsk>[2]>
const isBad = { status: 400, json: { status: 400, code: 'bad-request' } }
const isBadProblem = { ...isBad, headers: { 'content-type': 'application/problem+json' } }
const ready = { accessToken: 'token-1', tokenType: 'Bearer', generation: 1, state: 'ready' }
const isJson = { headers: { 'content-type': 'application/json', 'cache-control': 'no-store' }, json: ready }
const isText = { body: 'token-1' }
const isMetrics = { body: 'up 1\n', headers: { 'content-type': 'text/plain; version=0.0.4; charset=utf-8' } }
const isDenied = { status: 403, json: { code: 'denied' } }
const accept = (text: string): Given => ({ headers: { accept: text } })
const notAllowed = (allow: string) => ({
  status: 405,
  headers: { allow },
  json: { code: 'method-not-allowed' },
})

it.each<[string, Given, object]>([
  ['GET /v1/token', {}, { status: 200, ...isJson }],
  ['GET /v1/token', accept('Text/Plain; charset=utf-8, */*;q=0.1'), isText],
  ['GET /v1/token', accept('application/json, text/plain;q=0.5'), isJson],
  ['GET /v1/token', { headers: { Origin: 'https://evil.example' } }, isDenied],
  ['GET /v1/token?minValidSeconds=x', {}, isBadProblem],
  ['GET /v1/token?waitSeconds=61', {}, isBad],
  ['GET /v1/status', {}, { status: 200, json: { state: 'ready', token: { generation: 1 } } }],
  ['GET /healthz', {}, { status: 200 }],
  ['GET /readyz', {}, { status: 200 }],
  ['GET /metrics', {}, { status: 200, ...isMetrics }],
  ['GET /v1', {}, { status: 404, json: { code: 'not-found' } }],
  ['DELETE /v1/token', {}, notAllowed('GET, HEAD')],
  ['GET /v1/refresh', {}, notAllowed('POST')],
  ...['', 'oops', '[]', '{}', '{"accessToken":1}'].map((body): [string, Given, object] => {
    return ['POST /v1/token/reject', { body }, isBad]
  }),
])('%s %j', async (line, given, expected) => {
  const [method = '', path = ''] = line.split(' ')
  const world = await startDelivery()
  expect(await httpAsk(world, path, { method, ...given })).toMatchObject(expected)
})

it('a refusal is a problem, and the end of the scheduler alone a fault of the daemon', async () => {
  const world = await startDelivery({ first: failures.notFound })
  const json = { code: 'account-not-found', reason: 'account-not-found' }
  for (const path of ['/v1/token?waitSeconds=60', '/readyz'])
    expect(await httpAsk(world, path)).toMatchObject({ status: 503, json })
  expect((await httpAsk(world, '/healthz')).status).toBe(200)
  vi.spyOn(world.replies, 'isAlive').mockReturnValue(false)
  expect(await httpAsk(world, '/healthz')).toMatchObject({ status: 503, json: { code: 'stalled' } })
})

it('a report and a refresh have their outcome, and no token in it', async () => {
  const world = await startDelivery()
  const { fingerprint } = world.keeper.state().token ?? {}
  const post = (path: string, body = '') => httpAsk(world, path, { method: 'POST', body })
  const reject = async (accessToken: string) =>
    (await post('/v1/token/reject', JSON.stringify({ accessToken }))).json
  expect(await reject('token-0')).toEqual({ verdict: 'replaced', fingerprint })
  const answer = await post('/v1/refresh')
  expect(answer.json).toMatchObject({ outcome: 'ok', generation: 2 })
  expect(answer.body).not.toContain('token-2')
  expect((await reject('token-2'))['verdict']).toBe('refreshing')
  expect(world.http.counts().rejects).toMatchObject({ replaced: 1, refreshing: 1 })
})

it('HEAD has the status of GET and no body', async () => {
  const world = await startDelivery()
  for (const path of ['/v1/token', '/v1/authorization', '/v1/status', '/healthz', '/readyz', '/metrics']) {
    const head = await httpAsk(world, path, { method: 'HEAD' })
    expect(head).toMatchObject({ status: path === '/v1/authorization' ? 204 : 200, body: '' })
    expect(head.headers['cache-control']).toBe('no-store')
  }
})

it('GET /v1/authorization gives the header that the API wants, or says why there is none', async () => {
  const use = { header: 'X-Api-Token', prefix: 'Key ' }
  const world = await startDelivery({ use, first: failures.network })
  const isMissing = { status: 503, json: { code: 'no-token-yet' } }
  expect(await httpAsk(world, '/v1/authorization')).toMatchObject(isMissing)
  await world.rotate()
  const answer = await httpAsk(world, '/v1/authorization?minValidSeconds=1')
  const { fingerprint } = world.keeper.state().token!
  const headers = { 'x-api-token': 'Key token-1', 'token-fingerprint': fingerprint }
  expect(answer).toMatchObject({ status: 204, body: '', headers })
  expect(answer.headers).not.toHaveProperty('content-length')
  expect(answer.headers).not.toHaveProperty('authorization')
  expect((await httpAsk(world, '/v1/token')).json).toMatchObject({ tokenType: null, ...use })
  expect(world.http.counts().reads).toBe(2)
})

describe('the answers on a connection, by their statuses', () => {
  const HEAD = 'HTTP/1.1\r\nHost: x\r\n'
  const GET = `GET /v1/token ${HEAD}`
  /** The request after the odd one: its answer ends the exchange. */
  const NEXT = `GET /next ${HEAD}\r\n`
  const POST = `POST /v1/token/reject ${HEAD}`
  const BODY = '{"accessToken":"token-0"}'
  const CHUNKED = 'Transfer-Encoding: chunked\r\n'

  it.each([
    ['a body and another request are two', `${POST}Content-Length: 25\r\n\r\n${BODY}`, '200 404'],
    ['a body where there is nothing', `POST /no ${HEAD}Content-Length: 5\r\n\r\nhello`, '404 404'],
    ['a head of nearly 8 KiB', `${GET}A: ${'x'.repeat(8_100)}\r\n\r\n`, '200 404'],
    ['a head of 9 KB', `GET / ${HEAD}A: ${'x'.repeat(9_000)}\r\n\r\n`, '400'],
    ['a head without an end', `${GET}a: ${'x'.repeat(300_000)}`, '400'],
    ['a body of 32 KiB', `${POST}Content-Length: 32768\r\n\r\n${BODY.padEnd(32_768)}`, '200 404'],
    ['a body of more', `${POST}Content-Length: 32769\r\n\r\n${BODY.padEnd(32_769)}`, '400'],
    ['64 fields', `${GET}${'a: b\r\n'.repeat(63)}\r\n`, '200 404'],
    ['65 fields', `${GET}${'a: b\r\n'.repeat(64)}\r\n`, '400'],
    ['chunks', `${POST}${CHUNKED}\r\n19\r\n${BODY}\r\n0\r\n\r\n`, '400'],
    ['a length and chunks', `${POST}Content-Length: 6\r\n${CHUNKED}\r\n0\r\n\r\n`, '400'],
    ['what is no request', 'oops\r\n\r\n', '400'],
    ['HTTP/1.0, whose connection ends', 'GET /v1/token HTTP/1.0\r\n\r\n', '200'],
    ['a tunnel, which has no answer', `CONNECT x:1 ${HEAD}\r\n`, ''],
  ])('%s', async (_how, text, expected) => {
    const { httpPath } = await startDelivery()
    const received = await exchange(httpPath, text + NEXT, { until: /"code":"not-found"\}$/ })
    expect(received).not.toContain('undefined')
    const problems = received.match(
      /^HTTP\/1\.1 400 [^{]*\/problem\+json\r\n[^{]*\{[^}]*"code":"bad-request"/gm,
    )
    expect(problems?.length).toBe(received.match(/HTTP\/1\.1 400/g)?.length)
    const statuses = [...received.matchAll(/^HTTP\/1\.1 (\d+)|(?<=\})HTTP\/1\.1 (\d+)/gm)]
    expect(statuses.map(([, first, other]) => first ?? other).join(' ')).toBe(expected)
  })

  it('an unknown expectation gets nobody past `allow`', async () => {
    const socket = { allow: { users: [4_002], groups: [] } }
    const { httpPath } = await startDelivery({ socket, libc: asStranger })
    const received = await exchange(httpPath, `${GET}Expect: the-unexpected\r\n\r\n`)
    expect(received).toMatch(/^HTTP\/1\.1 403 .*"code":"denied"/s)
  })

  it('a third unanswered request ends the connection', async () => {
    const world = await startDelivery()
    const received = await exchange(world.httpPath, `${GET}\r\n`.repeat(4_000))
    expect(received.match(/HTTP\/1\.1 200/g)?.length ?? 0).toBeLessThan(3)
    expect(world.http.counts()).toMatchObject({ connections: 0, dropped: { 'too-many-requests': 1 } })
    const two = await exchange(world.httpPath, `${GET}\r\n${NEXT}`, { until: /not-found/ })
    expect(two).toMatch(/HTTP\/1\.1 200 .*HTTP\/1\.1 404/s)
  })
})
