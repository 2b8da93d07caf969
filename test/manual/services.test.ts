// The descriptions of other-services.md and of the vendors: each is loaded, and gets a token of what it describes.
import { generateKeyPairSync } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import type { Config } from '../../src/config/config.ts'
import { loadConfig } from '../../src/config/load.ts'
import { createSystemClock } from '../../src/lib/clock.ts'
import { createFetchToken } from '../../src/source/fetch-token.ts'
import type { ServiceOutcome } from '../../src/token/outcome.ts'
import { useConfigFiles } from '../support/config-files.ts'
import { createSandbox, sandboxCredentials } from '../../src/sandbox/sandbox.ts'
import { jwtOf } from '../support/jwt.ts'
import { serviceOf } from '../support/outside.ts'
import { bare, block, PROJECT, tableRows } from './manual.ts'

const files = useConfigFiles()

async function configOf(document: object): Promise<Config> {
  const configPath = files.write('c.json', document)
  return loadConfig({ configPath, env: { RUNTIME_DIRECTORY: '/run/x', STATE_DIRECTORY: '/var/lib/x' } })
}

/** Asks the service of this configuration once, without a daemon. */
async function ask(config: Config): Promise<ServiceOutcome> {
  const asking = createFetchToken({ ...config, env: {}, clock: createSystemClock(), secrets: () => [] })
  return asking(new AbortController().signal)
}

/** Starts the stand-in of `kyc-tokend sandbox`, as this configuration describes it. */
async function startStandIn(config: Config): Promise<string> {
  const options = { port: 0, scenario: 'ok', tokenLifetimeMs: 60_000 } as const
  const sandbox = await createSandbox({ ...options, clock: createSystemClock(), plan: config })
  const stop = new AbortController()
  const serving = sandbox.run(stop.signal)
  onTestFinished(async () => {
    stop.abort()
    await serving
  })
  return sandbox.url
}

test.each(['service-oauth2', 'service-form'])(
  '%s gets a token of the stand-in that it describes, which refuses what is wrong',
  async (name) => {
    const at = async (baseUrl: string, credentials: object = sandboxCredentials): Promise<Config> => {
      const text = block(name).code.replaceAll(/https:\/\/\w+\.example\.com/g, baseUrl)
      return configOf({ ...(JSON.parse(text) as object), credentials })
    }
    const url = await startStandIn(await at('http://127.0.0.1:1'))
    const config = await at(url)
    const granted = await ask(config)
    expect(granted).toMatchObject({ kind: 'ok', accessToken: expect.stringMatching(/^ey/) })
    expect((await ask(await at(url, { ...sandboxCredentials, apiKey: 'wrong-key' }))).kind).not.toBe('ok')
  },
)

const EXAMPLES = join(PROJECT, 'systemd/examples/services')

test('the vendors of the manual are those with an example', () => {
  const named = tableRows('vendors').map(([file]) => bare(file))
  expect(readdirSync(EXAMPLES).filter((file) => file.endsWith('.json'))).toEqual(named)
})

test.each(tableRows('vendors').map(([file]) => bare(file)))(
  '%s has no warning, and gets a token of the stand-in that it describes',
  async (file) => {
    const document = JSON.parse(readFileSync(join(EXAMPLES, file), 'utf8'))
    const { apiKey, apiSecret } = sandboxCredentials
    files.write('api-key', apiKey)
    files.write('api-secret', apiSecret)
    for (const name of ['client-id', 'client-secret', 'x-api-key', 'username', 'password'])
      files.write(name, `the-${name}`)
    const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
    files.write('assertion.pem', privateKey.export({ type: 'pkcs8', format: 'pem' }))
    const config = await configOf(document)
    expect(config.read.warnings).toEqual([])
    const tokenUrl = new URL(config.service.tokenUrl).pathname
    const here = {
      ...document,
      baseUrl: await startStandIn(config),
      service: { ...document.service, tokenUrl },
    }
    expect(await ask(await configOf(here))).toMatchObject({ kind: 'ok' })
  },
)

test.each(['assertion-spiffe', 'assertion-kubernetes'])(
  '%s sends the assertion that is in the file, also to the stand-in',
  async (name) => {
    const service = await serviceOf({ json: { access_token: 'GIVEN' } })
    files.write('client-id', sandboxCredentials.apiKey)
    const assertion = jwtOf({ exp: Math.floor(Date.now() / 1_000) + 300 })
    const path = files.write('assertion', assertion)
    const at = async (url: string): Promise<Config> => {
      const text = block(name).code.replaceAll(/https:\/\/\w+\.example\.com/g, url)
      return configOf(JSON.parse(text.replace(/"\/(?:run|var)\/[^"]+"/, JSON.stringify(path))))
    }
    const config = await at(service.url)
    expect(config.read.warnings.filter((warning) => !warning.startsWith('credentials'))).toEqual([])
    expect(await ask(config)).toMatchObject({ kind: 'ok', accessToken: 'GIVEN' })
    expect(service.requests[0]?.body).toContain(assertion)
    expect(await ask(await at(await startStandIn(await at('http://127.0.0.1:1'))))).toMatchObject({
      kind: 'ok',
    })
  },
)
