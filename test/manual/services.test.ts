// The descriptions of other-services.md and of the vendors: each is loaded, and gets a token of what it describes.
import { generateKeyPairSync } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import type { Config } from '../../src/config/config.ts'
import { loadConfig } from '../../src/config/load.ts'
import { createSystemClock } from '../../src/lib/clock.ts'
import { createSandbox, sandboxCredentials } from '../../src/sandbox/sandbox.ts'
import { createFetchToken } from '../../src/source/fetch-token.ts'
import { serviceEnv, useConfigFiles } from '../support/config-files.ts'
import { jwtOf } from '../support/jwt.ts'
import { bare, block, EXAMPLES, tableRows } from './manual.ts'

interface Description {
  readonly credentials: { readonly apiKey: { readonly file: string } | null }
  readonly service: object
}

const files = useConfigFiles()
const clock = createSystemClock()
const blocks = ['service-oauth2', 'service-form', 'assertion-spiffe', 'assertion-kubernetes']
const vendors = tableRows('vendors').map(([file]) => bare(file))

test('the vendors of the manual are those with an example', () => {
  const there = readdirSync(join(EXAMPLES, 'services')).filter((file) => file.endsWith('.json'))
  expect(there).toEqual(vendors)
})

test.each([
  ...blocks.map((name) => [name, block(name).code]),
  ...vendors.map((file) => [file, readFileSync(join(EXAMPLES, 'services', file), 'utf8')]),
])(
  '%s has no warning, and gets a token of the stand-in that it describes, which refuses another key',
  async (_, code = '') => {
    const readyMade = files.write('ready-made', jwtOf({ exp: Math.floor(Date.now() / 1_000) + 300 }))
    const inDirectory = code.replace(/"\/(?:run|var)\/[^"]+"/, JSON.stringify(readyMade))
    const { credentials, service, ...others } = JSON.parse(inDirectory) as Description
    const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
    files.write('assertion.pem', privateKey.export({ type: 'pkcs8', format: 'pem' }))
    for (const name of ['x-api-key', 'username', 'password']) files.write(name, `the-${name}`)
    for (const name of ['api-key', 'key', 'client-id']) files.write(name, sandboxCredentials.apiKey)
    for (const name of ['api-secret', 'secret', 'client-secret'])
      files.write(name, sandboxCredentials.apiSecret)
    const config = await configOf({ credentials, service, ...others })
    expect(config.read.warnings).toEqual([])

    const { pathname, search } = new URL(config.service.tokenUrl)
    // The stand-in of `kyc-tokend sandbox`, as this configuration describes it.
    const options = { port: 0, scenario: 'ok', tokenLifetimeMs: 60_000 } as const
    const standIn = await createSandbox({ ...options, clock, plan: config })
    const stop = new AbortController()
    const serving = standIn.run(stop.signal)
    onTestFinished(() => {
      stop.abort()
      return serving
    })
    const ask = async () => {
      const here = { credentials, baseUrl: standIn.url, service: { ...service, tokenUrl: pathname + search } }
      const asking = createFetchToken({ ...(await configOf(here)), env: {}, clock, secrets: () => [] })
      return asking(new AbortController().signal)
    }
    expect(await ask()).toMatchObject({ kind: 'ok', accessToken: expect.stringMatching(/^ey/) })
    files.write(credentials.apiKey?.file ?? 'ready-made', 'another')
    expect((await ask()).kind).not.toBe('ok')
  },
)

const configOf = (document: object): Promise<Config> =>
  loadConfig({ configPath: files.write('c.json', document), env: serviceEnv })
