import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Secret } from '../../src/lib/secret.ts'
import { standardService } from '../../src/config/service.ts'
import { type ServiceResponse } from '../../src/source/answer.ts'
import { createClassify, failureTable as tableOf } from '../../src/source/response.ts'
import { jwtOf } from '../support/jwt.ts'

const KEY = 'key-of-the-account'
const SECRET = 'S3cret/+of=the"account'
const TOKEN_HELD = 'opaque-token-that-we-hold'
const NOW = Date.parse('2026-11-01T12:00:00Z')
const DATE = 'Sun, 01 Nov 2026 12:00:00 GMT'

type Headers = ServiceResponse['headers']
function answer(status: number, body: unknown = '', headers: Headers = {}): ServiceResponse {
  const text = typeof body === 'string' || body instanceof Uint8Array ? body : JSON.stringify(body)
  return { status, headers, body: Buffer.from(text as string) }
}
const standard = standardService()
const failureTable = tableOf(standard)
const classified = (given: ServiceResponse, change: Partial<typeof standard> = {}) =>
  createClassify({ ...standard, ...change })(given, { wallMs: NOW, secrets: [KEY, SECRET, TOKEN_HELD] })
const outcomeOf = (...given: Parameters<typeof classified>) => classified(...given).outcome
/** The words about an answer that gives no token. */
const detailOf = (...given: Parameters<typeof classified>) =>
  (outcomeOf(...given) as { detail: string }).detail
const problem = (detail: unknown) => ({ type: 'about:blank', title: 'KnownRuntimeError', detail })

