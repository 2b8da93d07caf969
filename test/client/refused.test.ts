import type { ServerResponse } from 'node:http'
import { expect, onTestFinished, test, vi } from 'vitest'
import type { RejectResult, TokenClient } from '../../src/client/index.ts'
import type { Fault } from '../../src/protocol.ts'
import { clientOf, daemonWith, renewingDaemon, startApi, strict } from '../support/client-world.ts'
import { tokenFields, type Asking, type ScriptedDaemon } from '../support/scripted-daemon.ts'

/** A call is under way with the suspect token, so that others wait for their turn. */
async function occupyTurn(client: TokenClient, api: { url: string; seen: string[] }): Promise<void> {
  const before = api.seen.length
  void client.fetch(`${api.url}/slow`).catch(() => undefined)
  await vi.waitUntil(() => api.seen.length > before)
}
/** As `strict`, but never answers `/slow`. */
const strictOrSilent: typeof strict = (request, response) => {
  if (request.url !== '/slow') strict(request, response)
}

interface World {
  readonly daemon: ScriptedDaemon
  /** From now on the daemon has `token-2`: those who wait get it. */
  readonly renew: () => void
  /** From now on this is the answer to a report. */
  readonly answerReports: (result: RejectResult) => void
}
/** A daemon that has `token-1`, and waits as long as it is asked to where another is wanted. */
async function stubbornDaemon(baseUrl: string, first: RejectResult | Pick<Fault, 'code'>): Promise<World> {
  let result = first
  let token = tokenFields('token-1', { baseUrl })
  const waiting = new Set<Asking>()
  const daemon = await daemonWith((asking) => {
    const type = 'code' in result ? 'fault' : 'reject.result'
    if (asking.type === 'token.reject') return asking.answer(type, result)
    if (asking.data['notFingerprint'] !== token['fingerprint']) return asking.answer('token.result', token)
    waiting.add(asking)
    const timer = setTimeout(
      () => asking.answer('token.result', token),
      Number(asking.data['waitSeconds']) * 1_000,
    )
    return onTestFinished(() => clearTimeout(timer))
  })
  return {
    daemon,
    renew() {
      token = tokenFields('token-2', { baseUrl })
      for (const { answer } of waiting) answer('token.result', token)
    },
    answerReports(next) {
      result = next
    },
  }
}
const reportsOf = ({ daemon }: World): number =>
  daemon.asked.filter(({ type }) => type === 'token.reject').length

test.each<RejectResult>([
  { verdict: 'held', retryAfterSeconds: 25 },
  { verdict: 'unchanged', retryAfterSeconds: 25 },
  { verdict: 'refused' },
])('where no other token can come ($verdict) the 401 is given back at once', async (result) => {
  const api = await startApi(strict)
  const world = await stubbornDaemon(api.url, result)
  expect((await clientOf(world.daemon).fetch(api.url)).status).toBe(401)
  expect(world.daemon.asked.map(({ type }) => type)).toEqual(['token.get', 'token.reject'])
})

test('while one call tries the suspect token the others wait, and are served when there is another', async () => {
  const api = await startApi(strictOrSilent)
  const world = await stubbornDaemon(api.url, { verdict: 'held', retryAfterSeconds: 25 })
  const client = clientOf(world.daemon)
  await client.fetch(api.url)
  await occupyTurn(client, api)
  const calls = Array.from({ length: 100 }, () => client.fetch(api.url))
  await vi.waitUntil(() => world.daemon.asked.some(({ data }) => data['notFingerprint'] !== undefined))
  expect(api.seen.length).toBe(2)
  world.renew()
  expect((await Promise.all(calls)).every(({ status }) => status === 200)).toBe(true)
  expect(api.seen.filter((request) => request.includes('token-1')).length).toBe(2)
  // One wait for all, and one report.
  expect(world.daemon.asked.filter(({ data }) => data['notFingerprint'] !== undefined).length).toBe(1)
  expect(reportsOf(world)).toBe(1)
})

test('a good answer to a call that began before the report does not clear the token', async () => {
  const held: ServerResponse[] = []
  const api = await startApi((request, response) => {
    if (request.url === '/before') held.push(response)
    else response.writeHead(401).end()
  })
  const world = await stubbornDaemon(api.url, { verdict: 'held', retryAfterSeconds: 25 })
  const client = clientOf(world.daemon)
  const before = client.fetch(`${api.url}/before`)
  await vi.waitUntil(() => held.length === 1)
  await client.fetch(`${api.url}/bad`)
  held[0]?.writeHead(200).end()
  expect((await before).status).toBe(200)
  await world.daemon.stop()
  await expect(client.get({ waitSeconds: 0 })).rejects.toMatchObject({ code: 'daemon-unreachable' })
})

