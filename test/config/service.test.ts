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
    expect(standard).toMatchObject({
      tokenUrl: 'https://api.example.com/token/external/jwt',
      description: null,
    })
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
    const same = {
      parameters: { a: '2', b: '1' },
      headers: { 'X-B': '2', 'x-a': '1' },
      refusedBy: [403],
      refusals: [],
    }
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
    const oauth2 = {
      tokenUrl: '/token',
      send: 'basic',
      parameters: { grant_type: 'client_credentials' },
      token: 'access_token',
    }
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
    expect(
      service.refusals.map(({ status, says, in: path, reason }) => [status, says, path, reason]),
    ).toEqual([
      [400, 'invalid_client', ['error'], 'account-not-found'],
      [400, 'unauthorized_client', ['error'], 'account-inactive'],
      [401, 'invalid_client', ['error'], 'account-not-found'],
      [401, 'unauthorized_client', ['error'], 'account-inactive'],
    ])
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
  const faulty: (readonly [unknown, RegExp])[] = [
    [{ preset: 'oauth' }, /^service\.preset: must be one of "oauth2"/],
    [{ preset: 'oauth2' }, /^service\.tokenUrl: is missing: it must be a path or a whole URL: write it as/],
    [{ preset: 'oauth2', tokenUrl: 5 }, /^service\.tokenUrl: must be a path or a whole URL/],
    [
      { send: 'xml' },
      /^service\.send: must be one of "json", "form", "headers", "basic", "basic-plain", "assertion"/,
    ],
    [{ tokenUrl: 'token' }, /^service\.tokenUrl: must be a path or a whole URL: write it as "\/token"/],
    [{ tokenUrl: '//evil.example/x' }, /^service\.tokenUrl: must be a path or a whole URL/],
    [{ tokenUrl: 'ftp://a.example/x' }, /^service\.tokenUrl: must be a path or a whole URL/],
    [{ tokenUrl: 'http://a.example/x' }, /^service\.tokenUrl: must begin with https:\/\//],
    [{ tokenUrl: 'https://u:hush@a.example/x' }, /^service\.tokenUrl: must not hold a user name or password/],
    [{ tokenUrl: '/a#b' }, /^service\.tokenUrl: must not have a fragment/],
    [{ tokenUrl: '/a b' }, /^service\.tokenUrl: must be a path or a whole URL/],
    [{ tokenUrl: '' }, /^service\.tokenUrl: must be a path or a whole URL/],
    [{ headers: { 'X A': 'hush' } }, /^service\.headers\."X A": is no name of an HTTP header/],
    [{ headers: { 'X-A': 'hu\r\nsh' } }, /^service\.headers\.X-A: has a value that an HTTP header cannot/],
    [{ headers: { 'X-A': 'hush✓' } }, /^service\.headers\.X-A: has a value that an HTTP header cannot have/],
    [{ headers: { 'X-A': ['hush'] } }, /^service\.headers\.X-A: must be a text, a number, true, false, or a/],
    [{ parameters: { a: { file: 'x', hush: 1 } } }, /^service\.parameters\.a: must be a text, a number/],
    [{ send: 'headers', names: { apiKey: 'x y' } }, /^service\.names\.apiKey: is no name of an HTTP header/],
    [
      { send: 'headers', names: { apiKey: 'X-A' }, headers: { 'x-a': 'hush' } },
      /^service\.headers\.x-a: is there twice/,
    ],
    [{ lifetime: 'a', expires: 'b' }, /^service\.expires: is set beside service\.lifetime/],
    [{ send: 'assertion' }, /^service\.assertion: is missing, and "send": "assertion" needs it/],
    [
      { assertion: { key: { file: 'hush.pem' } } },
      /^service\.assertion: is of use with "send": "assertion" only/,
    ],
    [{ use: { header: 'X A' } }, /^service\.use\.header: is no name of an HTTP header/],
    [{ use: { prefix: ' hush' } }, /^service\.use\.prefix: must be at most 64 visible ASCII/],
    [
      { names: { apiSecret: 'b', apiKey: null }, parameters: { b: 1 } },
      /^service\.parameters\.b: has the name/,
    ],
    [{ headers: { 'X-A': '1', 'x-a': '2' } }, /^service\.headers\.x-a: is there twice/],
    [{ headers: 'X-A: hush' }, /^service\.headers: must be an object: write it as/],
    ...[
      'Authorization',
      'host',
      'Connection',
      'CONTENT-TYPE',
      'content-x',
      'Transfer-Encoding',
      'Expect',
      'Proxy-Authorization',
    ].map(
      (name) =>
        [
          { headers: { [name]: 'hush' } },
          new RegExp(`^service\\.headers\\.${name}: is a header that`),
        ] as const,
    ),
    [{ parameters: { apiSecret: 'hush' } }, /^service\.parameters\.apiSecret: has the name under which/],
    [{ names: { apiKey: 'a', apiSecret: 'a' } }, /^service\.names: gives key and secret one name/],
    [{ send: 'basic', names: { apiKey: 'a' } }, /^service\.names: is of no use with "send": "basic"/],
    [{ names: { apiKey: '' } }, /^service\.names\.apiKey: must be a name that is not empty: write it as/],
    ...['', '.', 'a.', '.a', 'a..b', 'a b'].map(
      (token) => [{ token }, /^service\.token: must be the path of a field/] as const,
    ),
    [{ lifetime: 'a..b' }, /^service\.lifetime: must be the path of a field/],
    [{ refusals: [{ status: 500, says: 'x', reason: '' }] }, /^service\.refusals\[0\]\.reason: must be one/],
    ...['', ' ', 5].map(
      (says) =>
        [
          { refusals: [{ status: 500, says, reason: 'account-inactive' }] },
          /^service\.refusals\[0\]\.says: must be words of the answer, and not empty: write them as "Account not found"$/,
        ] as const,
    ),
    [
      { refusals: [{ status: 199, says: 'x', reason: 'account-inactive' }] },
      /refusals\[0\]\.status: must be a whole number from 200 to 599/,
    ],
    [
      { refusals: [{ status: 200, says: 'x', reason: 'account-inactive' }] },
      /refusals\[0\]\.in: is missing: a status under 300 is a refusal only by words at one place/,
    ],
    [{ refusals: ['x'] }, /^service\.refusals\[0\]: must be an object/],
    [{ refusals: [{}] }, /^service\.refusals\[0\]\.status: is missing/],
    [{ refusedBy: [399] }, /^service\.refusedBy\[0\]: must be a whole number from 400 to 599/],
    [{ refusedBy: 401 }, /^service\.refusedBy: must be a list/],
    [{ tokenurl: 'hush' }, /^service\.tokenurl: is an unknown key: did you mean "tokenUrl"\?/],
    [{ names: { apikey: 'hush' } }, /^service\.names\.apikey: is an unknown key/],
    ['oauth2', /^service: must be an object/],
  ]
  it.each(faulty)('%j has its key path and its remedy, and no value', async (service, sentence) => {
    const faults = await faultsOf(service)
    expect(faults[0]).toMatch(sentence)
    if (!faults[0]!.includes('[0]')) expect(faults).toHaveLength(1)
    expect(faults.join('\n')).not.toMatch(/hush|[\u0000-\u0009\u000b-\u001f]/)
  })
})
