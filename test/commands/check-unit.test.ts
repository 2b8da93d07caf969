import { expect, test } from 'vitest'
import { neededPaths, readProblem, writeProblem } from '../../src/commands/check-unit.ts'
import { systemctl } from '../../src/commands/systemd.ts'

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

test('a path without a hyphen must be there for the unit to start', () => {
  expect(neededPaths({ ReadWritePaths: '-/a /b +/c' })).toEqual(['/b'])
})

test('a call that says nothing has the reason why it failed', async () => {
  const { isOk, stderr } = await systemctl(['list-units'], 1)
  expect(isOk).toBe(false)
  expect(stderr).not.toBe('')
})
