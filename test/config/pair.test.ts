// The pair as a configuration names it: faults and warnings of secrets, client certificates and assertions.
import { execFileSync } from 'node:child_process'
import { createPrivateKey, generateKeyPairSync } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { SignJWT } from 'jose'
import { beforeEach, describe, expect, it } from 'vitest'
import { credentialTexts, sharedTexts } from '../../src/config/credentials.ts'
import { Secret } from '../../src/lib/secret.ts'
import { createAuthority, createCertificate } from '../support/certificates.ts'
import { useConfigFiles } from '../support/config-files.ts'
import { askOnce } from '../support/fetcher.ts'
import { lacks } from '../support/lacks.ts'
import { serviceOf } from '../support/outside.ts'
import { granting } from '../support/service.ts'

const files = useConfigFiles()
const credentials = { apiKey: 'key of/the+account', apiSecret: 'S3cret:&=ü"%' }
const load = (
  settings: { service?: object; credentials?: object; request?: object; baseUrl?: string },
  env = {},
) => files.load({ ...settings, credentials: { ...credentials, ...settings.credentials } }, env)
const faults = (settings: object): Promise<string> => files.refusal({ credentials, ...settings })
const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })

/** An assertion that ends in so many seconds; null: it has no end. */
async function assertionFor(seconds: number | null): Promise<string> {
  const jwt = new SignJWT({ sub: 'spiffe://example.org/kyc' }).setProtectedHeader({ alg: 'ES256' })
  const end = Math.floor(Date.now() / 1_000) + (seconds ?? 0)
  return (seconds === null ? jwt : jwt.setExpirationTime(end)).sign(privateKey)
}
const described = (assertion: object) => ({
  credentials: { apiKey: null, apiSecret: null },
  service: {
    preset: 'oauth2',
    tokenUrl: '/token',
    send: 'assertion',
    assertion: { file: 'svid', ...assertion },
  },
})

