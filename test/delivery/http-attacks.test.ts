// HTTP that is odd, broken or meant to deceive: each request gets one answer, or the connection ends after
// one.
import { describe, expect, it } from 'vitest'
import { asStranger, startDelivery, startWithToken } from '../support/delivery-world.ts'
import { exchange } from '../support/raw-http.ts'

const HEAD = 'HTTP/1.1\r\nHost: x\r\n'
/** The request after the odd one: its answer ends the exchange. */
const NEXT = `GET /next ${HEAD}\r\n`
const POST = `POST /v1/token/reject ${HEAD}`
const BODY = '{"accessToken":"token-0"}'
const GET = `GET /v1/token ${HEAD}`
const CHUNKED = 'Transfer-Encoding: chunked\r\n'
const CONTINUE = 'Expect: 100-continue\r\n'

/** The statuses of the answers to this and the request after it. */
async function statuses(text: string): Promise<string> {
  const { httpPath } = await startWithToken()
  const received = await exchange(httpPath, text, { until: /"code":"not-found"\}$/ })
  expect(received).not.toContain('undefined')
  const problems = received.match(
    /^HTTP\/1\.1 400 [^{]*\/problem\+json\r\n[^{]*\{[^}]*"code":"bad-request"/gm,
  )
  expect(problems?.length).toBe(received.match(/HTTP\/1\.1 400/g)?.length)
  return [...received.matchAll(/^HTTP\/1\.1 (\d+)|(?<=\})HTTP\/1\.1 (\d+)/gm)]
    .map(([, first, other]) => first ?? other)
    .join(' ')
}

describe('a request and the next one are two', () => {
  it.each([
    ['with a body', `${POST}Content-Length: ${BODY.length}\r\n\r\n${BODY}`, '200 404'],
    ['without a Host header', 'GET /v1/token HTTP/1.1\r\n\r\n', '200 404'],
    ['with an unknown expectation', `${GET}Expect: the-unexpected\r\n\r\n`, '200 404'],
    [
      'with an expectation that it may go on',
      `${POST}${CONTINUE}Content-Length: 25\r\n\r\n${BODY}`,
      '100 200 404',
    ],
    ['with a body where there is nothing', `POST /no ${HEAD}Content-Length: 5\r\n\r\nhello`, '404 404'],
    ['with a head of nearly 8 KiB', `${GET}A: ${'x'.repeat(8_100)}\r\n\r\n`, '200 404'],
    ['with a body of 32 KiB', `${POST}Content-Length: 32768\r\n\r\n${BODY.padEnd(32_768)}`, '200 404'],
    ['with 64 fields', `${GET}${'a: b\r\n'.repeat(63)}\r\n`, '200 404'],
  ])('%s', async (_how, text, expected) => {
    expect(await statuses(text + NEXT)).toBe(expected)
  })
})

it('an unknown expectation gets nobody past `allow`', async () => {
  const socket = { allow: { users: [4_002], groups: [] } }
  const { httpPath } = await startDelivery({ socket, libc: asStranger })
  const received = await exchange(httpPath, `GET /v1/token ${HEAD}Expect: the-unexpected\r\n\r\n`)
  expect(received).toMatch(/^HTTP\/1\.1 403 .*"code":"denied"/s)
})

describe('the connection ends after the answer', () => {
  it.each([
    ['that is none', 'oops\r\n\r\n', '400'],
    ['with a head of 9 KB', `GET / ${HEAD}A: ${'x'.repeat(9_000)}\r\n\r\n`, '400'],
    ['with a head without an end', `${GET}a: ${'x'.repeat(300_000)}`, '400'],
    ['with 65 fields', `${GET}${'a: b\r\n'.repeat(64)}\r\n`, '400'],
    ['with a body of more than 32 KiB', `${POST}Content-Length: 32769\r\n\r\n${BODY.padEnd(32_769)}`, '400'],
    ['with a length and chunks', `${POST}Content-Length: 6\r\n${CHUNKED}\r\n0\r\n\r\n`, '400'],
    ['of HTTP/1.0', 'GET /v1/token HTTP/1.0\r\n\r\n', '200'],
    ['for a tunnel, without an answer', `CONNECT x:1 ${HEAD}\r\n`, ''],
  ])('of a request %s', async (_how, text, expected) => {
    expect(await statuses(text + NEXT)).toBe(expected)
  })
})

it('a third unanswered request ends the connection', async () => {
  const world = await startWithToken()
  const received = await exchange(world.httpPath, `${GET}\r\n`.repeat(4_000))
  expect(received.match(/HTTP\/1\.1 200/g)?.length ?? 0).toBeLessThan(3)
  expect(world.http.counts()).toMatchObject({ connections: 0, dropped: { 'too-many-requests': 1 } })
  const two = await exchange(world.httpPath, `${GET}\r\n${NEXT}`, { until: /not-found/ })
  expect(two).toMatch(/HTTP\/1\.1 200 .*HTTP\/1\.1 404/s)
})
