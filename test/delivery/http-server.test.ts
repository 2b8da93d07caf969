// What each path of `http.sock` answers.
import { expect, it } from 'vitest'
import { failures } from '../support/failures.ts'
import { exchange } from '../support/raw-http.ts'
import { startDelivery, startWithToken } from '../support/delivery-world.ts'
import { refusalOf } from '../../src/token/selectors.ts'
import { httpAsk } from '../support/outside.ts'
import { eventually } from '../support/until.ts'

type Given = NonNullable<Parameters<typeof httpAsk>[2]>
const isBad = { status: 400, json: { status: 400, code: 'bad-request' } }
const isBadProblem = { ...isBad, headers: { 'content-type': 'application/problem+json' } }
const ready = { accessToken: 'token-1', tokenType: 'Bearer', generation: 1, state: 'ready' }
const isText = { body: 'token-1' }
const isJson = { headers: { 'content-type': 'application/json', 'cache-control': 'no-store' }, json: ready }
const TEXT_FORMAT = 'text/plain; version=0.0.4; charset=utf-8'
const accept = (text: string): Given => ({ headers: { accept: text } })
const isDenied = { status: 403, json: { code: 'denied' } }
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
  ['GET /v1/token?waitSeconds=-1', {}, isBad],
  ['GET /v1/status', {}, { status: 200, json: { state: 'ready', token: { generation: 1 } } }],
  ['GET /healthz', {}, { status: 200 }],
  ['GET /readyz', {}, { status: 200 }],
  ['GET /metrics', {}, { status: 200, body: 'up 1\n', headers: { 'content-type': TEXT_FORMAT } }],
  ['GET /v1', {}, { status: 404, json: { code: 'not-found' } }],
  ['DELETE /v1/token', {}, notAllowed('GET, HEAD')],
  ['GET /v1/refresh', {}, notAllowed('POST')],
  ...['', 'oops', '[]', '{}', '{"accessToken":1}', `{"accessToken":"${'x'.repeat(33_000)}"}`].map(
    (body): [string, object, object] => ['POST /v1/token/reject', { body }, isBad],
  ),
])('%s %j', async (line, given, expected) => {
  const [method = '', path = ''] = line.split(' ')
  const world = await startWithToken()
  expect(await httpAsk(world, path, { method, ...given })).toMatchObject(expected)
})

it('a refusal is a problem, and no fault of the daemon', async () => {
  const world = await startDelivery({ answer: () => failures.notFound })
  await eventually(() => expect(refusalOf(world.keeper.state())).not.toBeNull())
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

it('HEAD has the status of GET and no body', async () => {
  const world = await startWithToken()
  for (const path of ['/v1/token', '/v1/authorization', '/v1/status', '/healthz', '/readyz', '/metrics']) {
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

it('GET /v1/authorization gives the header that the API wants, or says why there is none', async () => {
  const use = { header: 'X-Api-Token', prefix: 'Key ' }
  const world = await startDelivery({ use, answer: () => failures.network })
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

it('GET /healthz says that the scheduler has stopped', async () => {
  let isAlive = true
  const world = await startDelivery({ isAlive: () => isAlive })
  expect((await httpAsk(world, '/healthz')).status).toBe(200)
  isAlive = false
  expect(await httpAsk(world, '/healthz')).toMatchObject({ status: 503, json: { code: 'stalled' } })
})
