// The failure table, row by row; the token, the words and the waits of an answer. Whatever comes has an outcome.
import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { PairConfig, ServiceConfig } from '../../src/config/config.ts'
import { Secret } from '../../src/lib/secret.ts'
import { oneLine, type ServiceResponse } from '../../src/source/answer.ts'
import { outcomeOf } from '../../src/source/failures.ts'
import type { ServiceOutcome } from '../../src/token/outcome.ts'
import { jwtOf } from '../support/jwt.ts'
import { KEY, partsFor, SECRET } from '../support/source.ts'

const TOKEN_HELD = 'opaque-token-that-we-hold'
const NOW = Date.parse('2026-11-01T12:00:00Z')
const DATE = 'Sun, 01 Nov 2026 12:00:00 GMT'

type Headers = ServiceResponse['headers']
function answer(status: number, body: unknown = '', headers: Headers = {}): ServiceResponse {
  const text = typeof body === 'string' ? body : JSON.stringify(body)
  return { status, headers, body: Buffer.from(text) }
}
interface Given {
  service?: Partial<ServiceConfig>
  pair?: Partial<PairConfig>
  iatMs?: number
}
function outcomeFor(given: ServiceResponse, { iatMs, ...change }: Given = {}): ServiceOutcome {
  const secrets = [KEY, SECRET, TOKEN_HELD]
  return outcomeOf(given, { ...partsFor('https://api.example.com', change), wallMs: NOW, secrets, iatMs })
}
/** The words about an answer that gives no token. */
const detailOf = (...given: Parameters<typeof outcomeFor>) =>
  (outcomeFor(...given) as { detail: string }).detail
const problem = (detail: unknown) => ({ type: 'about:blank', title: 'KnownRuntimeError', detail })

describe('the table', () => {
  const INACTIVE = 'Your account is not active'
  const isOff = { iatMs: NOW - 31_000 }
  const statuses = (...all: number[]) =>
    all.map((status): [ServiceResponse] => [answer(status, { accessToken: 'a' })])
  /** By the reason of a row: answers that fall under it. */
  it.each<[reason: string, ...answers: [ServiceResponse, Given?][]]>([
    ['ok', [answer(200, { accessToken: 'a', detail: INACTIVE })], [answer(201, { accessToken: 'a' })]],
    [
      'assertion',
      [answer(500, problem(INACTIVE), { date: DATE }), isOff],
      [answer(404, problem('Account not found'), { date: DATE }), { iatMs: NOW + 31_000 }],
    ],
    [
      'account-inactive',
      [answer(500, problem('  YOUR\taccount\n is  not active. '))],
      [answer(500, '<h1>Your account\n is not active</h1>')],
      [answer(500, { title: INACTIVE })],
      [answer(500, problem(INACTIVE), { date: DATE }), { iatMs: NOW - 29_000 }],
      [answer(500, problem(INACTIVE)), isOff],
    ],
    ['account-not-found', [answer(404, 'account NOT  found')]],
    ['rate-limited', ...statuses(429), [answer(429, problem(INACTIVE))]],
    [
      'server-error',
      ...statuses(500, 501, 504, 599, 408, 425),
      [answer(503, problem(INACTIVE))],
      [answer(500, { title: INACTIVE, detail: 'Down' })],
      [{ ...answer(500), body: null }],
    ],
    [
      'rejected',
      ...statuses(400, 401, 403, 404, 451, 499),
      [answer(404, problem(INACTIVE))],
      [answer(403, '', { date: DATE }), isOff],
    ],
    ['malformed-answer', ...statuses(202, 204, 299, 301, 307, 399, 101, 600), [answer(200)]],
  ])('%s', (reason, ...answers) => {
    const kind = reason.startsWith('account') ? 'permanent' : 'transient'
    for (const [given, change] of answers) {
      const { status } = given
      const expected = reason === 'ok' ? { kind: 'ok' } : { kind, reason, status }
      expect(outcomeFor(given, change), JSON.stringify(given)).toMatchObject(expected)
    }
  })

  it('has the rows of `service.refusals`, whose words may be a code, or anywhere', () => {
    const reason = 'account-not-found' as const
    const refusals = [
      { status: 400, says: 'true', in: ['error', 'gone'], reason },
      { status: 401, says: 'no such client', in: null, reason },
    ]
    const given = (status: number, body: object) =>
      outcomeFor(answer(status, body), { service: { refusals } }) as { reason: string }
    expect(given(400, { error: { gone: true } })).toMatchObject({ kind: 'permanent', reason })
    expect(given(400, { error: { gone: false } }).reason).toBe('rejected')
    expect(given(401, { any: { where: 'No Such CLIENT' } })).toMatchObject({ kind: 'permanent', reason })
  })
})

