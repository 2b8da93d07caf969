import { expect, test } from 'vitest'
import { createRemedies } from '../../src/host/remedy.ts'
import { formatStatus } from '../../src/terminal/format-status.ts'
import type { Phase, StatusResult } from '../../src/protocol.ts'
import { commandWorld, hourToken } from '../support/daemon-world.ts'
import { accountInactive, granting } from '../support/service.ts'
import { tokenFields } from '../support/scripted-daemon.ts'

const own = createRemedies({ account: undefined, isUnit: false, pid: 4711 })
const unit = createRemedies({ account: undefined, isUnit: true })
const { accessToken: _secret, ...token } = tokenFields('token-1', { generation: 12 })
const file = (path: string, error: string | null = null) => ({
  path,
  format: 'raw',
  ok: error === null,
  error,
  present: true,
  writtenAt: '2030-01-01T00:00:00.000Z',
  repairs: 0,
})
const good: StatusResult = {
  state: 'ready',
  token: token as unknown as StatusResult['token'],
  failure: null,
  nextAttemptAt: '2030-01-01T00:40:00.000Z',
  candidate: null,
  alert: null,
  share: null,
  files: [file('/run/kyc-tokend/token')],
  clients: { ipc: { connections: 3, subscribers: 1 }, http: { connections: 0, subscribers: 0 } },
  service: {
    baseUrl: 'https://api.example.com',
    lastRequestAt: '2030-01-01T00:00:00.000Z',
    lastSuccessAt: '2030-01-01T00:00:00.000Z',
    requests: 12,
  },
  daemon: {
    version: '1.0.0',
    pid: 4711,
    startedAt: '2029-12-31T22:15:00.000Z',
    configFile: '/etc/kyc-tokend/kyc-tokend.config.json',
    host: 'db-1',
    configuration: { state: 'current', problem: null },
    credentials: null,
    stateProblem: null,
    pathProblems: [],
  },
}
const failure = {
  reason: 'network',
  detail: 'getaddrinfo ENOTFOUND api.example.com',
  since: '2030-01-01T00:12:00.000Z',
  attempts: 4,
}
const format = (fields: Partial<StatusResult> = {}, remedies = own): string =>
  formatStatus({ ...good, ...fields }, { nowMs: Date.parse('2030-01-01T00:15:00.000Z'), remedies })
/** The texts of this label. */
const linesOf = (label: string, text: string): string[] =>
  text.split('\n').flatMap((line) => (line.startsWith(`${label} `) ? [line.slice(10)] : []))

test('of a daemon in trouble: the state and what to do, then a line for each part', () => {
  const text = format(
    {
      state: 'degraded',
      token: { ...good.token!, stale: true },
      failure: { ...failure, reason: 'server-error', status: 503, detail: 'Down for maintenance' },
      alert: { reason: 'no-token', since: failure.since, remedy: 'Another', contact: '555-1234' },
      share: {
        state: 'alone',
        server: 'redis.example.com:6379',
        since: '2030-01-01T00:05:00.000Z',
        askedBy: null,
        lastError: 'connect ECONNREFUSED',
      },
      files: [file('/good'), file('/bad', 'it is a link: remove it'), { ...file('/gone'), present: false }],
      daemon: {
        ...good.daemon,
        configuration: { state: 'faulty', problem: 'http.mode: is no mode' },
        credentials: { what: 'credentials', expiresAt: '2030-01-03T00:00:00.000Z', daysLeft: 2 },
        stateProblem: 'no space is left: free some',
        pathProblems: ['every user may connect: `chmod`'],
      },
      readers: [
        {
          uid: 7,
          name: 'app',
          connections: 2,
          count: 1,
          lastAt: '2030-01-01T00:14:00.000Z',
          clients: ['billing'],
        },
      ],
    },
    unit,
  )
  expect(text).toBe(`state     degraded: the token is good, but refreshing it fails
do        http.mode: is no mode.
do        ${unit.remedyOf('faulty-on-disk')}.
do        ${unit.remedyOf('server-error')}.
do        Call 555-1234.
do        Correct each token file below that has a FAULT.
do        every user may connect: \`chmod\`.
do        The state for a restart cannot be saved: no space is left: free some.
life      45 min left, until 2030-01-01T01:00:00.000Z, stale
token     ${good.token?.fingerprint}, obtained 15 min ago
next      a request at 2030-01-01T00:40:00.000Z
failure   server-error (HTTP 503) for 4 attempts since 2030-01-01T00:12:00.000Z: Down for maintenance
file      /good (raw), written 15 min ago
file      FAULT /bad: it is a link: remove it
file      /gone (raw), not there now
reader    app (uid 7), billing: 1 token, the last 1 min ago; 2 connections now
share     alone, redis.example.com:6379, since 2030-01-01T00:05:00.000Z, connect ECONNREFUSED
end       key and secret: good until 2030-01-03T00:00:00.000Z (for 2 more days)
service   https://api.example.com, 12 requests
daemon    1.0.0 on db-1, pid 4711, started 2 h ago, /etc/kyc-tokend/kyc-tokend.config.json
`)
})