describe('a 200', () => {
  it.each([jwtOf({ exp: 1 }), 'AZaz09-._~+/==', 'a'.repeat(16 * 1024)])(
    'with an accessToken of visible ASCII is a token',
    (accessToken) => {
      const { outcome, row } = classified(answer(200, { accessToken, more: 1 }))
      expect(outcome).toEqual({ kind: 'ok', accessToken })
      expect(row.reason).toBe('ok')
    },
  )

  it('reports the Date of the answer', () => {
    expect(outcomeOf(answer(200, { accessToken: 'a' }, { date: DATE }))).toMatchObject({ serverDateMs: NOW })
  })

  it('may begin with a byte order mark, have 64 KiB, and say that it is not compressed', () => {
    const padding = 64 * 1024 - JSON.stringify({ accessToken: 'a', padding: '' }).length
    const body = { accessToken: 'a', padding: 'x'.repeat(padding) }
    expect(outcomeOf(answer(200, '\uFEFF{"accessToken":"a"}'))).toMatchObject({ kind: 'ok' })
    for (const headers of [{}, { 'content-encoding': '' }, { 'content-encoding': 'identity' }])
      expect(outcomeOf({ ...answer(200, body, headers), isCut: false })).toMatchObject({ kind: 'ok' })
  })

  const unfit =
    'its accessToken is empty or has a blank, a quote, a backslash, a comma, a semicolon, or what is no ASCII'
  const unfitTokens = ['', 'abc def', 'xBearer abc', 'abc\r\nX-Injected: 1', 'abc\n', 'tökén-abc']
  const others = { token: 'abc', expires: 1, 'a b': 2, [SECRET]: 3, ['x'.repeat(33)]: 4 }
  const reported: [ServiceResponse, string][] = [
    [answer(200, ' \n'), 'its body is empty'],
    [answer(200, '<html>'), 'its body is not JSON'],
    [answer(200, '[1]'), 'its body is JSON, but no object'],
    [answer(200, others), 'the answer has no "accessToken"; it has "token", "expires"'],
    [answer(200, { accessToken: null }), 'its accessToken is no text'],
    [answer(200, { accessToken: 'a'.repeat(16 * 1024 + 1) }), 'its accessToken is longer than 16 KiB'],
    ...[...unfitTokens, ...Array.from(`"',;\\\t\u007f`, (char) => `abc${char}`)].map(
      (accessToken): [ServiceResponse, string] => [answer(200, { accessToken }), unfit],
    ),
    [answer(200, 'x'.repeat(64 * 1024 + 1)), 'its body is longer than 64 KiB'],
    [{ ...answer(200, { accessToken: 'abc' }), isCut: true }, 'its body is longer than 64 KiB'],
    [answer(200, '', { 'content-encoding': 'br' }), 'its body is compressed'],
  ]
  it.each(reported)('without a fit token is a malformed answer, case %#', (given, words) => {
    const detail = `The service answered 200 OK, but ${words}`
    expect(outcomeOf(given)).toEqual({ kind: 'transient', reason: 'malformed-answer', status: 200, detail })
  })

  it('with a path that ends too early is reported with the names there', () => {
    const token = ['data', 'token']
    const many = Object.fromEntries(Array.from('abcdefghij', (name) => [name, 1]))
    for (const [path, body, words] of [
      [token, { data: { tok: 'abc' } }, /the answer has no "data\.token"; it has "data\.tok"$/],
      [token, { data: 'abc', more: 1 }, /has no "data\.token"; it has "data", "more"$/],
      [['toString'], {}, /has no "toString"$/],
      [['a', 'b', 'c'], { a: { b: { x: 1 } } }, /it has "a\.b\.x"$/],
      [token, many, / it has "a", .*"h"$/],
    ] as const)
      expect(detailOf(answer(200, body), { token: [...path] })).toMatch(words)
    expect(tableOf({ ...standard, token })[0]?.answer).toBe('200 or 201 with a data.token fit for a header')
    expect(failureTable[0]?.answer).toBe('200 or 201 with an accessToken fit for a header')
    const long = Object.fromEntries(Array.from('abcdefgh', (name) => [name.padEnd(32, 'x'), 1]))
    expect(detailOf(answer(200, long))).toHaveLength(200)
  })

  it('says how long the token lives, in seconds, as a number or as digits', () => {
    const given = (life: unknown) =>
      outcomeOf(answer(200, { accessToken: 'a', data: { life } }), { lifetime: ['data', 'life'] })
    for (const [life, answerLifeMs] of [
      [60, 60_000],
      [' 3600 ', 3_600_000],
      ['0.5', 500],
    ] as const)
      expect(given(life)).toEqual({ kind: 'ok', accessToken: 'a', answerLifeMs })
    for (const life of ['soon', '1e3', 'x60', '60s', '1.5.5', '', null, [60]])
      expect(given(life)).toEqual({ kind: 'ok', accessToken: 'a' })
    const words = 'The service answered 200 OK, but its data.life leaves the token no life: it is 0 or less'
    for (const life of [0, -1, '-30'])
      expect(given(life)).toMatchObject({ reason: 'malformed-answer', detail: words })
  })

  it('says the instant at which the token ends, in each form that services have', () => {
    const given = (until: unknown, date: string | undefined = DATE) =>
      outcomeOf(answer(201, { accessToken: 'a', until }, { date }), { expires: ['until'] })
    const end = NOW + 90_000
    const iso = new Date(end).toISOString()
    const forms = [iso, iso.replace('.000Z', '+00:00'), iso.replace('T', ' '), end, String(end), end / 1_000]
    for (const until of forms) expect(given(until), String(until)).toMatchObject({ answerLifeMs: 90_000 })
    for (const until of [iso.slice(0, -1), 'soon', null, {}, true])
      expect(given(until)).toMatchObject({ kind: 'ok', answerLifeMs: undefined })
    const words = 'The service answered 201 Created, but its until leaves the token no life: it is past'
    expect(given(NOW - 1)).toMatchObject({ reason: 'malformed-answer', detail: words })
    // By the clock of the service, if the answer has it: ours may be wrong.
    expect(given(end, 'Sun, 01 Nov 2026 12:01:00 GMT')).toMatchObject({ answerLifeMs: 30_000 })
    expect(given(end, 'Sun, 01 Nov 2026 10:00:00 GMT')).toMatchObject({ answerLifeMs: 7_290_000 })
    expect(given(end, 'soon')).toMatchObject({ answerLifeMs: 90_000 })
  })

  it.each([
    ['Token abc', 'Token ', { accessToken: 'abc' }],
    ['token abc', 'Token ', { accessToken: 'abc' }],
    ['abc', 'Token ', { accessToken: 'abc' }],
    ['Bearer abc', 'Token ', { reason: 'malformed-answer' }],
    ['12|abc!$%', '', { accessToken: '12|abc!$%' }],
  ])('%j may begin with the prefix that the API wants, %j', (accessToken, prefix, outcome) => {
    const use = { header: 'X-T', prefix }
    expect(outcomeOf(answer(200, { accessToken }), { use })).toMatchObject(outcome)
  })

  it('may give a token that is not Bearer, by its type, which is quoted only where it is a usual one', () => {
    const typeOf = (token_type: unknown, change: Partial<typeof standard> = {}) => {
      const body = { data: { token: 't', token_type } }
      return classified(answer(200, body), { token: ['data', 'token'], ...change }).otherType
    }
    for (const type of ['Bearer', 'bearer', undefined, 7]) expect(typeOf(type)).toBeUndefined()
    expect([typeOf('dpop'), typeOf('hush-hush')]).toEqual(['DPoP', 'another'])
    expect(typeOf('DPoP', { use: { header: 'X-Token', prefix: '' } })).toBeUndefined()
  })

  it('may refuse by a code, which is looked for before the token, and at its place alone', () => {
    const reason = 'account-not-found' as const
    const refusals = [{ status: 200, says: 'true', in: ['error', 'has'], reason }]
    const given = (body: object) => outcomeOf(answer(200, { accessToken: 'a', ...body }), { refusals })
    expect(given({ error: { has: true } })).toMatchObject({ kind: 'permanent', reason, detail: 'true' })
    expect(given({ error: { has: false } })).toMatchObject({ kind: 'ok' })
    expect(given({ also: 'true' })).toMatchObject({ kind: 'ok' })
  })
})

