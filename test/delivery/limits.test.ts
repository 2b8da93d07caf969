// Every limit of the sockets with its number, and that nothing is left behind by clients that go.
import { connect, type Socket } from 'node:net'
import { describe, expect, it } from 'vitest'
import { loadLibc } from '../../src/lib/libc.ts'
import { fingerprintOf } from '../../src/protocol.ts'
import {
  asStranger,
  lateAnswer,
  startDelivery,
  startWithClient,
  type DeliveryWorld,
} from '../support/delivery-world.ts'
import { askOnce, connectRaw } from '../support/ipc-client.ts'
import { exchange } from '../support/raw-http.ts'
import { expectUntil } from '../support/until.ts'

type Transport = 'ipc' | 'http'
const LARGE = 'x'.repeat(10_000)
const ASK = '{"type":"token.get","data":{"id":"1"}}\f'
const GET = 'GET /v1/token HTTP/1.1\r\nHost: x\r\n'
/** It waits for another token. */
const WAIT = ASK.replace('"id"', `"waitSeconds":60,"notFingerprint":"${fingerprintOf('token-1')}","id"`)
const pathOf = ({ ipcPath, httpPath }: DeliveryWorld, transport: Transport): string =>
  transport === 'ipc' ? ipcPath : httpPath

async function isServed(world: DeliveryWorld): Promise<void> {
  expect(await askOnce(world.ipcPath, 'token.get', {})).toMatchObject({ type: 'token.result' })
}

/** Has the client ask more than it reads, until the daemon answers it no more. Returns the number of answers. */
async function overfill(world: DeliveryWorld, socket: Socket): Promise<number> {
  const before = world.ipc.counts().reads
  socket.write(ASK.repeat(400))
  await expectUntil('some answers', () => world.ipc.counts().reads > before)
  for (let count = 0; count < 20; count += 1) await isServed(world)
  return world.ipc.counts().reads - before - 20
}

/** Reads no more than one chunk. */
async function readOnce(socket: Socket): Promise<void> {
  await new Promise((resolve) => socket.once('data', resolve).resume())
  socket.pause()
}

describe('timeouts', () => {
  it('a connection that asks nothing for 75 s is closed, unless it waits or subscribes', async () => {
    const { world, client } = await startWithClient()
    const [subscriber, waiter] = [await connectRaw(world.ipcPath), await connectRaw(world.ipcPath)]
    client.ask('status.get', { id: '1' })
    subscriber.ask('token.subscribe', { id: '1' })
    waiter.write(WAIT)
    await Promise.all([client.frame(0), subscriber.frame(0)])
    await isServed(world)
    await expectUntil('the three alone', () => world.ipc.counts().connections === 3)
    // What they asked counts from the next sweep on.
    world.pass(75_000)
    expect(world.ipc.counts().dropped.idle).toBe(0)
    world.pass(15_000)
    await client.closed()
    world.pass(75_000)
    await expectUntil('the end of one alone', () => world.ipc.counts().connections === 2)
    expect(world.ipc.counts()).toMatchObject({ subscribers: 1, dropped: { idle: 1 } })
  })

  it('a client that reads nothing is answered no more, and closed after 30 s; one that reads is kept', async () => {
    const world = await startDelivery({ tokenOf: () => LARGE })
    const slow = await connectRaw(world.ipcPath, { reads: false })
    const stuck = await connectRaw(world.ipcPath, { reads: false })
    for (const { socket } of [slow, stuck])
      expect((await overfill(world, socket)) * LARGE.length).toBeLessThan(128 * 1024)
    for (let passedMs = 0; passedMs <= 30_000; passedMs += 15_000) {
      // More than the kernel keeps for both, so that the daemon sends.
      for (let chunks = 0; chunks < 8; chunks += 1) await readOnce(slow.socket)
      await isServed(world)
      expect(world.ipc.counts().dropped.stalled).toBe(0)
      world.pass(15_000)
    }
    await expectUntil('the end of one', () => world.ipc.counts().dropped.stalled === 1)
    expect(slow.isClosed()).toBe(false)
  })

  it.each<[string, Transport, string]>([
    ['half a frame', 'ipc', '{"type":'],
    ['half a head', 'http', 'GET /v1/token HTTP/1.1\r\nHost:'],
    ['half a body', 'http', 'POST /v1/token/reject HTTP/1.1\r\nContent-Length: 25\r\n\r\n{'],
    ['nothing', 'http', ''],
  ])('%s, byte by byte, is no reason to stay for longer than 75 s', async (_what, transport, text) => {
    const world = await startDelivery()
    const client = await connectRaw(pathOf(world, transport))
    client.write(text)
    await expectUntil('the connection', () => world[transport].counts().connections === 1)
    for (let ticks = 0; ticks < 6; ticks += 1) {
      expect(client.isClosed()).toBe(false)
      if (text !== '') client.write('x')
      await isServed(world)
      world.pass(15_000)
    }
    await client.closed()
    expect(world[transport].counts().dropped.idle).toBe(1)
  })
})

