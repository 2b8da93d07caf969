import { describe, expect, it, vi } from 'vitest'

import {
  configDirectories,
  runtimeDirectoryOf,
  socketCandidates,
  stateDirectoryOf,
} from '../../src/host/paths.ts'

const ADA = { XDG_RUNTIME_DIR: '/run/user/1000', XDG_STATE_HOME: '/home/ada/.state', HOME: '/home/ada' }

describe('where things are', () => {
  it.each<[string, NodeJS.ProcessEnv, number, string, string]>([
    ['what systemd says', { RUNTIME_DIRECTORY: '/r:/s', STATE_DIRECTORY: '/v' }, 990, '/r', '/v'],
    ["root's, whoever said sudo", ADA, 0, '/run/kyc-tokend', '/var/lib/kyc-tokend'],
    ['XDG', ADA, 1000, '/run/user/1000/kyc-tokend', '/home/ada/.state/kyc-tokend'],
    ['temp and home', { HOME: '/a' }, 1000, '/tmp/kyc-tokend-1000', '/a/.local/state/kyc-tokend'],
    [
      'never relative',
      { HOME: '/a', XDG_RUNTIME_DIR: 'here', XDG_STATE_HOME: 'there', RUNTIME_DIRECTORY: '', TMPDIR: '/t' },
      1000,
      '/t/kyc-tokend-1000',
      '/a/.local/state/kyc-tokend',
    ],
  ])('is %s', (_, env, uid, runtimeDirectory, stateDirectory) => {
    expect(runtimeDirectoryOf({ env, uid })).toBe(runtimeDirectory)
    expect(stateDirectoryOf({ env, uid })).toBe(stateDirectory)
  })
  it('is never in the working directory, whatever HOME says', () => {
    vi.stubEnv('HOME', 'here')
    for (const HOME of ['', 'here'])
      expect(stateDirectoryOf({ env: { HOME }, uid: 1000 })).toMatch(/^\/.*\.local\/state\/kyc-tokend$/)
    vi.unstubAllEnvs()
  })
  it('has the configuration where root put it, and for a person here first', () => {
    expect(configDirectories({ env: {}, uid: 0 }, '/here')).toEqual(['/etc/kyc-tokend'])
    const inUnit = { env: { RUNTIME_DIRECTORY: '/run/kyc-tokend' }, uid: 990 }
    expect(configDirectories(inUnit, '/here')).toEqual(['/etc/kyc-tokend'])
    expect(configDirectories({ env: {}, uid: 1000 }, '/here')).toEqual(['/here', '/etc/kyc-tokend'])
  })
  it("has its sockets at root's place, then the person's, and never in a client unit's own directory", () => {
    const system = '/run/kyc-tokend/ipc.sock'
    expect(socketCandidates({ env: ADA, uid: 0 })).toEqual([system])
    expect(socketCandidates({ env: { RUNTIME_DIRECTORY: '/run/shop' }, uid: 0 })).toEqual([system])
    const own = '/run/user/1000/kyc-tokend/ipc.sock'
    expect(socketCandidates({ env: ADA, uid: 1000 })).toEqual([system, own])
  })
})
