import { stripVTControlCharacters } from 'node:util'
import { expect, test } from 'vitest'
import { formatStatus } from '../../src/terminal/format-status.ts'
import type { Place } from '../../src/host/remedy.ts'
import { remedyOf } from '../support/remedies.ts'
import type { Phase, StatusResult } from '../../src/protocol.ts'
import { commandWorld, hourToken } from '../support/daemon-world.ts'
import { startAtTerminal } from '../support/run-cli.ts'
import { lacks } from '../support/lacks.ts'
import { accountInactive, granting } from '../support/service.ts'
import { tokenFields } from '../support/scripted-daemon.ts'

const nowMs = Date.parse('2030-01-01T00:15:00.000Z')

function statusWith(fields: Partial<StatusResult> = {}): StatusResult {
  const { accessToken: _, ...token } = tokenFields('token-1', { generation: 12 })
  return {
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
    ...fields,
  }
}
function file(path: string, error: string | null = null): StatusResult['files'][number] {
  const ok = error === null
  const writtenAt = ok ? '2030-01-01T00:00:00.000Z' : null
  return { path, format: 'raw', ok, error, present: ok, writtenAt, repairs: 0 }
}
const failure = {
  reason: 'network',
  detail: 'getaddrinfo ENOTFOUND api.example.com',
  since: '2030-01-01T00:12:00.000Z',
  attempts: 4,
}
const format = (
  fields: Partial<StatusResult> = {},
  options: Partial<Parameters<typeof formatStatus>[1]> = {},
): string =>
  formatStatus(statusWith(fields), { nowMs, place: own, hasColour: false, columns: Infinity, ...options })
const own: Place = { account: undefined, isUnit: false, pid: 4711 }
const unit: Place = { account: undefined, isUnit: true }

const good = statusWith()
const share = {
  state: 'connected',
  server: 'redis.example.com:6379',
  since: '2030-01-01T00:05:00.000Z',
  askedBy: 'web-17',
  lastError: null,
} as const
const lastAt = '2030-01-01T00:14:00.000Z'
const reader = { uid: 7, name: 'app', connections: 2, count: 1, lastAt, clients: ['billing', 'b'] }
const otherPair = { state: 'changed', problem: 'x holds another pair', pair: 'tried' } as const
const unasked = { ...good.service, lastRequestAt: null, lastSuccessAt: null, requests: 0 }

test('the other forms of the rows; a state or reason that only a newer daemon has is shown as it is', () => {
  const text = format({
    state: 'paused' as Phase,
    token: { ...good.token!, expiresAt: '2030-01-01T00:15:00.000Z', expirySource: 'response' },
    failure: { ...failure, reason: 'quota-of-2031', attempts: 1 },
    nextAttemptAt: '2030-01-01T00:15:00.000Z',
    files: [{ ...file('/gone'), present: false }],
    share: { ...share, state: 'moving' as 'alone' },
    clients: { ipc: good.clients.ipc, http: null },
  })
  expect(text).toBe(`● paused: this command does not know this state

  life      ░░░░░░░░░░░░░░░░░░░░ past its life of 15 min (as the answer says)
  token     ${good.token?.fingerprint}, number 12, obtained 15 min ago (00:00:00Z)
  failure   quota-of-2031 for 3 min, since 00:12:00Z: 1 attempt
            getaddrinfo ENOTFOUND api.example.com
  next      refresh now
  files     ✓ /gone (raw), not there now
  service   https://api.example.com, 12 requests, last 15 min ago (00:00:00Z)
  share     moving, redis.example.com:6379 for 10 min
  clients   3 on ipc (1 subscribed)
  daemon    1.0.0 on db-1, pid 4711, started 2 h ago (2029-12-31T22:15:00Z)
            /etc/kyc-tokend/kyc-tokend.config.json
`)
})

