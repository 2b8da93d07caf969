// A token that the API refuses is suspect: one bad endpoint costs its neighbours next to nothing, and a revoked token is sent a few times only.
import fc from 'fast-check'
import { beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest'
import { createFakeTokenClient, type FakeTokenClient } from '../../src/client/testing.ts'
import type { RejectResult, TokenClientError } from '../../src/client/index.ts'
import { createSuspectTokens } from '../../src/client/suspect-tokens.ts'
import { createRandom } from '../support/random.ts'

const LATENCY_MS = 50
const URL_OF = 'https://api.example.com/'

beforeEach(() => {
  vi.useFakeTimers()
  onTestFinished(() => {
    vi.useRealTimers()
    vi.unstubAllGlobals()
    vi.restoreAllMocks()
  })
})

interface Outcome {
  readonly path: string
  readonly result: number | string
  readonly retryAfterSeconds?: number | undefined
  readonly atMs: number
  readonly tookMs: number
}
interface World {
  readonly tokens: FakeTokenClient
  readonly outcomes: Outcome[]
  /** When each call arrived at the API, and with which token. */
  readonly sent: { readonly token: string; readonly atMs: number }[]
  readonly reportedAtMs: number[]
  readonly call: (path: string) => Promise<void>
  readonly revoke: () => void
  readonly pass: (ms: number) => Promise<void>
}

/**
 * An API in memory. `good` is answered with 200 while the token is good, `bad` always with 401, `none` with 404; `slow` is
 * `good` after 3 s.
 */
function world(verdict: RejectResult | undefined, options: object = {}): World {
  const tokens = createFakeTokenClient({ lifeSeconds: 86_400, ...options })
  onTestFinished(() => tokens.close())
  if (verdict !== undefined) tokens.answerReports(verdict)
  const [outcomes, sent, revoked]: [Outcome[], World['sent'], Set<string>] = [[], [], new Set()]
  const reportedAtMs: number[] = []
  vi.spyOn(tokens.reported as string[], 'push').mockImplementation((...names) => {
    reportedAtMs.push(...names.map(() => Date.now()))
    return reportedAtMs.length
  })
  const statusOf = (path: string, token: string): number => {
    if (revoked.has(token) || path === 'bad') return 401
    return path === 'none' ? 404 : 200
  }
  vi.stubGlobal('fetch', async (url: string, { headers }: { headers: Headers }) => {
    const path = url.slice(URL_OF.length)
    const token = String(headers.get('authorization')).slice('Bearer '.length)
    sent.push({ token, atMs: Date.now() })
    await new Promise((resolve) => setTimeout(resolve, path === 'slow' ? 3_000 : LATENCY_MS))
    return new Response(null, { status: statusOf(path, token) })
  })
  return {
    tokens,
    outcomes,
    sent,
    reportedAtMs,
    async call(path) {
      const atMs = Date.now()
      const answer = await tokens.fetch(`${URL_OF}${path}`).then(
        ({ status }) => ({ result: status }),
        ({ code, retryAfterSeconds }: TokenClientError) => ({ result: code, retryAfterSeconds }),
      )
      outcomes.push({ path, ...answer, atMs, tookMs: Date.now() - atMs })
    },
    revoke: () => revoked.add(`fake-token-${revoked.size + 1}`),
    async pass(ms) {
      await vi.advanceTimersByTimeAsync(ms)
    },
  }
}

/** Calls this path again and again, with a pause, until the time is over. */
async function lane({ call }: World, path: string, how: { pauseMs: number; forMs: number }): Promise<void> {
  const untilMs = Date.now() + how.forMs
  while (Date.now() < untilMs) {
    await call(path)
    await new Promise((resolve) => setTimeout(resolve, how.pauseMs))
  }
}
const MINUTE_MS = 60_000
const others: (RejectResult | undefined)[] = [
  { verdict: 'held', retryAfterSeconds: 25 },
  { verdict: 'unchanged', retryAfterSeconds: 25 },
  { verdict: 'refreshing' },
  { verdict: 'refused' },
  undefined,
]

test.each(others)('one bad call a second for a minute harms none of 20 good ones (%j)', async (verdict) => {
  const it = world(verdict)
  for (let count = 0; count < 20; count += 1) void lane(it, 'good', { pauseMs: 50, forMs: MINUTE_MS })
  for (let second = 0; second < 60; second += 1) setTimeout(() => void it.call('bad'), second * 1_000)
  await it.pass(MINUTE_MS + 15_000)
  const good = it.outcomes.filter(({ path }) => path === 'good')
  expect(good.length).toBeGreaterThan(10_000)
  expect(good.filter(({ result, tookMs }) => result !== 200 || tookMs > 2_000)).toEqual([])
  const bad = it.outcomes.filter(({ path }) => path === 'bad')
  expect(bad.map(({ result }) => result)).toEqual(Array.from({ length: 60 }, () => 401))
  // Without a verdict the fake gives another token for each report.
  expect(it.reportedAtMs.length).toBeLessThanOrEqual(verdict === undefined ? 60 : 3)
})

test('calls that are refused for a reason of their own do not all go first', async () => {
  vi.spyOn(Math, 'random').mockImplementation(createRandom(23))
  const it = world({ verdict: 'held', retryAfterSeconds: 25 })
  for (let count = 0; count < 10; count += 1) void lane(it, 'bad', { pauseMs: 100, forMs: MINUTE_MS })
  await it.pass(LATENCY_MS)
  for (let count = 0; count < 20; count += 1) void lane(it, 'good', { pauseMs: 2_000, forMs: MINUTE_MS })
  await it.pass(MINUTE_MS + 15_000)
  const good = it.outcomes.filter(({ path }) => path === 'good')
  expect(good.filter(({ result, tookMs }) => result !== 200 || tookMs > 2_000)).toEqual([])
})

test('a slow good answer clears the token, too, while it is reported again and again', async () => {
  const it = world({ verdict: 'refreshing' })
  void it.call('bad')
  await it.pass(LATENCY_MS)
  for (let count = 0; count < 20; count += 1) void it.call('slow')
  await it.pass(MINUTE_MS)
  const slow = it.outcomes.filter(({ path }) => path === 'slow')
  expect(slow.map(({ result }) => result)).toEqual(Array.from({ length: 20 }, () => 200))
})

test('a revoked token is sent a few times, and all calls get the other one when it comes', async () => {
  const it = world({ verdict: 'held', retryAfterSeconds: 25 })
  for (let count = 0; count < 20; count += 1) void lane(it, 'good', { pauseMs: 50, forMs: MINUTE_MS })
  await it.pass(10_000)
  const before = it.sent.length
  it.revoke()
  await it.pass(25_000)
  // Those under way, one by one with a growing pause, and then one a second.
  expect(it.sent.length - before).toBeLessThan(20 + 6 + 25)
  expect(it.reportedAtMs.length).toBe(1)
  it.tokens.rotate()
  await it.pass(MINUTE_MS)
  const refused = it.outcomes.filter(({ result }) => result !== 200)
  for (const { result, tookMs, retryAfterSeconds } of refused) {
    if (result === 401) continue
    expect(result).toBe('token-refused')
    expect(tookMs).toBe(10_000)
    expect(retryAfterSeconds).toBeGreaterThan(0)
    expect(retryAfterSeconds).toBeLessThanOrEqual(15)
  }
  expect(it.outcomes.at(-1)).toMatchObject({ result: 200, tookMs: LATENCY_MS })
})

test('a revoked token is sent once a second, also while the API answers slowly', async () => {
  const it = world({ verdict: 'held', retryAfterSeconds: 25 })
  void it.call('bad')
  await it.pass(LATENCY_MS)
  it.revoke()
  for (let count = 0; count < 50; count += 1) void lane(it, 'slow', { pauseMs: 50, forMs: MINUTE_MS })
  await it.pass(MINUTE_MS)
  const sentAtMs = it.sent.map(({ atMs }) => atMs)
  const gapsMs = sentAtMs.slice(2).map((atMs, index) => atMs - (sentAtMs[index + 1] ?? 0))
  expect(Math.max(...gapsMs)).toBeLessThanOrEqual(1_001)
  expect(sentAtMs.length).toBeLessThan(60 + 10)
})

describe('whatever is called and whatever happens to the token', () => {
  const paths = fc.constantFrom('good', 'good', 'good', 'bad', 'none', 'slow')
  const steps = fc.array(fc.record({ path: paths, afterMs: fc.constantFrom(0, 0, 20, 200, 3_000) }), {
    maxLength: 60,
  })
  const verdicts = fc.constantFrom(...others.slice(0, 4))

  test('with a good token each call has its own answer, and waits for at most one turn of each other', async () => {
    await fc.assert(
      fc.asyncProperty(steps, verdicts, async (calls, verdict) => {
        const it = world(verdict)
        const startedAtMs: number[] = []
        for (const { path, afterMs } of calls) {
          startedAtMs.push(Date.now())
          void it.call(path)
          await it.pass(afterMs)
        }
        await it.pass(30_000)
        expect(it.outcomes.length).toBe(calls.length)
        for (const { path, result, tookMs, atMs } of it.outcomes) {
          const around = calls.filter(
            (call, index) => call.path !== 'good' && Math.abs((startedAtMs[index] ?? 0) - atMs) <= 13_000,
          ).length
          if (path === 'good') expect(tookMs).toBeLessThanOrEqual(LATENCY_MS + 1_100 * (around + 1))
          if (result === 'token-refused') expect(around).toBeGreaterThan(8)
          else expect(result).toBe({ good: 200, slow: 200, bad: 401, none: 404 }[path])
        }
      }),
      { numRuns: 50 },
    )
  })

  test('a revoked token is sent once a second, after a first few; with another one all calls succeed', async () => {
    const [lanes, seconds] = [fc.integer({ min: 1, max: 30 }), fc.integer({ min: 0, max: 40 })]
    await fc.assert(
      fc.asyncProperty(lanes, seconds, verdicts, async (count, renewalS, verdict) => {
        const it = world(verdict)
        for (let one = 0; one < count; one += 1) void lane(it, 'good', { pauseMs: 37, forMs: MINUTE_MS })
        await it.pass(500)
        it.revoke()
        await it.pass(renewalS * 1_000 + 10)
        it.tokens.rotate()
        const renewedAtMs = Date.now()
        await it.pass(MINUTE_MS)
        const reportedAtMs = it.reportedAtMs[0] ?? Infinity
        const again = it.sent.filter(({ token, atMs }) => token === 'fake-token-1' && atMs > reportedAtMs)
        expect(again.length).toBeLessThanOrEqual(6 + renewalS)
        for (const { atMs, tookMs, result } of it.outcomes) {
          expect(tookMs).toBeLessThanOrEqual(10_000 + LATENCY_MS)
          // The client asks for another token twice a second: a call whose 10 s end in between gets its 401.
          if (atMs + tookMs > renewedAtMs + LATENCY_MS + 500) expect(result).toBe(200)
        }
      }),
      { numRuns: 25, examples: [[1, 10, { verdict: 'refreshing' }]] },
    )
  })
})

test('sixteen refused tokens are known beside each other, and of more the first is forgotten', async () => {
  const suspects = createSuspectTokens({
    monotonicMs: () => 0,
    get: () => new Promise(() => undefined),
    reject: () => Promise.resolve({ verdict: 'refused' }),
  })
  const names = Array.from({ length: 17 }, (_, index) => `fingerprint-${index}`)
  for (const name of names) await suspects.report(name)
  expect(names.filter((name) => suspects.has(name))).toEqual(names.slice(1))
})
