import { describe, expect, it, vi } from 'vitest'

import {
  configDirectories,
  runtimeDirectoryOf,
  socketCandidates,
  stateDirectoryOf,
} from '../../src/host/paths.ts'

describe('where things are', () => {
  it('is what systemd says, before everything else', () => {
    const env = { RUNTIME_DIRECTORY: '/run/kyc-tokend:/run/other', STATE_DIRECTORY: '/var/lib/private/kyc' }
    expect(runtimeDirectoryOf({ env, uid: 990 })).toBe('/run/kyc-tokend')
    expect(stateDirectoryOf({ env, uid: 990 })).toBe('/var/lib/private/kyc')
  })
  it('is the system’s for root, whatever the person who said sudo has in the environment', () => {
    const env = { XDG_RUNTIME_DIR: '/run/user/1000', XDG_STATE_HOME: '/home/ada/.state', HOME: '/home/ada' }
    expect(runtimeDirectoryOf({ env, uid: 0 })).toBe('/run/kyc-tokend')
    expect(stateDirectoryOf({ env, uid: 0 })).toBe('/var/lib/kyc-tokend')
    expect(socketCandidates({ env, uid: 0 })).toEqual(['/run/kyc-tokend/ipc.sock'])
  })
  it('is that of XDG for a person', () => {
    const env = { XDG_RUNTIME_DIR: '/run/user/1000', XDG_STATE_HOME: '/home/ada/.state', HOME: '/home/ada' }
    expect(runtimeDirectoryOf({ env, uid: 1000 })).toBe('/run/user/1000/kyc-tokend')
    expect(stateDirectoryOf({ env, uid: 1000 })).toBe('/home/ada/.state/kyc-tokend')
    const candidates = ['/run/kyc-tokend/ipc.sock', '/run/user/1000/kyc-tokend/ipc.sock']
    expect(socketCandidates({ env, uid: 1000 })).toEqual(candidates)
  })
  it('falls back to the temp directory and the home, and ignores relative paths', () => {
    const env = { HOME: '/home/ada', XDG_RUNTIME_DIR: 'here', XDG_STATE_HOME: 'there', RUNTIME_DIRECTORY: '' }
    expect(runtimeDirectoryOf({ env, uid: 1000 })).toBe('/tmp/kyc-tokend-1000')
    expect(runtimeDirectoryOf({ env: { TMPDIR: '/var/tmp' }, uid: 1000 })).toBe('/var/tmp/kyc-tokend-1000')
    expect(stateDirectoryOf({ env, uid: 1000 })).toBe('/home/ada/.local/state/kyc-tokend')
  })
  it('is never in the working directory, whatever HOME says', () => {
    expect(stateDirectoryOf({ env: { HOME: '' }, uid: 1000 })).toMatch(/^\/.*\.local\/state\/kyc-tokend$/)
    vi.stubEnv('HOME', 'here')
    expect(stateDirectoryOf({ env: { HOME: 'here' }, uid: 1000 })).toMatch(/^\/.*\.local\/state\/kyc-tokend$/)
    vi.unstubAllEnvs()
  })
  it('has the configuration where root put it, and for a person here first', () => {
    expect(configDirectories({ env: {}, uid: 0 }, '/here')).toEqual(['/etc/kyc-tokend'])
    expect(configDirectories({ env: { RUNTIME_DIRECTORY: '/run/kyc-tokend' }, uid: 990 }, '/here')).toEqual([
      '/etc/kyc-tokend',
    ])
    expect(configDirectories({ env: {}, uid: 1000 }, '/here')).toEqual(['/here', '/etc/kyc-tokend'])
  })
  it("does not take a client unit's runtime directory for the daemon's", () => {
    expect(socketCandidates({ env: { RUNTIME_DIRECTORY: '/run/shop' }, uid: 0 })).toEqual([
      '/run/kyc-tokend/ipc.sock',
    ])
  })
})