test.each<[string, Partial<StatusResult>, RegExp[]]>([
  [
    'a service that was not asked yet, that nothing is planned, and that there are no files',
    { state: 'starting', token: null, failure, nextAttemptAt: null, files: [], service: unasked },
    [/, not asked yet$/m, /: 4 attempts$/m, /next +nothing is planned$/m, /files +none are configured$/m],
  ],
  [
    'another pair in the files that was not tried, a reload, and any restart behind it',
    {
      daemon: {
        ...good.daemon,
        configuration: otherPair,
        pathProblems: ['/p is gone: `sudo systemctl restart kyc-tokend`'],
      },
    },
    [
      /^● .*\n→ x holds another pair\.\n→ Have the changed configuration taken over: `kill -HUP 4711`\.\n→ \/p is gone: .*\n\n(?![^]*settings)/,
    ],
  ],
  [
    'an alert without a failure since the start',
    {
      state: 'starting',
      token: null,
      alert: { reason: 'account-not-found', since: failure.since, remedy: 'Correct it', contact: null },
    },
    [/^.*\n→ Correct it\.$/m],
  ],
])('shows %s', (_, fields, patterns) => {
  const text = format(fields)
  for (const pattern of patterns) expect(text).toMatch(pattern)
})

test('an alert’s remedy comes before that of the failure', () => {
  const alert = {
    reason: 'account-inactive',
    since: failure.since,
    remedy: 'Contact support',
    contact: 'the KYC team, 555-1234',
  }
  const text = format({ state: 'refused', token: null, failure, alert, nextAttemptAt: null })
  expect(text).toMatch(/token +none/)
  expect(text).toMatch(/next +none until an operator acts/)
  expect(text.match(/→ .*/g)).toEqual(['→ Contact support.', '→ Call the KYC team, 555-1234.'])
  // Before anything else.
  expect(text.split('\n')[1]).toBe('→ Contact support.')
})

test('colours only where they are wanted, and words of others cannot steer the terminal', () => {
  expect(format()).not.toContain('\u001b')
  expect(format({}, { hasColour: true })).toContain('\u001b[32m●\u001b[39m')
  const text = format({ failure: { ...failure, detail: 'a\u001b]0;title\u0007b\nc' } })
  expect(text).not.toMatch(/[\u0000-\u0009\u000b-\u001f]/)
  expect(text).toContain(String.raw`a\u001b]0;title\u0007b\u000ac`)
  const red = format({ failure: { ...failure, detail: '\u001b[31mred' } }, { hasColour: true })
  expect(red).toContain(String.raw`\u001b[31mred`)
})

test('of a real daemon it ends with 0 and shows its state; --json gives it to programs, without the token', async () => {
  const token = hourToken()
  const { cli, daemon, service } = await commandWorld({ answer: granting(token) })
  await service.arrived(1)
  await cli(['token'])
  const people = await cli(['status'])
  expect(people).toMatchObject({ status: 0, stderr: '' })
  expect(people.stdout).toMatch(/^● ready: /)
  expect(people.stdout).toContain(daemon.configFile)
  const programs = await cli(['status', '--json'])
  expect(programs.status).toBe(0)
  expect(JSON.parse(programs.stdout)).toMatchObject({ state: 'ready', token: { generation: 1 } })
  expect(people.stdout + programs.stdout).not.toContain(token)
})

test.skipIf(lacks('script'))('at a terminal it has colours, save with NO_COLOR and a dumb one', async () => {
  const { daemon } = await commandWorld()
  const shown = async (env: NodeJS.ProcessEnv, size: string): Promise<string> => {
    const { stdout } = await startAtTerminal(['status', '--socket', daemon.ipcPath], { env, size }).ended
    expect(stdout).toContain('●')
    return stdout
  }
  const wide = await shown({ NO_COLOR: '1' }, 'cols 0')
  expect(wide).not.toContain('\u001b[')
  const narrow = await shown({ TERM: 'dumb' }, 'cols 40')
  expect(narrow).not.toContain('\u001b[')
  expect(await shown({}, 'cols 80')).toContain('\u001b[')
  // A terminal that does not say how wide it is has 80 columns.
  const lengths = wide.split(/\r?\n/).map(({ length }) => length)
  expect(Math.max(...lengths)).toBeLessThanOrEqual(80)
  expect(lengths.length).toBeLessThan(narrow.split('\n').length)
})

