import { expect, test, vi } from 'vitest'
import * as paths from '../../src/host/paths.ts'

const ADA = { XDG_RUNTIME_DIR: '/run/user/1000', XDG_STATE_HOME: '/home/ada/.state', HOME: '/home/ada' }
const RELATIVE = { XDG_RUNTIME_DIR: 'here', XDG_STATE_HOME: 'there', RUNTIME_DIRECTORY: '' }

test.each<[string, NodeJS.ProcessEnv, number, string, string]>([
  ['what systemd says', { RUNTIME_DIRECTORY: '/r:/s', STATE_DIRECTORY: '/v' }, 990, '/r', '/v'],
  ["root's, whoever said sudo", ADA, 0, '/run/kyc-tokend', '/var/lib/kyc-tokend'],
  ['XDG', ADA, 1000, '/run/user/1000/kyc-tokend', '/home/ada/.state/kyc-tokend'],
  ['temp and home', { HOME: '/a' }, 1000, '/tmp/kyc-tokend-1000', '/a/.local/state/kyc-tokend'],
  [
    'never relative',
    { HOME: '/a', TMPDIR: '/t', ...RELATIVE },
    1000,
    '/t/kyc-tokend-1000',
    '/a/.local/state/kyc-tokend',
  ],
])('the directories are %s', (_, env, uid, runtimeDirectory, stateDirectory) => {
  expect(paths.runtimeDirectoryOf({ env, uid })).toBe(runtimeDirectory)
  expect(paths.stateDirectoryOf({ env, uid })).toBe(stateDirectory)
})

test('the state is never in the working directory, whatever HOME says', () => {
  vi.stubEnv('HOME', 'here')
  for (const HOME of ['', 'here'])
    expect(paths.stateDirectoryOf({ env: { HOME }, uid: 1000 })).toMatch(/^\/.*\.local\/state\/kyc-tokend$/)
  vi.unstubAllEnvs()
})

test('the configuration is where root put it, and for a person here first', () => {
  const directoriesOf = (env: NodeJS.ProcessEnv, uid: number) =>
    paths.configDirectories({ env, uid }, '/here')
  expect(directoriesOf({}, 0)).toEqual(['/etc/kyc-tokend'])
  expect(directoriesOf({ RUNTIME_DIRECTORY: '/run/kyc-tokend' }, 990)).toEqual(['/etc/kyc-tokend'])
  expect(directoriesOf({}, 1000)).toEqual(['/here', '/etc/kyc-tokend'])
})

test("the socket is at root's place, then the person's, and never in a client unit's own directory", () => {
  const system = '/run/kyc-tokend/ipc.sock'
  expect(paths.socketCandidates({ env: ADA, uid: 0 })).toEqual([system])
  expect(paths.socketCandidates({ env: { RUNTIME_DIRECTORY: '/run/shop' }, uid: 0 })).toEqual([system])
  expect(paths.socketCandidates({ env: ADA, uid: 1000 })).toEqual([
    system,
    '/run/user/1000/kyc-tokend/ipc.sock',
  ])
})
