// Whoever listens at the socket may answer anything: the program gets a TokenClientError, fit to be shown.
import { expect, onTestFinished, test } from 'vitest'
import { TokenClientError, type TokenClient } from '../../src/client/index.ts'
import { clientOf, daemonWith } from '../support/client-world.ts'
import { tokenFields, type Asking } from '../support/scripted-daemon.ts'
import { holds } from '../support/until.ts'

const NUL = '\u0000'
const calls: [string, (client: TokenClient) => Promise<unknown>][] = [
  ['get', (client) => client.get({ waitSeconds: 0 })],
  ['authorize', (client) => client.authorize({ signal: AbortSignal.timeout(10_000) })],
  ['fetch', (client) => client.fetch('http://127.0.0.1:1/x')],
  ['reject', (client) => client.reject('token-1')],
]
const hostileTokens: object[] = [
  {},
  { accessToken: null },
  ...['', 'two\nlines', 'with space', `nul${NUL}`, '€'].map((text) => ({ accessToken: text })),
  { header: 'X Y', accessToken: 'secret-token' },
  { header: '', accessToken: 'secret-token' },
  { prefix: 'a\r\nb', accessToken: 'secret-token' },
  { expiresAt: 'never' },
  { expiresAt: null },
  { refusedBy: null },
  { refusedBy: 401 },
  { baseUrl: 'no address' },
  { baseUrl: null },
  { fingerprint: 5 },
]
const noVerdicts: object[] = [{}, { verdict: null }, { verdict: 'held', retryAfterSeconds: 'long' }]

/** The error of a call; fails if it is not one that may be shown. */
async function errorOf(call: Promise<unknown>): Promise<TokenClientError> {
  const error = await call.then(
    (value) => expect.fail(`no error: ${JSON.stringify(value)}`),
    (thrown: unknown) => thrown as TokenClientError,
  )
  expect(error).toBeInstanceOf(TokenClientError)
  const shown = [error.message, error.problem, error.remedy, error.reason].join(' ')
  expect(shown).not.toMatch(/[\p{Cc}\p{Zl}]/u)
  expect(shown).not.toContain('secret-token')
  expect(shown.length).toBeLessThan(5_000)
  return error
}

test.each(calls)('%s survives every answer', async (name, call) => {
  const isReport = name === 'reject'
  for (const fields of isReport ? noVerdicts : hostileTokens) {
    const data = isReport ? fields : { ...tokenFields('token-1'), ...fields }
    const daemon = await daemonWith(({ answer }) =>
      answer(isReport ? 'reject.result' : 'token.result', Object.keys(fields).length === 0 ? {} : data),
    )
    const client = clientOf(daemon)
    const given = errorOf(call(client))
    // It is asked again on another connection; a call with a wait goes on until its time is over.
    await holds(() => daemon.connections.made === 2)
    if (name === 'authorize' || name === 'fetch') client.close()
    expect((await given).code, JSON.stringify(fields)).toMatch(/^(daemon-unreachable|closed)$/)
    await daemon.stop()
  }
})

test('what is no answer with a token brings none, whatever its fields are', async () => {
  const daemon = await daemonWith(({ type, answer }) =>
    answer(type === 'token.reject' ? 'reject.result' : 'status.result', {
      ...tokenFields('two\nlines'),
      verdict: 'refreshing',
    }),
  )
  const client = clientOf(daemon)
  await client.status()
  await client.reject('token-1')
  await daemon.stop()
  expect((await errorOf(client.get({ waitSeconds: 0 }))).code).toBe('daemon-unreachable')
})

const texts = ['a\u001b[31mb', 'a\nb', 'x'.repeat(5_000), NUL, '\u2028']
test('the text of a fault is fit to be shown', async () => {
  for (const text of texts) {
    const daemon = await daemonWith(({ answer }) =>
      answer('fault', { code: 'expired', message: text, reason: text }),
    )
    const error = await errorOf(clientOf(daemon).get({ waitSeconds: 0 }))
    expect(error.code).toBe('expired')
  }
})

test.each([
  ...[null, 5, [], {}, 'closed', 'timeout', 'daemon-unreachable', 'no\nword'].map((code) => [
    code,
    'bad-request',
  ]),
  ['of-a-newer-daemon', 'of-a-newer-daemon'],
  ['constructor', 'constructor'],
])('a fault with the code %j is an error with the code %j', async (code, expected) => {
  const daemon = await daemonWith(({ answer }) => answer('fault', { code, message: null, reason: {} }))
  expect((await errorOf(clientOf(daemon).get({ waitSeconds: 0 }))).code).toBe(expected)
})

test.each(['secret-token\u001b[2J\f', 'null\f', '{"type":1,"data":{}}\f', '{"type":"x","data":5}\f'])(
  'a strange frame %j fails the call, and is not in its error as it is',
  async (text) => {
    const daemon = await daemonWith(({ write }) => write(text))
    const { code, message } = await errorOf(clientOf(daemon).status())
    expect(code).toBe('daemon-unreachable')
    expect(message).toContain('is no frame of kyc-tokend')
    expect(daemon.connections.made).toBe(2)
  },
)

test('a path with control characters is not in an error as it is', async () => {
  const { code } = await errorOf(clientOf({ path: '/run/none/\u001b[2J\n.sock' }).status())
  expect(code).toBe('daemon-unreachable')
})

test('a connection that ends without an answer says what it can be', async () => {
  const daemon = await daemonWith(({ cut }) => cut())
  const { code, message } = await errorOf(clientOf(daemon).status())
  expect(code).toBe('daemon-unreachable')
  expect(message).toMatch(/it stops, .* or this user has too many connections \(maxConnectionsPerUser/)
})

test('a subscription survives every notification', async () => {
  const answers: Asking['answer'][] = []
  const daemon = await daemonWith(({ answer }) => {
    answers.push(answer)
    answer('token.result', tokenFields(`token-${answers.length}`))
  })
  const seen: string[] = []
  const end = clientOf(daemon).subscribe(({ accessToken }) => void seen.push(accessToken))
  onTestFinished(end)
  await holds(() => seen.length === 1)
  for (const fields of hostileTokens.slice(1)) {
    const { length } = answers
    await holds(() => seen.length === length)
    daemon.publish('token.changed', { ...tokenFields('other'), ...fields })
    // The connection is lost, and made again.
    await holds(() => answers.length === length + 1)
  }
  await holds(() => seen.length === answers.length)
  expect(seen).not.toContain('other')
})
