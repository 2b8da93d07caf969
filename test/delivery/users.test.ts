import { spawn } from 'node:child_process'
import { chmodSync, readFileSync } from 'node:fs'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { createPeers } from '../../src/delivery/peers.ts'
import { loadLibc } from '../../src/lib/libc.ts'
import { answerTypes } from '../../src/protocol.ts'
import {
  asStranger,
  reconfigure,
  startDelivery,
  startWithToken,
  type DeliveryWorld,
} from '../support/delivery-world.ts'
import { askOnce, connectRaw } from '../support/ipc-client.ts'
import { lacks } from '../support/lacks.ts'
import { httpAsk } from '../support/outside.ts'
import { expectUntil } from '../support/until.ts'

/** Other users can only be played by root. */
const isRoot = process.getuid?.() === 0

/**
 * Python sets supplementary groups, which Node's `spawn` does not. Sends each text on a connection of its
 * own, which stays open, and prints what comes back until a frame or the connection ends; with `follows`, all
 * that comes.
 */
const program = `
import json, os, socket, sys
uid, gid, groups, path, texts, follows = json.loads(sys.argv[1])
os.setgroups(groups); os.setgid(gid); os.setuid(uid)
held = []
for text in texts:
    s = socket.socket(socket.AF_UNIX)
    held.append(s)
    try:
        s.connect(path)
        s.sendall(text.encode())
        chunk = s.recv(65536)
        while chunk:
            os.write(1, chunk)
            if not follows and chunk.endswith(b'\\f'): break
            chunk = s.recv(65536)
    except OSError as e:
        os.write(1, json.dumps({'error': e.__class__.__name__}).encode() + b'\\f')
sys.stdin.read()
`

interface User {
  readonly uid: number
  readonly gid?: number
  readonly groups?: number[]
}

const GET = '{"type":"token.get","data":{"id":"1"}}\f'

/** Everything that another user has heard so far. */
function heardBy({ uid, gid = uid, groups = [] }: User, path: string, texts: string[], follows = true) {
  const words = ['-c', program, JSON.stringify([uid, gid, groups, path, texts, follows])]
  const child = spawn('python3', words, { stdio: ['pipe', 'pipe', 'inherit'] })
  onTestFinished(() => void child.kill('SIGKILL'))
  let heard = ''
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => (heard += chunk))
  return (): string => heard
}

/** The answer to another user's request for the token. */
async function answerTo(user: User, path: string): Promise<unknown> {
  const heard = heardBy(user, path, [GET], false)
  await expectUntil('the answer', () => heard().endsWith('\f'))
  return JSON.parse(heard().slice(0, -1)) as unknown
}

async function start(socket: Parameters<DeliveryWorld['socket']>[0]): Promise<DeliveryWorld> {
  const world = await startDelivery({ socket: { mode: 0o666, ...socket } })
  chmodSync(world.directory, 0o755)
  await world.rotate()
  return world
}

describe.skipIf(!isRoot || lacks('python3'))('other users (played by root, skipped for others)', () => {
  it('are allowed by user, by group and by supplementary group, and denied otherwise', async () => {
    const world = await start({ allow: { uids: [4001], gids: [4100] } })
    const answered = async (user: User) => answerTo(user, world.ipcPath)
    expect(await answered({ uid: 4001 })).toMatchObject({ type: 'token.result' })
    expect(await answered({ uid: 4002, gid: 4100 })).toMatchObject({ type: 'token.result' })
    expect(await answered({ uid: 4002, groups: [7, 4100] })).toMatchObject({ type: 'token.result' })
    expect(await answered({ uid: 4002 })).toMatchObject({ type: 'fault', data: { id: '1', code: 'denied' } })
    expect((await askOnce(world.ipcPath, 'token.get', {}))?.type).toBe('token.result')
  })

  it('get no token any more once a reload has taken the right away, subscribed or waiting', async () => {
    const allowed = { allow: { uids: [4001], gids: [] } }
    const denied = { allow: { uids: [4002], gids: [] } }
    const world = await start(allowed)
    const fingerprint = world.keeper.state().token?.fingerprint
    const waitUntil = vi.spyOn(world.keeper, 'waitUntil')
    const wait = JSON.stringify({
      type: 'token.get',
      data: { id: 'w', notFingerprint: fingerprint, waitSeconds: 30 },
    })
    const ipc = heardBy({ uid: 4001 }, world.ipcPath, [
      `{"type":"token.subscribe","data":{"id":"s"}}\f${wait}\f`,
    ])
    const events = heardBy({ uid: 4001 }, world.httpPath, ['GET /v1/token/events HTTP/1.1\r\n\r\n'])
    const query = `waitSeconds=30&notFingerprint=${fingerprint}`
    const waiting = heardBy({ uid: 4001 }, world.httpPath, [`GET /v1/token?${query} HTTP/1.1\r\n\r\n`])
    await expectUntil('the first token', () => ipc().includes('token-1') && events().includes('token-1'))
    await expectUntil('the waits', () => waitUntil.mock.calls.length === 2)
    await reconfigure(world.ipc, world.socket(denied))
    await reconfigure(world.http, world.socket({ ...denied, path: world.httpPath }))
    await world.rotate()
    await expectUntil('denials', () => [events, waiting].every((heard) => heard().includes('denied')))
    const denials = () => ipc().match(/"id":"[sw]","code":"denied"/g)
    await expectUntil('those of the subscription and the wait', () => denials()?.length === 2)
    await world.rotate()
    expect(ipc().match(/"id":"w","code":"denied"/g)).toHaveLength(1)
    expect(ipc() + events() + waiting()).not.toMatch(/token-[23]/)
  })
})