describe('a client that asks and asks', () => {
  it('is not read from while 16 of its requests wait', async () => {
    const { first, grant } = lateAnswer()
    const { world, client } = await startWithClient({ first })
    client.write('{"type":"token.get","data":{"id":"1","waitSeconds":60}}\f'.repeat(15))
    client.ask('status.get', { id: 'alive' })
    expect(await client.frame(0)).toMatchObject({ type: 'status.result' })
    client.ask('token.get', { id: '16', waitSeconds: 60 })
    client.ask('status.get', { id: 'after' })
    for (let count = 0; count < 20; count += 1) await askOnce(world.ipcPath, 'status.get', {})
    expect(client.frames).toHaveLength(1)
    grant()
    expect(await client.frame(17)).toMatchObject({ type: 'status.result', data: { id: 'after' } })
  })

  it('may have 16 subscriptions', async () => {
    const { client } = await startWithClient()
    for (let id = 0; id <= 16; id += 1) client.ask('token.subscribe', { id: `${id}` })
    await client.closed()
    expect(client.frames).toHaveLength(17)
    expect(client.frames[16]).toMatchObject({ type: 'fault', data: { id: '16', code: 'busy' } })
  })

  it('gets `busy` above `maxRequestsPerSecond`, and its connection ends', async () => {
    const { world, client } = await startWithClient()
    world.reconfigure({ maxRequestsPerSecond: 2 })
    for (const id of ['1', '2', '3', '4']) client.ask('token.get', { id })
    await client.closed()
    expect(client.frames.map(({ data }) => data['code'])).toEqual([undefined, undefined, 'busy'])
    world.reconfigure({ maxRequestsPerSecond: 1 })
    const received = await exchange(world.httpPath, `${GET}\r\n`.repeat(2))
    expect(received).toMatch(/^HTTP\/1\.1 200 .*HTTP\/1\.1 429 .*Connection: close.*"code":"busy"/s)
    for (const { counts } of [world.ipc, world.http]) expect(counts().dropped['too-many-requests']).toBe(1)
  })
})

describe('connections', () => {
  it.each<Transport>(['ipc', 'http'])(
    'of one user too many on %s.sock are closed, and that is one record',
    async (transport) => {
      const world = await startDelivery({ libc: asStranger, socket: { maxConnectionsPerUser: 3 } })
      const path = pathOf(world, transport)
      const [first] = [await connectRaw(path), await connectRaw(path), await connectRaw(path)]
      for (let more = 0; more < 3; more += 1) expect(await exchange(path, '')).toBe('')
      const { connections, dropped } = world[transport].counts()
      expect([connections, dropped['too-many-connections']]).toEqual([3, 3])
      const setting = `${transport}.maxConnectionsPerUser`
      expect(world.of('clients-limited')).toMatchObject([{ level: 'warning', uid: 4_001, setting, count: 1 }])
      first.socket.destroy()
      await expectUntil('room', () => world[transport].counts().connections === 2)
      const status = await askOnce(world.ipcPath, 'status.get', {})
      expect(status?.data).not.toHaveProperty('readers')
    },
  )

  it('of operators, of the others and of those whom `allow` excludes leave each other their places', async () => {
    let uid = 0
    const libc = () => ({ ...loadLibc(), peerOf: () => ({ uid, gid: uid }) })
    const socket = {
      maxConnections: 3,
      maxConnectionsPerUser: 2,
      allow: { users: [4_001, 4_002], groups: [] },
    }
    const world = await startDelivery({ libc, socket })
    const taken = async (user: number, count: number): Promise<number> => {
      uid = user
      const seen = () => world.ipc.counts().connections + world.ipc.counts().dropped['too-many-connections']
      const { connections } = world.ipc.counts()
      const before = seen()
      await Promise.all(Array.from({ length: count }, async () => connectRaw(world.ipcPath)))
      await expectUntil('all of them', () => seen() - before === count)
      return world.ipc.counts().connections - connections
    }
    const places = [await taken(4_003, 70), await taken(4_001, 2), await taken(4_002, 2), await taken(0, 4)]
    expect(places).toEqual([64, 2, 1, 3])
  })
})

describe('the end of the daemon', () => {
  it.each<[Transport, number, number, string, string]>([
    ['ipc', 100, 1, ASK, '"token.result"'],
    ['ipc', 10, 100, ASK, '"token.result"'],
    ['http', 100, 2, `${GET}\r\n`, 'HTTP/1.1 200'],
  ])(
    'answers all that waits in the backlog of its own %s.sock, %i connections with %i requests each',
    async (transport, connections, times, request, answer) => {
      const world = await startDelivery()
      const received = Array.from({ length: connections }, async () => {
        const socket = connect(pathOf(world, transport))
        socket.write(request.repeat(times))
        return Buffer.concat(await socket.toArray()).toString()
      })
      await world.stop()
      for (const text of await Promise.all(received)) expect(text.split(answer)).toHaveLength(times + 1)
    },
  )

  it('is held up for 3.5 s at most by a client that reads nothing', async () => {
    const world = await startDelivery({ tokenOf: () => LARGE })
    const client = await connectRaw(world.ipcPath, { reads: false })
    await overfill(world, client.socket)
    const begunAt = performance.now()
    await world.stop()
    const tookMs = performance.now() - begunAt
    expect(tookMs).toBeGreaterThan(3_000)
    expect(tookMs).toBeLessThan(5_000)
    await expectUntil('its end', () => world.ipc.counts().connections === 0)
  })
})