describe('a refusal', () => {
  it.each([
    problem('  YOUR\taccount\n is  not active. '),
    problem('Sorry: Your account is not active (code 7)'),
    'Your account is not active',
    '<h1>Your account\n is not active</h1>',
    { title: 'Your account is not active' },
    { detail: ['Your account is not active'] },
  ])('is a 500 with %j', (body) => {
    expect(outcomeOf(answer(500, body))).toMatchObject({ kind: 'permanent', reason: 'account-inactive' })
  })
  it('is a 404 with the words', () => {
    const [detail, reason] = ['Account not found', 'account-not-found']
    const known = { status: 404, detail, says: detail }
    expect(outcomeOf(answer(404, 'account NOT  found'))).toEqual({ kind: 'permanent', reason, ...known })
  })

  const WORDS = 'Your account is not active'
  const others: [string, ServiceResponse, string][] = [
    ['another status', answer(503, problem('Your account is not active')), 'server-error'],
    ['a 404 and the words of the 500', answer(404, problem('Your account is not active')), 'rejected'],
    ['the words beside another detail', answer(500, { title: WORDS, detail: 'Down' }), 'server-error'],
    ['a body that was not read to its end', { ...answer(500, WORDS), isCut: true }, 'server-error'],
  ]
  it.each(others)('is none with %s', (_what, given, reason) => {
    expect(outcomeOf(given)).toMatchObject({ kind: 'transient', reason })
  })
  it.each([
    [{ in: null }, { title: 'Your account is not active' }, 500, 'account-inactive'],
    [{}, { title: 'Your account is not active' }, 500, 'account-inactive'],
    [{ status: 200 }, 'Your account is not active', 200, 'account-inactive'],
    [{ status: 200 }, { title: 'Your account is not active' }, 200, 'malformed-answer'],
  ])(
    'of %j is looked for in the whole of %j, but in a 2xx at its path alone',
    (change, body, status, reason) => {
      const refusals = standard.refusals.map((known) => ({ ...known, ...change }))
      expect(outcomeOf(answer(status, body), { refusals })).toMatchObject({ reason })
    },
  )
})

