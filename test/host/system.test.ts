import { expect, test } from 'vitest'
import manifest from '../../package.json' with { type: 'json' }
import { descriptorsOf, requireSupportedNode, takeInheritedSockets } from '../../src/host/system.ts'

const none = { ipc: [], http: [], metrics: [] }

test('inherited sockets are known by their names, several of one too, and taken out of the environment', () => {
  const LISTEN_FDNAMES = 'http:other:ipc:ipc::metrics'
  const env = { LISTEN_PID: '7', LISTEN_FDS: '6', LISTEN_FDNAMES, PATH: '/bin' }
  const found = { http: [3], ipc: [5, 6], metrics: [8] }
  expect(takeInheritedSockets(env, 7)).toEqual(found)
  expect(env).toEqual({ PATH: '/bin' })
  for (const LISTEN_FDS of [undefined, '', '0', '-1', '1e9', 'two', ' 1', '1 ', '0x1', '99999'])
    expect(takeInheritedSockets({ LISTEN_PID: '7', LISTEN_FDS, LISTEN_FDNAMES: 'ipc' }, 7)).toEqual(none)
  const ofOther = { LISTEN_PID: '8', LISTEN_FDS: '1', LISTEN_FDNAMES: 'ipc' }
  expect([takeInheritedSockets(ofOther, 7), ofOther]).toEqual([none, {}])
})

test('where one is handed over no other is opened, else all are, at their paths', () => {
  expect(descriptorsOf(none, 'ipc')).toBeNull()
  const inherited = { ...none, http: [3] }
  expect([descriptorsOf(inherited, 'http'), descriptorsOf(inherited, 'ipc')]).toEqual([[3], []])
})

test('the program refuses a Node that is older than the one that engines names', () => {
  expect(manifest.engines.node).toBe('>=24.18.1')
  for (const version of ['24.18.1', '24.18.10', '26.0.0', process.versions.node])
    requireSupportedNode(version)
  for (const version of ['18.20.0', '24.9.3', '24.18.0'])
    expect(() => requireSupportedNode(version)).toThrow(
      `needs Node 24.18.1 or newer, and this is v${version}`,
    )
})
