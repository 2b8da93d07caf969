import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { createSystemClock, type Clock } from '../../src/lib/clock.ts'
import type { ServiceConfig } from '../../src/config/config.ts'
import { resolveService } from '../../src/config/service.ts'
import { smallConfig } from '../support/config-files.ts'
import { validateDocument } from '../../src/config/schema.ts'
import { Secret } from '../../src/lib/secret.ts'
import { createSandbox, sandboxCredentials } from '../../src/sandbox/sandbox.ts'
import { createFetchToken } from '../../src/source/fetch-token.ts'
import { knownLife } from '../../src/token/token.ts'
import type { ScenarioName } from '../../src/sandbox/scenarios.ts'

async function start(
  options: { scenario?: ScenarioName; tokenLifetimeMs?: number; clock?: Clock; service?: ServiceConfig } = {},
) {
  const defaults = { port: 0, scenario: 'ok', tokenLifetimeMs: 60_000, clock: createSystemClock() } as const
  const sandbox = await createSandbox({ ...defaults, ...options })
  const stop = new AbortController()
  const running = sandbox.run(stop.signal)
  const end = async () => {
    stop.abort()
    await running
  }
  onTestFinished(end)
  const ask = (credentials: unknown = sandboxCredentials): Promise<Response> =>
    fetch(`${sandbox.url}/token/external/jwt`, { method: 'POST', body: JSON.stringify(credentials) })
  const me = (token: string): Promise<Response> =>
    fetch(`${sandbox.url}/me`, { headers: { authorization: `Bearer ${token}` } })
  return { sandbox, ask, me, end }
}
async function tokenOf(response: Response): Promise<string> {
  expect(response.status).toBe(200)
  return ((await response.json()) as { accessToken: string }).accessToken
}

describe('the stand-in', () => {
  it('refuses credentials it does not know as the service does, and what is no request for a token', async () => {
    const { sandbox, ask } = await start()
    const response = await ask({ apiKey: 'sandbox-key', apiSecret: 'no' })
    expect(response.status).toBe(404)
    expect(await response.json()).toEqual({
      type: 'about:blank',
      title: 'KnownRuntimeError',
      status: 404,
      detail: 'Account not found',
      instance: '/token/external/jwt',
      timestamp: expect.any(Number) as number,
      'full-path': `${sandbox.url}/token/external/jwt`,
    })
    for (const body of [null, [], 'text', {}, { apiKey: 1, apiSecret: 2 }])
      expect((await ask(body)).status).toBe(400)
    await expect(ask({ apiKey: 'x'.repeat(20_000), apiSecret: '' })).rejects.toThrow('fetch failed')
    for (const path of ['/', '//', '/x?y', '/me/', '/%00', '/token/external/jwt'])
      expect((await fetch(sandbox.url + path)).status).toBe(404)
  })

  it('has a sample API, which takes a token as long as it lives', async () => {
    const instant = { bootMs: 0, wallMs: Date.now() }
    const clock: Clock = { ...createSystemClock(), now: () => instant }
    const { sandbox, ask, me } = await start({ clock, tokenLifetimeMs: 90_000 })
    const bare = await fetch(`${sandbox.url}/me`)
    expect([bare.status, bare.headers.get('www-authenticate')]).toEqual([401, 'Bearer'])
    expect((await me('unknown')).status).toBe(401)
    const token = await tokenOf(await ask())
    const claims = Buffer.from(token.split('.')[1] ?? '', 'base64url').toString()
    const { iat, exp } = JSON.parse(claims) as { iat: number; exp: number }
    expect(exp - iat).toBe(90)
    expect(await (await me(token)).json()).toMatchObject({ account: 'sandbox' })
    sandbox.setScenario('opaque-token')
    const tokens = [token, await tokenOf(await ask())]
    for (const [passedMs, status] of [
      [89_000, 200],
      [2_000, 401],
    ] as const) {
      instant.wallMs += passedMs
      for (const each of tokens) expect((await me(each)).status).toBe(status)
    }
  })
})

