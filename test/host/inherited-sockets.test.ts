import { describe, expect, it } from 'vitest'
import { descriptorsOf, takeInheritedSockets } from '../../src/host/system.ts'

describe('inherited sockets', () => {
  const none = { ipc: [], http: [], metrics: [], unknown: [] }

  it('are known by their names, several of one name too, and are taken out of the environment', () => {
    const LISTEN_FDNAMES = 'http:other:ipc:ipc::metrics'
    const env = { LISTEN_PID: '7', LISTEN_FDS: '6', LISTEN_FDNAMES, PATH: '/bin' }
    const found = { http: [3], ipc: [5, 6], metrics: [8], unknown: ['other', 'unknown'] }
    expect(takeInheritedSockets(env, 7)).toEqual(found)
    expect(env).toEqual({ PATH: '/bin' })
  })

  it('are ignored where they are for another process', () => {
    const env = { LISTEN_PID: '8', LISTEN_FDS: '1', LISTEN_FDNAMES: 'ipc' }
    expect(takeInheritedSockets(env, 7)).toEqual(none)
    expect(env).toEqual({})
  })

  it.each([undefined, '', '0', '-1', '1e9', 'two', ' 1', '1 ', '0x1', '99999'])(
    'none, where LISTEN_FDS is %s',
    (LISTEN_FDS) => {
      expect(takeInheritedSockets({ LISTEN_PID: '7', LISTEN_FDS, LISTEN_FDNAMES: 'ipc' }, 7)).toEqual(none)
    },
  )

  it('decide: where one is handed over no other is opened, else all are, at their paths', () => {
    expect(descriptorsOf(none, 'ipc')).toBeNull()
    const inherited = { ...none, http: [3] }
    expect(descriptorsOf(inherited, 'http')).toEqual([3])
    expect(descriptorsOf(inherited, 'ipc')).toEqual([])
    expect(descriptorsOf({ ...none, unknown: ['other'] }, 'ipc')).toBeNull()
  })
})