describe('any other answer', () => {
  it.each([
    ['rate-limited', [429]],
    ['server-error', [500, 501, 504, 599, 408, 425]],
    ['malformed-answer', [202, 299, 300, 307, 399, 101, 199, 600]],
    ['rejected', [400, 404, 451, 499]],
  ])('is %s', (reason, statuses) => {
    for (const status of statuses) {
      const { outcome, row } = classified(answer(status, { accessToken: 'abc' }))
      expect(outcome).toMatchObject({ kind: 'transient', reason, status })
      expect(row.reason).toBe(reason)
    }
  })

  const redirected =
    'The service answered 307 Temporary Redirect and points elsewhere; ' +
    'it was not followed, because the secret would go there too: check baseUrl'
  it.each<[string, ServiceResponse, string]>([
    ['the words of the service', answer(503, problem('Down until noon')), 'Down until noon'],
    ['ours for a page', answer(502, '<html>Bad'), 'The service answered 502 Bad Gateway'],
    ['ours for no words', answer(503, problem('\n\0 ')), 'The service answered 503 Service Unavailable'],
    ['ours for a 2xx', answer(299, problem('Words')), 'The service answered 299'],
    ['those of a redirect', answer(300, problem('Words')), 'Words'],
    ['ours for an unknown status', answer(599), 'The service answered 599'],
    [
      'what to look at',
      answer(404),
      "The service answered 404 Not Found, and not the service's own: check baseUrl",
    ],
    ['why it is not followed', answer(307), redirected],
  ])('is reported in %s', (_what, given, detail) => {
    expect(detailOf(given)).toBe(detail)
  })

  it('is reported in the words at the paths of the description, too; a refusal in those at its own', () => {
    const refusal = { status: 400, says: 'gone', in: ['error'], reason: 'account-inactive' as const }
    const words = (body: object) => detailOf(answer(400, body), { refusals: [refusal] })
    for (const name of ['detail', 'error_description', 'error'])
      expect(words({ [name]: 'Closed', more: 'x' })).toBe('Closed')
    expect(words({ detail: 'Closed', error: 'Is gone' })).toBe('Is gone')
    const expired = 'AADSTS7000222: The provided client secret keys are expired.'
    expect(words({ error: 'gone', error_description: expired })).toBe(`gone: ${expired}`)
    expect(words({ error: 'gone', error_description: 7 })).toBe('gone')
    expect(words({ error: 'gone', error_description: `no ${SECRET}` })).toBe('gone: no [secret]')
  })

  it('is reported with the setting that leads there', () => {
    for (const [change, words] of [
      [{ description: '{}' }, 'check baseUrl and service.tokenUrl'],
      [{ description: '{}', hostSetting: 'service.tokenUrl' }, 'there too: check service.tokenUrl'],
    ] as const)
      expect(detailOf(answer(302), change)).toContain(words)
  })

  it.each([
    ['/login', ''],
    ['ftp://elsewhere.example/', ''],
    [['https://a.example'], ''],
    [`https://${'a'.repeat(81)}`, ''],
    [`https://${'a'.repeat(80)}`, `, to https://${'a'.repeat(80)}`],
    ['https://el-se_where.example:8443', ', to https://el-se_where.example:8443'],
    [`https://elsewhere.example/login?key=${KEY}`, ', to https://elsewhere.example'],
  ])('that redirects to %j is reported with the origin at most', (location, origin) => {
    const detail = detailOf(answer(302, '', { location }))
    expect(detail).toContain(` and points elsewhere${origin};`)
    expect(detail).not.toContain(KEY)
  })
})

describe('Retry-After', () => {
  const waitOf = (headers: Headers, status = 503): unknown =>
    (outcomeOf(answer(status, '', headers)) as { retryAfterMs?: number }).retryAfterMs
  it.each<[string | undefined, number | undefined]>([
    [' 120 ', 120_000],
    ['0', 0],
    ['9'.repeat(400), 3_600_000],
    ['Sun, 01 Nov 2026 12:02:00 GMT', 120_000],
    [` ${DATE} `, 0],
    ['Sun, 01 Nov 2099 12:00:00 GMT', 3_600_000],
    ['Sunday, 01-Nov-26 12:02:00 GMT', undefined],
    ['Sun, 01 Nov 2026 11:00:00 GMT', undefined],
    ['Sun, 99 Nov 2026 12:00:00 GMT', undefined],
    ['2026-11-01T12:02:00Z', undefined],
    ...[undefined, '-5', '1.5', '0x10', `on ${DATE}`, `${DATE}, or later`].map(
      (value): [string | undefined, undefined] => [value, undefined],
    ),
  ])('%j is seconds or a date that is not past, and an hour at most', (value, waitMs) => {
    for (const status of [429, 503, 408, 425]) expect(waitOf({ 'retry-after': value }, status)).toBe(waitMs)
  })

  it('is on the clock of the answer, where that has one, and means nothing in other rows', () => {
    const date = 'Sun, 01 Nov 2026 17:00:00 GMT'
    expect(waitOf({ 'retry-after': 'Sun, 01 Nov 2026 17:02:00 GMT', date })).toBe(120_000)
    for (const status of [200, 302, 403, 404])
      expect(waitOf({ 'retry-after': '120' }, status)).toBeUndefined()
  })
})