describe('a scenario', () => {
  it('changes while it runs, and back', async () => {
    const { sandbox, ask } = await start()
    const put = (name: string) => fetch(`${sandbox.url}/scenario`, { method: 'PUT', body: name })
    expect(await (await put('outage\n')).text()).toBe('outage\n')
    expect(await (await fetch(`${sandbox.url}/scenario`)).text()).toBe('outage\n')
    expect((await put('toString')).status).toBe(400)
    expect((await ask()).status).toBe(503)
    await put('ok')
    expect((await ask()).status).toBe(200)
  })

  it('that is flaky fails by turns', async () => {
    const { sandbox, ask } = await start({ scenario: 'flaky' })
    for (let round = 0; round < 2; round += 1) {
      expect((await ask()).status).toBe(500)
      await expect(ask()).rejects.toThrow('fetch failed')
      expect((await ask()).status).toBe(200)
    }
    for (let round = 0; round < 2; round += 1) {
      sandbox.setScenario('flaky')
      expect((await ask()).status).toBe(500)
    }
  })

  it('that is slow grants a token after 5 s, and the end of the stand-in cuts it off', async () => {
    const system = createSystemClock()
    const sleep = vi.fn<Clock['sleep']>(() => Promise.resolve())
    const { ask, end } = await start({ scenario: 'slow', clock: { ...system, sleep } })
    expect((await ask()).status).toBe(200)
    expect(sleep.mock.calls.map(([ms]) => ms)).toEqual([5_000])
    const asleep = Promise.withResolvers<void>()
    sleep.mockImplementation((ms, signal) => {
      asleep.resolve()
      return system.sleep(ms, signal)
    })
    const answer = ask().catch(() => 'cut')
    await asleep.promise
    await end()
    expect(await answer).toBe('cut')
  })
})

describe('the stand-in of a described service', () => {
  const described = (description: object, baseUrl: string): ServiceConfig => {
    const document = { ...smallConfig(), baseUrl, service: description }
    return resolveService(validateDocument(document).settings!.service, {
      baseUrl,
      diagnostics: { fault: (at, sentence) => expect.fail(`${at}: ${sentence}`), warn: () => undefined },
    })
  }
  it.each<[string, object]>([
    ['that of the interface description', {}],
    ['OAuth2 with Basic', { preset: 'oauth2', tokenUrl: '/oauth/token' }],
    [
      'OAuth2 with a form',
      { preset: 'oauth2', tokenUrl: '/oauth/token', send: 'form', headers: { 'X-A': 'b' } },
    ],
    [
      'JSON with other names',
      { names: { apiKey: 'user' }, parameters: { realm: 'r' }, token: 'a.b', lifetime: 'a.c' },
    ],
  ])('takes its request, and has every scenario: %s', async (_name, description) => {
    const { sandbox } = await start({ service: described(description, 'https://api.example.com') })
    const service = described(description, sandbox.url)
    const ask = (apiSecret: string) =>
      createFetchToken({
        service,
        credentials: { apiKey: new Secret(sandboxCredentials.apiKey), apiSecret: new Secret(apiSecret) },
        request: { timeoutMs: 1_000, connectTimeoutMs: 1_000, ca: null, isBuiltInTrusted: true, proxy: null },
        env: {},
        clock: createSystemClock(),
        secrets: () => [],
      })(new AbortController().signal)
    const reasonOf = async (scenario: ScenarioName): Promise<string> => {
      sandbox.setScenario(scenario)
      const outcome = await ask(sandboxCredentials.apiSecret)
      if (outcome.kind !== 'ok') return outcome.reason
      expect(outcome.answerLifeMs).toBe(service.lifetime === null ? undefined : 60_000)
      const { lifeMs } = knownLife(outcome, Date.now()) ?? { lifeMs: Infinity }
      return lifeMs > 0 ? 'ok' : 'expired'
    }
    expect(await ask('wrong')).toMatchObject({ kind: 'permanent', reason: 'account-not-found' })
    for (const [scenario, reason] of Object.entries({
      ok: 'ok',
      'opaque-token': 'ok',
      'expired-token': 'expired',
      'account-inactive': 'account-inactive',
      'account-not-found': 'account-not-found',
      outage: 'server-error',
      'rate-limited': 'rate-limited',
      slow: 'timeout',
      'html-error': 'server-error',
    }))
      expect(await reasonOf(scenario as ScenarioName), scenario).toBe(reason)
    sandbox.setScenario('ok')
    expect((await fetch(service.tokenUrl, { method: 'POST', body: '{}' })).status).toBe(400)
  })
})
