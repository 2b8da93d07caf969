// A ready-made assertion, which another program signs and renews in a file: what is sent, and when nothing is.
import { createHash, generateKeyPairSync } from 'node:crypto'
import { chmodSync, mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { SignJWT } from 'jose'
import { describe, expect, it } from 'vitest'
import { revealAll } from '../../src/config/config.ts'
import { useConfigFiles } from '../support/config-files.ts'
import { askOnce, fetcherOf } from '../support/fetcher.ts'
import { serviceOf } from '../support/outside.ts'

const files = useConfigFiles()
const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })

/** An assertion that ends in so many seconds; null: it has no end. */
async function assertionFor(seconds: number | null, claims = {}): Promise<string> {
  const jwt = new SignJWT({ sub: 'spiffe://example.org/kyc', ...claims }).setProtectedHeader({ alg: 'ES256' })
  const end = Math.floor(Date.now() / 1_000) + (seconds ?? 0)
  return (seconds === null ? jwt : jwt.setExpirationTime(end)).sign(privateKey)
}

const OAUTH2 = { preset: 'oauth2', tokenUrl: '/token' }
const described = (assertion: object, more: object = {}) => ({
  credentials: { apiKey: null, apiSecret: null },
  service: { ...OAUTH2, send: 'assertion', assertion: { file: 'svid', ...assertion }, ...more },
})

