// The request for a token: the ways to send, signed and ready-made assertions. oidc-provider has the client certificate.
import { createHash, generateKeyPairSync, type KeyObject } from 'node:crypto'
import { execFileSync } from 'node:child_process'
import { rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { jwtVerify, SignJWT } from 'jose'
import { describe, expect, it } from 'vitest'
import type { PairConfig, SignedAssertion } from '../../src/config/config.ts'
import { createSystemClock } from '../../src/lib/clock.ts'
import { formEncoded, Secret } from '../../src/lib/secret.ts'
import { readAssertion } from '../../src/source/assertion.ts'
import { jwtOf } from '../support/jwt.ts'
import { serviceOf } from '../support/outside.ts'
import type { Answer } from '../support/service.ts'
import { fetcherFor, fetchFrom, KEY, readyMade, SECRET, signing } from '../support/source.ts'
import { tempDirectory } from '../support/temp-directory.ts'

const THIRD = 'third/of=three+ü'
const third = new Secret(THIRD)
const basicOf = (text: string): string => Buffer.from(text).toString('base64')
const formOf = (fields: Record<string, string>): string => new URLSearchParams(fields).toString()
const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
const pemOf = (key: KeyObject) => new Secret(String(key.export({ type: 'pkcs8', format: 'pem' })))

it('is that of the interface description', async () => {
  const service = await serviceOf({ json: { accessToken: 'token-1' } })
  expect(await fetchFrom(service.url)).toMatchObject({ kind: 'ok', accessToken: 'token-1' })
  const body = JSON.stringify({ apiKey: KEY, apiSecret: SECRET })
  expect(service.requests).toMatchObject([
    {
      method: 'POST',
      path: '/token/external/jwt',
      headers: {
        accept: 'application/json',
        'accept-encoding': 'identity',
        'content-type': 'application/json',
        'content-length': String(Buffer.byteLength(body)),
        connection: 'close',
        'user-agent': expect.stringMatching(/^kyc-tokend\/\d+\.\d+\.\d+/),
      },
      body,
    },
  ])
  expect(service.requests[0]?.headers).not.toHaveProperty('authorization')
})

const ways: [string, Partial<PairConfig>, { headers?: object; body: unknown }][] = [
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
    'as HTTP Basic',
    { send: 'basic', parameters: { realm: third }, headers: { 'User-Agent': 'own' } },
    {
      headers: {
        authorization: `Basic ${basicOf(`${formEncoded(KEY)}:${formEncoded(SECRET)}`)}`,
        'user-agent': 'own',
      },
      body: `realm=${formEncoded(THIRD)}`,
    },
  ],
  [
    'as HTTP Basic without form encoding',
    { send: 'basic-plain', headers: { 'X-Api-Key': new Secret('thirdofthree') } },
    {
      headers: { authorization: `Basic ${basicOf(`${KEY}:${SECRET}`)}`, 'x-api-key': 'thirdofthree' },
      body: '',
    },
  ],
  ['without a secret', { names: { apiKey: 'user', apiSecret: null } }, { body: { user: KEY } }],
]
it.each(ways)('has key and secret %s, and an echo of it shows none', async (_way, pair, sent) => {
  const server = await serviceOf(({ body, headers }) => {
    const echo = `${body} ${String(new URLSearchParams(body))} ${Object.values(headers).join(' ')}`
    return { status: 503, json: { detail: echo, error_description: echo } }
  })
  const outcome = await fetchFrom(server.url, { pair, secrets: () => ['held-token'] })
  const { body, headers } = server.requests[0]!
  expect(typeof sent.body === 'string' ? body : JSON.parse(body)).toEqual(sent.body)
  expect(headers).toMatchObject(sent.headers ?? {})
  expect(outcome).toMatchObject({ kind: 'transient', reason: 'server-error' })
  const shown = JSON.stringify(outcome)
  const forms = [KEY, SECRET, THIRD].flatMap((text) => [text, formEncoded(text), basicOf(text)])
  const basics = [`${KEY}:${SECRET}`, `${formEncoded(KEY)}:${formEncoded(SECRET)}`].map(basicOf)
  for (const form of [...forms, ...basics, 'thirdofthree']) expect(shown, form).not.toContain(form)
  server.answer({ status: 503, json: { detail: 'Down for held-token' } })
  const held = await fetchFrom(server.url, { secrets: () => ['held-token'] })
  expect(held).toMatchObject({ detail: 'Down for [secret]' })
})