test('of a good daemon there is nothing to do; a state or reason of a newer daemon is shown as it is', () => {
  expect(format()).not.toMatch(/^(?:do|share|failure|end|reader) /m)
  const text = format({ state: 'paused' as Phase, failure: { ...failure, reason: 'quota-of-2031' } })
  expect(text).toMatch(/^state +paused\nlife /)
  expect(text).toMatch(/^failure +quota-of-2031 for 4 attempts/m)
})

test('the remedy of an alert comes with whom to call; without a token, nothing is said of its life', () => {
  const alert = { reason: 'account-inactive', since: failure.since, remedy: 'Contact support', contact: 'us' }
  const text = format({ state: 'refused', token: null, failure, alert, nextAttemptAt: null })
  expect(linesOf('do', text)).toEqual(['Contact support.', 'Call us.'])
  expect(linesOf('next', text)).toEqual(['no request is planned'])
  expect(text).not.toMatch(/^(?:life|token) /m)
})

test.each([
  ['a changed configuration', { problem: null }, [own.remedyOf('changed-on-disk')]],
  ['one that needs a restart', { problem: 'http is new' }, ['http is new', own.remedyOf('restart-needed')]],
  // A restart would use it.
  ['another pair', { problem: 'x holds it', pair: 'tried' }, ['x holds it', own.remedyOf('changed-on-disk')]],
] as const)('%s names a reload or a restart, by commands of this host', (_, change, steps) => {
  const configuration = { state: 'changed', ...change } as const
  const shown = linesOf('do', format({ daemon: { ...good.daemon, configuration } }))
  expect(shown).toEqual(steps.map((step) => `${step}.`))
  expect(shown.join()).toContain('kill -')
})

test('words of others cannot steer the terminal', () => {
  const text = format({ failure: { ...failure, detail: 'a\u001b]0;title\u0007b\nc' } })
  expect(text).not.toMatch(/[\u0000-\u0009\u000b-\u001f]/)
  expect(text).toContain(String.raw`a\u001b]0;title\u0007b\u000ac`)
})

test('of a real daemon it ends with 0 and shows its state; --json gives it to programs, without the token', async () => {
  const secret = hourToken()
  const { cli, daemon, service } = await commandWorld({ answer: granting(secret) })
  await service.arrived(1)
  await cli(['token'])
  const people = await cli(['status'])
  expect(people).toMatchObject({ status: 0, stderr: '' })
  expect(people.stdout).toMatch(/^state +ready: /)
  expect(people.stdout).toContain(daemon.configFile)
  const programs = await cli(['status', '--json'])
  expect(programs.status).toBe(0)
  expect(JSON.parse(programs.stdout)).toMatchObject({ state: 'ready', token: { generation: 1 } })
  expect(people.stdout + programs.stdout).not.toContain(secret)
})

test.each([
  [75, { status: 503 }, 'fetch-failed', /^state +starting: [^]*server-error \(HTTP 503\)/],
  [77, accountInactive, 'alert', /^state +refused: [^]*\ndo .*support/],
] as const)(
  'without a token, or refused, it ends with %d and says why',
  async (expected, answer, event, text) => {
    const { cli, daemon } = await commandWorld({ answer })
    await daemon.logged(event)
    const { status, stdout } = await cli(['status'])
    expect(status).toBe(expected)
    expect(stdout).toMatch(text)
  },
)
