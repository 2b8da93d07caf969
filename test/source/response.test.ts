import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Secret } from '../../src/lib/secret.ts'
import { standardService } from '../../src/config/service.ts'
import {
  createClassify,
  describeAnswer,
  failureTable as tableOf,
  type ServiceResponse,
} from '../../src/source/response.ts'
import { bare as bareCell, tableRows } from '../manual/manual.ts'
import { jwtOf } from '../support/jwt.ts'

const KEY = 'key-of-the-account'
const SECRET = 'S3cret/+of=the"account'
const TOKEN_HELD = 'opaque-token-that-we-hold'
const NOW = Date.parse('2026-11-01T12:00:00Z')
const DATE = 'Sun, 01 Nov 2026 12:00:00 GMT'

function answer(
  status: number,
  body: unknown = '',
  headers: ServiceResponse['headers'] = {},
): ServiceResponse {
  const text = typeof body === 'string' || body instanceof Uint8Array ? body : JSON.stringify(body)
  return { status, headers, body: Buffer.from(text as string) }
}
const failureTable = tableOf(standardService())
const classify = createClassify(standardService())
const classified = (given: ServiceResponse, service = standardService()) =>
  createClassify(service)(given, { wallMs: NOW, secrets: [KEY, SECRET, TOKEN_HELD] })
const outcomeOf = (...given: Parameters<typeof classified>) => classified(...given).outcome
/** The words about an answer that gives no token. */
const detailOf = (...given: Parameters<typeof classified>) =>
  (outcomeOf(...given) as { detail: string }).detail
const problem = (detail: unknown) => ({ type: 'about:blank', title: 'KnownRuntimeError', detail })