describe('a signed assertion', () => {
  const signed = (change: Partial<SignedAssertion> = {}): Partial<PairConfig> => ({
    ...signing(pemOf(privateKey), change),
    parameters: { grant_type: 'client_credentials' },
  })
  const sentIn = (body: string): string => {
    const fields = new URLSearchParams(body)
    return fields.get('client_assertion') ?? fields.get('assertion')!
  }

  it.each([
    ['RS256', () => generateKeyPairSync('rsa', { modulusLength: 2048 })],
    ['PS256', () => generateKeyPairSync('rsa', { modulusLength: 2048 })],
    ['ES256', () => ({ privateKey, publicKey })],
    ['EdDSA', () => generateKeyPairSync('ed25519')],
  ] as const)('is signed with %s, from PEM and from a JWK', async (algorithm, make) => {
    const pair = make()
    const service = await serviceOf({ json: { accessToken: 'token' } })
    for (const key of [
      pemOf(pair.privateKey),
      new Secret(JSON.stringify(pair.privateKey.export({ format: 'jwk' }))),
    ]) {
      const change = { key, algorithm, keyId: 'k-1', claims: { scope: 'kyc' } }
      expect(await fetchFrom(service.url, { pair: signed(change) })).toMatchObject({ kind: 'ok' })
      const { body } = service.requests.at(-1)!
      const { payload, protectedHeader } = await jwtVerify(sentIn(body), pair.publicKey, {
        issuer: KEY,
        subject: KEY,
        audience: `${service.url}/token/external/jwt`,
        maxTokenAge: '10s',
      })
      expect(protectedHeader).toEqual({ alg: algorithm, typ: 'JWT', kid: 'k-1' })
      expect(payload).toMatchObject({ scope: 'kyc', jti: expect.stringMatching(/^[\w-]{36}$/) })
      expect(payload.exp! - payload.iat!).toBe(60)
    }
  })

  it('leaves out the claims that are null, has further fields in its head, and is shown in no echo', async () => {
    const service = await serviceOf(({ body }) => ({
      status: 400,
      json: { error_description: `no: ${btoa(sentIn(body))} ${body}` },
    }))
    const thumbprint = createHash('sha256').update('certificate').digest('base64url')
    const claims = { sub: null, jti: null, iss: null, scope: '*' }
    const header = { 'x5t#S256': thumbprint, typ: null }
    const pair = signing(pemOf(privateKey), { as: 'grant', audience: 'aud', claims, header })
    const outcome = await fetchFrom(service.url, { pair })
    const sent = new URLSearchParams(service.requests[0]!.body)
    expect([...sent.keys()]).toEqual(['grant_type', 'assertion'])
    expect(sent.get('grant_type')).toBe('urn:ietf:params:oauth:grant-type:jwt-bearer')
    const text = sent.get('assertion')!
    const [head, claimed] = text.split('.').map((part) => Buffer.from(part, 'base64url').toString())
    expect(JSON.parse(head!)).toEqual({ 'x5t#S256': thumbprint, alg: 'ES256' })
    expect(Object.keys(JSON.parse(claimed!))).toEqual(['aud', 'iat', 'exp', 'scope'])
    expect(JSON.parse(claimed!)).toMatchObject({ aud: 'aud', scope: '*' })
    expect(outcome).toMatchObject({ reason: 'rejected' })
    for (const part of [text.slice(-40), btoa(text).slice(0, 40)])
      expect(JSON.stringify(outcome)).not.toContain(part)
  })

  it('has the time of the service where that is known, and its refusal by another clock is a failure', async () => {
    const strict: Answer = ({ body }) => {
      const [, claims = ''] = sentIn(body).split('.')
      const { iat } = JSON.parse(Buffer.from(claims, 'base64url').toString()) as { iat: number }
      const isNow = Math.abs(iat * 1_000 - Date.now()) < 10_000
      return isNow ? { json: { accessToken: 't' } } : { status: 404, json: { detail: 'Account not found' } }
    }
    const service = await serviceOf(strict)
    const system = createSystemClock()
    const clock = { ...system, now: () => ({ ...system.now(), wallMs: Date.now() - 600_000 }) }
    const fetchToken = fetcherFor(service.url, { pair: signed(), clock })
    const { signal } = new AbortController()
    expect(await fetchToken(signal)).toMatchObject({ kind: 'transient', reason: 'assertion' })
    expect(await fetchToken(signal, { serviceWallMs: Date.now() })).toMatchObject({ kind: 'ok' })
    service.answer({ status: 404, json: { detail: 'Account not found' } })
    expect(await fetchToken(signal, { serviceWallMs: Date.now() })).toMatchObject({ kind: 'permanent' })
  })
})

