import { createPrivateKey } from 'node:crypto'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'

import type { Config, ShareConfig } from '../../src/config/config.ts'
import { createAuthority, createCertificate, type Certificate } from '../support/certificates.ts'
import { refusalOf, useConfigFiles } from '../support/config-files.ts'

const files = useConfigFiles()

const LONG_SECRET = 'a-secret-of-acme'
const account = { apiKey: 'key-0815', apiSecret: LONG_SECRET }
const load = (settings: object): Promise<Config> => files.load({ credentials: account, ...settings })
const faults = (settings: object): Promise<string> => files.refusal({ credentials: account, ...settings })
const servers = ['redis.example.com:6379']

it('alerts may be without an end of patience, and name whom to call', async () => {
  const { alerts } = await load({ alerts: { noTokenAfter: null, contact: 'Ada, +44 20 7946 0000' } })
  expect(alerts).toMatchObject({ noTokenAfterMs: null, contact: 'Ada, +44 20 7946 0000' })
  const other = await load({ alerts: { noTokenAfter: '90s', remindAfter: ['6h', '1h', '6h'] } })
  expect(other.alerts).toMatchObject({ noTokenAfterMs: 90_000, remindAfterMs: [3_600_000, 21_600_000] })
})

it.each([
  [{ alerts: { noTokenAfter: '0s' } }, /alerts\.noTokenAfter: must be from "1s" to "30d"/],
  [{ alerts: { contact: 'x'.repeat(201) } }, /alerts\.contact: must not be longer than 200 characters/],
  [{ alerts: { contact: 'Ada\u001b[2J' } }, /alerts\.contact: must not hold a control character/],
  [{ credentials: { apiKey: 'k', apiSecret: { file: 'a\nb' } } }, /\.apiSecret\.file: must not hold/],
])('%j is refused, and no control character is repeated', async (settings, sentence) => {
  const message = await faults(settings)
  expect(message).toMatch(sentence)
  expect(message).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/)
})

describe('a template', () => {
  it('is a text with the token in it', async () => {
    const template = 'a={token} ${x} {token}\n'
    const { tokenFiles } = await load({ tokenFiles: [{ path: 't', format: 'template', template }] })
    expect(tokenFiles).toMatchObject([{ template }])
  })
  it.each([
    [{ format: 'template' }, /template: is missing, and "format": "template" needs it: write the text/],
    [{ template: '{token}' }, /template: is of use with "format": "template" only/],
    [
      { format: 'template', template: 'app.ini.template' },
      /template.* must be the text to write, with \{token\}/,
    ],
    [
      { format: 'template', template: '${accessToken}' },
      /template.* must be the text to write, with \{token\}/,
    ],
  ])('is refused in %j', async (file, sentence) => {
    expect(await faults({ tokenFiles: [{ path: 't', ...file }] })).toMatch(sentence)
  })
})