describe('a 200', () => {
  const accepted = ['a', jwtOf({ exp: 1 }), 'AZaz09-._~+/==', 'a'.repeat(16 * 1024)]
  it.each(accepted)('with an accessToken of visible ASCII is a token', (accessToken) => {
    const { outcome, row } = classified(answer(200, { accessToken, more: 1 }))
    expect(outcome).toEqual({ kind: 'ok', accessToken })
    expect(row.reasons).toEqual(['ok'])
  })

  it('reports the Date of the answer', () => {
    expect(outcomeOf(answer(200, { accessToken: 'a' }, { date: DATE }))).toMatchObject({ serverDateMs: NOW })
    expect(outcomeOf(answer(200, { accessToken: 'a' }, { date: 'yesterday' }))).toMatchObject({
      serverDateMs: undefined,
    })
  })

  it('may begin with a byte order mark', () => {
    expect(outcomeOf(answer(200, '\uFEFF{"accessToken":"a"}'))).toMatchObject({ kind: 'ok' })
  })

  const refused: [string, unknown][] = [
    ['a torn JSON', '{"accessToken":"abc"'],
    ['no accessToken', { token: 'abc' }],
    ['null for a token', { accessToken: null }],
    ['a token with a space', { accessToken: 'abc def' }],
    ['Bearer within a token', { accessToken: 'xBearer abc' }],
    ['a token with a newline', { accessToken: 'abc\r\nX-Injected: 1' }],
    ['a token with a trailing newline', { accessToken: 'abc\n' }],
    ...Array.from(`"',;\\\t\u007f`, (char): [string, unknown] => [
      `${JSON.stringify(char)} in a token`,
      { accessToken: `abc${char}` },
    ]),
    ['letters beyond ASCII', { accessToken: 'tökén' }],
    ['more than 64 KiB', { accessToken: 'abc', padding: 'x'.repeat(64 * 1024) }],
    ['a NUL', '{"accessToken":"abc"}\0'],
    ['an accessToken further down', { data: { accessToken: 'abc' } }],
  ]
  it.each(refused)('with %s is a malformed answer, and not quoted', (_what, body) => {
    const outcome = outcomeOf(answer(200, body))
    expect(outcome).toMatchObject({ kind: 'transient', reason: 'malformed-answer', status: 200 })
    expect(JSON.stringify(outcome)).not.toMatch(/abc|html|root|tök/)
  })

  const long = 'a'.repeat(16 * 1024 + 1)
  const others = { token: 'abc', expires: 1, 'a b': 2, [SECRET]: 3, ['x'.repeat(33)]: 4 }
  const reported: [ServiceResponse, string][] = [
    [answer(200, ' \n'), 'its body is empty'],
    [answer(200, '<html>'), 'its body is not JSON'],
    [answer(200, '[1]'), 'its body is JSON, but no object'],
    [answer(200, 'null'), 'its body is JSON, but no object'],
    [answer(200, {}), 'the answer has no "accessToken"'],
    [answer(200, others), 'the answer has no "accessToken"; it has "token", "expires"'],
    [answer(200, { accessToken: 5 }), 'its accessToken is no text'],
    [answer(200, { accessToken: long }), 'its accessToken is longer than 16 KiB'],
    [
      answer(200, { accessToken: '' }),
      'its accessToken is empty or has a blank, a quote, a backslash, a comma, a semicolon, or what is no ASCII',
    ],
    [answer(200, 'x'.repeat(64 * 1024 + 1)), 'its body is longer than 64 KiB'],
    [{ ...answer(200, { accessToken: 'abc' }), isCut: true }, 'its body is longer than 64 KiB'],
    [answer(200, '', { 'content-encoding': 'br' }), 'its body is compressed'],
  ]
  it('without a token is reported with the reason', () => {
    for (const [given, words] of reported)
      expect(outcomeOf(given)).toEqual({
        kind: 'transient',
        reason: 'malformed-answer',
        status: 200,
        detail: `The service answered 200 OK, but ${words}`,
      })
  })

  it('with a path that ends too early is reported with the names there', () => {
    const service = { ...standardService(), token: ['data', 'token'] }
    const without = (body: object, token = service.token) =>
      detailOf(answer(200, body), { ...service, token })
    expect(without({ data: { tok: 'abc' } })).toContain('the answer has no "data.token"; it has "data.tok"')
    expect(without({ data: 'abc', more: 1 })).toContain('has no "data.token"; it has "data", "more"')
    expect(without({}, ['toString'])).toContain('has no "toString"')
    expect(without({ a: { b: { x: 1 } } }, ['a', 'b', 'c'])).toContain('it has "a.b.x"')
    const many = Object.fromEntries(Array.from('abcdefghij', (name) => [name, 1]))
    expect(without(many)).toMatch(/ it has "a", .*"h"$/)
    expect(tableOf(service)[0]?.answer).toBe('200 or 201 with a data.token fit for a header')
    expect(failureTable[0]?.answer).toBe('200 or 201 with an accessToken fit for a header')
  })

  it('says how long the token lives, as a number of seconds or as digits, if the service has such a field', () => {
    const service = { ...standardService(), lifetime: ['data', 'life'] }
    const given = (life: unknown) => outcomeOf(answer(200, { accessToken: 'a', data: { life } }), service)
    for (const [life, answerLifeMs] of [
      [60, 60_000],
      [' 3600 ', 3_600_000],
      ['0.5', 500],
      ['12.25', 12_250],
    ] as const)
      expect(given(life)).toEqual({ kind: 'ok', accessToken: 'a', answerLifeMs })
    for (const life of ['soon', '1e3', 'x60', '60s', '1.5.5', '', null, [60]])
      expect(given(life)).toEqual({ kind: 'ok', accessToken: 'a' })
    const words = 'The service answered 200 OK, but its data.life leaves the token no life: it is 0 or less'
    for (const life of [0, -1, '-30'])
      expect(given(life)).toMatchObject({ reason: 'malformed-answer', detail: words })
  })

  it('says the instant at which the token ends, in each form that services have', () => {
    const service = { ...standardService(), expires: ['until'] }
    const given = (until: unknown, headers = { date: DATE }) =>
      outcomeOf(answer(201, { accessToken: 'a', until }, headers), service)
    const end = NOW + 90_000
    const iso = new Date(end).toISOString()
    const forms = [iso, iso.replace('.000Z', '+00:00'), iso.replace('T', ' '), end, String(end), end / 1_000]
    for (const until of forms) expect(given(until), String(until)).toMatchObject({ answerLifeMs: 90_000 })
    for (const until of [iso.slice(0, -1), 'soon', null, {}, true])
      expect(given(until)).toMatchObject({ kind: 'ok', answerLifeMs: undefined })
    const words = 'The service answered 201 Created, but its until leaves the token no life: it is past'
    expect(given(NOW - 1)).toMatchObject({ reason: 'malformed-answer', detail: words })
  })

  it('begins with the prefix that the API wants, or with none', () => {
    const tokenOf = (accessToken: string, prefix: string) =>
      outcomeOf(answer(200, { accessToken }), { ...standardService(), use: { header: 'X-T', prefix } })
    expect(tokenOf('Token abc', 'Token ')).toMatchObject({ accessToken: 'abc' })
    expect(tokenOf('token abc', 'Token ')).toMatchObject({ accessToken: 'abc' })
    expect(tokenOf('abc', 'Token ')).toMatchObject({ accessToken: 'abc' })
    expect(tokenOf('Bearer abc', 'Token ')).toMatchObject({ reason: 'malformed-answer' })
    expect(tokenOf('12|abc!$%', '')).toMatchObject({ accessToken: '12|abc!$%' })
  })

  it('may refuse by a code, which is looked for before the token, and at its place alone', () => {
    const refusal = { status: 200, says: 'true', in: ['error', 'has'] }
    const service = {
      ...standardService(),
      refusals: [{ ...refusal, reason: 'account-not-found' as const }],
    }
    const given = (body: object) => outcomeOf(answer(200, body), service)
    expect(given({ accessToken: 'a', error: { has: true } })).toEqual({
      kind: 'permanent',
      reason: 'account-not-found',
      detail: 'true',
      status: 200,
    })
    expect(given({ accessToken: 'a', error: { has: false } })).toMatchObject({ kind: 'ok' })
    expect(given({ accessToken: 'a', also: 'true' })).toMatchObject({ kind: 'ok' })
  })

  it('may have 64 KiB, and say that it is not compressed', () => {
    const padding = 64 * 1024 - JSON.stringify({ accessToken: 'a', padding: '' }).length
    const body = { accessToken: 'a', padding: 'x'.repeat(padding) }
    for (const headers of [{}, { 'content-encoding': '' }, { 'content-encoding': 'identity' }])
      expect(outcomeOf({ ...answer(200, body, headers), isCut: false })).toMatchObject({ kind: 'ok' })
  })

  it('is never quoted, not even its detail', () => {
    const outcome = outcomeOf(answer(200, { detail: 'Your account is not active' }))
    expect(outcome).toMatchObject({ reason: 'malformed-answer' })
    expect(JSON.stringify(outcome)).not.toContain('active')
  })
})