describe('a token', () => {
  it.each([
    [jwtOf({ exp: 1 }), true],
    ['AZaz09-._~+/==|!$%', true],
    ['a'.repeat(16_384), true],
    ['bEARER abc', true],
    ['', false],
    ['Bearer ', false],
    ['a'.repeat(16_385), false],
    ['Token abc', false],
    ['abc\n', false],
    ['tökén', false],
    ...Array.from(`"',;\\ \t\u007f`, (char): [string, boolean] => [`abc${char}`, false]),
    [null, false],
  ])(
    'is 1 to 16,384 visible ASCII characters but quotes, comma, semicolon and backslash: %j',
    (given, isFit) => {
      const outcome = outcomeFor(answer(200, { accessToken: given }, { date: DATE }))
      const accessToken = typeof given === 'string' && given.replace(/^bearer /i, '')
      if (isFit) expect(outcome).toEqual({ kind: 'ok', accessToken, serverDateMs: NOW })
      else expect(outcome).toMatchObject({ kind: 'transient', reason: 'malformed-answer', serverDateMs: NOW })
    },
  )

  it.each<[ServiceResponse, string]>([
    [answer(200, ' \n'), 'its body is no JSON object'],
    [answer(200, '[1]'), 'its body is no JSON object'],
    [{ ...answer(200), body: null }, 'its body is no JSON object of at most 64 KiB'],
    [answer(200, { toString: 1 }), 'it has no accessToken'],
    [answer(200, { accessToken: `${SECRET.replaceAll(/[^\w/+=]/g, '')}"` }), 'it has no accessToken'],
  ])('that is not there is reported so, case %#', (given, words) => {
    expect(detailOf(given)).toMatch(`The service answered 200 OK, but ${words}`)
  })

  it('may be deeper in the answer, and its life beside it, in seconds, as a number or as digits', () => {
    const change = { service: { lifetime: ['data', 'life'] }, pair: { token: ['data', 'token'] } }
    const given = (life: unknown) => outcomeFor(answer(200, { data: { token: 'a', life } }), change)
    for (const [life, answerLifeMs] of [
      [60, 60_000],
      [' 3600 ', 3_600_000],
      ['0.5', 500],
    ])
      expect(given(life)).toEqual({ kind: 'ok', accessToken: 'a', answerLifeMs })
    for (const life of ['soon', '1e3', '60s', '', null, [60]])
      expect(given(life)).toEqual({ kind: 'ok', accessToken: 'a' })
    for (const life of [0, -1, '-30'])
      expect(given(life)).toMatchObject({ detail: expect.stringMatching(/its data\.life leaves the token no life$/) }) // prettier-ignore
    expect(detailOf(answer(200, { data: 1 }), change)).toMatch(/but it has no data\.token /)
  })

  const apiSecret = 'S3cret/+of=the~account'
  const base64 = (text: string) => Buffer.from(text).toString('base64')
  it.each([
    [false, 'the secret itself', 'short', 'short'],
    [false, 'the secret within', 'it-holds-8-chars', '-8-chars'],
    [false, 'the secret in base64', base64(apiSecret), apiSecret],
    [false, 'key and secret as HTTP Basic has them', base64(`${KEY}:${apiSecret}`), apiSecret],
    [false, 'the secret as a claim', jwtOf({ exp: 4e9, note: apiSecret }), apiSecret],
    [false, 'another secret', 'third-of-three', apiSecret],
    [true, 'a text that may be the secret by chance', 'it-holds-8-chars', '8-chars'],
    [true, 'the key at its beginning', 'key-0815-and-more', apiSecret],
    [true, 'the key in base64', base64('key-0815'), apiSecret],
    [true, 'the key as a claim', jwtOf({ exp: 4e9, sub: 'key-0815' }), apiSecret],
    [true, 'an id that is kept with the secrets', 'third-of-three-and-more', apiSecret],
  ])('is one: %s, where it is or has %s', (isToken, _what, accessToken, secret) => {
    const parameters = { id: new Secret('third-of-three') }
    const pair = { apiKey: new Secret('key-0815'), apiSecret: new Secret(secret), parameters }
    expect(outcomeFor(answer(200, { accessToken }), { pair }).kind).toBe(isToken ? 'ok' : 'transient')
  })
})