it('a user that `allow` does not name is denied every operation and every path', async () => {
  const allow = { uids: [4_002], gids: [] }
  const world = await startWithToken({ loadLibc: asStranger, socket: { allow } })
  const rejects = world.ipc.counts().rejects
  for (const type of [...Object.keys(answerTypes), 'nonsense'])
    expect(await askOnce(world.ipcPath, type, {}), type).toMatchObject({
      type: 'fault',
      data: { id: 'once', code: 'denied' },
    })
  const gets = ['token', 'token/events', 'authorization', 'status'].map((name) => `/v1/${name}`)
  for (const path of [...gets, '/healthz', '/readyz', '/metrics', '/nowhere'])
    expect(await httpAsk(world, path), path).toMatchObject({ status: 403, json: { code: 'denied' } })
  for (const path of ['/v1/token/reject', '/v1/refresh'])
    expect(await httpAsk(world, path, { method: 'POST' }), path).toMatchObject({ status: 403 })
  expect(world.ipc.counts()).toMatchObject({ reads: 0, rejects, subscribers: 0 })
  expect(world.http.counts()).toMatchObject({ reads: 0, subscribers: 0 })
})

describe('the overflow id, which the kernel shows for users that it does not know here', () => {
  const [overflow, ofGroups] = ['overflowuid', 'overflowgid'].map((name) =>
    Number(readFileSync(`/proc/sys/kernel/${name}`, 'utf8')),
  ) as [number, number]
  const peer = (uid: number, gid: number, groups: number[]) => () => ({
    ...loadLibc(),
    peerOf: () => ({ pid: 7, uid, gid }),
    peerGroups: () => groups,
  })
  const unknown = peer(overflow, ofGroups, [ofGroups])

  it('is allowed by no name or number, and privileged never', async () => {
    const allow = { uids: [overflow], gids: [ofGroups] }
    const closed = await startDelivery({ loadLibc: unknown, socket: { allow } })
    await closed.rotate()
    const client = await connectRaw(closed.ipcPath)
    client.ask('token.get', { id: '1' })
    expect(await client.frame(0)).toMatchObject({ type: 'fault', data: { id: '1', code: 'denied' } })
    await client.closed()
    const open = await startDelivery({ loadLibc: unknown })
    expect(await askOnce(open.ipcPath, 'refresh.request', {})).toMatchObject({ data: { code: 'denied' } })
  })

  it('of a group allows no known user either, as his own group or as another of his', async () => {
    for (const [gid, groups] of [
      [ofGroups, []],
      [4_001, [ofGroups]],
    ] as const) {
      const socket = { allow: { uids: [], gids: [ofGroups, 4_009] } }
      const world = await startDelivery({ loadLibc: peer(4_001, gid, [...groups]), socket })
      expect(await askOnce(world.ipcPath, 'token.get', {})).toMatchObject({ data: { code: 'denied' } })
    }
  })

  it('ends a daemon that runs with it', () => {
    expect(() => createPeers({ ownUid: overflow })).toThrow(expect.objectContaining({ status: 78 }))
  })
})