describe('a refusal', () => {
  const inactive: [string, unknown][] = [
    ['the detail of the error body', problem('Your account is not active')],
    ['other letters', problem('YOUR ACCOUNT IS NOT ACTIVE.')],
    ['other white space', problem('  your\taccount\n is  not active ')],
    ['words around it', problem('Sorry: Your account is not active (code 7)')],
    ['a text', 'Your account is not active'],
    ['a page', '<h1>Your account\n is not active</h1>'],
    ['a JSON string', '"Your account is not active"'],
    ['another field, without a detail', { title: 'Your account is not active' }],
    ['a detail that is no text', { detail: ['Your account is not active'] }],
  ]
  it.each(inactive)('is a 500 with %s', (_what, body) => {
    expect(outcomeOf(answer(500, body))).toMatchObject({ kind: 'permanent', reason: 'account-inactive' })
  })
  it('is a 404 that says that no account was found', () => {
    const refusal = {
      kind: 'permanent',
      reason: 'account-not-found',
      status: 404,
      detail: 'Account not found',
    }
    expect(outcomeOf(answer(404, problem('Account not found')))).toEqual(refusal)
    expect(outcomeOf(answer(404, 'account NOT  found'))).toEqual(refusal)
  })

  const others: [string, number, unknown, string][] = [
    ['another status', 503, problem('Your account is not active'), 'server-error'],
    ['the words of the other status', 500, problem('Account not found'), 'server-error'],
    ['the words of the other status', 404, problem('Your account is not active'), 'rejected'],
    [
      'the words beside another detail',
      500,
      { title: 'Your account is not active', detail: 'Down' },
      'server-error',
    ],
    ['a 403 with the words', 403, problem('Your account is not active'), 'rejected'],
    ['a body that is too long', 500, 'Your account is not active'.padEnd(70_000), 'server-error'],
  ]
  it.each(others)('is none with %s (%i)', (_what, status, body, reason) => {
    expect(outcomeOf(answer(status, body))).toMatchObject({ kind: 'transient', reason })
  })
  it('is looked for in the whole answer if no path is named, and only at a path that is required', () => {
    const reasonOf = (change: object, body: unknown, status = 500) => {
      const refusals = standardService().refusals.map((known) => ({ ...known, ...change }))
      return (outcomeOf(answer(status, body), { ...standardService(), refusals }) as { reason: string })
        .reason
    }
    const elsewhere = { title: 'Your account is not active' }
    expect(reasonOf({ in: null }, elsewhere)).toBe('account-inactive')
    expect(reasonOf({ status: 200 }, elsewhere, 200)).toBe('malformed-answer')
    expect(reasonOf({}, elsewhere)).toBe('account-inactive')
    expect(reasonOf({ status: 200 }, 'Your account is not active', 200)).toBe('account-inactive')
  })
  it('is none where the rest of the body was not read', () => {
    const cut = { ...answer(500, 'Your account is not active'), isCut: true }
    expect(outcomeOf(cut)).toMatchObject({ kind: 'transient', reason: 'server-error' })
  })
})

