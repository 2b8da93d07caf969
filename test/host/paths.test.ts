import { expect, test, vi } from 'vitest'
import * as paths from '../../src/host/paths.ts'

const ADA = { XDG_RUNTIME_DIR: '/run/user/1000', XDG_STATE_HOME: '/home/ada/.state', HOME: '/home/ada' }
const RELATIVE = { XDG_RUNTIME_DIR: 'here', XDG_STATE_HOME: 'there', RUNTIME_DIRECTORY: '', HOME: '/a' }
const UNIT = { RUNTIME_DIRECTORY: '/r:/s', STATE_DIRECTORY: '/v' }
const ROOT = { state: '/var/lib/kyc-tokend', config: ['/etc/kyc-tokend'] }
const PERSON = { state: '/a/.local/state/kyc-tokend', config: ['/here', '/etc/kyc-tokend'] }

test.each<[string, NodeJS.ProcessEnv, number, string, typeof ROOT]>([
  ['what systemd says', UNIT, 990, '/r', { ...ROOT, state: '/v' }],
  ["root's, whoever said sudo", ADA, 0, '/run/kyc-tokend', ROOT],
  ['of XDG', ADA, 7, '/run/user/1000/kyc-tokend', { ...PERSON, state: '/home/ada/.state/kyc-tokend' }],
  ['temp and home', { HOME: '/a' }, 7, '/tmp/kyc-tokend-7', PERSON],
  ['never relative', { TMPDIR: '/t', ...RELATIVE }, 7, '/t/kyc-tokend-7', PERSON],
])('the directories are %s', (_, env, uid, runtime, { state, config }) => {
  expect(paths.runtimeDirectoryOf({ env, uid })).toBe(runtime)
  expect(paths.stateDirectoryOf({ env, uid })).toBe(state)
  expect(paths.configDirectories({ env, uid }, '/here')).toEqual(config)
})

test('the state is never in the working directory, whatever HOME says', () => {
  vi.stubEnv('HOME', 'here')
  for (const HOME of ['', 'here'])
    expect(paths.stateDirectoryOf({ env: { HOME }, uid: 1000 })).toMatch(/^\/.*\.local\/state\/kyc-tokend$/)
  vi.unstubAllEnvs()
})

test("the socket is at root's place, then the person's, and never in a client unit's own directory", () => {
  const system = '/run/kyc-tokend/ipc.sock'
  const ofPerson = '/run/user/1000/kyc-tokend/ipc.sock'
  expect(paths.socketCandidates({ env: UNIT, uid: 0 })).toEqual([system])
  expect(paths.socketCandidates({ env: { ...UNIT, ...ADA }, uid: 1000 })).toEqual([system, ofPerson])
})