describe('a token that gives the credentials away', () => {
  const apiKey = 'key-of-the-account'
  const apiSecret = 'S3cret/+of=the~account'
  const base64 = (text: string) => Buffer.from(text).toString('base64')

  it.each([
    ['the secret itself', 'short', ['a-key-of-ours', 'short'], 'transient'],
    ['the secret within', 'it-holds-8-chars', ['a-key-of-ours', '-8-chars'], 'transient'],
    ['what may be the secret by chance', 'it-holds-8-chars', ['a-key-of-ours', '8-chars'], 'ok'],
    ['neither', 'another', ['short', 'not-so-short'], 'ok'],
    ['the secret in base64', base64(apiSecret), [apiKey, apiSecret], 'transient'],
    ['both as of Basic', base64(`${apiKey}:${apiSecret}`), [apiKey, apiSecret], 'transient'],
    ['the secret as a claim', jwtOf({ exp: 4e9, note: apiSecret }), [apiKey, apiSecret], 'transient'],
    ['the key in base64', base64(apiKey), [apiKey, apiSecret], 'transient'],
    ['the key as a claim', jwtOf({ exp: 4e9, sub: apiKey }), [apiKey, apiSecret], 'ok'],
  ])('is none where it holds %s, unless that may be', (_what, accessToken, [key = '', secret = ''], kind) => {
    const credentials = { apiKey: new Secret(key), apiSecret: new Secret(secret) }
    const options = { wallMs: 0, secrets: [], credentials }
    expect(createClassify(standard)(answer(200, { accessToken }), options).outcome.kind).toBe(kind)
  })
})

describe('whatever comes', () => {
  const anyHeaders = fc.dictionary(
    fc.constantFrom('date', 'retry-after', 'location', 'content-encoding', 'content-type'),
    fc.oneof(fc.string(), fc.constant(DATE), fc.nat().map(String), fc.array(fc.string())),
  )
  const ofSecret = [SECRET, JSON.stringify(SECRET), encodeURIComponent(SECRET), btoa(SECRET)]
  const echo = fc.constantFrom(
    KEY,
    TOKEN_HELD,
    ...ofSecret,
    `${SECRET.slice(0, 5)}\0`,
    SECRET.slice(5),
    'Account not found',
    '\n',
    '"',
    '\0',
  )
  const anyText = fc.array(fc.oneof(fc.string({ unit: 'binary' }), echo)).map((parts) => parts.join(''))
  const anyBody = fc.oneof(
    fc.uint8Array({ maxLength: 2_000 }),
    anyText.map((text) => Buffer.from(text)),
    fc.json().map((text) => Buffer.from(text)),
    fc
      .record({ detail: fc.oneof(anyText, fc.jsonValue()), accessToken: fc.oneof(anyText, fc.jsonValue()) })
      .map((fields) => Buffer.from(JSON.stringify(fields))),
  )
  const anyStatus = fc.oneof(fc.integer(), fc.constantFrom(200, 302, 404, 429, 500, 503))
  const bareOf = (text: string): string => text.toLowerCase().replace(/\s/g, '')

  it('is an outcome of one row, never a throw, and its detail holds no secret', () => {
    fc.assert(
      fc.property(anyStatus, anyHeaders, anyBody, fc.boolean(), (status, headers, body, isCut) => {
        const { outcome, row } = classified({ status, headers, body, isCut })
        expect(row.reason).toBe(outcome.kind === 'ok' ? 'ok' : outcome.reason)
        if (outcome.kind === 'ok') return
        for (const secret of [KEY, TOKEN_HELD, ...ofSecret])
          expect(bareOf(outcome.detail)).not.toContain(bareOf(secret))
        expect(outcome.detail.length).toBeLessThanOrEqual(200)
        expect(outcome.detail).toMatch(/^[^\p{C}\p{Zl}\p{Zp}]+$/u)
        const waitMs = ('retryAfterMs' in outcome && outcome.retryAfterMs) || 0
        expect(waitMs >= 0 && waitMs <= 3_600_000).toBe(true)
      }),
      { numRuns: 1_000 },
    )
  })
})