describe('the words', () => {
  it.each<[string, ServiceResponse, string]>([
    ['those of the service', answer(503, problem('Down until noon')), 'Down until noon'],
    ['those of OAuth', answer(400, { error: 'x', error_description: 'Expired' }), 'Expired'],
    ['ours for a page', answer(502, '<html>Bad'), 'The service answered 502 Bad Gateway'],
    ['ours for what is no error', answer(202, problem('Wait')), 'The service answered 202 Accepted'],
    ['ours for no words', answer(503, problem('\n\0 ')), 'The service answered 503 Service Unavailable'],
    ['that of the row for no words', answer(404, 'Account not FOUND'), 'Account not found'],
    [
      'ours for a redirect',
      answer(307, '', { location: `https://x/?${SECRET}` }),
      'The service answered 307 Temporary Redirect',
    ],
  ])('are %s', (_what, given, detail) => {
    expect(detailOf(given)).toBe(detail)
  })

  const escaped = 'k3y+Zq/aa&WqP<9'
  const head = 'x'.repeat(198)
  it.each([
    ['no s3cret here', 'no [secret] here'],
    [`Basic ${btoa('s3cret')}`, 'Basic [secret]'],
    ['a BEARER  abc/d-e+f=, and more', 'a [secret] and more'],
    ['"eyJhbGci.eyJz.x"', '"[secret]"'],
    ...['no S3CRET', 'no s3c ret', 'no s-3-c-r-e-t', 'no s3c\n\tret', 'no S3c"re.t'].map((text) => [
      text,
      '',
    ]),
    ['the bearer, eyJab, heyJude12', 'the bearer, eyJab, heyJude12'],
    // The punctuation of a secret may be escaped, and a secret may look like an escape itself.
    [`${escaped} is wrong`, '[secret] is wrong'],
    ['k3y&#43;Zq/aa&amp;WqP&lt;9 is wrong', ''],
    [String.raw`k3y\u002bZq/aa\u0026WqP\u003C9 is wrong`, ''],
    ['secret X1&LT;Y2 is wrong', ''],
    // Cut to 200 visible characters, never within one.
    [`${head}yz`, `${head}yz`],
    [`${head}\u202Ey\0z!`, `${head}y…`],
    [`${head}😀😀`, `${head}…`],
    [`${head.slice(2)}s3cret`, `${head.slice(2)}[se…`],
  ])('%j are shown as %j', (text, shown) => {
    expect(oneLine(text, ['', 's3cret', escaped, 'x1&lt;y2'])).toBe(shown)
  })
})

describe('Retry-After', () => {
  const waitOf = (headers: Headers, status = 503): unknown =>
    (outcomeFor(answer(status, '', headers)) as { retryAfterMs?: number }).retryAfterMs
  it.each<[string | undefined, number | undefined]>([
    [' 120 ', 120_000],
    ['0', 0],
    ['9'.repeat(400), 3_600_000],
    ['Sun, 01 Nov 2026 12:02:00 GMT', 120_000],
    [` ${DATE} `, 0],
    ['Sun, 01 Nov 2099 12:00:00 GMT', 3_600_000],
    ...[undefined, '-5', '1.5', '2026-11-01T12:02:00Z', 'Sun, 01 Nov 2026 11:00:00 GMT'].map(
      (value): [string | undefined, undefined] => [value, undefined],
    ),
  ])('%j is seconds or a date that is not past, and an hour at most', (value, waitMs) => {
    for (const status of [429, 503, 408, 425])
      expect(waitOf({ 'retry-after': value }, status)).toBe(waitMs ?? (status === 429 ? 60_000 : 0))
  })

  it('is on the clock of the answer, where that has one, and means nothing in other rows', () => {
    const date = 'Sun, 01 Nov 2026 17:00:00 GMT'
    expect(waitOf({ 'retry-after': 'Sun, 01 Nov 2026 17:02:00 GMT', date })).toBe(120_000)
    for (const status of [200, 302, 403, 404])
      expect(waitOf({ 'retry-after': '120' }, status)).toBeUndefined()
  })
})

it('whatever comes is an outcome, never a throw, and its detail holds no secret', () => {
  const encoded = [JSON.stringify(SECRET), encodeURIComponent(SECRET), Buffer.from(SECRET).toString('base64')]
  const shown = [SECRET, TOKEN_HELD, KEY, ...encoded]
  const parts = [...shown, `${SECRET.slice(0, 5)}\0`, SECRET.slice(5), 'Account not found', '\n']
  const anyPart = fc.oneof(fc.string({ unit: 'binary' }), fc.constantFrom(...parts))
  const anyText = fc.array(anyPart).map((texts) => texts.join(''))
  const anyValue = fc.oneof(anyText, fc.jsonValue())
  const anyObject = fc.record({ detail: anyValue, accessToken: anyValue }).map((one) => JSON.stringify(one))
  const anyAnswer = fc.record({
    status: fc.oneof(fc.integer(), fc.constantFrom(200, 302, 404, 429, 500, 503)),
    headers: fc.dictionary(
      fc.constantFrom('date', 'retry-after', 'location'),
      fc.oneof(fc.string(), fc.constant(DATE)),
    ),
    body: fc.option<Uint8Array>(
      fc.oneof(
        fc.uint8Array({ maxLength: 2_000 }),
        fc.oneof(anyText, fc.json(), anyObject).map((text) => Buffer.from(text)),
      ),
    ),
  })
  const bareOf = (text: string): string => text.toLowerCase().replace(/[^\p{L}\p{N}]/gu, '')
  const isSound = (given: ServiceResponse): void => {
    const outcome = outcomeFor(given)
    if (outcome.kind === 'ok') return
    for (const secret of shown) expect(bareOf(outcome.detail)).not.toContain(bareOf(secret))
    expect(outcome.detail).toMatch(/^[^\p{C}\p{Zl}\p{Zp}]{1,200}$/u)
  }
  fc.assert(fc.property(anyAnswer, isSound), { numRuns: 1_000 })
})