describe('any other answer', () => {
  const rows: [string, number[]][] = [
    ['rate-limited', [429]],
    ['server-error', [500, 501, 502, 503, 504, 520, 599, 408, 425]],
    [
      'malformed-answer',
      [202, 204, 206, 299, 300, 301, 302, 303, 304, 307, 308, 399, 0, 100, 101, 199, 600, 999],
    ],
    ['rejected', [400, 401, 402, 403, 404, 405, 410, 413, 415, 418, 422, 451, 499]],
  ]
  it.each(rows)('is %s', (reason, statuses) => {
    for (const status of statuses) {
      const { outcome, row } = classified(answer(status, { accessToken: 'abc' }))
      expect(outcome).toMatchObject({ kind: 'transient', reason, status })
      expect(row.reasons).toContain(reason)
    }
  })

  it('is reported in the words of the service where it has a detail, else in ours', () => {
    expect(detailOf(answer(503, problem('Down until noon')))).toBe('Down until noon')
    expect(detailOf(answer(502, '<html>Bad'))).toBe('The service answered 502 Bad Gateway')
    for (const body of [problem('\n\0 '), { detail: 7 }])
      expect(detailOf(answer(503, body))).toBe('The service answered 503 Service Unavailable')
  })

  it('is reported in the words at the paths of the description, too; a refusal in those at its own', () => {
    const refusal = { status: 400, says: 'gone', in: ['error'], reason: 'account-inactive' as const }
    const refusals = [refusal]
    const words = (body: object) => detailOf(answer(400, body), { ...standardService(), refusals })
    for (const name of ['detail', 'error_description', 'error'])
      expect(words({ [name]: 'Closed', more: 'x' })).toBe('Closed')
    expect(words({ detail: 'Closed', error: 'Is gone' })).toBe('Is gone')
    const long = Object.fromEntries(Array.from('abcdefgh', (name) => [name.padEnd(32, 'x'), 1]))
    expect(detailOf(answer(200, long))).toHaveLength(200)
  })

  it('is quoted only where it is an error or a redirect', () => {
    expect(detailOf(answer(299, problem('Words')))).toBe('The service answered 299')
    expect(detailOf(answer(300, problem('Words')))).toBe('Words')
  })

  it('is reported with what to look at', () => {
    const own = "The service answered 404 Not Found, and not the service's own: check baseUrl"
    expect(detailOf(answer(404))).toBe(own)
    expect(detailOf(answer(403))).toBe('The service answered 403 Forbidden')
    expect(detailOf(answer(599))).toBe('The service answered 599')
    for (const status of [299, 400]) expect(detailOf(answer(status))).not.toContain('points elsewhere')
    for (const status of [300, 399]) expect(detailOf(answer(status))).toContain('points elsewhere;')
    expect(detailOf(answer(307))).toBe(
      'The service answered 307 Temporary Redirect and points elsewhere; it was not followed, because the secret would go there too: check baseUrl',
    )
  })

  it('is reported with the setting that leads there', () => {
    for (const [change, words] of [
      [{ description: '{}' }, 'check baseUrl and service.tokenUrl'],
      [{ description: '{}', hostSetting: 'service.tokenUrl' }, 'there too: check service.tokenUrl'],
    ] as const)
      expect(detailOf(answer(302), { ...standardService(), ...change })).toContain(words)
  })

  it('is described to `check` without any value of it', () => {
    const described = (body: unknown) => describeAnswer(answer(404, body), [SECRET])
    expect(described({ detail: 'x', [SECRET]: 1 })).toBe(
      'HTTP 404, and its body is a JSON object with "detail"',
    )
    for (const [body, words] of [
      [{}, 'a JSON object'],
      ['<html>', 'not JSON'],
    ])
      expect(described(body)).toBe(`HTTP 404, and its body is ${words as string}`)
  })

  it('is in the table of failures of the manual', () => {
    const ours = failureTable.map(({ answer: given, reasons, follows }) => [
      given,
      reasons.filter((reason) => reason !== 'ok').join(', '),
      follows,
    ])
    expect(tableRows('failures').map(([given, ...cells]) => [given, ...cells.map(bareCell)])).toEqual(ours)
  })

  it.each([
    ['/login', ''],
    ['javascript:alert(1)', ''],
    ['ftp://elsewhere.example/', ''],
    ['http://', ''],
    [['https://a.example'], ''],
    [`https://${'a'.repeat(81)}`, ''],
    [`https://${'a'.repeat(80)}`, `, to https://${'a'.repeat(80)}`],
    ['http://[::1]:8080/x', ', to http://[::1]:8080'],
    ['https://el-se_where.example:8443', ', to https://el-se_where.example:8443'],
    [`https://elsewhere.example/login?key=${KEY}`, ', to https://elsewhere.example'],
  ])('that redirects to %j is reported with the origin at most', (location, origin) => {
    const detail = detailOf(answer(302, '', { location }))
    expect(detail).toContain(` and points elsewhere${origin};`)
    expect(detail).not.toContain(KEY)
  })

  it('lets each reason stand in one row', () => {
    const reasons = failureTable.flatMap((row) => row.reasons)
    expect(new Set(reasons).size).toBe(reasons.length)
  })
})