test.each([
  [75, { status: 503 }, 'fetch-failed', /^● starting: [^]*server-error \(HTTP 503\)/],
  [77, accountInactive, 'alert', /^● refused: [^]*→ .*support/],
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

test('the shared store: connected and denied; without one, and without faults, nothing is said of them', () => {
  const line = (change: object): string => format({ share: { ...share, ...change } })
  expect(line({})).toMatch(
    /^ {2}share {5}connected to redis\.example\.com:6379, asked by web-17 \S+ \S* ?ago \(\S+\)$/m,
  )
  expect(line({ state: 'denied' })).toMatch(/denied by redis\.example\.com:6379 for 10 min$/m)
  expect(line({ askedBy: null })).toMatch(/redis\.example\.com:6379$/m)
  expect(format({ share, token: null })).toMatch(/, asked by web-17$/m)
  expect(format()).not.toMatch(/share|settings|failure|alerts|readers/)
})

test('commands are those of this host and account: systemd’s under systemd, a signal elsewhere', () => {
  const configuration = { state: 'changed', problem: null } as const
  const changed = { daemon: { ...good.daemon, configuration } }
  expect(format(changed, { place: unit })).toMatch(/^● ready.*\n→ .*: `sudo systemctl reload kyc-tokend`\.\n/)
  expect(format(changed)).toContain('`kill -HUP 4711`')
  expect(format(changed)).toMatch(/settings +changed on disk: the daemon runs with the former ones/)
  const ofRestart = { state: 'changed', problem: 'http can be changed by a restart alone' } as const
  const text = format({ daemon: { ...good.daemon, configuration: ofRestart } })
  expect(text).toMatch(/^→ .* by a restart: `kill -TERM 4711`\.$/m)
  expect(text).toMatch(/settings +changed on disk: http can be changed by a restart alone$/m)
  const refused = { ...failure, reason: 'account-not-found', status: 404, attempts: 1 }
  const daemon = { ...good.daemon, configFile: '/etc/kyc-tokend/accounts/eu.json' }
  const fields = { state: 'refused', token: null, failure: refused, nextAttemptAt: null, daemon } as const
  const lines = format(fields, { place: { account: 'eu', isUnit: true } }).split('\n')
  expect(lines[1]).toMatch(
    /^→ .*: `sudo kyc-tokend check --account eu && sudo systemctl reload kyc-tokend@eu && sudo kyc-tokend refresh --account eu`\.$/,
  )
})

const inColours = (fields: Partial<StatusResult>): string => {
  const names: Record<string, string> = { 31: 'red', 33: 'yellow', 32: 'green', 1: 'bold' }
  const tagged = (_: string, code: string, text: string): string =>
    code === '2' ? `_${text}_` : `<${names[code]} ${text}>`
  return format(fields, { hasColour: true, place: unit }).replaceAll(
    /\u001b\[(\d+)m(.*?)\u001b\[(?:22|39)m/g,
    tagged,
  )
}

test('the whole picture of a daemon in trouble: what to do first, then a row for each part', () => {
  const fields: Partial<StatusResult> = {
    state: 'degraded',
    token: {
      ...good.token!,
      expiresAt: '2030-01-01T00:20:00.000Z',
      expirySource: 'assumed',
      refusedBy: [401, 403],
      stale: true,
    },
    failure: { ...failure, reason: 'server-error', status: 503, detail: 'Down for maintenance' },
    nextAttemptAt: '2030-01-01T00:15:20.000Z',
    alert: { reason: 'no-token', since: '2029-12-31T23:00:00.000Z', remedy: 'Another', contact: '555-1234' },
    share: { ...share, state: 'alone', lastError: 'connect ECONNREFUSED' },
    files: [
      { ...file('/good'), repairs: 1 },
      file('/bad', 'it is a link: remove it'),
      file('/worse', 'its disk is full'),
    ],
    daemon: {
      ...good.daemon,
      configuration: { state: 'faulty', problem: 'http.mode: is no mode' },
      stateProblem: 'state.json: no space is left: free some',
    },
    readers: Array.from({ length: 6 }, () => reader),
  }
  expect(inColours(fields)).toBe(`<yellow ●> <bold degraded>: the token is good, but refreshing it fails
<yellow →> ${remedyOf('server-error')}.
<yellow →> Call 555-1234.
<yellow →> Correct the configuration, each fault of which \`check\` names, then have it read again: \`sudo kyc-tokend check && sudo systemctl reload kyc-tokend\`.
<yellow →> Correct the 2 token files marked ✗.
<yellow →> The state for a restart cannot be saved: state.json: no space is left: free some.

  _life      _<yellow █████>_░░░░░░░░░░░░░░░_ 5 min left of 20 min (assumed)
  _token     _${good.token?.fingerprint}, number 12, obtained 15 min ago (00:00:00Z), stale
  _failure   _<red server-error> (HTTP 503) for 3 min, since 00:12:00Z: 4 attempts, the last 15 min ago (00:00:00Z)
  _          _Down for maintenance
  _next      _attempt in 20 s (00:15:20Z)
  _files     _<red ✗> /bad: it is a link: remove it
  _          _<red ✗> /worse: its disk is full
  _          _<green ✓> /good (raw), written 15 min ago (00:00:00Z), restored once
  _alerts    _<red no-token> since 2029-12-31T23:00:00Z
  _settings  _<red faulty on disk>: http.mode: is no mode
  _service   _https://api.example.com, 12 requests, last 15 min ago (00:00:00Z)
  _          _its API refuses a token with HTTP 401 or 403
  _share     _<yellow alone, without redis.example.com:6379> for 10 min
  _          _connect ECONNREFUSED
  _clients   _3 on ipc (1 subscribed), 0 on http (0 subscribed)
  _daemon    _1.0.0 on db-1, pid 4711, started 2 h ago (2029-12-31T22:15:00Z)
  _          _/etc/kyc-tokend/kyc-tokend.config.json
  _readers   _app (uid 7: billing, b) 1 min ago (00:14:00Z), once, 2 connections now
${'  _          _app (uid 7: billing, b) 1 min ago (00:14:00Z), once, 2 connections now\n'.repeat(4)}`)
})

test('each state has its colour and its meaning', () => {
  for (const [state, colour, meaning] of [
    ['ready', 'green', 'the token is good and is refreshed in time'],
    ['starting', 'yellow', 'there is no token yet'],
    ['expired', 'red', 'the token has expired and there is no other'],
    ['refused', 'red', 'the service refuses the account'],
  ] as const) {
    const text = inColours({ state })
    expect(text).toMatch(`<${colour} ●> <bold ${state}>: ${meaning}\n`)
    expect(text).toMatch(/<green █{15}>_░{5}_ 45 min left/)
  }
})

test('long sentences are wrapped', () => {
  const text = format({ state: 'degraded', failure }, { hasColour: true, columns: 56, place: unit })
  const plain = text
    .trimEnd()
    .split('\n')
    .map((line) => stripVTControlCharacters(line))
  expect(Math.max(...plain.map(({ length }) => length))).toBeLessThanOrEqual(56)
  const [steps = '', picture = ''] = plain.join('\n').split('\n\n')
  expect(steps).toMatch(/^● degraded: [^→]*\n→ \S[^→]*\n {2}\S[^→…]*\.$/)
  expect(picture).toMatch(/^ {2}next .*$/m)
  expect(/^ {12}\S/m.test(picture)).toBe(true)
})
