import { expect, test } from 'vitest'
import { readProblem, unitFindings, writeProblem } from '../../src/commands/check-unit.ts'

const unit = {
  ProtectSystem: 'strict',
  ProtectHome: 'yes',
  PrivateTmp: 'yes',
  ReadWritePaths: '-/run/kyc-tokend -/srv/app/kyc',
  StateDirectory: 'kyc-tokend',
}

test.each([
  ['/run/kyc-tokend', undefined],
  ['/srv/app/kyc/below', undefined],
  ['/var/lib/kyc-tokend', undefined],
  ['/srv/app/kycs', 'ProtectSystem=strict'],
  ['/home/app', 'ProtectHome=yes'],
  ['/var/tmp/x', 'PrivateTmp=yes'],
  ['/tmpfs', 'ProtectSystem=strict'],
])('writing to %s is forbidden by %s', (path, because) => {
  expect(writeProblem(unit, path)?.because).toBe(because)
})

test('the remedy is what allows it, and none where only another directory helps', () => {
  expect(writeProblem(unit, '/srv/app')?.settings).toEqual(['ReadWritePaths=-/srv/app'])
  expect(writeProblem(unit, '/home/app')?.settings).toEqual([
    'ProtectHome=read-only',
    'ReadWritePaths=-/home/app',
  ])
  expect(writeProblem(unit, '/tmp')?.settings).toEqual([])
})

test('without a sandbox nothing is forbidden; homes may be readable alone', () => {
  expect(writeProblem({}, '/usr/x')).toBeUndefined()
  expect(writeProblem({ ProtectHome: 'read-only' }, '/home/x')?.because).toBe('ProtectHome=read-only')
  expect(readProblem({ ProtectHome: 'read-only' }, '/home/x')).toBeUndefined()
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
