// The descriptions of other-services.md: each is loaded, and asks a service that insists on exactly that request.
import { expect, onTestFinished, test } from 'vitest'
import type { Config } from '../../src/config/config.ts'
import { loadConfig } from '../../src/config/load.ts'
import { createSystemClock } from '../../src/lib/clock.ts'
import { createFetchToken } from '../../src/source/fetch-token.ts'
import type { ServiceOutcome } from '../../src/token/outcome.ts'
import { useConfigFiles } from '../support/config-files.ts'
import { createSandbox, sandboxCredentials } from '../../src/sandbox/sandbox.ts'
import { serviceOf } from '../support/outside.ts'
import { block, tableRows } from './manual.ts'

const files = useConfigFiles()
const KEY = 'key of/the+account'
const SECRET = 'S3cret:&=ü'
const FORM_KEY = 'key+of%2Fthe%2Baccount'
const FORM_SECRET = 'S3cret%3A%26%3D%C3%BC'

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

const BASIC = `Basic ${Buffer.from(`${FORM_KEY}:${FORM_SECRET}`).toString('base64')}`
const OAUTH2 = { headers: { authorization: BASIC }, body: /^grant_type=client_credentials$/ }
const OAUTH2_FORM = { body: /^client_id=key.*&client_secret=S3cret.*&grant_type=client_credentials/ }
const AS_JSON = (names: [string, string]) => ({
  body: new RegExp(`^\\{"${names[0]}":"key .*","${names[1]}":"S3cret:`),
})
const USERNAME = AS_JSON(['username', 'password'])
/** What the stand-in of a vendor wants and answers, as far as its page says it. */
interface Vendor {
  readonly headers?: Readonly<Record<string, unknown>>
  readonly body: RegExp
  /** A token that the page does not name is at the default's place. */
  readonly answer?: object
  readonly status?: number
  readonly lifeMs?: number
}
const LIFE = { access_token: 'opaque', expires_in: 3_600 }
const vendors: Readonly<Record<string, Vendor>> = {
  Jumio: {
    ...OAUTH2,
    headers: { authorization: BASIC, 'user-agent': 'YOUR COMPANY' },
    answer: LIFE,
    lifeMs: 3_600_000,
  },
  'ComplyAdvantage Mesh': {
    body: /^\{"username":"key.*","password":"S3cret.*","realm":"YOUR REALM"\}$/,
    answer: { access_token: 'opaque', expires_in: 86_400 },
    lifeMs: 86_400_000,
  },
  'IDnow platform': { ...OAUTH2, answer: { access_token: 'opaque', expires_in: 86_400 }, lifeMs: 86_400_000 },
  'OCR Labs IDKit': { headers: { authorization: KEY }, body: /^\{\}$/ },
  'QTF KYC': { body: /^username=key.*&password=S3cret/, answer: { access_token: 'opaque' } },
  fidentity: AS_JSON(['clientID', 'SECRET']),
  Creditsafe: { ...USERNAME, answer: { token: 'opaque' } },
  Didit: { ...OAUTH2, answer: { access_token: 'opaque' } },
  'Transmit Security': { body: /&resource=YOUR\+RESOURCE$/, answer: LIFE, lifeMs: 3_600_000 },
  Fourthline: { ...OAUTH2_FORM, answer: { access_token: 'opaque' } },
  Prove: { ...OAUTH2_FORM, answer: LIFE, lifeMs: 3_600_000 },
  'Serpro Datavalid': { ...OAUTH2, answer: LIFE, lifeMs: 3_600_000 },
  'LSEG World-Check On Demand': {
    headers: { authorization: BASIC },
    body: /^grant_type=client_credentials&scope=YOUR\+SCOPE&aud=YOUR\+AUDIENCE$/,
    answer: { access_token: 'opaque', expires_in: 7_200 },
    lifeMs: 7_200_000,
  },
  'IDMerit IDMkyc': { ...OAUTH2, answer: LIFE, lifeMs: 3_600_000 },
  Experian: {
    ...USERNAME,
    headers: { client_id: 'secret-client-id', client_secret: 'secret-client-secret' },
  },
  'mio.id': {
    headers: { authorization: BASIC, 'x-api-key': 'secret-x-api-key' },
    body: /^$/,
    status: 201,
    answer: { accessToken: 'opaque', expires_at: Date.now() + 1_800_000 },
    lifeMs: 1_800_000,
  },
  'UK Home Office LEV': {
    body: /^FIRST=key.*&SECOND=S3cret.*&THIRD=secret-third&FOURTH=secret-fourth$/,
    answer: { access_token: 'opaque' },
  },
  Incode: {
    ...AS_JSON(['email', 'password']),
    headers: { 'x-api-key': 'secret-x-api-key' },
    answer: { token: 'opaque' },
  },
  identifID: { body: /^\{"ACCESS_KEY":"key [^"]*"\}$/, answer: { accessToken: 'opaque', hasErrors: false } },
}

test('the vendors are those with a page, each with its description', () => {
  const named = tableRows('vendors')
  expect(named.map(([vendor]) => vendor)).toEqual(Object.keys(vendors))
  expect(named.every(([, , page = '']) => /[a-z]{4}/.test(page))).toBe(true)
})

test.each(Object.entries(vendors))(
  'the description of %s gets a token of a stand-in',
  async (name, vendor) => {
    const { headers = {}, body, status = 200, answer = { accessToken: 'opaque' }, lifeMs } = vendor
    const service = await serviceOf(() => ({ status, json: answer }))
    for (const secret of ['client-id', 'client-secret', 'x-api-key', 'third', 'fourth'])
      files.write(secret, `secret-${secret}`)
    const described = (JSON.parse(block('vendors').code) as Record<string, { tokenUrl: string }>)[name]!
    const tokenUrl = described.tokenUrl.replace(/^(?:https:\/\/[^/]+|TOKEN_URL$)/, '') || '/token'
    const configAt = async (baseUrl: string, credentials: object): Promise<Config> =>
      configOf({ baseUrl, credentials, service: { ...described, tokenUrl } })
    const outcome = await ask(await configAt(service.url, { apiKey: KEY, apiSecret: SECRET }))
    const [request] = service.requests
    expect(request?.body).toMatch(body)
    expect(request?.headers).toMatchObject(headers)
    expect(outcome).toMatchObject({ kind: 'ok', accessToken: 'opaque' })
    const given = (outcome as { answerLifeMs?: number }).answerLifeMs
    if (lifeMs === undefined) expect(given).toBeUndefined()
    else expect(Math.abs(given! - lifeMs)).toBeLessThan(120_000)
    await expectStandIn(configAt)
  },
)
