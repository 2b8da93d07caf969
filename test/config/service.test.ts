import { describe, expect, it } from 'vitest'

import { revealAll, type Config } from '../../src/config/config.ts'
import { formatIssue } from '../../src/config/issues.ts'
import { standardService } from '../../src/config/service.ts'
import { refusalOf, useConfigFiles } from '../support/config-files.ts'

const files = useConfigFiles()
const load = (service: unknown, baseUrl = 'https://api.example.com'): Promise<Config> =>
  files.load({ baseUrl, service })
const faultsOf = async (service: unknown): Promise<string[]> =>
  (await refusalOf(load(service))).faults.map(formatIssue)

describe('the standard service', () => {
  it('is the one without a description, with an empty one, and with its own keys written out', async () => {
    const standard = standardService()
    for (const service of [undefined, null, { preset: null }, {}])
      expect((await load(service)).service).toEqual(standard)
    const { service } = await load({
      tokenUrl: 'https://api.example.com/token/external/jwt',
      names: { apiKey: 'apiKey' },
      refusedBy: [401, 403],
      lifetime: 'expires',
    })
    expect(service.description).toBeNull()
  })
})

describe('the description', () => {
  const texts = async (service: unknown): Promise<string | null> => (await load(service)).service.description
  it('is another text for another request or path of the token, and for nothing else', async () => {
    const one = { headers: { 'X-A': '1', 'x-b': '2' }, parameters: { b: '1', a: '2' } }
    const same = { parameters: { a: '2', b: '1' }, headers: { 'X-B': '2', 'x-a': '1' }, refusals: [] }
    expect(await texts(one)).toBe(await texts(same))
    const others = [
      { tokenUrl: '/other' },
      { send: 'form' },
      { send: 'basic', parameters: { apiKey: 'one' } },
      { names: { apiKey: 'user' } },
      { parameters: { realm: 'one' } },
      { headers: { 'X-Client': 'one' } },
      { token: 'data.token' },
    ]
    const found = new Set<string | null>()
    for (const other of others) found.add(await texts(other))
    expect(found.size).toBe(others.length)
    expect(found).not.toContain(null)
    const parameters = { grant_type: 'client_credentials' }
    const oauth2 = { tokenUrl: '/token', send: 'basic', parameters, token: 'access_token' }
    expect(await texts({ preset: 'oauth2', tokenUrl: '/token' })).toBe(await texts(oauth2))
  })

  it('may have secrets in its headers, which are hidden like the others', async () => {
    const config = await load({ headers: { 'X-Api-Key': 'HUSHHUSH', 'X-Host': 'one', Hosts: '' } })
    expect(revealAll(config)).toContain('HUSHHUSH')
    expect(revealAll(config)).not.toContain('one')
  })

  it('of a preset is overridden by the keys beside it', async () => {
    const { service } = await load({
      preset: 'oauth2',
      tokenUrl: 'https://auth.example.com/token?tenant=1',
      send: 'form',
      parameters: { scope: 'kyc' },
      lifetime: null,
    })
    expect(service).toMatchObject({
      tokenUrl: 'https://auth.example.com/token?tenant=1',
      names: { apiKey: 'client_id', apiSecret: 'client_secret' },
      parameters: { scope: 'kyc' },
      token: ['access_token'],
      lifetime: null,
    })
  })

  it('keeps the path of baseUrl before the path of tokenUrl', async () => {
    const { service } = await load({ tokenUrl: '/token?x=1' }, 'https://api.example.com/kyc/')
    const tokenUrl = 'https://api.example.com/kyc/token?x=1'
    expect(service).toMatchObject({ tokenUrl, hostSetting: 'baseUrl' })
    const other = { tokenUrl: 'http://localhost:81/t' }
    expect((await load(other)).service).toMatchObject({ ...other, hostSetting: 'service.tokenUrl' })
  })
})

