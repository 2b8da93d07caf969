// The descriptions of other-services.md: each is loaded, and gets a token of the stand-in that it describes.
import { generateKeyPairSync } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { expect, onTestFinished, test } from 'vitest'
import type { Config } from '../../src/config/config.ts'
import { loadConfig } from '../../src/config/load.ts'
import { createSystemClock } from '../../src/lib/clock.ts'
import { createFetchToken } from '../../src/source/fetch-token.ts'
import type { ServiceOutcome } from '../../src/token/outcome.ts'
import { useConfigFiles } from '../support/config-files.ts'
import { createSandbox, sandboxCredentials } from '../../src/sandbox/sandbox.ts'
import { jwtOf } from '../support/jwt.ts'
import { startService, type ArrivedRequest } from '../support/service.ts'
import { block, PROJECT, tableRows } from './manual.ts'

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

// ---- vendors: stand-ins made from their pages (read in November 2026), each fact by its address

interface Page {
  /** As the manual names it. */
  readonly page: string
  /** Of the token endpoint; null: the page has no address that is the same for everybody. */
  readonly url: string | null
  readonly content: 'json' | 'form'
  /** Fields of the body, all of them, and headers, beside those of HTTP. */
  readonly fields: Readonly<Record<string, unknown>>
  readonly headers?: Readonly<Record<string, string>>
  /** The answer beside the token, and the field of that. */
  readonly answer: Readonly<Record<string, unknown>>
  readonly token: string
  readonly lifeS?: number
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
const ofForm = { client_id: 'the-key-0815', client_secret: 'the-secret' }
const oauth2 = { content: 'form', token: 'access_token' } as const
const client = { grant_type: 'client_credentials' }
const lives = (lifeS: number) => ({ lifeS, answer: { token_type: 'Bearer', expires_in: lifeS } })

const pages: Readonly<Record<string, Page>> = {
  'complyadvantage-mesh': {
    page: 'docs.mesh.complyadvantage.com',
    url: 'https://api.example.com/v2/token',
    content: 'json',
    fields: { realm: 'YOUR REALM', username: 'the-key-0815', password: 'the-secret' },
    token: 'access_token',
    ...lives(86_400),
  },
  creditsafe: {
    page: 'doc.creditsafe.com/connect-apis-catalog/information/authentication',
    url: 'https://connect.creditsafe.com/v1/authenticate',
    content: 'json',
    fields: { username: 'the-key-0815', password: 'the-secret' },
    token: 'token',
    answer: {},
  },
  experian: {
    page: 'developer.experian.co.uk/tutorial/oauth-20-tutorial',
    url: 'https://api.example.com/oauth2/v1/token',
    content: 'json',
    fields: { username: 'the-key-0815', password: 'the-secret' },
    headers: { grant_type: 'password', client_id: 'the-client', client_secret: 'the-client-secret' },
    token: 'access_token',
    answer: { token_type: 'Bearer', expires_in: '1800' },
    lifeS: 1_800,
  },
  'idmerit-idmkyc': {
    ...oauth2,
    page: 'idmkyc-doc2.idmerit.com',
    url: 'https://gw.idmerit.com/token',
    fields: client,
    headers: basic,
    ...lives(3_600),
  },
  'idnow-platform': {
    ...oauth2,
    page: 'docs.eu.platform.idnow.sx/docs/integration/authenticate',
    url: 'https://api.example.com/oidc/token',
    fields: { ...client, ...ofForm },
    ...lives(86_400),
  },
  incode: {
    page: 'developer.incode.com/reference/how-to-get-an-session-token',
    url: null,
    content: 'json',
    fields: { email: 'the-key-0815', password: 'the-secret' },
    headers: { 'x-api-key': 'the-x-api-key', 'api-version': '1.0' },
    token: 'token',
    answer: {},
    use: ['X-Incode-Hardware-Id', ''],
  },
  jumio: {
    ...oauth2,
    page: 'Jumio implementation guide',
    url: 'https://auth.region.jumio.ai/oauth2/token',
    fields: client,
    headers: { ...basic, 'user-agent': 'YOUR COMPANY' },
    ...lives(3_600),
  },
  'lseg-world-check': {
    ...oauth2,
    page: 'developers.lseg.com, authentication',
    url: 'https://login.ciam.refinitiv.com/as/token.oauth2',
    fields: { ...client, scope: 'trapi.risk-intel.wcod', aud: 'jwt:medium:default' },
    headers: basic,
    ...lives(7_200),
  },
  prove: {
    ...oauth2,
    page: 'developer.prove.com/reference/token-request',
    url: 'https://api.prove.com/v3/token',
    fields: { ...client, ...ofForm },
    ...lives(3_600),
  },
  'qtf-kyc': {
    page: 'docs.quanttradingfactory.com/guides/kyc/authentication',
    url: 'https://api.example.com/auth/jwt/login',
    content: 'form',
    fields: { username: 'the-key-0815', password: 'the-secret' },
    token: 'access_token',
    answer: { token_type: 'bearer' },
  },
  'serpro-datavalid': {
    ...oauth2,
    page: 'apidocs.datavalidp.estaleiro.serpro.gov.br',
    url: 'https://gateway.apiserpro.serpro.gov.br/token',
    fields: client,
    headers: basic,
    ...lives(3_600),
  },
  'transmit-security': {
    ...oauth2,
    page: 'developer.transmitsecurity.com/openapi/token',
    url: 'https://api.transmitsecurity.io/oidc/token',
    fields: { ...client, ...ofForm, resource: 'YOUR RESOURCE' },
    ...lives(3_600),
  },
  'uk-home-office-lev': {
    page: 'docs.api.lev.homeoffice.gov.uk',
    url: null,
    content: 'form',
    fields: { grant_type: 'password', ...ofForm, username: 'the-user-0815', password: 'the-password' },
    token: 'access_token',
    ...lives(300),
  },
  unico: {
    ...oauth2,
    page: 'developer.unico.io',
    url: 'https://identity.acesso.io/oauth2/token',
    fields: {
      grant_type: 'urn:ietf:params:oauth:grant-type:jwt-bearer',
      // Any other claim is error 1.2.22.
      assertion: ['aud', 'exp', 'iat', 'iss', 'scope'],
    },
    ...lives(3_600),
  },
}

const EXAMPLES = join(PROJECT, 'systemd/examples/services')
const bare = (name = ''): string => name.replaceAll('`', '').replace(/\.json$/, '')

test('the vendors of the manual are those with an example and a stand-in, each with its page', () => {
  const named = tableRows('vendors').map(([file, , page]) => [bare(file), page])
  expect(named).toEqual(Object.entries(pages).map(([name, { page }]) => [name, page]))
  expect(readdirSync(EXAMPLES).filter((file) => file.endsWith('.json'))).toEqual(
    named.map(([name]) => `${name}.json`),
  )
})

/** What a request has, in the terms of a page. */
function readRequest({ body, headers }: ArrivedRequest, { content, headers: wanted = {} }: Page) {
  const fields: Record<string, unknown> =
    content === 'json' ? JSON.parse(body) : Object.fromEntries(new URLSearchParams(body))
  const { assertion } = fields
  const claims = typeof assertion === 'string' ? assertion.split('.')[1]! : null
  return {
    type: headers['content-type'],
    fields:
      claims === null
        ? fields
        : {
            ...fields,
            assertion: Object.keys(JSON.parse(Buffer.from(claims, 'base64url').toString())).toSorted(),
          },
    headers: Object.fromEntries(Object.keys(wanted).map((name) => [name, headers[name]])),
    hasLogin: headers.authorization !== undefined,
  }
}

test.each(Object.entries(pages))(
  'the example for %s gets a token of a stand-in made from its page',
  async (name, page) => {
    const {
      url,
      content,
      fields,
      headers = {},
      answer,
      token,
      lifeS,
      use = ['Authorization', 'Bearer '],
    } = page
    const wanted = {
      type: content === 'json' ? 'application/json' : 'application/x-www-form-urlencoded',
      fields,
      headers,
      hasLogin: 'authorization' in headers,
    }
    const service = await startService({
      answer: (asked) =>
        isDeepStrictEqual(readRequest(asked, page), wanted)
          ? { json: { ...answer, [token]: 'GIVEN' } }
          : { status: 400, json: { error: 'another request than that of the page' } },
    })
    onTestFinished(async () => service.stop())
    for (const [file, text] of Object.entries(SECRETS)) files.write(file, text)
    const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
    files.write('assertion.pem', privateKey.export({ type: 'pkcs8', format: 'pem' }))
    const document = JSON.parse(readFileSync(join(EXAMPLES, `${name}.json`), 'utf8'))
    const whole = await configOf(document)
    expect(whole.warnings).toEqual([])
    if (url !== null) expect(whole.service.tokenUrl).toBe(url)
    expect([whole.service.use.header, whole.service.use.prefix]).toEqual(use)
    const path = new URL(whole.service.tokenUrl).pathname
    const here = { ...document, baseUrl: service.url, service: { ...document.service, tokenUrl: path } }
    const outcome = await ask(await configOf(here))
    expect(service.requests.map((asked) => readRequest(asked, page))).toEqual([wanted])
    expect(outcome).toMatchObject({ kind: 'ok', accessToken: 'GIVEN' })
    expect((outcome as { answerLifeMs?: number }).answerLifeMs).toBe(lifeS && lifeS * 1_000)
  },
)

test.each(['assertion-spiffe', 'assertion-kubernetes', 'assertion-google'])(
  '%s sends the assertion that is in the file',
  async (name) => {
    const service = await startService({ answer: { json: { access_token: 'GIVEN' } } })
    onTestFinished(async () => service.stop())
    files.write('client-id', 'the-client')
    const assertion = jwtOf({ exp: Math.floor(Date.now() / 1_000) + 300 })
    const path = files.write('assertion', assertion)
    const text = block(name).code.replaceAll(/https:\/\/\w+\.example\.com/g, service.url)
    const config = await configOf(JSON.parse(text.replace(/"\/(?:run|var)\/[^"]+"/, JSON.stringify(path))))
    expect(config.warnings.filter((warning) => !warning.startsWith('credentials'))).toEqual([])
    expect(await ask(config)).toMatchObject({ kind: 'ok', accessToken: 'GIVEN' })
    expect(service.requests[0]?.body).toContain(assertion)
    const described = { port: 0, scenario: 'ok', tokenLifetimeMs: 60_000 } as const
    const { origin } = new URL(service.url)
    const sandbox = await createSandbox({
      ...described,
      clock: createSystemClock(),
      service: { ...config.service, tokenUrl: config.service.tokenUrl.replace(origin, 'http://127.0.0.1') },
    })
    const stop = new AbortController()
    const serving = sandbox.run(stop.signal)
    onTestFinished(async () => {
      stop.abort()
      await serving
    })
    files.write('client-id', sandboxCredentials.apiKey)
    const ofSandbox = JSON.parse(
      text.replaceAll(service.url, sandbox.url).replace(/"\/(?:run|var)\/[^"]+"/, JSON.stringify(path)),
    )
    expect(await ask(await configOf(ofSandbox))).toMatchObject({ kind: 'ok' })
  },
)
