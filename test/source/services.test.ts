// Services of every kind, on real servers: how key and secret are sent, client certificates, and assertions.
// What such a service echoes shows no secret in any form in which it was sent.
import { execFileSync, spawn } from 'node:child_process'
import { createPrivateKey, generateKeyPairSync, type KeyObject } from 'node:crypto'
import { readFileSync } from 'node:fs'
import https from 'node:https'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import type { TLSSocket, TlsOptions } from 'node:tls'
import { jwtVerify } from 'jose'
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { revealAll, type Config } from '../../src/config/config.ts'
import { createSystemClock, type Clock } from '../../src/lib/clock.ts'
import { redact } from '../../src/lib/redaction.ts'
import type { ServiceOutcome } from '../../src/token/outcome.ts'
import { createAuthority, createCertificate } from '../support/certificates.ts'
import { useConfigFiles } from '../support/config-files.ts'
import { createFakeClock } from '../support/fake-clock.ts'
import { askOnce, fetcherOf } from '../support/fetcher.ts'
import { lacks } from '../support/lacks.ts'
import { serviceOf } from '../support/outside.ts'
import type { Answer } from '../support/service.ts'

const files = useConfigFiles()
const KEY = 'key of/the+account'
const SECRET = 'S3cret:&=ü"%'
const THIRD = 'third/of=three+ü'

const credentials = { apiKey: KEY, apiSecret: SECRET }
const load = (
  settings: { service?: object; credentials?: object; request?: object; baseUrl?: string },
  env = {},
) => files.load({ ...settings, credentials: { ...credentials, ...settings.credentials } }, env)
const faults = (settings: object): Promise<string> => files.refusal({ credentials, ...settings })

const ask = async (config: Config): Promise<ServiceOutcome> => (await askOnce(config)).outcome

const basicOf = (text: string): string => `Basic ${Buffer.from(text).toString('base64')}`
const formOf = (fields: Record<string, string>): string => new URLSearchParams(fields).toString()
const formEncoded = (text: string): string => formOf({ '': text }).slice(1)

