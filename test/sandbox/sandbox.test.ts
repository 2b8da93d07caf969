import { afterEach, describe, expect, it, vi } from 'vitest'
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

const stops: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const stop of stops.splice(0)) await stop()
})

async function start(
  options: { scenario?: ScenarioName; tokenLifetimeMs?: number; clock?: Clock; service?: ServiceConfig } = {},
) {
  const sandbox = await createSandbox({
    port: 0,
    scenario: 'ok',
    tokenLifetimeMs: 60_000,
    clock: createSystemClock(),
    ...options,
  })
  const stop = new AbortController()
  const running = sandbox.run(stop.signal)
  stops.push(async () => {
    stop.abort()
    await running
  })
  const ask = (credentials: unknown = sandboxCredentials): Promise<Response> =>
    fetch(`${sandbox.url}/token/external/jwt`, { method: 'POST', body: JSON.stringify(credentials) })
  const me = (token: string): Promise<Response> =>
    fetch(`${sandbox.url}/me`, { headers: { authorization: `Bearer ${token}` } })
  return { sandbox, ask, me }
}
async function tokenOf(response: Response): Promise<string> {
  expect(response.status).toBe(200)
  return ((await response.json()) as { accessToken: string }).accessToken
}
describe('the stand-in', () => {
  it('issues a JWT of the configured life, which its sample API accepts', async () => {
    const { ask, me } = await start({ tokenLifetimeMs: 90_000 })
    const token = await tokenOf(await ask())
    const claims = Buffer.from(token.split('.')[1] ?? '', 'base64url').toString()
    const { iat, exp } = JSON.parse(claims) as { iat: number; exp: number }
    expect(exp - iat).toBe(90)
    expect(await (await me(token)).json()).toMatchObject({ account: 'sandbox' })
    expect(await tokenOf(await ask())).not.toBe(token)
    expect((await me(token)).status).toBe(200)
  })

  it('refuses credentials it does not know as the service does', async () => {
    const { sandbox, ask } = await start()
    for (const wrong of [
      { apiKey: 'sandbox-key', apiSecret: 'no' },
      { apiKey: '', apiSecret: '' },
    ]) {
      const response = await ask(wrong)
      expect(response.status).toBe(404)
      const body = (await response.json()) as { timestamp: number }
      expect(body).toEqual({
        type: 'about:blank',
        title: 'KnownRuntimeError',
        status: 404,
        detail: 'Account not found',
        instance: '/token/external/jwt',
        timestamp: body.timestamp,
        'full-path': `${sandbox.url}/token/external/jwt`,
      })
      expect(Math.abs(Date.now() - body.timestamp)).toBeLessThan(60_000)
    }
  })

  it('refuses what is no request for a token', async () => {
    const { sandbox, ask } = await start()
    for (const body of [null, [], 'text', {}, { apiKey: 1, apiSecret: 2 }])
      expect((await ask(body)).status).toBe(400)
    await expect(ask({ apiKey: 'x'.repeat(20_000), apiSecret: '' })).rejects.toThrow('fetch failed')
    for (const path of ['/', '//', '/x?y', '/me/', '/%00', '/token/external/jwt'])
      expect((await fetch(sandbox.url + path)).status).toBe(404)
  })

  it('denies access without a token that lives', async () => {
    const { sandbox, me } = await start()
    const bare = await fetch(`${sandbox.url}/me`)
    expect([bare.status, bare.headers.get('www-authenticate')]).toEqual([401, 'Bearer'])
    const unknown = await me('unknown')
    expect(unknown.status).toBe(401)
  })

  it('forgets a token when its life is over', async () => {
    const instant = { bootMs: 0, wallMs: Date.now() }
    const clock: Clock = {
      now: () => instant,
      awakeMs: () => 0,
      schedule: () => () => undefined,
      sleep: () => Promise.resolve(),
    }
    for (const scenario of ['ok', 'opaque-token'] as const) {
      const { ask, me } = await start({ scenario, clock, tokenLifetimeMs: 10_000 })
      const token = await tokenOf(await ask())
      expect((await me(token)).status).toBe(200)
      instant.wallMs += 11_000
      expect((await me(token)).status).toBe(401)
    }
  })
})

describe('a scenario', () => {
  it('changes while it runs, and back', async () => {
    const { sandbox, ask } = await start()
    const put = (name: string) => fetch(`${sandbox.url}/scenario`, { method: 'PUT', body: name })
    expect(await (await put('outage\n')).text()).toBe('outage\n')
    expect(await (await fetch(`${sandbox.url}/scenario`)).text()).toBe('outage\n')
    expect((await ask()).status).toBe(503)
    expect((await put('toString')).status).toBe(400)
    expect((await ask()).status).toBe(503)
    await put('ok')
    expect((await ask()).status).toBe(200)
  })

  it('that is slow grants a token in the end', async () => {
    const sleep = vi.fn<Clock['sleep']>(() => Promise.resolve())
    const { ask } = await start({ scenario: 'slow', clock: { ...createSystemClock(), sleep } })
    expect((await ask()).status).toBe(200)
    expect(sleep.mock.calls.map(([ms]) => ms)).toEqual([5_000])
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

  it('is ended in the middle of a slow answer', async () => {
    const asleep = Promise.withResolvers<void>()
    const system = createSystemClock()
    const sleep: Clock['sleep'] = (ms, signal) => {
      asleep.resolve()
      return system.sleep(ms, signal)
    }
    const { ask } = await start({ scenario: 'slow', clock: { ...system, sleep } })
    const answer = ask().catch(() => 'cut')
    await asleep.promise
    for (const stop of stops.splice(0)) await stop()
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
  const descriptions: [string, object][] = [
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
  ]
  it.each(descriptions)('takes its request, and has every scenario: %s', async (_name, description) => {
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
    expect(await reasonOf('ok')).toBe('ok')
    expect(await reasonOf('opaque-token')).toBe('ok')
    expect(await reasonOf('expired-token')).toBe('expired')
    expect(await reasonOf('account-inactive')).toBe('account-inactive')
    expect(await reasonOf('account-not-found')).toBe('account-not-found')
    expect(await reasonOf('outage')).toBe('server-error')
    expect(await reasonOf('rate-limited')).toBe('rate-limited')
    expect(await reasonOf('slow')).toBe('timeout')
    expect(await reasonOf('html-error')).toBe('server-error')
    sandbox.setScenario('ok')
    const plain = await fetch(service.tokenUrl, { method: 'POST', body: '{}' })
    expect(plain.status).toBe(400)
  })
})
