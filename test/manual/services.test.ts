// The descriptions of other-services.md and of the vendors: each is loaded, and gets a token of what it describes.
import { generateKeyPairSync } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { expect, onTestFinished, test } from 'vitest'
import type { Config } from '../../src/config/config.ts'
import { loadConfig } from '../../src/config/load.ts'
import { createSystemClock } from '../../src/lib/clock.ts'
import type { ServiceOutcome } from '../../src/token/outcome.ts'
import { useConfigFiles } from '../support/config-files.ts'
import { createSandbox, sandboxCredentials } from '../../src/sandbox/sandbox.ts'
import { askOnce } from '../support/fetcher.ts'
import { jwtOf } from '../support/jwt.ts'
import { serviceOf } from '../support/outside.ts'
import type { ArrivedRequest } from '../support/service.ts'
import { bare, block, PROJECT, tableRows } from './manual.ts'

const files = useConfigFiles()

async function configOf(document: object): Promise<Config> {
  const configPath = files.write('c.json', document)
  return loadConfig({ configPath, env: { RUNTIME_DIRECTORY: '/run/x', STATE_DIRECTORY: '/var/lib/x' } })
}

async function ask(config: Config): Promise<ServiceOutcome> {
  return (await askOnce(config)).outcome
}

/** Starts the stand-in of `kyc-tokend sandbox`, as this configuration describes it. */
async function startStandIn({ service }: Config): Promise<string> {
  const options = { port: 0, scenario: 'ok', tokenLifetimeMs: 60_000 } as const
  const sandbox = await createSandbox({ ...options, clock: createSystemClock(), service })
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
    const { header, prefix } = config.service.use
    const headers = { [header]: prefix + (granted as { accessToken: string }).accessToken }
    expect((await fetch(`${url}/me`, { headers })).status).toBe(200)
    expect((await ask(await at(url, { ...sandboxCredentials, apiKey: 'wrong-key' }))).kind).not.toBe('ok')
  },
)

// ---- vendors: stand-ins made from their pages (read in November 2026)

/** The request that a page shows, with all fields of its body, and its answer. */
interface Page {
  /** Of the token endpoint; absent: the page has no address that is the same for everybody. */
  readonly url?: string
  readonly form?: object
  readonly json?: object
  /** Beside those of HTTP. */
  readonly headers?: Readonly<Record<string, string>>
  /** The field of the token. */
  readonly token?: string
  /** `expires_in` of the answer; absent: the answer has no life. */
  readonly life?: number | string
  readonly use?: readonly [header: string, prefix: string]
}
/** The texts of the files that an example names. */
const SECRETS = {
  'api-key': 'the-key-0815',
  'api-secret': 'the-secret',
  'client-id': 'the-client',
  'client-secret': 'the-client-secret',
  'x-api-key': 'the-x-api-key',
  username: 'the-user-0815',
  password: 'the-password',
}
const basic = { authorization: `Basic ${btoa('the-key-0815:the-secret')}` }
const login = { username: 'the-key-0815', password: 'the-secret' }
const client = { grant_type: 'client_credentials' }
const clientWithSecret = { ...client, client_id: 'the-key-0815', client_secret: 'the-secret' }

const vendorPages: Readonly<Record<string, Page>> = {
  'complyadvantage-mesh': {
    url: 'https://api.example.com/v2/token',
    json: { realm: 'YOUR REALM', ...login },
    life: 86_400,
  },
  creditsafe: { url: 'https://connect.creditsafe.com/v1/authenticate', json: login, token: 'token' },
  experian: {
    url: 'https://api.example.com/oauth2/v1/token',
    json: login,
    headers: { grant_type: 'password', client_id: 'the-client', client_secret: 'the-client-secret' },
    life: '1800',
  },
  'idmerit-idmkyc': { url: 'https://gw.idmerit.com/token', form: client, headers: basic, life: 3_600 },
  'idnow-platform': { url: 'https://api.example.com/oidc/token', form: clientWithSecret, life: 86_400 },
  incode: {
    json: { email: 'the-key-0815', password: 'the-secret' },
    headers: { 'x-api-key': 'the-x-api-key', 'api-version': '1.0' },
    token: 'token',
    use: ['X-Incode-Hardware-Id', ''],
  },
  jumio: {
    url: 'https://auth.region.jumio.ai/oauth2/token',
    form: client,
    headers: { ...basic, 'user-agent': 'YOUR COMPANY' },
    life: 3_600,
  },
  'lseg-world-check': {
    url: 'https://login.ciam.refinitiv.com/as/token.oauth2',
    form: { ...client, scope: 'trapi.risk-intel.wcod', aud: 'jwt:medium:default' },
    headers: basic,
    life: 7_200,
  },
  prove: { url: 'https://api.prove.com/v3/token', form: clientWithSecret, life: 3_600 },
  'qtf-kyc': { url: 'https://api.example.com/auth/jwt/login', form: login },
  'serpro-datavalid': {
    url: 'https://gateway.apiserpro.serpro.gov.br/token',
    form: client,
    headers: basic,
    life: 3_600,
  },
  'transmit-security': {
    url: 'https://api.transmitsecurity.io/oidc/token',
    form: { ...clientWithSecret, resource: 'YOUR RESOURCE' },
    life: 3_600,
  },
  'uk-home-office-lev': {
    form: {
      ...clientWithSecret,
      grant_type: 'password',
      username: 'the-user-0815',
      password: 'the-password',
    },
    life: 300,
  },
  unico: {
    url: 'https://identity.acesso.io/oauth2/token',
    // Any other claim is error 1.2.22.
    form: {
      grant_type: 'urn:ietf:params:oauth:grant-type:jwt-bearer',
      assertion: 'aud exp iat iss scope',
    },
    life: 3_600,
  },
}