describe('share', () => {
  const share = async (settings: object): Promise<ShareConfig> => {
    const config = await load({ share: { servers, ...settings } })
    expect(config.warnings).toEqual([])
    return config.share!
  }
  it('has the documented defaults', async () => {
    expect(await share({})).toMatchObject({
      servers: [{ host: 'redis.example.com', port: 6379 }],
      sentinel: null,
      tls: { ca: null, serverName: null, cert: null, key: null },
      timeoutMs: 1_000,
    })
    expect((await load({ share: null })).share).toBeNull()
  })
  it('takes a Unix socket without TLS, IPv6, sentinels and secrets', async () => {
    const sockets = [{ path: join(files.directory, 'redis.sock') }]
    expect(await share({ servers: ['./redis.sock'] })).toMatchObject({ servers: sockets, tls: null })
    files.write('pw', 'of-the-sentinel\n')
    const config = await share({
      servers: ['[::1]:65535', 'b:1'],
      sentinel: { name: 'mymaster', password: { file: 'pw' } },
      password: 'of-redis',
      key: '0123456789abcdef',
      asks: false,
      whenAlone: 'wait',
    })
    expect(config.servers).toEqual([
      { host: '::1', port: 65_535 },
      { host: 'b', port: 1 },
    ])
    expect(config.sentinel?.password?.reveal()).toBe('of-the-sentinel')
    expect(config.password?.reveal()).toBe('of-redis')
    expect(JSON.stringify(config)).not.toContain('of-')
    expect((await share({ servers: ['a:1', 'b:1'], cluster: true })).cluster).toBe(true)
  })
  it.each([
    [{ servers: [] }, /share\.servers: must be a list of 1 to 64 servers/],
    [{ servers: ['h:65536'] }, /share\.servers\[0\]: must be "host:port"/],
    [{ servers: ['redis://:HUSH@h:1'] }, /share\.servers\[0\]: must be "host:port"/],
    [{ tls: { certFile: 'no.pem', keyFile: 'key' } }, /share\.tls\.certFile: .*no\.pem is not there/],
    [{ servers: ['/redis\u0007.sock'] }, /share\.servers\[0\]: must be "host:port"/],
    [{ sentinel: { name: 'm', pasword: 'HUSH' } }, /share\.sentinel\.pasword: .*did you mean "password"\?/],
    [{ tls: 'yes' }, /share\.tls: must be true, false, or an object/],
    [{ tls: { certFile: 'cert', keyFile: 'none' } }, /share\.tls\.keyFile: the file .*none is not there/],
    [{ tls: { certFile: 'cert' } }, /share\.tls\.key: is missing beside the other one/],
    [{ tls: { caFile: 'none.pem' } }, /share\.tls\.caFile: the file .*none\.pem is not there/],
    [{ prefix: 'a{b' }, /share\.prefix: must be 1 to 64 letters/],
    [{ key: 'short' }, /share\.key: is shorter than 16 bytes/],
    [{ tls: false, password: 'HUSHHUSH' }, /is not this host: share\.password would cross/],
    [{ tls: false, sentinel: { name: 'm', password: 'HUSHHUSH' } }, /share\.sentinel\.password would cross/],
    [{ asks: false }, /share\.asks: is false and share\.whenAlone is "fetch": such a host/],
    [{ cluster: true, sentinel: { name: 'm' } }, /share\.cluster: is true beside share\.sentinel/],
    [{ cluster: true, database: 1 }, /share\.database: is not 0/],
    [{ servers: ['/a.sock', 'b:1'] }, /share\.servers: has a Unix socket beside other servers/],
    [{ servers: ['a:1', 'b:1'] }, /share\.servers: has several servers, which are neither/],
    [{ servers: ['/a.sock'], tls: {} }, /share\.tls: is set, and a Unix socket has no TLS/],
  ])('refuses %j', async (settings, sentence) => {
    const { cert, key } = createAuthority()
    files.write('key', key)
    files.write('cert', cert)
    const refusal = await refusalOf(load({ share: { servers, ...settings } }))
    expect(refusal.message).toMatch(sentence)
    expect(refusal.faults).toHaveLength(1)
    expect(refusal.message).not.toContain('HUSH')
  })
  it('needs a key of its own where the account has no secret', async () => {
    const service = { names: { apiSecret: null } }
    const settings = { credentials: { ...account, apiSecret: null }, service, share: { servers } }
    expect(await faults(settings)).toMatch(/share\.key: is missing, .* `openssl rand -hex 32`/)
    const key = 'x'.repeat(64)
    await load({ ...settings, share: { ...settings.share, key } })
  })
  it('takes a certificate with its own key, neither another nor one with a passphrase', async () => {
    const authority = createAuthority()
    const [own, other] = [1, 2].map(() => createCertificate(authority, { names: ['web-1'] })) as [
      Certificate,
      Certificate,
    ]
    const cipher = { type: 'pkcs8', format: 'pem', cipher: 'aes-256-cbc', passphrase: 'HUSH' } as const
    files.write('cert', `web-1, and who signed it\n${own.cert}\n${authority.cert}`)
    files.write('own', own.key)
    files.write('other', other.key)
    files.write('locked', createPrivateKey(own.key).export(cipher).toString())
    const tls = (keyFile: string): object => ({ tls: { certFile: 'cert', keyFile } })
    expect((await share(tls('own'))).tls?.key?.reveal()).toBe(own.key.trim())
    const source = { certFile: 'cert', key: { file: 'own' } }
    expect((await share({ tls: source })).tls?.key?.reveal()).toBe(own.key.trim())
    const both = { servers, tls: { ...source, keyFile: 'own' } }
    expect(await faults({ share: both })).toMatch(/share\.tls\.keyFile: is beside share\.tls\.key/)
    const reasons: [string, RegExp][] = [
      ['other', /share\.tls\.certFile: the file \S+cert is not the certificate of that key: name the two/],
      ['locked', /keyFile: .* wants a passphrase, .* \(openssl pkey -in \S+locked -out key\.pem\)/],
      ['cert', /share\.tls\.keyFile: .* holds no private key that can be read: name one in PEM/],
    ]
    for (const [keyFile, words] of reasons)
      expect(await faults({ share: { servers, ...tls(keyFile) } })).toMatch(words)
    files.write('own', own.key, 0o644)
    expect(await faults({ share: { servers, ...tls('own') } })).toMatch(
      /share\.tls\.keyFile: .* holds a secret and can be read by everybody/,
    )
  })
  it('may be in the clear on this host, and without a password', async () => {
    expect((await share({ servers: ['127.0.0.1:6379'], tls: false, password: 'of-redis' })).tls).toBeNull()
    expect((await share({ tls: false })).tls).toBeNull()
  })
  it('warns of a short secret of the account, unless share.key is set', async () => {
    const short = { credentials: { apiKey: 'key-0815', apiSecret: 'short-one' } }
    expect((await load({ ...short, share: { servers } })).warnings).toEqual([
      'credentials.apiSecret: has 9 characters: a reader of the store could try them all. Set share.key',
    ])
    expect((await load({ ...short, share: { servers, key: '0123456789abcdef' } })).warnings).toEqual([])
  })
})

