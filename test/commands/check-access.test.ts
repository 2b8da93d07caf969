import { expect, test } from 'vitest'
import { accessProblem, unitFindings } from '../../src/commands/check-access.ts'

const unit = {
  ProtectSystem: 'strict',
  ProtectHome: 'yes',
  PrivateTmp: 'yes',
  ReadWritePaths: '-/run/kyc-tokend -/srv/app/kyc +-/srv/both /srv/my-app',
  StateDirectory: 'kyc-tokend',
}

test.each([
  ['/run/kyc-tokend', undefined],
  ['/srv/app/kyc/below', undefined],
  ['/var/lib/kyc-tokend', undefined],
  ['/srv/both', undefined],
  ['/srv/my-app', undefined],
  ['/proc/x', undefined],
  ['/srv/app/kycs', 'ProtectSystem=strict'],
  ['/home/app', 'ProtectHome=yes'],
  ['/var/tmp/x', 'PrivateTmp=yes'],
  ['/tmpfs', 'ProtectSystem=strict'],
])('writing to %s is forbidden by %s', (path, because) => {
  expect(accessProblem(unit, path, 'write')?.because).toBe(because)
})

test('the remedy is what allows it, and none where only another directory helps', () => {
  expect(accessProblem(unit, '/srv/app', 'write')?.settings).toEqual(['ReadWritePaths=-/srv/app'])
  expect(accessProblem(unit, '/home/app', 'write')?.settings).toEqual([
    'ProtectHome=read-only',
    'ReadWritePaths=-/home/app',
  ])
  expect(accessProblem(unit, '/home/app', 'read')?.settings).toEqual(['ProtectHome=read-only'])
  expect(accessProblem(unit, '/tmp', 'write')?.settings).toBeNull()
})

test('without a sandbox nothing is forbidden; homes may be readable alone', () => {
  expect(accessProblem({}, '/usr/x', 'write')).toBeUndefined()
  expect(accessProblem({ ProtectSystem: 'strict' }, '/srv', 'write')?.because).toBe('ProtectSystem=strict')
  expect(accessProblem({ ProtectHome: 'read-only' }, '/home/x', 'write')).toEqual({
    because: 'ProtectHome=read-only',
    settings: ['ReadWritePaths=-/home/x'],
  })
  expect(accessProblem({ ProtectHome: 'read-only' }, '/home/x', 'read')).toBeUndefined()
})

test('a path without a hyphen and the file of a credential must exist for the unit to start', () => {
  const properties = { ReadWritePaths: '-/a /b /usr +/c' }
  const credentials = [
    { id: 'lost', path: '/nowhere' },
    { id: 'kept', path: '/etc/passwd' },
    { id: 'bytes', path: '' },
  ]
  const config = { systemdCredentials: ['kept', 'unknown'], file: '/c.json' }
  const alerts = { alertCommand: null, alertProblem: null }
  const findings = unitFindings({ name: 'kyc-tokend', properties, credentials }, config, alerts)
  expect(findings.map(({ level, sentence }) => `${level} ${sentence}`)).toEqual([
    expect.stringMatching(/^fault .* ReadWritePaths=\/b, which does not exist, .*226/),
    expect.stringMatching(
      /^warning .* ReadWritePaths=\/usr: without that directory .* ReadWritePaths=-\/usr,/,
    ),
    expect.stringMatching(/^fault .* the credential lost from \/nowhere, which does not exist, .*243/),
    expect.stringMatching(/^fault \/c\.json: kyc-tokend\.service loads no credential unknown: add/),
  ])
})