describe('a ready-made assertion', () => {
  const type = 'urn:ietf:params:oauth:client-assertion-type:'
  const tokenType = 'urn:ietf:params:oauth:token-type:'
  const [SPIFFE, ID_TOKEN] = [`${type}jwt-spiffe`, `${tokenType}id_token`]
  const client = { grant_type: 'client_credentials', client_assertion_type: `${type}jwt-bearer` }
  const grant = { grant_type: 'urn:ietf:params:oauth:grant-type:jwt-bearer' }
  const exchange = { grant_type: 'urn:ietf:params:oauth:grant-type:token-exchange' }
  it.each([
    [{}, 'client_assertion', client],
    [{ type: SPIFFE }, 'client_assertion', { ...client, client_assertion_type: SPIFFE }],
    [{ as: 'grant' }, 'assertion', grant],
    [{ as: 'exchange' }, 'subject_token', { ...exchange, subject_token_type: `${tokenType}jwt` }],
    [{ as: 'exchange', type: ID_TOKEN }, 'subject_token', { ...exchange, subject_token_type: ID_TOKEN }],
  ])('is sent as %j, with a client_id only where there is a key', async (assertion, field, fields) => {
    const service = await serviceOf({ json: { access_token: 't' } })
    const sent = await assertionFor(300)
    files.write('svid', `${sent}\n`)
    for (const apiKey of [null, 'client-7']) {
      const settings = { ...described(assertion), credentials: { apiKey, apiSecret: null } }
      const config = await files.load({ ...settings, baseUrl: service.url })
      expect(config.warnings).toEqual(apiKey === null ? [] : expect.anything())
      expect(await askOnce(config)).toMatchObject({ outcome: { kind: 'ok', accessToken: 't' }, counted: 1 })
      expect(Object.fromEntries(new URLSearchParams(service.requests.at(-1)?.body))).toEqual({
        ...fields,
        [field]: sent,
        ...(apiKey !== null && { client_id: apiKey }),
      })
    }
  })

  it('is read at each request, and is no part of the pair, of the description, or of what is watched', async () => {
    const service = await serviceOf({ json: { access_token: 't' } })
    const path = files.write('svid', await assertionFor(300, { n: 1 }))
    const config = await files.load({ ...described({}), baseUrl: service.url })
    const fetchToken = fetcherOf(config)
    const signal = new AbortController().signal
    await fetchToken(signal)
    const renewed = await assertionFor(300, { n: 2 })
    writeFileSync(`${path}.new`, renewed, { mode: 0o600 })
    renameSync(`${path}.new`, path)
    await fetchToken(signal)
    const sent = service.requests.map(({ body }) => new URLSearchParams(body).get('client_assertion'))
    expect(sent).toEqual([expect.not.stringMatching(`^${renewed}$`), renewed])
    expect(config).toMatchObject({ inputs: [], secretFiles: {}, credentials: { apiKey: null } })
    expect(config.service.description).not.toContain('svid')
    mkdirSync(join(files.directory, 'other'))
    const elsewhere = await files.load({ ...described({ file: 'other/svid' }), baseUrl: service.url })
    expect(elsewhere.service.description).toBe(config.service.description)
    const asGrant = await files.load({ ...described({ as: 'grant' }), baseUrl: service.url })
    expect(asGrant.service.description).not.toBe(config.service.description)
  })

  const unfit: [string, (path: string) => void | Promise<void>, RegExp][] = [
    ['missing', (path) => rmSync(path), / is not there$/],
    ['empty', (path) => writeFileSync(path, '\n'), / is empty$/],
    ['no JWT', (path) => writeFileSync(path, 'hush-hush-hush'), / holds no JWT on one line$/],
    [
      'on two lines',
      async (path) => writeFileSync(path, `${await assertionFor(60)}\n${await assertionFor(60)}\n`),
      / holds no JWT on one line$/,
    ],
    [
      'torn in its claims',
      async (path) => writeFileSync(path, (await assertionFor(60)).replace(/.{20}\.[^.]*$/, '')),
      / holds no JWT on one line$/,
    ],
    [
      'torn in its signature',
      async (path) => writeFileSync(path, (await assertionFor(60)).slice(0, -1)),
      / holds a JWT that is not whole: its signature is too short$/,
    ],
    ['past its end', async (path) => writeFileSync(path, await assertionFor(-70)), /.* that ended 1 min 1/],
    ['too large', (path) => writeFileSync(path, 'x'.repeat(16_385)), / is larger than 16 KiB, and so no/],
    ['readable by all', (path) => chmodSync(path, 0o644), /.* can be read by everybody: `chmod o-rwx \S+`$/],
    ['writable by its group', (path) => chmodSync(path, 0o660), / can be written by its group: `chmod go-w/],
    [
      'in a directory of all',
      (path) => chmodSync(join(path, '..'), 0o777),
      / is in \S+, which can be written by others: `sudo chmod go-w \S+`$/,
    ],
    [
      'a link into one of all',
      async (path) => {
        const open = join(files.directory, 'open')
        mkdirSync(open)
        renameSync(path, join(open, 'svid'))
        symlinkSync(join(open, 'svid'), path)
        chmodSync(open, 0o777)
      },
      / is in \S+open, which can be written by others: /,
    ],
  ]
  it.each(unfit)('that is %s is not sent, and no request is counted', async (_what, spoil, sentence) => {
    const service = await serviceOf({ json: { access_token: 't' } })
    const path = files.write('own/svid', await assertionFor(60))
    const config = await files.load({ ...described({ file: 'own/svid' }), baseUrl: service.url })
    await spoil(path)
    const { outcome, counted } = await askOnce(config)
    expect(outcome).toMatchObject({ kind: 'transient', reason: 'assertion' })
    const { detail } = outcome as { detail: string }
    expect(detail).toMatch(new RegExp(`^The file ${path} \\(service\\.assertion\\.file\\)${sentence.source}`))
    expect(detail).not.toMatch(/hush|eyJ/)
    expect([service.requests.length, counted]).toEqual([0, 0])
    // The next configuration is not refused for it either.
    await files.load({ ...described({ file: 'own/svid' }), baseUrl: service.url })
  })

  it('may be in a sticky directory of all, behind the link that Kubernetes swaps', async () => {
    const service = await serviceOf({ json: { access_token: 't' } })
    files.write('volume/..2026_1/svid', await assertionFor(60), 0o440)
    const volume = join(files.directory, 'volume')
    symlinkSync('..2026_1', join(volume, '..data'))
    symlinkSync('..data/svid', join(volume, 'svid'))
    chmodSync(volume, 0o1777)
    const config = await files.load({ ...described({ file: 'volume/svid' }), baseUrl: service.url })
    expect(await askOnce(config)).toMatchObject({ outcome: { kind: 'ok' } })
    chmodSync(join(volume, 'svid'), 0o644)
    expect((await askOnce(config)).outcome).toMatchObject({
      detail: expect.stringMatching(/can be read by everybody: set defaultMode: 0440 at its volume/),
    })
  })

  it('has its end judged by the clock of the service, once that is known', async () => {
    const date = new Date(Date.now() + 3_600_000).toUTCString()
    const service = await serviceOf({ status: 503, headers: { date } })
    files.write('svid', await assertionFor(60))
    const config = await files.load({ ...described({}), baseUrl: service.url })
    const fetchToken = fetcherOf(config)
    const signal = new AbortController().signal
    expect(await fetchToken(signal)).toMatchObject({ reason: 'server-error' })
    const detail = expect.stringMatching(/ that ended (?:59|58) min/)
    expect(await fetchToken(signal)).toMatchObject({ reason: 'assertion', detail })
  })

  it('is shown nowhere, whatever the service echoes', async () => {
    const sent = await assertionFor(300)
    const signature = sent.split('.')[2]!
    const service = await serviceOf(({ body }) => ({
      status: 400,
      json: { error_description: `${body} ${signature} ${Buffer.from(sent).toString('base64')}` },
    }))
    files.write('svid', sent)
    const config = await files.load({ ...described({}), baseUrl: service.url })
    const { outcome } = await askOnce(config)
    expect(outcome).toMatchObject({ reason: 'rejected' })
    const shown = JSON.stringify([outcome, config, revealAll(config)])
    expect(shown).not.toContain(sent)
    expect(shown).not.toContain(Buffer.from(sent).toString('base64').slice(0, 40))
    service.answer({ json: { access_token: sent } })
    expect((await askOnce(config)).outcome).toMatchObject({ reason: 'malformed-answer' })
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

describe('faults', () => {
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

describe('a signed assertion', () => {
  it('leaves out the claims that are null, has further fields in its header, and no grant_type but its own', async () => {
    const service = await serviceOf({ json: { access_token: 't' } })
    files.write('key', privateKey.export({ type: 'pkcs8', format: 'pem' }))
    const thumbprint = createHash('sha256').update('certificate').digest('base64url')
    const assertion = {
      file: null,
      key: { file: 'key' },
      algorithm: 'ES256',
      as: 'grant',
      claims: { sub: null, jti: null, scope: '*' },
      header: { 'x5t#S256': thumbprint, typ: null },
    }
    const credentials = { apiKey: 'key-0815', apiSecret: null }
    const settings = { ...described(assertion), credentials, baseUrl: service.url }
    expect(await askOnce(await files.load(settings))).toMatchObject({ outcome: { kind: 'ok' } })
    const sent = new URLSearchParams(service.requests[0]?.body)
    expect([...sent.keys()]).toEqual(['grant_type', 'assertion'])
    expect(sent.get('grant_type')).toBe('urn:ietf:params:oauth:grant-type:jwt-bearer')
    const [head, claims] = sent
      .get('assertion')!
      .split('.')
      .map((part) => Buffer.from(part, 'base64url').toString())
    expect(JSON.parse(head!)).toEqual({ 'x5t#S256': thumbprint, alg: 'ES256' })
    expect(Object.keys(JSON.parse(claims!))).toEqual(['iss', 'aud', 'iat', 'exp', 'scope'])
    const parameters = { grant_type: 'urn:own', scope: 'x' }
    const warned = await files.load({ ...settings, ...described(assertion, { parameters }), credentials })
    expect(warned.warnings.join()).toMatch(/service\.parameters\.grant_type: replaces the one .* as "grant"/)
  })

  it('has the description that 2.0.0 gave it', async () => {
    files.write('key', privateKey.export({ type: 'pkcs8', format: 'pem' }))
    const assertion = { key: { file: 'key' }, algorithm: 'ES256', keyId: 'k' }
    const parameters = { grant_type: 'x' }
    const service = { tokenUrl: '/token', send: 'assertion', assertion, parameters }
    const signed =
      '{"algorithm":"ES256","keyId":"k","audience":null,"lifetime":60000,"as":"client","claims":{}}'
    expect((await files.load({ service })).service.description).toBe(
      `["/token","assertion",null,[["grant_type","x"]],[],"accessToken",${signed}]`,
    )
  })
})