describe('key, secret and a third one', () => {
  const third = { file: 'third' }
  const ways: [string, object, { headers?: object; body: unknown }][] = [
    [
      'as JSON, with numbers and booleans',
      { parameters: { realm: third, version: 2, isLive: true } },
      { body: { apiKey: KEY, apiSecret: SECRET, realm: THIRD, version: 2, isLive: true } },
    ],
    [
      'as a form',
      { send: 'form', parameters: { realm: third, version: 2 } },
      { body: formOf({ apiKey: KEY, apiSecret: SECRET, realm: THIRD, version: '2' }) },
    ],
    [
      'as headers',
      { send: 'headers', names: { apiKey: 'x-api-key', apiSecret: null }, headers: { 'X-Third': 7 } },
      { headers: { 'x-api-key': KEY, 'x-third': '7' }, body: {} },
    ],
    [
      'as one ready-made Authorization header',
      { send: 'headers', names: { apiKey: 'Authorization', apiSecret: null } },
      { headers: { authorization: KEY }, body: {} },
    ],
    [
      'as HTTP Basic',
      { send: 'basic', parameters: { realm: third } },
      {
        headers: { authorization: basicOf(`${formEncoded(KEY)}:${formEncoded(SECRET)}`) },
        body: `realm=${formEncoded(THIRD)}`,
      },
    ],
    [
      'as HTTP Basic without form encoding',
      { send: 'basic-plain', headers: { 'X-Api-Key': { env: 'THIRD_OF_THREE' } } },
      { headers: { authorization: basicOf(`${KEY}:${SECRET}`), 'x-api-key': 'thirdofthree' }, body: '' },
    ],
    ['without a secret', { names: { apiSecret: null } }, { body: { apiKey: KEY } }],
  ]
  it.each(ways)('are sent %s, and an echo of the request shows none', async (_way, service, sent) => {
    const server = await serviceOf(({ body, headers }) => {
      const echo = `${body} ${String(new URLSearchParams(body))} ${Object.values(headers).join(' ')}`
      return { status: 503, json: { detail: echo, error_description: echo } }
    })
    files.write('third', `${THIRD}\n`)
    const config = await load({ baseUrl: server.url, service }, { THIRD_OF_THREE: 'thirdofthree' })
    const outcome = await ask(config)
    const { body, headers } = server.requests[0]!
    expect(typeof sent.body === 'string' ? body : JSON.parse(body)).toEqual(sent.body)
    expect(headers).toMatchObject(sent.headers ?? {})
    expect(outcome).toMatchObject({ kind: 'transient', reason: 'server-error' })
    const echoed = [body, ...Object.values(headers)].join(' ')
    const [told, held] = [JSON.stringify(outcome), JSON.stringify(config)]
    const shown = [told, held, redact(echoed, revealAll(config))].join('\n')
    const jsonOf = (text: string): string => JSON.stringify(text).slice(1, -1)
    const forms = [KEY, SECRET, THIRD].flatMap((text) => [text, formEncoded(text), jsonOf(text)])
    const basics = [basicOf(`${KEY}:${SECRET}`), basicOf(`${formEncoded(KEY)}:${formEncoded(SECRET)}`)]
    for (const form of [...forms, ...basics.map((text) => text.slice(6)), 'thirdofthree'])
      expect(shown, form).not.toContain(form)
  })

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

it('a token that is not Bearer is reported with its type, and no other', async () => {
  const types: string[] = []
  for (const token_type of ['bearer', 'dpop']) {
    const server = await serviceOf({ json: { accessToken: 't', token_type } })
    const onOtherType = (type: string): void => void types.push(type)
    await fetcherOf(await load({ baseUrl: server.url }), { onOtherType })(new AbortController().signal)
  }
  expect(types).toEqual(['DPoP'])
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

  async function serveTls(options: TlsOptions): Promise<{ url: string; seen: string[] }> {
    const seen: string[] = []
    const listening = https.createServer(
      { requestCert: true, rejectUnauthorized: true, ...options },
      (asked, answer) => {
        seen.push(String((asked.socket as TLSSocket).getPeerCertificate().subject?.CN ?? 'nobody'))
        answer.end(JSON.stringify({ accessToken: 'bound' }))
      },
    )
    await new Promise<void>((resolve) => listening.listen(0, resolve))
    onTestFinished(() => void listening.close())
    return { url: `https://localhost:${(listening.address() as AddressInfo).port}`, seen }
  }

  /** A server that says by an alert why it refuses a certificate. Gives its port. */
  async function serveByOpenssl(version: string): Promise<string> {
    const own = '-cert server.pem -key server.key -CAfile ca.pem'
    const words = `s_server -accept 0 ${own} -Verify 1 -verify_return_error ${version}`
    const openssl = spawn('openssl', words.split(' '), {
      cwd: files.directory,
      stdio: ['pipe', 'pipe', 'ignore'],
    })
    onTestFinished(() => void openssl.kill())
    for await (const chunk of openssl.stdout) {
      const port = /^ACCEPT .*:(\d+)$/m.exec(String(chunk))?.[1]
      if (port !== undefined) return port
    }
    throw new Error('openssl has ended')
  }

  it('is presented; without one, and with one of another authority, the sentence says so', async () => {
    const withCertificate = (name: string) => ({
      caFile: 'ca.pem',
      trust: 'file',
      clientCertificate: { certFile: `${name}.pem`, key: { file: `${name}.key` } },
    })
    for (const version of ['TLSv1.2', 'TLSv1.3'] as const) {
      const only = { minVersion: version, maxVersion: version }
      const { url, seen } = await serveTls({ ...server, ca: authority.cert, ...only })
      const config = await load({ baseUrl: url, request: withCertificate('client') })
      expect(await ask(config)).toMatchObject({ kind: 'ok', accessToken: 'bound' })
      expect(seen).toEqual(['client'])
      expect(JSON.stringify(config)).not.toContain('PRIVATE')
      const without = await ask(await load({ baseUrl: url, request: { caFile: 'ca.pem' } }))
      const wanted = expect.stringMatching(/wants? a client certificate/)
      expect(without).toMatchObject({ reason: 'tls', detail: wanted })
      const strange = await ask(await load({ baseUrl: url, request: withCertificate('stranger') }))
      // Node as a server closes the connection and says no more.
      const notTaken = expect.stringMatching(/it may not accept the client certificate/)
      expect(strange).toMatchObject({ detail: notTaken })
      expect(seen).toEqual(['client'])
    }
    for (const version of ['-tls1_2', '-tls1_3']) {
      const port = await serveByOpenssl(version)
      const request = withCertificate('stranger')
      expect(await ask(await load({ baseUrl: `https://localhost:${port}`, request }))).toMatchObject({
        reason: 'tls',
        detail: expect.stringMatching(/does not accept the client certificate .*request\.clientCertificate/),
      })
    }
  })

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

  it('that has ended, or is not valid yet by our clock, is a warning and is sent', async () => {
    const { url, seen } = await serveTls({ ...server, ca: authority.cert, rejectUnauthorized: false })
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
      const config = await load({ baseUrl: url, request: { caFile: 'ca.pem', clientCertificate } })
      expect(config.warnings).toEqual([expect.stringMatching(sentence)])
      expect(await ask(config)).toMatchObject({ kind: 'ok' })
      expect(seen.splice(0)).toEqual(['client'])
    }
  })

  it('is trusted by the list that `trust` names, and by no other', async () => {
    const { url } = await serveTls({ ...server, requestCert: false })
    const kindOf = async (request: object, bundle: string): Promise<string> => {
      const env = { SSL_CERT_FILE: join(files.directory, bundle) }
      return (await ask(await load({ baseUrl: url, request }, env))).kind
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
  const pemOf = (key: KeyObject) => key.export({ type: 'pkcs8', format: 'pem' })
  const pairs: [string, () => { publicKey: KeyObject; privateKey: KeyObject }][] = [
    ['RS256', () => generateKeyPairSync('rsa', { modulusLength: 2048 })],
    ['PS256', () => generateKeyPairSync('rsa', { modulusLength: 2048 })],
    ['ES256', () => generateKeyPairSync('ec', { namedCurve: 'P-256' })],
    ['EdDSA', () => generateKeyPairSync('ed25519')],
  ]

  it.each(pairs)('is signed with %s, from PEM and from a JWK', async (algorithm, make) => {
    const { publicKey, privateKey } = make()
    const service = await serviceOf({ json: { access_token: 'token' } })
    const texts = [pemOf(privateKey), JSON.stringify(privateKey.export({ format: 'jwk' }))]
    for (const text of texts) {
      files.write('key', text)
      const assertion = { key: { file: 'key' }, algorithm, keyId: 'k-1', claims: { scope: 'kyc' } }
      const described = { preset: 'oauth2', tokenUrl: '/token', send: 'assertion', assertion }
      const config = await load({
        baseUrl: service.url,
        service: described,
        credentials: { apiSecret: null },
      })
      expect(await ask(config)).toMatchObject({ kind: 'ok', accessToken: 'token' })
      const sent = Object.fromEntries(new URLSearchParams(service.requests.at(-1)?.body))
      expect(sent).toMatchObject({
        grant_type: 'client_credentials',
        client_assertion_type: 'urn:ietf:params:oauth:client-assertion-type:jwt-bearer',
      })
      const { payload, protectedHeader } = await jwtVerify(sent['client_assertion']!, publicKey, {
        issuer: KEY,
        subject: KEY,
        audience: `${service.url}/token`,
        maxTokenAge: '10s',
      })
      expect(protectedHeader).toEqual({ alg: algorithm, typ: 'JWT', kid: 'k-1' })
      expect(payload).toMatchObject({ scope: 'kyc', jti: expect.stringMatching(/^[\w-]{36}$/) })
      expect(payload.exp! - payload.iat!).toBe(60)
    }
  })

  it('is not shown in an echo of it', async () => {
    const sentIn = (body: string): string => new URLSearchParams(body).get('assertion')!
    const service = await serviceOf(({ body }) => ({
      status: 400,
      json: { error_description: `no: ${btoa(sentIn(body))} ${body}` },
    }))
    // Without the key in its claims, by which it would be known, too.
    files.write('key', pairs[2]![1]().privateKey.export({ type: 'sec1', format: 'pem' }))
    const assertion = {
      key: { file: 'key' },
      algorithm: 'ES256',
      as: 'grant',
      claims: { iss: null, sub: null },
    }
    const config = await load({ baseUrl: service.url, service: { send: 'assertion', assertion } })
    const outcome = await ask(config)
    const signed = sentIn(service.requests[0]!.body)
    expect(outcome).toMatchObject({ reason: 'rejected', detail: expect.stringContaining('no: ') })
    for (const shown of [signed.slice(-40), btoa(signed).slice(0, 40)])
      expect(JSON.stringify(outcome)).not.toContain(shown)
    expect(JSON.stringify(config)).not.toContain('PRIVATE')
  })

  describe('that is refused while our clock is wrong', () => {
    const clockBehind = (ms: number) => {
      const clock = createSystemClock()
      return { ...clock, now: () => ({ ...clock.now(), wallMs: Date.now() - ms }) }
    }
    const issuedAtMs = (body: string): number => {
      const [, claims = ''] = new URLSearchParams(body).get('client_assertion')!.split('.')
      return JSON.parse(Buffer.from(claims, 'base64url').toString()).iat * 1_000
    }
    const refused = { status: 401, json: { error: 'invalid_client' } }
    async function fetcher(answer: Answer, request: object = {}, clock: Clock = clockBehind(600_000)) {
      const service = await serviceOf(answer)
      files.write('key', pairs[2]![1]().privateKey.export({ type: 'pkcs8', format: 'pem' }))
      const assertion = { key: { file: 'key' }, algorithm: 'ES256' }
      const described = { preset: 'oauth2', tokenUrl: '/token', send: 'assertion', assertion }
      const config = await load({ baseUrl: service.url, service: described, request })
      let counted = 0
      const fetchToken = fetcherOf(config, { clock })
      const beforeRequest = async (): Promise<void> => void (counted += 1)
      const fetch = () => fetchToken(new AbortController().signal, { beforeRequest })
      return { service, fetch, counted: () => counted }
    }

    it('is sent once more at once, with the time of the service', async () => {
      const strict: Answer = ({ body }) =>
        Math.abs(issuedAtMs(body) - Date.now()) < 10_000 ? { json: { access_token: 't' } } : refused
      const { service, fetch, counted } = await fetcher(strict)
      expect(await fetch()).toMatchObject({ kind: 'ok', accessToken: 't' })
      expect([service.requests.length, counted()]).toEqual([2, 2])
      // From now on the first one has it.
      expect(await fetch()).toMatchObject({ kind: 'ok' })
      expect([service.requests.length, counted()]).toEqual([3, 3])
    })

    it.each([
      [28_000, 1],
      [33_000, 2],
    ])(
      'by more than 30 s, for the Date of an answer has whole seconds: by %i ms, asked %i times',
      async (ms, times) => {
        const { service, fetch } = await fetcher(refused, {}, clockBehind(ms))
        expect(await fetch()).toMatchObject({ reason: 'account-not-found' })
        expect(service.requests).toHaveLength(times)
      },
    )

    it.each([
      ['account-not-found', 'invalid_client', 2],
      ['rejected', 'x', 1],
    ])('and is %s again has a detail that names the clock', async (reason, error, times) => {
      const { service, fetch } = await fetcher({ status: 401, json: { error } })
      const detail = expect.stringMatching(
        /clock is (?:10 min|9 min 5\d s) behind that of the service: set it$/,
      )
      for (const requests of [times, times + 1]) {
        expect(await fetch()).toMatchObject({ reason, detail })
        expect(service.requests).toHaveLength(requests)
      }
    })

    it.each([
      [{ status: 503 }, 'server-error', /^/],
      [undefined, 'timeout', /^No whole answer from \S+ within 0\.3 s \(request\.timeout\)/],
    ])(
      'and only the second answer decides, %j, which comes within the time of one',
      async (second, reason, words) => {
        const clock = createFakeClock({ wallMs: Date.now() - 600_000 })
        const { fetch } = await fetcher(
          async (_asked, { number }) => {
            if (number === 1 || second === undefined) await clock.advance(300)
            return number === 1 ? refused : second
          },
          { timeout: '600ms' },
          clock,
        )
        const detail = expect.stringMatching(words)
        expect(await fetch()).toMatchObject({ kind: 'transient', reason, detail })
      },
    )
  })

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
})
