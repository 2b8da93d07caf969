import { describe, expect, it } from 'vitest'
import { failures } from '../support/failures.ts'
import { kindOf } from '../support/kind-of.ts'
import { exchange } from '../support/raw-http.ts'
import { startDelivery, startWithToken } from '../support/delivery-world.ts'
import { httpAsk } from '../support/outside.ts'
import { eventually } from '../support/until.ts'

const isBad = { status: 400, json: { status: 400, code: 'bad-request' } }
const ready = { accessToken: 'token-1', tokenType: 'Bearer', generation: 1, state: 'ready' }
const isText = { body: 'token-1' }
const isJson = { headers: { 'content-type': 'application/json', 'cache-control': 'no-store' }, json: ready }

it.each<[string, string, Parameters<typeof httpAsk>[2], object]>([
  ['GET', '/v1/token', {}, { status: 200, ...isJson }],
  ['GET', '/v1/token', { headers: { accept: 'text/plain' } }, isText],
  ['GET', '/v1/token', { headers: { accept: 'Text/Plain; charset=utf-8, */*;q=0.1' } }, isText],
  ['GET', '/v1/token', { headers: { accept: 'application/json, text/plain;q=0.5' } }, isJson],
  ['GET', '/v1/token', { headers: { accept: '*/*' } }, isJson],
  [
    'GET',
    '/v1/token',
    { headers: { Origin: 'https://evil.example' } },
    { status: 403, json: { code: 'denied' } },
  ],
  [
    'GET',
    '/v1/token?minValidSeconds=x',
    {},
    { ...isBad, headers: { 'content-type': 'application/problem+json' } },
  ],
  ['GET', '/v1/token?waitSeconds=61', {}, isBad],
  ['GET', '/v1/token?waitSeconds=-1', {}, isBad],
  ['GET', '/v1/status', {}, { status: 200, json: { state: 'ready', token: { generation: 1 } } }],
  ['GET', '/healthz', {}, { status: 200 }],
  ['GET', '/readyz', {}, { status: 200 }],
  ['GET', '/metrics', {}, { status: 200, body: 'up 1\n' }],
  ['GET', '/v1', {}, { status: 404, json: { code: 'not-found' } }],
  ['GET', '//v1/token', {}, { status: 404 }],
  [
    'DELETE',
    '/v1/token',
    {},
    { status: 405, headers: { allow: 'GET, HEAD' }, json: { code: 'method-not-allowed' } },
  ],
  ['OPTIONS', '/v1/token', {}, { status: 405 }],
  ['GET', '/v1/refresh', {}, { status: 405, headers: { allow: 'POST' } }],
  ...['', 'oops', '[]', '{}', '{"accessToken":1}', `{"accessToken":"${'x'.repeat(33_000)}"}`].map(
    (body): [string, string, object, object] => ['POST', '/v1/token/reject', { body }, isBad],
  ),
])('%s %s %j', async (method, path, given, expected) => {
  const world = await startWithToken()
  expect(await httpAsk(world, path, { method, ...given })).toMatchObject(expected)
})

it('a refusal is a problem, and no fault of the daemon', async () => {
  const world = await startDelivery({ answer: () => failures.notFound })
  await eventually(() => expect(kindOf(world.keeper.state())).toBe('refused'))
  const json = { code: 'account-not-found', reason: 'account-not-found' }
  for (const path of ['/v1/token', '/readyz'])
    expect(await httpAsk(world, path)).toMatchObject({ status: 503, json })
  expect((await httpAsk(world, '/healthz')).status).toBe(200)
})

it('a report and a refresh have their outcome, and no token in it', async () => {
  const { httpPath, http, keeper } = await startWithToken()
  const { fingerprint } = keeper.state().token ?? {}
  const post = (path: string, body = '') => httpAsk({ httpPath }, path, { method: 'POST', body })
  const reject = async (accessToken: string) =>
    (await post('/v1/token/reject', JSON.stringify({ accessToken }))).json
  expect(await reject('token-0')).toEqual({ verdict: 'replaced', fingerprint })
  const answer = await post('/v1/refresh')
  expect(answer.json).toMatchObject({ outcome: 'ok', generation: 2 })
  expect(answer.body).not.toContain('token-2')
  expect((await reject('token-2'))['verdict']).toBe('refreshing')
  expect(http.counts().rejects).toMatchObject({ replaced: 1, refreshing: 1 })
})

describe('other clients', () => {
  it('one that half-closes gets its answers', async () => {
    const { httpPath } = await startWithToken()
    const text = 'GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\nGET /v1/token HTTP/1.1\r\nHost: x\r\n\r\n'
    expect(await exchange(httpPath, text, { half: true })).toContain('token-1')
  })
})

describe('HEAD and bodies', () => {
  it('HEAD has the status of GET and no body', async () => {
    const world = await startWithToken()
    const paths = ['token', 'authorization', 'status'].map((name) => `/v1/${name}`)
    for (const path of [...paths, '/healthz', '/readyz', '/metrics']) {
      const head = await httpAsk(world, path, { method: 'HEAD' })
      expect(head).toMatchObject({ status: path === '/v1/authorization' ? 204 : 200, body: '' })
      expect(head.headers['cache-control']).toBe('no-store')
    }
  })

  it('a connection over its rate is closed after the answer that says so', async () => {
    const world = await startWithToken()
    world.reconfigure({ maxRequestsPerSecond: 1 })
    const received = await exchange(world.httpPath, 'GET /v1/token HTTP/1.1\r\n\r\n'.repeat(2))
    expect(received).toMatch(/HTTP\/1\.1 429 .*Connection: close.*"code":"busy"/s)
    expect(world.http.counts().dropped['too-many-requests']).toBe(1)
  })
})

it('GET /v1/authorization gives the header that a proxy adds, or says why there is none', async () => {
  const world = await startDelivery({ answer: () => failures.network })
  expect(await httpAsk(world, '/v1/authorization')).toMatchObject({
    status: 503,
    json: { code: 'no-token-yet' },
  })
  await world.rotate()
  const before = world.http.counts().reads
  const answer = await httpAsk(world, '/v1/authorization?minValidSeconds=1')
  expect(answer).toMatchObject({
    status: 204,
    body: '',
    headers: {
      authorization: 'Bearer token-1',
      'token-fingerprint': world.keeper.state().token?.fingerprint,
    },
  })
  expect(answer.headers['content-length']).toBeUndefined()
  expect(world.http.counts().reads).toBe(before + 1)
})

it('gives the header that the API wants, where that is another', async () => {
  const world = await startDelivery({ use: { header: 'X-Api-Token', prefix: '' } })
  await world.rotate()
  const answer = await httpAsk(world, '/v1/authorization')
  expect(answer).toMatchObject({
    status: 204,
    headers: { 'x-api-token': expect.stringMatching(/^token-\d$/) },
  })
  expect(answer.headers).not.toHaveProperty('authorization')
  expect((await httpAsk(world, '/v1/token')).json).toMatchObject({
    tokenType: null,
    header: 'X-Api-Token',
    prefix: '',
  })
})

describe('health and metrics', () => {
  it('GET /healthz says that the scheduler has stopped', async () => {
    let monotonicMs = 0
    const world = await startDelivery({ monotonicMs: () => monotonicMs })
    expect((await httpAsk(world, '/healthz')).status).toBe(200)
    monotonicMs = 46_000
    expect(await httpAsk(world, '/healthz')).toMatchObject({ status: 503, json: { code: 'stalled' } })
  })
})