describe('mistakes that people make with keys', () => {
  it.each([
    ['"my-secret-123"', /is in quotes, which are part of it/],
    [' my-secret-123', /begins or ends with a blank/],
    ['API_SECRET=my-secret-123', /begins with a name and "=", as a line of an environment file/],
    ['Bearer my-secret-123', /begins with "Bearer"/],
  ])('are a warning, since %j may be right', async (secret, sentence) => {
    files.write('s', `${secret}\n`)
    const { warnings, credentials } = await load({
      credentials: { apiKey: 'key-0815', apiSecret: { file: 's' } },
    })
    expect(warnings).toEqual([expect.stringMatching(sentence)])
    expect(warnings[0]).toMatch(/^credentials\.apiSecret: the file .*\/s /)
    expect(warnings.join()).not.toContain('my-secret')
    expect(credentials.apiSecret!.reveal()).toBe(secret)
  })
  it.each(['my=secret/123==', 'the-bearer of-it', 'a"quote"-inside', '"begins"-with', 'sk_live_1='])(
    'are not seen in %j',
    async (secret) => {
      const { warnings } = await load({ credentials: { apiKey: 'key-0815', apiSecret: secret } })
      expect(warnings).toEqual([])
    },
  )
  it.each([
    ['/token/external/jwt', true],
    ['/token/external', true],
    ['/token', false],
  ])('are seen in a base URL that ends with %s: %s', async (path, isMistake) => {
    const given = `https://api.example.com${path}`
    const { warnings, baseUrl } = await load({ baseUrl: given })
    const words =
      /^baseUrl: holds the path of the endpoint, .*: remove "\/token\/external\/jwt" from its end$/
    expect(warnings).toEqual(isMistake ? [expect.stringMatching(words)] : [])
    expect(baseUrl).toBe(given)
  })
})
