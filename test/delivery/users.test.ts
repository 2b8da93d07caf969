// Who may use a socket. That the kernel names the peers of real users is in lib/libc.test.ts.
import { expect, it, vi } from 'vitest'
import { createReadPeer } from '../../src/delivery/guard.ts'
import { loadLibc } from '../../src/lib/libc.ts'
import { answerTypes } from '../../src/protocol.ts'
import { asStranger, startWithToken } from '../support/delivery-world.ts'
import { askOnce, connectRaw } from '../support/ipc-client.ts'
import { httpAsk } from '../support/outside.ts'
import { exchange } from '../support/raw-http.ts'
import { expectUntil } from '../support/until.ts'

const peer = (uid: number, gid: number, groups: readonly number[]) => () => ({
  ...loadLibc(),
  peerOf: () => ({ uid, gid }),
  peerGroups: () => [...groups],
})
/** The kernel shows it for users and groups that it does not know here. */
const UNKNOWN = 65_534

it.each([
  ['allowed by user', 4_001, 4_001, [], 'token.result'],
  ['allowed by group', 4_002, 4_100, [], 'token.result'],
  ['allowed by supplementary group', 4_002, 4_002, [7, 4_100], 'token.result'],
  ['root', 0, 0, [], 'token.result'],
  ['denied otherwise', 4_002, 4_002, [7], 'fault'],
  ['denied where the kernel does not know it, allowed or not', UNKNOWN, UNKNOWN, [UNKNOWN], 'fault'],
])('a peer is %s', async (_how, uid, gid, groups, type) => {
  const allow = { users: [4_001, UNKNOWN], groups: [4_100, UNKNOWN] }
  const world = await startWithToken({ libc: peer(uid, gid, groups), socket: { allow } })
  const client = await connectRaw(world.ipcPath)
  client.ask('token.get', { id: '1' })
  expect(await client.frame(0)).toMatchObject({ type, data: { id: '1' } })
  if (type === 'fault') await client.closed()
})

it('an unknown user is no operator, also where the daemon runs as one', () => {
  const readPeer = createReadPeer({ libc: peer(UNKNOWN, UNKNOWN, [])(), ownUid: UNKNOWN })
  expect(readPeer(0, { users: [], groups: [] })).toEqual({ uid: UNKNOWN, place: 'member' })
})

it('a user that `allow` does not name is denied every operation and every path', async () => {
  const allow = { users: [4_002], groups: [] }
  const world = await startWithToken({ libc: asStranger, socket: { allow } })
  const rejects = world.ipc.counts().rejects
  for (const type of [...Object.keys(answerTypes), 'nonsense'])
    expect(await askOnce(world.ipcPath, type, {}), type).toMatchObject({
      type: 'fault',
      data: { id: 'once', code: 'denied' },
    })
  const gets = ['token', 'authorization', 'status'].map((name) => `/v1/${name}`)
  for (const path of [...gets, '/healthz', '/readyz', '/metrics', '/nowhere'])
    expect(await httpAsk(world, path), path).toMatchObject({ status: 403, json: { code: 'denied' } })
  for (const path of ['/v1/token/reject', '/v1/refresh'])
    expect(await httpAsk(world, path, { method: 'POST' }), path).toMatchObject({ status: 403 })
  expect(world.ipc.counts()).toMatchObject({ reads: 0, rejects, subscribers: 0 })
  expect(world.http.counts()).toMatchObject({ reads: 0, subscribers: 0 })
})

it('connections of a user from whom a reload takes the right are closed, subscribed or waiting', async () => {
  const world = await startWithToken({ libc: asStranger, socket: { allow: { users: [4_001], groups: [] } } })
  const notFingerprint = world.keeper.state().token!.fingerprint
  const waitUntil = vi.spyOn(world.keeper, 'waitUntil')
  const [subscriber, waiter] = [await connectRaw(world.ipcPath), await connectRaw(world.ipcPath)]
  subscriber.ask('token.subscribe', { id: 's' })
  waiter.ask('token.get', { id: 'w', notFingerprint, waitSeconds: 30 })
  const wait = `GET /v1/token?waitSeconds=30&notFingerprint=${notFingerprint} HTTP/1.1\r\n\r\n`
  const waiting = exchange(world.httpPath, wait)
  expect((await subscriber.frame(0))?.type).toBe('token.result')
  await expectUntil('the waits', () => waitUntil.mock.calls.length === 2)
  world.reconfigure({ allow: { users: [4_002], groups: [] } })
  await Promise.all([subscriber.closed(), waiter.closed()])
  expect([subscriber.frames.length, waiter.frames.length, await waiting]).toEqual([1, 0, ''])
  expect(world.ipc.counts().reads).toBe(1)
  expect(await askOnce(world.ipcPath, 'token.get', {})).toMatchObject({ data: { code: 'denied' } })
})
