import { expect, onTestFinished, test, vi } from 'vitest'
import type { RejectResult } from '../../src/client/index.ts'
import { clientOf, daemonWith, startApi, strict } from '../support/client-world.ts'
import { tokenFields, type Asking, type ScriptedDaemon } from '../support/scripted-daemon.ts'

interface World {
  readonly daemon: ScriptedDaemon
  /** From now on the daemon has `token-2`: those who wait get it. */
  readonly renew: () => void
  /** From now on this is the answer to a report. */
  readonly answerReports: (result: RejectResult) => void
}
/** A daemon that has `token-1`, and waits as long as it is asked to where another is wanted. */
async function stubbornDaemon(baseUrl: string, first: RejectResult): Promise<World> {
  let result = first
  let token = tokenFields('token-1', { baseUrl })
  const waiting = new Set<Asking>()
  const daemon = await daemonWith((asking) => {
    if (asking.type === 'token.reject') return asking.answer('reject.result', result)
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

test('further calls do not send the refused token: they wait, and are served when there is another', async () => {
  const api = await startApi(strict)
  const world = await stubbornDaemon(api.url, { verdict: 'held', retryAfterSeconds: 25 })
  const client = clientOf(world.daemon)
  await client.fetch(api.url)
  const calls = Array.from({ length: 100 }, () => client.fetch(api.url))
  await vi.waitUntil(() => world.daemon.asked.some(({ data }) => data['notFingerprint'] !== undefined))
  expect(api.seen.length).toBe(1)
  world.renew()
  expect((await Promise.all(calls)).every(({ status }) => status === 200)).toBe(true)
  expect(api.seen.filter((request) => request.includes('token-1')).length).toBe(1)
  // One wait for all, and one report.
  expect(world.daemon.asked.filter(({ data }) => data['notFingerprint'] !== undefined).length).toBe(1)
  expect(reportsOf(world)).toBe(1)
})

test('a call that has waited 10 s for another token is rejected, and says when to try again', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
  const uptime = vi.spyOn(process, 'uptime').mockImplementation(() => performance.now() / 1_000)
  onTestFinished(() => {
    uptime.mockRestore()
    vi.useRealTimers()
  })
  const api = await startApi(strict)
  const world = await stubbornDaemon(api.url, { verdict: 'held', retryAfterSeconds: 25 })
  const client = clientOf(world.daemon)
  await client.fetch(api.url)
  const refused = client.fetch(api.url).catch((error: unknown) => error)
  await vi.waitUntil(() => world.daemon.asked.some(({ data }) => data['notFingerprint'] !== undefined), {
    interval: 5,
  })
  for (let second = 0; second < 12; second += 1) await vi.advanceTimersByTimeAsync(1_000)
  expect(await refused).toMatchObject({ code: 'token-refused', retryAfterSeconds: 15 })
  expect(api.seen.length).toBe(1)
})

test('calls that are refused at the same time make one report', async () => {
  const held: (() => void)[] = []
  const api = await startApi((request, response) => {
    const answer = (): void => strict(request, response)
    if (request.headers.authorization === 'Bearer token-1') held.push(answer)
    else answer()
  })
  const world = await stubbornDaemon(api.url, { verdict: 'refreshing' })
  const client = clientOf(world.daemon)
  const calls = Array.from({ length: 20 }, () => client.fetch(api.url))
  await vi.waitUntil(() => held.length === 20)
  for (const answer of held) answer()
  await vi.waitUntil(() => reportsOf(world) === 1)
  world.renew()
  expect((await Promise.all(calls)).every(({ status }) => status === 200)).toBe(true)
  expect(reportsOf(world)).toBe(1)
})

test('when the daemon has asked the service, it is asked about the token again, and not the service', async () => {
  const api = await startApi(strict)
  const world = await stubbornDaemon(api.url, { verdict: 'refreshing' })
  const client = clientOf(world.daemon)
  const call = client.fetch(api.url)
  await vi.waitUntil(() => reportsOf(world) === 1)
  world.answerReports({ verdict: 'refused' })
  expect((await call).status).toBe(401)
  expect([reportsOf(world), api.seen.length]).toEqual([2, 1])
})

test('a token that the service gave again is tried again when the daemon would ask again', async () => {
  let isRefused = true
  const api = await startApi((_, response) => response.writeHead(isRefused ? 401 : 200).end())
  const world = await stubbornDaemon(api.url, { verdict: 'unchanged', retryAfterSeconds: 1 })
  const client = clientOf(world.daemon)
  expect((await client.fetch(api.url)).status).toBe(401)
  isRefused = false
  expect((await client.fetch(api.url)).status).toBe(200)
  expect(api.seen.length).toBe(2)
})

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
  const api = await startApi(strict)
  const daemon = await daemonWith(({ type, answer, data }) => {
    if (type === 'token.reject') return answer('reject.result', { verdict: 'held', retryAfterSeconds: 25 })
    if (data['notFingerprint'] !== undefined) return answer('token.result', tokenFields('token-2'))
    return answer('token.result', tokenFields('token-1', { baseUrl: api.url }))
  })
  const client = clientOf(daemon)
  await client.fetch(api.url)
  await expect(client.fetch(api.url)).rejects.toMatchObject({ code: 'bad-request' })
  expect(api.seen.length).toBe(1)
})

test('an abort ends the wait for another token', async () => {
  const api = await startApi(strict)
  const world = await stubbornDaemon(api.url, { verdict: 'held', retryAfterSeconds: 25 })
  const client = clientOf(world.daemon)
  await client.fetch(api.url)
  const stop = new AbortController()
  const call = client.fetch(api.url, { signal: stop.signal })
  await vi.waitUntil(() => world.daemon.asked.some(({ data }) => data['notFingerprint'] !== undefined))
  stop.abort(new Error('enough'))
  await expect(call).rejects.toThrow('enough')
})

test('fetch is bound: it can be given away', async () => {
  const api = await startApi((_, response) => response.end())
  const world = await stubbornDaemon(api.url, { verdict: 'refreshing' })
  const { fetch: given } = clientOf(world.daemon)
  expect((await given(api.url)).status).toBe(200)
})