describe('key, secret and a third one', () => {
  it.each([
    [{ parameters: { realm: { file: 'absent' } } }, {}, /service\.parameters\.realm: the file \S+absent is/],
    [{ headers: { 'X-A': { file: 'open' } } }, {}, /headers\.X-A: .* read by everybody: `chmod o-rwx/],
    [{ headers: { 'X-A': { file: 'odd' } } }, {}, /X-A: has a value that an HTTP header cannot have/],
    [{ send: 'headers' }, { apiSecret: 'hush✓hush' }, /apiSecret: has a value that an HTTP header cannot/],
    [{ send: 'form' }, { apiSecret: null }, /apiSecret: is null, .* set service\.names\.apiSecret to null/],
    [{ send: 'basic' }, { apiSecret: null }, /apiSecret: is null, .* give it, or .* another service\.send$/],
  ])('are faults where they cannot be sent: %j, %j', async (service, change, sentence) => {
    files.write('open', 'hush-hush', 0o644)
    files.write('odd', 'hush✓hush')
    expect(await faults({ service, credentials: { ...credentials, ...change } })).toMatch(sentence)
  })

  it('are warned of where one is in the clear, and only there', async () => {
    const config = await load({
      service: {
        parameters: { client_secret_2: 'hush-hush', scope: 'kyc', grant_type: 'x' },
        headers: { 'X-Api-Key': 'hush-hush' },
      },
    })
    expect(config.warnings.filter((text) => text.startsWith('service'))).toEqual([
      expect.stringMatching(
        /^service\.parameters\.client_secret_2: is a secret by its name.*\{ "file": PATH \}/,
      ),
      expect.stringMatching(/^service\.headers\.X-Api-Key: is a secret by its name/),
    ])
    expect(config.warnings.join()).not.toContain('hush')
  })
})

describe('a client certificate', () => {
  const [authority, other] = [createAuthority(), createAuthority('Another')]
  const server = createCertificate(authority, { names: ['localhost'] })
  beforeEach(() => {
    const client = createCertificate(authority, { names: ['client'] })
    const stranger = createCertificate(other, { names: ['stranger'] })
    files.write('ca.pem', authority.cert)
    files.write('other-ca.pem', other.cert)
    for (const [name, { cert, key }] of Object.entries({ server, client, stranger })) {
      files.write(`${name}.pem`, cert)
      files.write(`${name}.key`, key)
    }
  })
  const read = (name: string): string => readFileSync(join(files.directory, name), 'utf8')

  it('that does not fit is a fault, with its remedy', async () => {
    const ours = createPrivateKey(read('client.key'))
    const locked = { type: 'pkcs8', format: 'pem', cipher: 'aes-256-cbc', passphrase: 'hush' } as const
    const keys = generateKeyPairSync('rsa', { modulusLength: 1024 })
    const weak = createCertificate(authority, { names: ['weak'], keys })
    files.write('locked.key', ours.export(locked))
    files.write('weak.pem', weak.cert)
    files.write('weak.key', weak.key)
    files.write('open.key', read('client.key'), 0o644)
    files.write('client.jwk', ours.export({ format: 'jwk' }))
    // TLS takes fewer keys than can be read: without the fault the first request would end the daemon.
    const takesNone =
      /certFile: the file \S+ and its key are nothing that TLS takes \(\w+\): name a key in PEM/
    for (const [certFile, key, sentence] of [
      ['client.pem', 'stranger.key', /certFile: the file \S+client\.pem is not the certificate of that key/],
      ['client.pem', 'locked.key', /\.key: the file \S+locked\.key wants a passphrase.*openssl pkey/],
      ['client.key', 'client.key', /certFile: the file \S+ holds no certificate/],
      ['client.pem', 'open.key', /\.key: .* holds a secret and can be read by everybody/],
      ['weak.pem', 'weak.key', takesNone],
      ['client.pem', 'client.jwk', takesNone],
    ] as const)
      expect(await faults({ request: { clientCertificate: { certFile, key: { file: key } } } })).toMatch(
        sentence,
      )
    expect(await faults({ request: { trust: 'file' } })).toMatch(
      /request\.caFile: is missing beside "trust": "file"/,
    )
  })

  it.skipIf(lacks('jq'))(
    'and key in another form are faults whose command writes what can be read',
    async () => {
      const { directory } = files
      const run = (command: string): string =>
        execFileSync('sh', ['-euc', command], { cwd: directory, encoding: 'utf8', stdio: 'pipe' })
      run(`openssl pkcs12 -export -inkey client.key -in client.pem -passout pass: -out both.pfx
      openssl pkey -in client.key -outform DER -out client.der
      openssl x509 -in client.pem -outform DER -out client.crt`)
      const jwk = createPrivateKey(read('client.key')).export({ format: 'jwk' })
      files.write('keys.json', { keys: [jwk] })
      const google = { type: 'service_account', private_key: read('client.key'), client_email: 'a@b' }
      files.write('google.json', google)
      run('chmod 600 *')
      const named = (name: string): string => join(directory, name)
      const forms: [string, string, RegExp][] = [
        ['both.pfx', 'client.key', /certFile: .* is a PKCS #12 bundle .* \((openssl pkcs12 [^)]+)\)/],
        ['client.crt', 'client.key', /certFile: .* is binary \(DER\): .* \((openssl x509 [^)]+)\)/],
        ['client.pem', 'both.pfx', /\.key: .* is a PKCS #12 bundle .* \((openssl pkcs12 [^)]+)\)/],
        ['client.pem', 'client.der', /\.key: .* is binary \(DER\): .* \((openssl pkey [^)]+)\)/],
        ['client.pem', 'google.json', /\.key: .* JSON key as Google .* \((jq [^)]+)\), .* credentials\.ap/],
      ]
      for (const [cert, key, sentence] of forms) {
        const clientCertificate = { certFile: named(cert), key: { file: named(key) } }
        const fault = await faults({ request: { clientCertificate } })
        expect(fault).toMatch(sentence)
        run(sentence.exec(fault)![1]!.replace('openssl pkcs12', 'openssl pkcs12 -passin pass:'))
        run('test ! -e key.pem || chmod 600 key.pem')
        const mended =
          cert === 'client.pem'
            ? { certFile: named(cert), key: { file: named('key.pem') } }
            : { certFile: named('certificate.pem'), key: { file: named(key) } }
        await load({ request: { clientCertificate: mended } })
        run('rm -f key.pem certificate.pem')
      }
      const assertion = (file: string) => ({
        service: { send: 'assertion', assertion: { key: { file }, algorithm: 'ES256' } },
      })
      const fault = await faults(assertion(named('keys.json')))
      expect(fault).toMatch(
        /assertion\.key: .* is a set of keys \(JWK set\): .* \(jq '\.keys\[0\]' \S+ >key\.jwk\)/,
      )
      run(`${/\((jq [^)]+)\)/.exec(fault)![1]} && chmod 600 key.jwk`)
      await load(assertion(named('key.jwk')))
    },
  )

  it('that has ended, or is not valid yet by our clock, is a warning', async () => {
    for (const [from, until, sentence] of [
      [-9, -1, /^request\.clientCertificate\.certFile: the file \S+client\.pem ended on 20\S+: have it/],
      [2, 9, /^request\.clientCertificate\.certFile: .* is valid from 20\S+ on: .* set the clock/],
    ] as const) {
      const { cert, key } = createCertificate(authority, {
        names: ['client'],
        notBeforeMs: Date.now() + from * 86_400_000,
        notAfterMs: Date.now() + until * 86_400_000,
      })
      files.write('client.pem', cert)
      files.write('client.key', key)
      const clientCertificate = { certFile: 'client.pem', key: { file: 'client.key' } }
      const config = await load({ request: { caFile: 'ca.pem', clientCertificate } })
      expect(config.warnings).toEqual([expect.stringMatching(sentence)])
    }
  })

  it('is trusted by the list that `trust` names, and by no other', async () => {
    const { url } = await serviceOf(granting('t'), server)
    const kindOf = async (request: object, bundle: string): Promise<string> => {
      const env = { SSL_CERT_FILE: join(files.directory, bundle) }
      return (await askOnce(await load({ baseUrl: url, request }, env))).outcome.kind
    }
    expect(await kindOf({ trust: 'system' }, 'ca.pem')).toBe('ok')
    expect(await kindOf({ trust: 'system' }, 'other-ca.pem')).toBe('transient')
    expect(await kindOf({ trust: 'system', caFile: 'ca.pem' }, 'other-ca.pem')).toBe('ok')
    expect(await kindOf({ trust: 'file', caFile: 'ca.pem' }, 'other-ca.pem')).toBe('ok')
    expect(await kindOf({ trust: 'file', caFile: 'other-ca.pem' }, 'ca.pem')).toBe('transient')
    expect(await kindOf({}, 'ca.pem')).toBe('transient')
  })
})

describe('an assertion', () => {
  it('with a key that is not for the algorithm is a fault', async () => {
    const rsa = generateKeyPairSync('rsa', { modulusLength: 1024 }).privateKey
    const other = generateKeyPairSync('ec', { namedCurve: 'P-384' }).privateKey
    for (const [key, algorithm, sentence] of [
      [rsa, 'ES256', /assertion\.key: .* type rsa, which is not for ES256/],
      [rsa, 'RS256', /assertion\.key: .* RSA key of less than 2048 bits/],
      [other, 'ES256', /is not for ES256/],
    ] as const) {
      files.write('key', key.export({ type: 'pkcs8', format: 'pem' }))
      const assertion = { key: { file: 'key' }, algorithm }
      expect(await faults({ service: { send: 'assertion', assertion } })).toMatch(sentence)
    }
  })

  it('that lives for more than a day is warned of', async () => {
    const warned = async (seconds: number | null): Promise<readonly string[]> => {
      files.write('svid', await assertionFor(seconds))
      return (await files.load(described({}))).warnings
    }
    expect(await warned(80_000)).toEqual([])
    const key = 'which makes it a key that anybody can use who reads it: have one made that lives for minutes'
    const path = join(files.directory, 'svid')
    const said = `service.assertion.file: the file ${path} holds an assertion`
    expect(await warned(88_000)).toEqual([`${said} that lives for another 1 d, ${key}`])
    expect(await warned(null)).toEqual([`${said} without an end, ${key}`])
  })
})

describe('faults of an assertion', () => {
  const pair = { apiKey: 'key-0815', apiSecret: null }
  it.each<[object, object, RegExp]>([
    [{ key: 'PEM' }, {}, /service\.assertion\.file: is beside service\.assertion\.key/],
    [{ file: null }, { credentials: pair }, /service\.assertion: has neither a key, .* nor the file/],
    [{ file: null, key: { file: 'key' }, as: 'exchange' }, { credentials: pair }, /\.as: is "exchange"/],
    [{ type: 'x', as: 'grant' }, {}, /assertion\.type: is of use with .*"client" or "exchange" only/],
    [{ audience: 'x' }, {}, /service\.assertion\.audience: is of no use with service\.assertion\.file/],
    [{ claims: { sub: null } }, {}, /service\.assertion\.claims: is of no use/],
    [{}, { credentials: { apiKey: null, apiSecret: 'hush-hush' } }, /apiSecret: is of no use beside/],
    [
      {},
      { share: { servers: ['/run/redis.sock'], tls: false } },
      /share\.key: is missing, and no secret of the account is in the seal .*openssl rand -hex 32`, the same/,
    ],
    [{}, { tokenFiles: [{ path: 'SVID' }] }, /tokenFiles\[0\]\.path: is \S+svid, and that is a file/],
  ])('%j, %j', async (assertion, settings, sentence) => {
    files.write('key', privateKey.export({ type: 'pkcs8', format: 'pem' }))
    const text = JSON.stringify({ ...described(assertion), ...settings })
    const given = JSON.parse(text.replace('SVID', join(files.directory, 'svid')))
    expect(await files.refusal(given)).toMatch(sentence)
  })

  it('are a key that is null without one, and further fields of a header that are not free', async () => {
    expect(await files.refusal({ credentials: { apiKey: null, apiSecret: 'hush-hush' } })).toMatch(
      /credentials\.apiKey: is null, which only a ready-made assertion allows: give it, or set service\./,
    )
    files.write('key', privateKey.export({ type: 'pkcs8', format: 'pem' }))
    const header = { alg: 'none', kid: 'x', b64: false, crit: [] }
    const assertion = { file: null, key: { file: 'key' }, algorithm: 'ES256', header }
    const found = await files.refusal({ ...described(assertion), credentials: pair })
    for (const name of Object.keys(header))
      expect(found).toContain(`service.assertion.header.${name}: is not free: `)
  })
})

it('the texts of a key and a secret are these two, and every further secret adds to them', () => {
  const pair = { apiKey: new Secret('key'), apiSecret: new Secret('secret') }
  expect(credentialTexts(pair)).toEqual(['key', 'secret'])
  expect(credentialTexts({ ...pair, apiSecret: null })).toEqual(['key', null])
  const further = { b: new Secret('2'), a: new Secret('1') }
  expect(credentialTexts({ ...pair, further })).toEqual(['key', 'secret', ['a', '1'], ['b', '2']])
})

it('the key of a fleet is made of the secrets of the account, and of no certificate of one host', () => {
  const pair = { apiKey: new Secret('key'), apiSecret: new Secret('secret') }
  const own = { 'request.clientCertificate.key': new Secret('of one host') }
  const third = { 'service.parameters.realm': new Secret('third') }
  expect(sharedTexts(pair, null)).toEqual(['secret', null])
  expect(sharedTexts({ ...pair, further: own }, new Secret('more'))).toEqual(['secret', 'more'])
  expect(sharedTexts({ ...pair, further: { ...own, ...third } }, null)).toEqual([
    'secret',
    null,
    ['service.parameters.realm', 'third'],
  ])
})