describe('a ready-made assertion', () => {
  /** One that ends in so many seconds; null: it has no end. */
  async function assertionFor(seconds: number | null, claims = {}): Promise<string> {
    const jwt = new SignJWT({ sub: 'spiffe://example.org/kyc', ...claims }).setProtectedHeader({
      alg: 'ES256',
    })
    const end = Math.floor(Date.now() / 1_000) + (seconds ?? 0)
    return (seconds === null ? jwt : jwt.setExpirationTime(end)).sign(privateKey)
  }
  const type = 'urn:ietf:params:oauth:client-assertion-type:'
  const tokenType = 'urn:ietf:params:oauth:token-type:'
  const grant = { grant_type: 'urn:ietf:params:oauth:grant-type:jwt-bearer' }
  const exchange = { grant_type: 'urn:ietf:params:oauth:grant-type:token-exchange' }

  it.each<[object, string, object]>([
    [{}, 'client_assertion', { client_assertion_type: `${type}jwt-bearer` }],
    [{ type: `${type}jwt-spiffe` }, 'client_assertion', { client_assertion_type: `${type}jwt-spiffe` }],
    [{ as: 'grant' }, 'assertion', grant],
    [{ as: 'exchange' }, 'subject_token', { ...exchange, subject_token_type: `${tokenType}jwt` }],
    [{ as: 'exchange', type: 'x' }, 'subject_token', { ...exchange, subject_token_type: 'x' }],
  ])('is sent as %j, with a client_id only where there is a key', async (as, field, more) => {
    const service = await serviceOf({ json: { accessToken: 't' } })
    const sent = await assertionFor(300)
    for (const apiKey of [null, 'client-7']) {
      expect(await fetchFrom(service.url, { pair: readyMade(as, apiKey) }, sent)).toMatchObject({
        kind: 'ok',
      })
      expect(Object.fromEntries(new URLSearchParams(service.requests.at(-1)?.body))).toEqual({
        ...more,
        [field]: sent,
        ...(apiKey !== null && { client_id: apiKey }),
      })
    }
  })

  async function readFrom(file: string, wallMs = Date.now()) {
    return readAssertion(file, wallMs, createSystemClock())
  }

  it('is read from its file, with or without an end, and its end is judged by the time that is given', async () => {
    const file = join(await tempDirectory(), 'svid')
    for (const seconds of [null, 60]) {
      const text = await assertionFor(seconds)
      writeFileSync(file, `${text}\n`)
      expect(await readFrom(file)).toEqual({ text })
    }
    const problem = expect.stringMatching(/ that ended (?:59|58) min/) as string
    expect(await readFrom(file, Date.now() + 3_600_000)).toEqual({ problem })
  })

  it.each<[string, (path: string) => Promise<void> | void, RegExp]>([
    ['missing', (path) => rmSync(path), / is not there$/],
    ['no JWT', (path) => writeFileSync(path, 'hush.hush.hush'), / holds no JWT on one line/],
    ['a FIFO', (path) => (rmSync(path), void execFileSync('mkfifo', [path])), / is not a regular file/],
    [
      'on two lines',
      async (path) => writeFileSync(path, `${await assertionFor(60)}\n`.repeat(2)),
      / holds no JWT/,
    ],
    ['past its end', async (path) => writeFileSync(path, await assertionFor(-70)), /.* that ended 1 min 1/],
    ['too large', (path) => writeFileSync(path, jwtOf({ exp: 4e9, x: 'x'.repeat(16_385) })), / holds no JWT/],
  ])('that is %s is not sent, and no word of it is shown', async (_what, spoil, sentence) => {
    const file = join(await tempDirectory(), 'svid')
    writeFileSync(file, await assertionFor(60))
    await spoil(file)
    const words = `^The file ${file} \\(service\\.assertion\\.file\\)${sentence.source}`
    const read = await readFrom(file)
    expect(read).toEqual({ problem: expect.stringMatching(words) as string })
    expect(JSON.stringify(read)).not.toMatch(/hush|eyJ/)
  })
})