const EXAMPLES = join(PROJECT, 'systemd/examples/services')

test('the vendors of the manual are those with an example and a stand-in', () => {
  const named = tableRows('vendors').map(([file]) => bare(file))
  expect(named).toEqual(Object.keys(vendorPages).map((name) => `${name}.json`))
  expect(readdirSync(EXAMPLES).filter((file) => file.endsWith('.json'))).toEqual(named)
})

/** What a request has, in the terms of a page; an assertion is the names of its claims. */
function readRequest({ body, headers }: ArrivedRequest, { headers: named = {} }: Page) {
  const isJson = headers['content-type'] === 'application/json'
  const fields: Record<string, unknown> = isJson
    ? JSON.parse(body)
    : Object.fromEntries(new URLSearchParams(body))
  const { assertion } = fields
  if (typeof assertion === 'string') {
    const claims: object = JSON.parse(Buffer.from(assertion.split('.')[1]!, 'base64url').toString())
    fields['assertion'] = Object.keys(claims).toSorted().join(' ')
  }
  return {
    type: headers['content-type'],
    fields,
    headers: Object.fromEntries(Object.keys(named).map((name) => [name, headers[name]])),
    hasLogin: headers.authorization !== undefined,
  }
}

test.each(Object.entries(vendorPages))(
  'the example for %s gets a token of a stand-in made from its page',
  async (name, page) => {
    const { url, form, json, headers = {}, token = 'access_token', life } = page
    const wanted = {
      type: json === undefined ? 'application/x-www-form-urlencoded' : 'application/json',
      fields: form ?? json,
      headers,
      hasLogin: 'authorization' in headers,
    }
    const service = await serviceOf((asked) =>
      isDeepStrictEqual(readRequest(asked, page), wanted)
        ? {
            json: {
              [token]: 'GIVEN',
              token_type: 'Bearer',
              ...(life !== undefined && { expires_in: life }),
            },
          }
        : { status: 400, json: { error: 'another request than that of the page' } },
    )
    for (const [file, text] of Object.entries(SECRETS)) files.write(file, text)
    const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
    files.write('assertion.pem', privateKey.export({ type: 'pkcs8', format: 'pem' }))
    const document = JSON.parse(readFileSync(join(EXAMPLES, `${name}.json`), 'utf8'))
    const whole = await configOf(document)
    expect(whole.warnings).toEqual([])
    if (url !== undefined) expect(whole.service.tokenUrl).toBe(url)
    const { header, prefix } = whole.service.use
    expect([header, prefix]).toEqual(page.use ?? ['Authorization', 'Bearer '])
    const path = new URL(whole.service.tokenUrl).pathname
    const here = { ...document, baseUrl: service.url, service: { ...document.service, tokenUrl: path } }
    const outcome = await ask(await configOf(here))
    expect(service.requests.map((asked) => readRequest(asked, page))).toEqual([wanted])
    expect(outcome).toMatchObject({ kind: 'ok', accessToken: 'GIVEN' })
    expect((outcome as { answerLifeMs?: number }).answerLifeMs).toBe(life && Number(life) * 1_000)
  },
)

test.each(['assertion-spiffe', 'assertion-kubernetes', 'assertion-google'])(
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
    expect(config.warnings.filter((warning) => !warning.startsWith('credentials'))).toEqual([])
    expect(await ask(config)).toMatchObject({ kind: 'ok', accessToken: 'GIVEN' })
    expect(service.requests[0]?.body).toContain(assertion)
    expect(await ask(await at(await startStandIn(await at('http://127.0.0.1:1'))))).toMatchObject({
      kind: 'ok',
    })
  },
)