describe('a faulty description', () => {
  const anyUrl = 'must be a path or a whole URL: write it as "/token" or "https://auth.example.com/token"'
  const noHeader = 'is no name of an HTTP header: write it as "X-Client"'
  const own = 'is a header that kyc-tokend sets by itself'
  const odd = 'has a value that an HTTP header cannot have'
  const noValue = 'must be a text, a number, true, false, or a secret source'
  const noPath = 'must be the path of a field, names joined by dots: write it as'
  const refusal = (change: object): object => ({
    refusals: [{ status: 500, says: 'x', reason: 'account-inactive', ...change }],
  })
  const url = (tokenUrl: unknown): object => ({ tokenUrl })
  const header = (name: string, value: unknown = 'hush'): object => ({ headers: { [name]: value } })
  const faulty: [at: string, sentence: string, ...services: unknown[]][] = [
    ['', 'must be an object: write it as', 'oauth2', []],
    ['.tokenUrl', `is missing: it ${anyUrl}`, { preset: 'oauth2' }],
    ['.tokenUrl', anyUrl, ...[5, 'token', '//evil.example/x', 'ftp://a/x', '/a b'].map(url)],
    ['.tokenUrl', 'must begin with https://', url('http://a.example/x')],
    ['.tokenUrl', 'must not hold a user name or password', url('https://u:hush@a.example/x')],
    ['.tokenUrl', 'must not have a fragment', url('/a#b')],
    ['.headers', 'must be an object: write it as', { headers: 'X-A: hush' }, { headers: [] }],
    ['.headers."X A"', noHeader, header('X A')],
    ['.headers.X-A', odd, header('X-A', 'hu\r\nsh'), header('X-A', 'hush✓')],
    ['.headers.X-A', noValue, header('X-A', ['hush'])],
    ['.headers.x-a', 'is there twice', { headers: { 'X-A': '1', 'x-a': '2' } }],
    ['.headers.x-a', 'is there twice', { send: 'headers', names: { apiKey: 'X-A' }, ...header('x-a') }],
    ...['Authorization', 'host', 'content-x', 'Transfer-Encoding', 'Expect'].map(
      (name): [string, string, object] => [`.headers.${name}`, own, header(name)],
    ),
    ['.parameters.a', noValue, { parameters: { a: { file: 'x', hush: 1 } } }],
    ['.parameters.apiSecret', 'has the name under which', { parameters: { apiSecret: 'hush' } }],
    ['.parameters.b', 'has the name', { names: { apiSecret: 'b', apiKey: null }, parameters: { b: 1 } }],
    ['.names', 'gives key and secret one name', { names: { apiKey: 'a', apiSecret: 'a' } }],
    ['.names', 'is of no use with "send": "basic"', { send: 'basic', names: { apiKey: 'a' } }],
    ['.names.apiKey', noHeader, { send: 'headers', names: { apiKey: 'x y' } }],
    ['.names.apiKey', 'must be a name that is not empty: write it as', { names: { apiKey: '' } }],
    ['.token', noPath, ...['', '.', 'a.', '.a', 'a..b', 'a b'].map((token) => ({ token }))],
    ['.expires', 'is set beside service.lifetime', { lifetime: 'a', expires: 'b' }],
    ['.refusals[0].status', 'must be a whole number from 200 to 599', refusal({ status: 199 })],
    ['.refusals[0].in', 'is missing: a status under 300 is a refusal only by', refusal({ status: 200 })],
    ['.refusals[0].says', 'must be words of the answer', ...['', ' ', 5].map((says) => refusal({ says }))],
    ['.refusedBy[0]', 'must be a whole number from 400 to 599', { refusedBy: [399] }],
    ['.use.header', noHeader, { use: { header: 'X A' } }],
    [
      '.use.header',
      'is a header by which HTTP itself works',
      { use: { header: 'Content-Length' } },
      { use: { header: 'connection' } },
    ],
    ['.use.prefix', 'must be at most 64 visible ASCII', { use: { prefix: ' hush' } }],
    ['.assertion', 'is missing, and "send": "assertion" needs it', { send: 'assertion' }],
    ['.assertion', 'is of use with "send": "assertion" only', { assertion: { key: { file: 'hush.pem' } } }],
  ]
  it('is told whole: first all faults of its shape, and once there are none all those between settings', async () => {
    const ofHeaders = { send: 'headers', headers: { Host: 'hush' }, use: { header: 'X A' } }
    const between = { ...ofHeaders, lifetime: 'a', expires: 'b' }
    const shapes = { preset: 'oauth', tokenurl: 'hush', token: 'a..b', refusals: [{ status: 1, says: [] }] }
    expect((await faultsOf({ ...between, ...shapes })).map((fault) => fault.split(': ')[0])).toEqual(
      expect.arrayContaining([
        'service.preset',
        'service.tokenurl',
        'service.token',
        'service.refusals[0].status',
        'service.refusals[0].says',
        'service.refusals[0].reason',
      ]),
    )
    const refusals = [{ status: 200, says: 'x', reason: 'account-inactive' }]
    const later = await faultsOf({ ...between, refusals })
    expect(later.map((fault) => fault.split(': ')[0]!).toSorted((a, b) => (a < b ? -1 : 1))).toEqual([
      'service.expires',
      'service.headers.Host',
      'service.refusals[0].in',
      'service.use.header',
    ])
  })

  it.each(faulty)('is told at service%s, without any value: %s', async (at, sentence, ...services) => {
    for (const service of services) {
      const faults = await faultsOf(service)
      expect(faults[0]!.slice(0, `service${at}: ${sentence}`.length)).toBe(`service${at}: ${sentence}`)
      if (!at.includes('[0]')) expect(faults).toHaveLength(1)
      expect(faults.join('\n')).not.toMatch(/hush|[\u0000-\u0009\u000b-\u001f]/)
    }
  })
})