test('a daemon that goes away after a report takes no call with it: the suspect token is tried from memory', async () => {
  const api = await startApi(({ url }, response) => response.writeHead(url === '/good' ? 200 : 401).end())
  const world = await stubbornDaemon(api.url, { verdict: 'held', retryAfterSeconds: 25 })
  const client = clientOf(world.daemon)
  await client.fetch(`${api.url}/bad`)
  await world.daemon.stop()
  expect((await client.fetch(`${api.url}/good`)).status).toBe(200)
})

test.each([
  ['GET', 2],
  ['POST', 1],
])('a status of refusedBy is reported, and %s is sent %i times', async (method, times) => {
  const api = await startApi(({ headers }, response) =>
    response.writeHead(headers.authorization === 'Bearer token-2' ? 200 : 403).end(),
  )
  let token = tokenFields('token-1', { baseUrl: api.url, refusedBy: [401, 403] })
  const daemon = await daemonWith(({ type, answer }) => {
    if (type !== 'token.reject') return answer('token.result', token)
    token = tokenFields('token-2', { baseUrl: api.url, refusedBy: [401, 403] })
    return answer('reject.result', { verdict: 'refreshing' })
  })
  const response = await clientOf(daemon).fetch(api.url, { method })
  expect(response.status).toBe(times === 2 ? 200 : 403)
  expect(api.seen.length).toBe(times)
  expect(daemon.asked.some(({ type }) => type === 'token.reject')).toBe(true)
})

test('isRefusal decides instead of the status', async () => {
  const api = await startApi(({ headers }, response) => {
    if (headers.authorization === 'Bearer token-2') response.end('done')
    else response.writeHead(200, { 'x-error': 'token' }).end('token?')
  })
  const daemon = await renewingDaemon(api.url)
  const client = clientOf(daemon, { isRefusal: ({ headers }) => headers.get('x-error') === 'token' })
  expect(await (await client.fetch(api.url)).text()).toBe('done')
  const own = await startApi((_, response) => response.writeHead(401).end())
  const never = clientOf(await renewingDaemon(own.url), { isRefusal: () => false })
  expect((await never.fetch(own.url)).status).toBe(401)
  expect(own.seen.length).toBe(1)
})

test.each<RejectResult | { code: 'busy' }>([{ verdict: 'refreshing' }, { code: 'busy' }])(
  'after the answer %j to a report the daemon, and not the service, is asked about the token again',
  async (first) => {
    const api = await startApi(strict)
    const world = await stubbornDaemon(api.url, first)
    const client = clientOf(world.daemon)
    const call = client.fetch(api.url)
    await vi.waitUntil(() => reportsOf(world) === 1)
    world.answerReports({ verdict: 'refused' })
    expect((await call).status).toBe(401)
    expect([reportsOf(world), api.seen.length]).toEqual([2, 1])
  },
)

test('a daemon that does not wait is not asked in a loop', async () => {
  const api = await startApi(strict)
  const daemon = await daemonWith(({ type, answer }) => {
    if (type === 'token.reject') answer('reject.result', { verdict: 'held', retryAfterSeconds: 1 })
    else answer('token.result', tokenFields('token-1', { baseUrl: api.url }))
  })
  const stop = new AbortController()
  const call = clientOf(daemon).fetch(api.url, { signal: stop.signal })
  setTimeout(() => stop.abort(new Error('enough')), 1_200)
  await expect(call).rejects.toThrow('enough')
  expect(daemon.asked.length).toBeLessThan(10)
})

test('a token of another service, for which a call has waited, is not sent to the former', async () => {
  const api = await startApi(strictOrSilent)
  const daemon = await daemonWith(({ type, answer, data }) => {
    if (type === 'token.reject') return answer('reject.result', { verdict: 'held', retryAfterSeconds: 25 })
    if (data['notFingerprint'] !== undefined) return answer('token.result', tokenFields('token-2'))
    return answer('token.result', tokenFields('token-1', { baseUrl: api.url }))
  })
  const client = clientOf(daemon)
  await client.fetch(api.url)
  await occupyTurn(client, api)
  await expect(client.fetch(api.url)).rejects.toMatchObject({ code: 'bad-request' })
  expect(api.seen.length).toBe(2)
})

test('an abort ends the wait for a turn', async () => {
  const api = await startApi(strictOrSilent)
  const world = await stubbornDaemon(api.url, { verdict: 'held', retryAfterSeconds: 25 })
  const client = clientOf(world.daemon)
  await client.fetch(api.url)
  await occupyTurn(client, api)
  const stop = new AbortController()
  const call = client.fetch(api.url, { signal: stop.signal })
  await vi.waitUntil(() => world.daemon.asked.some(({ data }) => data['notFingerprint'] !== undefined))
  stop.abort(new Error('enough'))
  await expect(call).rejects.toThrow('enough')
})
