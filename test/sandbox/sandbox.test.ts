// The stand-in by its answers, and by what the daemon's source makes of them.
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import type { PairConfig, ServiceConfig } from '../../src/config/config.ts'
import { createSystemClock, type Clock } from '../../src/lib/clock.ts'
import { Secret } from '../../src/lib/secret.ts'
import { createSandbox, sandboxCredentials } from '../../src/sandbox/sandbox.ts'
import { scenarioNames, type ScenarioName } from '../../src/sandbox/scenarios.ts'
import { lifeOf } from '../../src/token/token.ts'
import { jwtOf } from '../support/jwt.ts'
import { fetchFrom, partsFor } from '../support/source.ts'

type Plan = { service: ServiceConfig; pair: PairConfig }

async function start(options: { scenario?: ScenarioName; clock?: Clock; plan?: Plan } = {}) {
  const defaults = { port: 0, scenario: 'ok', tokenLifetimeMs: 90_000, clock: createSystemClock() } as const
  const sandbox = await createSandbox({ ...defaults, ...options })
  const stop = new AbortController()
  const running = sandbox.run(stop.signal)
  onTestFinished(async () => {
    stop.abort()
    await running
  })
  const ask = (credentials: unknown = sandboxCredentials): Promise<Response> =>
    fetch(`${sandbox.url}/token/external/jwt`, { method: 'POST', body: JSON.stringify(credentials) })
  return { sandbox, ask }
}

it('refuses credentials that it does not know as the service does, and what is no request for a token', async () => {
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
  for (const path of ['/', '//', '/x?y', '/%00', '/token/external/jwt'])
    expect((await fetch(sandbox.url + path)).status).toBe(404)
})

it('changes its scenario while it runs, and begins each at its first answer', async () => {
  const { sandbox, ask } = await start()
  const put = (name: string) => fetch(`${sandbox.url}/scenario`, { method: 'PUT', body: name })
  expect((await put('toString')).status).toBe(400)
  for (let turn = 0; turn < 2; turn += 1) {
    expect(await (await put('flaky\n')).text()).toBe('flaky\n')
    expect((await ask()).status).toBe(500)
    await expect(ask()).rejects.toThrow('fetch failed')
    expect((await ask()).status).toBe(200)
    expect((await ask()).status).toBe(500)
  }
  expect(await (await fetch(`${sandbox.url}/scenario`)).text()).toBe('flaky\n')
})

it('grants a token after 5 s where it is slow', async () => {
  const sleep = vi.fn<Clock['sleep']>(() => Promise.resolve())
  const { ask } = await start({ scenario: 'slow', clock: { ...createSystemClock(), sleep } })
  expect((await ask()).status).toBe(200)
  expect(sleep.mock.calls.map(([ms]) => ms)).toEqual([5_000])
})

describe('the stand-in of a described service', () => {
  const OAUTH2 = { parameters: { grant_type: 'client_credentials' }, token: ['access_token'] }
  const assertion = { kind: 'ready', file: 'assertion', as: 'exchange', type: null } as const
  it.each<[string, Partial<PairConfig>, Partial<ServiceConfig>]>([
    ['that of the interface description', {}, {}],
    ['HTTP Basic', { ...OAUTH2, send: 'basic' }, { lifetime: ['expires_in'] }],
    ['plain HTTP Basic', { ...OAUTH2, send: 'basic-plain' }, { refusals: [] }],
    ['a form', { ...OAUTH2, send: 'form', headers: { 'X-A': 'b' } }, {}],
    ['headers', { send: 'headers', names: { apiKey: 'X-Key', apiSecret: null } }, {}],
    ['JSON', { names: { apiKey: 'user', apiSecret: null }, token: ['a', 'b'] }, { lifetime: ['a', 'c'] }],
    ['an assertion', { ...OAUTH2, send: 'assertion', assertion }, {}],
  ])('takes its request, and has every scenario: %s', async (_name, pair, service) => {
    const parts = partsFor('https://api.example.com', { pair, service })
    const { sandbox } = await start({ plan: parts })
    const ask = (apiKey: string = sandboxCredentials.apiKey) => {
      const secrets = { apiKey: new Secret(apiKey), apiSecret: new Secret(sandboxCredentials.apiSecret) }
      const request = { timeoutMs: 1_000, connectTimeoutMs: 1_000 }
      return fetchFrom(sandbox.url, { service, pair: { ...secrets, ...pair }, request }, jwtOf({ exp: 4e9 }))
    }
    const reasonOf = async (scenario: ScenarioName): Promise<string> => {
      sandbox.setScenario(scenario)
      const outcome = await ask()
      if (outcome.kind !== 'ok') return outcome.reason
      expect(outcome.answerLifeMs).toBe(service.lifetime === undefined ? undefined : 90_000)
      const { lifeMs } = lifeOf(outcome, Date.now(), Infinity)
      return lifeMs > 0 ? 'ok' : 'expired'
    }
    const isNamed = service.refusals === undefined
    expect(await ask('wrong')).toMatchObject({ reason: isNamed ? 'account-not-found' : 'rejected' })
    const reasons = {
      ok: 'ok',
      'account-inactive': isNamed ? 'account-inactive' : 'rejected',
      'account-not-found': isNamed ? 'account-not-found' : 'rejected',
      outage: 'server-error',
      'rate-limited': 'rate-limited',
      slow: 'timeout',
      flaky: 'server-error',
      'html-error': 'server-error',
      'opaque-token': 'ok',
      'expired-token': 'expired',
    }
    expect(Object.keys(reasons)).toEqual(scenarioNames)
    for (const [scenario, reason] of Object.entries(reasons))
      expect(await reasonOf(scenario as ScenarioName), scenario).toBe(reason)
  })
})
