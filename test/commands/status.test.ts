import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { tellStatus } from '../../src/commands/tell-status.ts'
import type { StatusResult } from '../../src/protocol.ts'
import { commandWorld, hourToken } from '../support/command-world.ts'
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
    alert: null,
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
    },
    ...fields,
  }
}
function file(path: string, error: string | null = null): StatusResult['files'][number] {
  const writtenAt = error === null ? '2030-01-01T00:00:00.000Z' : null
  return { path, format: 'raw', ok: error === null, error, writtenAt, repairs: 0 }
}
const failure = {
  reason: 'network',
  detail: 'getaddrinfo ENOTFOUND api.example.com',
  since: '2030-01-01T00:12:00.000Z',
  attempts: 4,
}
const tell = (fields: Partial<StatusResult> = {}, hasColour = false): string =>
  tellStatus(statusWith(fields), { nowMs, hasColour })

test('tells times as they are spoken, and the life that is left', () => {
  const text = tell()
  expect(text).toMatch(/^● ready: /)
  expect(text).toMatch(/life +█{15}░{5} 45 min left of 1 h/)
  expect(text).toMatch(/number 12, obtained 15 min ago/)
  expect(text).toMatch(/next +refresh in 25 min/)
  expect(text).toMatch(/3 on ipc \(1 subscribed\), 0 on http/)
  expect(text).toMatch(/pid 4711, started 2 h ago/)
  expect(text).not.toContain('→')
})

test('a failure is told with its attempts and its remedy', () => {
  const text = tell({ state: 'degraded', failure, nextAttemptAt: '2030-01-01T00:15:20.000Z' })
  expect(text).toMatch(/failure +network, 3 min ago, 4 attempts\n +getaddrinfo ENOTFOUND/)
  expect(text).toMatch(/next +attempt in 20 s/)
  expect(text).toMatch(/→ .*baseUrl.*resolves/)
})

test('an alert’s remedy comes before that of the failure', () => {
  const alert = { reason: 'account-inactive', since: failure.since, remedy: 'Contact support' }
  const text = tell({ state: 'refused', token: null, failure, alert, nextAttemptAt: null })
  expect(text).toMatch(/token +none/)
  expect(text).toMatch(/next +nothing until somebody acts/)
  expect(text.match(/→ .*/g)).toEqual(['→ Contact support.'])
})

test('files with faults come first', () => {
  const text = tell({ files: [file('/good'), file('/bad', 'it is a link: remove it')] })
  expect(text).toMatch(/files +✗ \/bad: it is a link: remove it\n +✓ \/good \(raw\), written 15 min ago/)
  expect(text).toMatch(/→ Mend the token file/)
})

test('colours only where they are wanted, and words of others cannot steer the terminal', () => {
  expect(tell()).not.toContain('\u001b')
  expect(tell({}, true)).toContain('\u001b[32m●\u001b[0m')
  const text = tell({ failure: { ...failure, detail: 'a\u001b]0;title\u0007b\nc' } })
  expect(text).not.toMatch(/[\u0000-\u0009\u000b-\u001f]/)
  expect(text).toContain('a?]0;title?b?c')
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

test('without a token it ends with 75', async () => {
  const { cli, daemon } = await commandWorld({ answer: { status: 503 } })
  await daemon.logged('fetch-failed')
  const { status, stdout } = await cli(['status'])
  expect(status).toBe(75)
  expect(stdout).toMatch(/^● starting: [^]*server-error \(HTTP 503\)/)
})

test('of a refused account it ends with 77 and says what to do', async () => {
  const { cli, service } = await commandWorld({ answer: accountInactive })
  await service.arrived(1)
  await cli(['token'])
  const { status, stdout } = await cli(['status'])
  expect(status).toBe(77)
  expect(stdout).toMatch(/^● refused: [^]*→ .*support/)
})

test('a token file that cannot be written is shown with its fault', async () => {
  const { cli, daemon, directory, service } = await commandWorld({
    config: { tokenFiles: [{ path: 'target' }] },
    answer: async () => {
      mkdirSync(join(directory, 'run/target'), { recursive: true })
      return granting(hourToken())
    },
  })
  await service.arrived(1)
  await cli(['token'])
  expect((await cli(['status'])).stdout).toMatch(new RegExp(`✗ ${daemon.directory}/run/target: \\S`))
})
