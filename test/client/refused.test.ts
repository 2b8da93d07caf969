// A token that the API refuses is reported once; only the refused call waits for another one.
import { beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest'
import type { Request } from '../../src/client/connection.ts'
import { createSource } from '../../src/client/create-source.ts'
import { createFakeTokenClient } from '../../src/client/testing.ts'
import type { ClientOptions, RejectResult } from '../../src/client/index.ts'
import { clientOf, daemonWith, renewingDaemon, startApi, strict } from '../support/client-world.ts'
import { tokenFields, type Asking } from '../support/scripted-daemon.ts'
import { holds } from '../support/until.ts'

const API = 'https://api.example.com'
const LATENCY_MS = 50

/**
 * A fake client and an API in memory: `/good` is answered with 200 while the token is good, `/bad` with 401.
 * Time is fake.
 */
function world(verdict?: RejectResult, options: ClientOptions = {}) {
  const sent: string[] = []
  const revoked = new Set<string>()
  const tokens = createFakeTokenClient({
    lifeSeconds: 86_400,
    fetch: async (url, { headers } = {}) => {
      const token = new Headers(headers).get('authorization')!.slice('Bearer '.length)
      const path = (url as string).slice(API.length)
      sent.push(`${path} ${token}`)
      await new Promise((resolve) => setTimeout(resolve, LATENCY_MS))
      return new Response(null, { status: revoked.has(token) || path.startsWith('/bad') ? 401 : 200 })
    },
    ...options,
  })
  onTestFinished(() => tokens.close())
  if (verdict !== undefined) tokens.answerReports(verdict)
  return {
    tokens,
    sent,
    /** The token that the daemon has is no longer good. */
    revoke: async () => revoked.add((await tokens.get()).accessToken),
    /** The status, and the time that it took. */
    async call(path: string, init?: RequestInit): Promise<{ status: number; tookMs: number }> {
      const beganMs = Date.now()
      const { status } = await tokens.fetch(`${API}${path}`, init)
      return { status, tookMs: Date.now() - beganMs }
    },
  }
}
const during = async <T>(ms: number, work: Promise<T>): Promise<T> => {
  await vi.advanceTimersByTimeAsync(ms)
  return work
}

describe('with the time of the test', () => {
  beforeEach(() => {
    vi.useFakeTimers()
    onTestFinished(() => {
      vi.useRealTimers()
      vi.restoreAllMocks()
    })
  })

  test.each<RejectResult>([
    { verdict: 'held', retryAfterSeconds: 25 },
    { verdict: 'refused', retryAfterSeconds: 25 },
  ])(
    'where no other token can come ($verdict) a refusal is the answer at once, until the time is over',
    async (verdict) => {
      const it = world(verdict)
      await it.revoke()
      for (let calls = 0; calls < 10; calls += 1)
        expect(await during(2_000, it.call('/good'))).toEqual({ status: 401, tookMs: LATENCY_MS })
      expect(it.tokens.reported).toHaveLength(1)
      await vi.advanceTimersByTimeAsync(6_000)
      await during(1_000, it.call('/good'))
      expect(it.tokens.reported).toHaveLength(2)
    },
  )

  test.each(['no-token-yet', 'timeout'])(
    'a call whose wait began later goes on waiting when the first one ends with %s',
    async (code) => {
      const asked: Request[] = []
      const client = createSource({}, () => ({
        open: (request) => {
          asked.push(request)
          return () => undefined
        },
        mayStop: true,
        monotonicMs: () => Date.now(),
      }))
      const first = client.get({ waitSeconds: 1 }).catch((error: { code: string }) => error.code)
      await vi.advanceTimersByTimeAsync(800)
      const second = client.get({ waitSeconds: 1 })
      await vi.advanceTimersByTimeAsync(200)
      if (code !== 'timeout') asked[0]?.onAnswer({ type: 'fault', data: { code, message: 'Wait.' } })
      expect(await during(500, first)).toBe(code)
      expect(asked).toHaveLength(2)
      asked[1]?.onAnswer({ type: 'token.result', data: tokenFields('token-1') })
      expect(await second).toMatchObject({ accessToken: 'token-1' })
    },
  )

  test('a token that is held for less than the wait is awaited', async () => {
    const it = world({ verdict: 'held', retryAfterSeconds: 9 })
    await it.revoke()
    setTimeout(() => it.tokens.rotate(), 9_000)
    expect(await during(12_000, it.call('/good'))).toMatchObject({ status: 200 })
  })

  test('a call waits 10 s, and then the refusal is its answer', async () => {
    const it = world({ verdict: 'refreshing' })
    await it.revoke()
    const first = it.call('/good')
    const { tookMs, status } = await during(15_000, first)
    expect([status, tookMs]).toEqual([401, 10_000 + LATENCY_MS])
    const later = it.call('/good')
    setTimeout(() => it.tokens.rotate(), 5_000)
    expect(await during(10_000, later)).toMatchObject({ status: 200 })
    expect(it.tokens.reported).toHaveLength(1)
  })

  test('refusals of a place that refused two tokens are its own for 5 minutes', async () => {
    const it = world()
    expect(await during(1_000, it.call('/bad/1?query=1'))).toMatchObject({ status: 401 })
    expect(it.sent).toEqual(['/bad/1?query=1 fake-token-1', '/bad/1?query=1 fake-token-2'])
    for (let minute = 0; minute < 4; minute += 1) {
      expect(await during(60_000, it.call('/bad/1'))).toEqual({ status: 401, tookMs: LATENCY_MS })
      expect(it.tokens.reported).toHaveLength(1)
    }
    // Another method and another path are other places.
    await during(1_000, it.call('/bad/1', { method: 'DELETE' }))
    expect(it.tokens.reported).toHaveLength(2)
    await during(1_000, it.call('/bad/2'))
    expect(it.tokens.reported).toHaveLength(3)
    await vi.advanceTimersByTimeAsync(60_000)
    await during(1_000, it.call('/bad/1'))
    expect(it.tokens.reported).toHaveLength(4)
  })

  test('so are those whose token the service gives again', async () => {
    const it = world({ verdict: 'unchanged', retryAfterSeconds: 1 })
    await during(1_000, it.call('/bad'))
    await vi.advanceTimersByTimeAsync(10_000)
    await during(1_000, it.call('/bad'))
    expect(it.tokens.reported).toHaveLength(1)
  })

  test('64 such places are remembered, and of more the first is forgotten', async () => {
    const it = world()
    for (let place = 1; place <= 65; place += 1) await during(1_000, it.call(`/bad/${place}`))
    const { length } = it.tokens.reported
    for (let place = 2; place <= 65; place += 1) await during(1_000, it.call(`/bad/${place}`))
    expect(it.tokens.reported).toHaveLength(length)
    await during(1_000, it.call('/bad/1'))
    expect(it.tokens.reported).toHaveLength(length + 1)
  })

  test('of 1,000 calls over revocations and a neighbour’s 401 all are served', async () => {
    const it = world()
    let lastAtMs = -Infinity
    /** As the daemon: one request each 30 s because of reports, which takes 2 s. */
    function answerNext(): void {
      const heldMs = lastAtMs + 30_000 - Date.now()
      it.tokens.answerReports(
        heldMs > 0 ? { verdict: 'held', retryAfterSeconds: heldMs / 1_000 } : { verdict: 'refreshing' },
      )
    }
    const push = vi.spyOn(it.tokens.reported as string[], 'push')
    push.mockImplementation(() => {
      const waitMs = Math.max(0, lastAtMs + 30_000 - Date.now())
      lastAtMs = Date.now() + waitMs
      setTimeout(() => it.tokens.rotate(), waitMs + 2_000)
      return 0
    })
    answerNext()
    const outcomes: Promise<{ status: number; tookMs: number }>[] = []
    const bad: Promise<{ status: number }>[] = []
    const revocationsMs = [35_000, 80_000, 125_000]
    for (let atMs = 0; atMs < 150_000; atMs += 150) {
      if (atMs % 2_100 === 0) bad.push(it.call('/bad'))
      if (revocationsMs.some((revokedMs) => atMs - revokedMs >= 0 && atMs - revokedMs < 150)) void it.revoke()
      outcomes.push(it.call('/good'))
      answerNext()
      await vi.advanceTimersByTimeAsync(150)
    }
    const good = await during(15_000, Promise.all(outcomes))
    expect(good).toHaveLength(1_000)
    expect(good.filter(({ status }) => status !== 200)).toEqual([])
    const waiting = good.filter(({ tookMs }) => tookMs > LATENCY_MS)
    // Each revocation lasts for the 2 s of the request: at most the calls of that time wait, and no longer.
    expect(waiting.length).toBeLessThanOrEqual(revocationsMs.length * Math.ceil((2_000 + LATENCY_MS) / 150))
    expect(Math.max(...waiting.map(({ tookMs }) => tookMs))).toBeLessThanOrEqual(2_000 + 2 * LATENCY_MS)
    expect(new Set((await Promise.all(bad)).map(({ status }) => status))).toEqual(new Set([401]))
    // One for the neighbour, and one for each revocation.
    expect(push).toHaveBeenCalledTimes(1 + revocationsMs.length)
  })
})

/** A daemon that has `token-1`; `renew` gives `token-2` to those who wait. */
async function waitingDaemon(baseUrl: string) {
  let token = tokenFields('token-1', { baseUrl })
  const waiting: Asking[] = []
  const daemon = await daemonWith((asking) => {
    if (asking.type === 'token.reject') return asking.answer('reject.result', { verdict: 'refreshing' })
    if (asking.data['notFingerprint'] !== token['fingerprint']) return asking.answer('token.result', token)
    waiting.push(asking)
  })
  return {
    daemon,
    waiting,
    renew: (fields = {}): void => {
      token = tokenFields('token-2', { baseUrl, ...fields })
      for (const { answer } of waiting) answer('token.result', token)
    },
  }
}

test('a thousand refused calls are one report and one wait, and other calls go on', async () => {
  const api = await startApi((request, response) =>
    request.url === '/good' ? response.end() : strict(request, response),
  )
  const { daemon, waiting, renew } = await waitingDaemon(api.url)
  const client = clientOf(daemon)
  const calls = Array.from({ length: 1_000 }, () => client.fetch(api.url))
  await holds(() => api.seen.length === 1_000 && waiting.length > 0)
  expect((await client.fetch(`${api.url}/good`)).status).toBe(200)
  renew()
  expect((await Promise.all(calls)).every(({ status }) => status === 200)).toBe(true)
  expect(daemon.asked.filter(({ type }) => type === 'token.reject')).toHaveLength(1)
  expect(waiting).toHaveLength(1)
})

test('a token of another service is not sent to the former', async () => {
  const api = await startApi(strict)
  const { daemon, waiting, renew } = await waitingDaemon(api.url)
  const call = clientOf(daemon).fetch(api.url)
  await holds(() => waiting.length > 0)
  renew({ baseUrl: API })
  expect((await call).status).toBe(401)
  expect(api.seen).toHaveLength(1)
})

test.each([
  ['GET', 2],
  ['HEAD', 2],
  ['OPTIONS', 2],
  ['POST', 1],
  ['PUT', 1],
  ['PATCH', 1],
  ['DELETE', 1],
])('a status of refusedBy is reported, and %s is sent %i times', async (method, times) => {
  const api = await startApi(({ headers }, response) =>
    response.writeHead(headers.authorization === 'Bearer token-2' ? 200 : 403).end(),
  )
  const daemon = await renewingDaemon(api.url, { refusedBy: [401, 403] })
  const response = await clientOf(daemon).fetch(api.url, { method })
  expect(response.status).toBe(times === 2 ? 200 : 403)
  expect(api.seen.length).toBe(times)
  expect(daemon.asked.some(({ type }) => type === 'token.reject')).toBe(true)
})

test('isRefusal decides instead of the status, and may read the body', async () => {
  const api = await startApi(({ headers }, response) =>
    response.end(headers.authorization === 'Bearer token-2' ? 'done' : 'invalid token'),
  )
  const client = clientOf(await renewingDaemon(api.url), {
    isRefusal: async (response) => (await response.text()) === 'invalid token',
  })
  expect(await (await client.fetch(api.url)).text()).toBe('done')
  expect(api.seen).toHaveLength(2)
  const own = await startApi((_, response) => response.writeHead(401).end('own'))
  const never = clientOf(await renewingDaemon(own.url), { isRefusal: () => false })
  expect(await (await never.fetch(own.url)).text()).toBe('own')
  expect(own.seen).toHaveLength(1)
})

test('an abort ends the wait, and so do a close and the client’s signal, with the refusal', async () => {
  const api = await startApi(strict)
  const ends: [ClientOptions, RequestInit, (client: { close: () => void }, stop: AbortController) => void][] =
    [[{}, { signal: new AbortController().signal }, (client) => client.close()]]
  const own = new AbortController()
  const ofClient = new AbortController()
  ends.push([{}, { signal: own.signal }, () => own.abort(new Error('enough'))])
  ends.push([{ signal: ofClient.signal }, {}, () => ofClient.abort()])
  const results = []
  for (const [options, init, end] of ends) {
    const { daemon, waiting } = await waitingDaemon(api.url)
    const client = clientOf(daemon, options)
    const call = client.fetch(api.url, init).then(({ status }) => status, String)
    await holds(() => waiting.length > 0)
    end(client, own)
    results.push(await call)
  }
  expect(results).toEqual([401, 'Error: enough', 401])
})

test('a refusal that comes after the close is the answer at once', async () => {
  const api = await startApi((_, response) => setTimeout(() => response.writeHead(401).end('late'), 100))
  const { daemon } = await waitingDaemon(api.url)
  const client = clientOf(daemon)
  const call = client.fetch(api.url)
  await holds(() => api.seen.length === 1)
  client.close()
  expect(await (await call).text()).toBe('late')
  expect(daemon.asked.map(({ type }) => type)).toEqual(['token.get'])
  await expect(client.fetch(api.url)).rejects.toMatchObject({ code: 'closed' })
})

test('authorize gives the header for a call and, if it is refused, for one repetition', async () => {
  const daemon = await renewingDaemon(API)
  const authorization = await clientOf(daemon).authorize({ minValidSeconds: 30 })
  expect(authorization).toMatchObject({
    headers: { Authorization: 'Bearer token-1' },
    token: { accessToken: 'token-1' },
  })
  const next = await authorization.refused()
  expect(next?.headers).toEqual({ Authorization: 'Bearer token-2' })
  expect(await next?.refused()).toBeUndefined()
  // Another call that the first token had been given to is reported no second time.
  expect((await authorization.refused())?.headers).toEqual({ Authorization: 'Bearer token-2' })
  expect(daemon.asked.map(({ type }) => type)).toEqual([
    'token.get',
    'token.reject',
    'token.get',
    'token.get',
  ])
  expect(daemon.asked[0]?.data).toMatchObject({ minValidSeconds: 30 })
})

test('authorize names the place whose refusals are its own, which it shares with fetch', async () => {
  const api = await startApi((_, response) => response.writeHead(401).end())
  const daemon = await renewingDaemon(api.url)
  const client = clientOf(daemon)
  const reports = (): number => daemon.asked.filter(({ type }) => type === 'token.reject').length
  const url = new URL(`${api.url}/own?query=1`)
  const options = { url, method: 'post' }
  const call = client.authorize(options)
  url.pathname = '/changed'
  options.method = 'GET'
  const first = await call
  expect(first.refusedBy).toEqual([401])
  const second = await first.refused()
  expect(await second?.refused()).toBeUndefined()
  expect(reports()).toBe(1)
  expect(await (await client.authorize({ url: `${api.url}/own`, method: 'POST' })).refused()).toBeUndefined()
  expect((await client.fetch(`${api.url}/own`, { method: 'POST' })).status).toBe(401)
  expect(reports()).toBe(1)
  // GET is the method that is meant without one, and another place. Without a place nothing is remembered.
  await (await client.authorize({ url: `${api.url}/own` })).refused()
  expect(reports()).toBe(2)
  const unplaced = await client.authorize()
  expect(unplaced.headers).toEqual({ Authorization: 'Bearer token-2' })
  await expect(client.authorize({ url: 'no address' })).rejects.toMatchObject({ code: 'bad-request' })
})