describe('Retry-After', () => {
  const waitOf = (headers: ServiceResponse['headers'], status = 503): unknown =>
    (outcomeOf(answer(status, '', headers)) as { retryAfterMs?: number }).retryAfterMs
  const times: [string, number][] = [
    ['120', 120_000],
    [' 120 ', 120_000],
    ['0', 0],
    ['86400', 3_600_000],
    ['9'.repeat(400), 3_600_000],
    ['Sun, 01 Nov 2026 12:02:00 GMT', 120_000],
    [` ${DATE} `, 0],
    ['Sun, 01 Nov 2099 12:00:00 GMT', 3_600_000],
  ]
  it.each(times)('%j is seconds or a date, and an hour at most', (value, waitMs) => {
    for (const status of [429, 503, 408, 425]) expect(waitOf({ 'retry-after': value }, status)).toBe(waitMs)
  })

  it.each([
    undefined,
    '',
    '-5',
    '1.5',
    '0x10',
    'soon',
    ['1', '2'],
    ['120'],
    `on ${DATE}`,
    `${DATE}, or later`,
    'Sunday, 01-Nov-26 12:02:00 GMT',
    'Sun Nov  1 12:02:00 2026',
    'Sun, 01 Nov 2026 11:00:00 GMT',
    'Sun, 99 Nov 2026 12:00:00 GMT',
    '2026-11-01T12:02:00Z',
  ])('%j is none, or is past', (value) => {
    expect(waitOf({ 'retry-after': value })).toBeUndefined()
  })

  it('as a date is on the clock of the answer, where that has one', () => {
    const date = 'Sun, 01 Nov 2026 17:00:00 GMT'
    expect(waitOf({ 'retry-after': 'Sun, 01 Nov 2026 17:02:00 GMT', date })).toBe(120_000)
  })

  it('means nothing in the rows that do not wait for it', () => {
    for (const status of [200, 302, 403, 404])
      expect(waitOf({ 'retry-after': '120' }, status)).toBeUndefined()
  })
})

describe('a detail', () => {
  const shown = (detail: string): string => detailOf(answer(503, problem(detail)))
  const bare = (text: string): string => text.toLowerCase().replace(/\s/g, '')

  it('hides the secrets, whatever shape the service echoes them in', () => {
    for (const secret of [KEY, SECRET, TOKEN_HELD]) {
      for (const echo of [secret, JSON.stringify(secret), encodeURIComponent(secret), btoa(secret)]) {
        expect(shown(`not known: ${echo} (echo)`)).toMatch(/^not known: "?\[secret\]"? \(echo\)$|\[secret\]/)
        expect(shown(`not known: ${echo} (echo)`)).not.toContain(echo)
      }
      const [head, tail] = [secret.slice(0, 5), secret.slice(5)]
      for (const echo of [
        `${head}\0${tail}`,
        `${head}\n${tail}`,
        secret.toUpperCase(),
        `${'x'.repeat(190)}${secret}`,
      ]) {
        expect(bare(shown(echo))).not.toContain(bare(secret))
        expect(shown(echo)).not.toContain(tail)
      }
    }
  })
})

