import { expect, test } from 'vitest'
import { createRemedies } from '../../src/host/remedy.ts'
import { formatStatus } from '../../src/terminal/format-status.ts'
import type { StatusResult } from '../../src/protocol.ts'
import { tokenFields } from '../support/client-world.ts'
import { commandWorld, hourToken } from '../support/daemon-world.ts'
import { accountInactive, granting } from '../support/service.ts'

test('of a daemon in trouble: the state and what to do, then a line for each part', () => {
  const remedies = createRemedies({ account: undefined, isUnit: true })
  const { accessToken: _secret, ...token } = tokenFields('token-1')
  const at = (time: string): string => `2030-01-01T${time}:00.000Z`
  const file = (path: string, more = {}) => ({
    path,
    format: 'raw',
    ok: true,
    writtenAt: at('00:00'),
    ...more,
  })
  const inTrouble = {
    state: 'degraded',
    token: { ...token, stale: true },
    nextAttemptAt: at('00:40'),
    // No control character of another's words reaches a terminal.
    failure: { reason: 'network', status: 503, detail: 'a\u001b]0;b\nc', since: at('00:12'), attempts: 4 },
    alert: { reason: 'no-token', since: at('00:12'), remedy: 'Another', contact: '555-1234' },
    share: { state: 'alone', server: 'redis:6379', since: at('00:05'), askedBy: 'web-1', lastError: 'gone' },
    files: [
      file('/good', { present: true }),
      file('/bad', { ok: false, error: 'Cannot write /bad: free some' }),
      file('/gone', { present: false }),
    ],
    readers: [{ uid: 7, name: 'app', connections: 2, count: 1, lastAt: at('00:14'), clients: ['billing'] }],
    service: { baseUrl: 'https://api.example.com', requests: 12 },
    daemon: {
      version: '1.0.0',
      pid: 4711,
      startedAt: at('00:05'),
      host: 'db-1',
      configFile: '/etc/c.json',
      configuration: { state: 'faulty', problem: 'http.mode: is no mode' },
      credentials: { what: 'credentials', expiresAt: '2030-01-03T00:00:00.000Z', daysLeft: 2 },
      stateProblem: 'no space is left: free some',
      pathProblems: ['every user may connect: `chmod`'],
    },
  } as unknown as StatusResult
  expect(formatStatus(inTrouble, { nowMs: Date.parse(at('00:15')), remedies }))
    .toBe(`state     degraded: the token is good, but refreshing it fails
do        http.mode: is no mode.
do        ${remedies.remedyOf('faulty-on-disk')}.
do        ${remedies.remedyOf('network')}.
do        Call 555-1234.
do        Correct each token file below that has a FAULT.
do        every user may connect: \`chmod\`.
do        The state for a restart cannot be saved: no space is left: free some.
life      45 min left, until 2030-01-01T01:00:00.000Z, stale
token     ${String(token['fingerprint'])}, obtained 15 min ago
next      a request at 2030-01-01T00:40:00.000Z
failure   network (HTTP 503) for 4 attempts since 2030-01-01T00:12:00.000Z: a\\u001b]0;b\\u000ac
file      /good (raw), written 15 min ago
file      FAULT Cannot write /bad: free some
file      /gone (raw), not there now
reader    app (uid 7), billing: 1 token, the last 1 min ago; 2 connections now
share     alone, redis:6379, since 2030-01-01T00:05:00.000Z, asked by web-1, gone
end       key and secret: good until 2030-01-03T00:00:00.000Z (for 2 more days)
service   https://api.example.com, 12 requests
daemon    1.0.0 on db-1, pid 4711, started 10 min ago, /etc/c.json
`)
})

test('of a real daemon it ends with 0 and shows its state; --json gives it to programs, without the token', async () => {
  const secret = hourToken()
  const { cli, daemon: running, service } = await commandWorld({ answer: granting(secret) })
  await service.arrived(1)
  await cli(['token'])
  const people = await cli(['status'])
  expect(people).toMatchObject({ status: 0, stderr: '' })
  expect(people.stdout).toMatch(/^state +ready: /)
  expect(people.stdout).not.toMatch(/^(?:do|share|failure|end) /m)
  expect(people.stdout).toContain(running.configFile)
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
    const { cli, daemon: running } = await commandWorld({ answer })
    await running.logged(event)
    const { status, stdout } = await cli(['status'])
    expect(status).toBe(expected)
    expect(stdout).toMatch(text)
  },
)
