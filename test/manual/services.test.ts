// The descriptions of other-services.md: each is loaded, and gets a token of the stand-in that it describes.
import { expect, onTestFinished, test } from 'vitest'
import type { Config } from '../../src/config/config.ts'
import { loadConfig } from '../../src/config/load.ts'
import { createSystemClock } from '../../src/lib/clock.ts'
import { createFetchToken } from '../../src/source/fetch-token.ts'
import type { ServiceOutcome } from '../../src/token/outcome.ts'
import { useConfigFiles } from '../support/config-files.ts'
import { createSandbox, sandboxCredentials } from '../../src/sandbox/sandbox.ts'
import { block, tableRows } from './manual.ts'

const files = useConfigFiles()

async function configOf(document: object): Promise<Config> {
  const configPath = files.write('c.json', document)
  return loadConfig({ configPath, env: { RUNTIME_DIRECTORY: '/run/x', STATE_DIRECTORY: '/var/lib/x' } })
}

async function ask(config: Config): Promise<ServiceOutcome> {
  const fetchToken = createFetchToken({ ...config, env: {}, clock: createSystemClock(), secrets: () => [] })
  return fetchToken(new AbortController().signal)
}

/** The stand-in of `kyc-tokend sandbox` plays the description: it gives a token, takes it, and refuses what is wrong. */
async function expectStandIn(
  configAt: (baseUrl: string, credentials: object) => Promise<Config>,
): Promise<void> {
  const { service } = await configAt('http://127.0.0.1:1', sandboxCredentials)
  const options = { port: 0, scenario: 'ok', tokenLifetimeMs: 60_000 } as const
  const sandbox = await createSandbox({ ...options, clock: createSystemClock(), service })
  const stop = new AbortController()
  const serving = sandbox.run(stop.signal)
  onTestFinished(async () => {
    stop.abort()
    await serving
  })
  const granted = await ask(await configAt(sandbox.url, sandboxCredentials))
  expect(granted).toMatchObject({ kind: 'ok', accessToken: expect.stringMatching(/^ey/) })
  const { header, prefix } = service.use
  const token = (granted as { accessToken: string }).accessToken
  expect((await fetch(`${sandbox.url}/me`, { headers: { [header]: prefix + token } })).status).toBe(200)
  const wrong = await ask(await configAt(sandbox.url, { ...sandboxCredentials, apiKey: 'wrong-key' }))
  expect(wrong.kind).not.toBe('ok')
}

test.each(['service-oauth2', 'service-form'])(
  '%s gets a token of the stand-in that it describes',
  async (name) => {
    await expectStandIn(async (baseUrl, credentials) => {
      const text = block(name).code.replaceAll(/https:\/\/\w+\.example\.com/g, baseUrl)
      return configOf({ ...(JSON.parse(text) as object), credentials })
    })
  },
)

const vendors = JSON.parse(block('vendors').code) as Record<string, { tokenUrl: string }>

test('the vendors are those with a page, each with its description', () => {
  const named = tableRows('vendors')
  expect(named.map(([vendor]) => vendor)).toEqual(Object.keys(vendors))
  expect(named.every(([, , page = '']) => /[a-z]{4}/.test(page))).toBe(true)
})

test.each(Object.entries(vendors))(
  'the description of %s gets a token of the stand-in that it describes',
  async (_name, described) => {
    for (const secret of ['client-id', 'client-secret', 'x-api-key', 'third', 'fourth'])
      files.write(secret, `secret-${secret}`)
    const tokenUrl = described.tokenUrl.replace(/^(?:https:\/\/[^/]+|TOKEN_URL$)/, '') || '/token'
    await expectStandIn(async (baseUrl, credentials) =>
      configOf({ baseUrl, credentials, service: { ...described, tokenUrl } }),
    )
  },
)