describe('a token that gives the credentials away', () => {
  const kindOf = (accessToken: string, [apiKey = '', apiSecret = apiKey]: readonly string[]) =>
    classify(
      { status: 200, headers: {}, body: Buffer.from(JSON.stringify({ accessToken })) },
      {
        wallMs: 0,
        secrets: [],
        credentials: { apiKey: new Secret(apiKey), apiSecret: new Secret(apiSecret) },
      },
    ).outcome.kind

  it('is none where it is one of them, or holds one of at least 8 characters', () => {
    expect(kindOf('short', ['short', 'x'])).toBe('transient')
    expect(kindOf('not-so-short-a-key', ['a-key'])).toBe('ok')
    expect(kindOf('it-holds-8-chars', ['-8-chars'])).toBe('transient')
    expect(kindOf('it-holds-8-chars', ['8-chars'])).toBe('ok')
    expect(kindOf('another', ['short', 'not-so-short'])).toBe('ok')
  })

  const apiKey = 'key-of-the-account'
  const apiSecret = 'S3cret/+of=the~account'
  const base64 = (text: string) => Buffer.from(text).toString('base64')

  it.each([
    ['in base64', base64(apiSecret)],
    ['in base64 without padding', base64(apiSecret).replace(/=+$/, '')],
    ['in base64 for URLs', Buffer.from(apiSecret).toString('base64url')],
    ['as of Basic', base64(`${apiKey}:${apiSecret}`)],
    ['in hex', Buffer.from(apiSecret).toString('hex')],
    ['in capital hex', Buffer.from(apiSecret).toString('hex').toUpperCase()],
    ['as a claim', jwtOf({ exp: 4e9, note: apiSecret })],
    ['as a claim beside the key', jwtOf({ sub: apiKey, note: apiSecret })],
  ])('is none with the secret %s', (_how, accessToken) => {
    expect(kindOf(accessToken, [apiKey, apiSecret])).toBe('transient')
  })

  it('is none where it is the key in base64, and one where it is a JWT that names the key', () => {
    expect(kindOf(base64(apiKey), [apiKey, apiSecret])).toBe('transient')
    expect(kindOf(jwtOf({ exp: 4e9, sub: apiKey }), [apiKey, apiSecret])).toBe('ok')
  })
})

describe('whatever comes', () => {
  const anyHeaders = fc.dictionary(
    fc.constantFrom('date', 'retry-after', 'location', 'content-encoding', 'content-type'),
    fc.oneof(fc.string(), fc.constant(DATE), fc.nat().map(String), fc.array(fc.string())),
  )
  const echo = fc.constantFrom(
    KEY,
    SECRET,
    TOKEN_HELD,
    JSON.stringify(SECRET),
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

  it('is an outcome of one row, never a throw, and its detail holds no secret', () => {
    fc.assert(
      fc.property(anyStatus, anyHeaders, anyBody, fc.boolean(), (status, headers, body, isCut) => {
        const { outcome, row } = classified({ status, headers, body, isCut })
        expect(row.reasons).toContain(outcome.kind === 'ok' ? 'ok' : outcome.reason)
        if (outcome.kind === 'ok') return
        for (const secret of [KEY, SECRET, TOKEN_HELD])
          expect(bareOf(outcome.detail)).not.toContain(bareOf(secret))
        expect(outcome.detail.length).toBeLessThanOrEqual(200)
        expect(outcome.detail).toMatch(/^[^\p{C}\p{Zl}\p{Zp}]+$/u)
        const waitMs = ('retryAfterMs' in outcome && outcome.retryAfterMs) || 0
        expect(waitMs >= 0 && waitMs <= 3_600_000).toBe(true)
      }),
      { numRuns: 1_000 },
    )
  })
  const bareOf = (text: string): string => text.toLowerCase().replace(/\s/g, '')
})
