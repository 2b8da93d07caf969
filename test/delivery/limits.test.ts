// Every limit of the sockets, and that nothing is left behind by clients that go.
import { createHook } from 'node:async_hooks'
import { once } from 'node:events'
import { connect, Socket } from 'node:net'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { TIMEOUTS } from '../../src/delivery/connections/connection.ts'
import {
  createConnectionCounts,
  createMemoryBudget,
  createTurns,
  type Holder,
} from '../../src/delivery/connections/limits.ts'
import { loadLibc } from '../../src/lib/libc.ts'
import { startDelivery, type DeliveryWorld } from '../support/delivery-world.ts'
import { askOnce, connectRaw } from '../support/ipc-client.ts'
import { failures } from '../support/failures.ts'
import { expectUntil } from '../support/until.ts'

const LARGE = 'x'.repeat(10_000)
const noLibc = () => ({ error: 'There is no koffi here' })

async function ready(options: Parameters<typeof startDelivery>[0] = {}): Promise<DeliveryWorld> {
  const world = await startDelivery(options)
  await world.rotate()
  return world
}

/** Timers of the sweeps are played; everything else is real. */
function playSweeps(): (ms: number) => void {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
  onTestFinished(() => void vi.useRealTimers())
  return (ms) => void vi.advanceTimersByTime(ms)
}

describe('timeouts', () => {
  it('a connection that has asked nothing for 60 s is closed, and no sooner', async () => {
    const pass = playSweeps()
    const world = await ready()
    const client = await connectRaw(world.ipcPath)
    client.ask('status.get', { id: '1' })
    await client.frame(0)
    pass(60_000)
    expect(world.ipc.counts().dropped.idle).toBe(0)
    pass(TIMEOUTS.sweepMs)
    expect(world.ipc.counts().dropped.idle).toBe(1)
    await client.closed()
  })

  it('a client that reads nothing for 30 s is closed, and one that reads a little is kept', async () => {
    const pass = playSweeps()
    const world = await ready({ tokenOf: () => LARGE })
    const request = '{"type":"token.get","data":{"id":"1"}}\f'.repeat(400)
    const slow = await connectRaw(world.ipcPath, { reads: false })
    const stuck = await connectRaw(world.ipcPath, { reads: false })
    for (const client of [slow, stuck]) client.write(request)
    await expectUntil('answers that wait', () => world.heldBytes() >= 2 * 256 * 1024)
    for (let sweeps = 0; sweeps < 7; sweeps += 1) {
      await readOnce(slow.socket)
      await isServed(world)
      pass(TIMEOUTS.sweepMs)
    }
    expect(world.ipc.counts().dropped.stalled).toBe(1)
    await expectUntil('one connection', () => world.ipc.counts().connections === 1)
    expect(slow.isClosed()).toBe(false)
  })

  it('a request that has not ended after 30 s is answered 408 on http.sock', async () => {
    const pass = playSweeps()
    const world = await ready()
    const client = await connectRaw(world.httpPath, { reads: false })
    client.write('GET /v1/token HTTP/1.1\r\nHost:')
    await expectUntil('the connection', () => world.http.counts().connections === 1)
    await isServed(world)
    pass(30_000)
    expect(world.http.counts().dropped['incomplete-request']).toBe(0)
    pass(2 * TIMEOUTS.sweepMs)
    const [text] = await new Promise<[Buffer]>((resolve) => {
      client.socket.on('data', (chunk: Buffer) => resolve([chunk]))
    })
    expect(text.toString()).toMatch(/^HTTP\/1\.1 408 /)
  })

  it('a client that was sent a closing message has a whole sweep to hang up', async () => {
    const pass = playSweeps()
    const world = await ready()
    const client = await connectRaw(world.ipcPath, { allowHalfOpen: true })
    client.write('no JSON\f')
    await once(client.socket, 'end')
    pass(TIMEOUTS.sweepMs)
    await isServed(world)
    const failed = await new Promise((resolve) => client.socket.write('x', resolve))
    expect(failed ?? null).toBeNull()
    pass(TIMEOUTS.sweepMs)
    await isServed(world)
    client.write('x')
    await client.closed()
  })
})

/** Reads no more than one chunk. */
function readOnce(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    socket.once('data', () => {
      socket.pause()
      resolve()
    })
    socket.resume()
  })
}

async function isServed(world: DeliveryWorld): Promise<void> {
  expect(await askOnce(world.ipcPath, 'token.get', {})).toMatchObject({ type: 'token.result' })
}

describe('connections', () => {
  const user = { pid: 1, uid: 4_001, gid: 4_001, isPrivileged: false }
  const root = { pid: 1, uid: 0, gid: 0, isPrivileged: true }
  const limits = { maxConnections: 3, maxConnectionsPerUser: 2 }

  it('of root and of the own user are counted apart: they leave all of the others their own', () => {
    const counts = createConnectionCounts()
    for (let count = 0; count < 10; count += 1) counts.add(root)
    for (const peer of [user, user, { ...user, uid: 4_002 }]) {
      counts.add(peer)
      expect(counts.isOver(peer, limits)).toBe(false)
    }
    counts.add(null)
    expect([user, null, root].map((peer) => counts.isOver(peer, limits))).toEqual([true, true, false])
    for (let count = 0; count < 10; count += 1) counts.remove(root)
    counts.remove(null)
    expect(counts.isOver(user, limits)).toBe(false)
  })

  it('to http.sock that send nothing, or are refused, cost no parser', async () => {
    const parsers: string[] = []
    const hook = createHook({
      init: (_id, type) => void (type === 'HTTPINCOMINGMESSAGE' && parsers.push(type)),
    })
    hook.enable()
    onTestFinished(() => void hook.disable())
    const world = await ready({ loadLibc: noLibc, socket: { maxConnections: 3 } })
    const clients = await Promise.all([1, 2, 3].map(async () => connectRaw(world.httpPath, { reads: false })))
    const refused = await connectRaw(world.httpPath, { reads: false })
    refused.socket.resume()
    await refused.closed()
    expect(world.http.counts().dropped['too-many-connections']).toBe(1)
    expect(parsers).toHaveLength(0)
    for (const { socket } of clients.slice(1)) socket.end()
    await expectUntil('the end of the silent', () => world.http.counts().connections === 1)
    clients[0]?.write('GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n')
    await expectUntil('a parser', () => parsers.length === 1)
  })

  it('of peers that cannot be known are those of one user', () => {
    const counts = createConnectionCounts()
    for (let count = 0; count < 3; count += 1) counts.add(null)
    expect([null, user].map((peer) => counts.isOver(peer, limits))).toEqual([true, false])
  })
})

describe('memory', () => {
  it('beyond 32 MiB in all the largest holder goes, and no other', () => {
    const budget = createMemoryBudget()
    const evicted: number[] = []
    const holders = [1, 20, 11].map((mebibytes, index): Holder => {
      const holder = { held: 0, onEvicted: () => evicted.push(index) }
      budget.set(holder, mebibytes * 1024 * 1024)
      return holder
    })
    expect(evicted).toEqual([])
    budget.set(holders[0]!, 1024 * 1024 + 1)
    expect(evicted).toEqual([1])
    expect(budget.totalBytes()).toBe(12 * 1024 * 1024 + 1)
  })

  it('of clients that go in the midst of everything is given back', async () => {
    const world = await ready({ tokenOf: () => LARGE })
    for (let count = 0; count < 10; count += 1) {
      const client = await connectRaw(world.ipcPath, { reads: false })
      client.write('{"type":"token.get","data":{"id":"1"}}\f'.repeat(1_000))
      const http = await connectRaw(world.httpPath, { reads: false })
      http.write('GET /v1/token HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(1_000))
      await isServed(world)
      client.socket.destroy()
      http.socket.destroy()
    }
    await expectUntil(
      'no connection',
      () => world.ipc.counts().connections + world.http.counts().connections === 0,
    )
    expect(world.heldBytes()).toBe(0)
  })

  it.each([
    ['ipc', '{"type":"token.get","data":{"id":"1"}}\f'],
    ['http', 'GET /v1/token HTTP/1.1\r\nHost: x\r\n\r\n'],
  ] as const)(
    'of the answers of one client stays below 256 KiB and one answer on %s.sock',
    async (transport, request) => {
      const world = await ready({ tokenOf: () => LARGE })
      const client = await connectRaw(transport === 'ipc' ? world.ipcPath : world.httpPath, { reads: false })
      client.write(request.repeat(10_000))
      await expectUntil('answers that wait', () => world.heldBytes() > 10_000)
      for (let count = 0; count < 20; count += 1) await isServed(world)
      // Beside it is the rest of what was read with the last request.
      expect(world.heldBytes()).toBeLessThan(256 * 1024 + LARGE.length + 20_000)
    },
  )
})

describe('a client that goes', () => {
  it('is no longer counted: 2,000 connections of one user, one after another, are all answered', async () => {
    const world = await ready({ loadLibc: noLibc, socket: { maxConnectionsPerUser: 50 } })
    for (let count = 0; count < 2_000; count += 1) {
      const client = await connectRaw(world.ipcPath)
      client.ask('token.get', { id: '1' })
      expect(await client.frame(0)).toMatchObject({ type: 'token.result' })
      client.socket.destroy()
      if (count % 40 === 0) await expectUntil('no connection', () => world.ipc.counts().connections === 0)
    }
  })

  it.each(['ipc', 'http'] as const)('ends its wait on %s.sock', async (transport) => {
    const world = await startDelivery({ answer: () => failures.network })
    const waitUntil = vi.spyOn(world.keeper, 'waitUntil')
    const client = await connectRaw(transport === 'ipc' ? world.ipcPath : world.httpPath, { reads: false })
    if (transport === 'ipc') client.ask('token.get', { id: '1', waitSeconds: 60 })
    else client.write('GET /v1/token?waitSeconds=60 HTTP/1.1\r\nHost: x\r\n\r\n')
    const [, { signal }] = await expectUntil('the wait', () => waitUntil.mock.calls[0])
    expect(signal.aborted).toBe(false)
    client.socket.destroy()
    await expectUntil('its end', () => signal.aborted)
  })

  it('after it lost its connection is read from for 256 KiB at most', async () => {
    const world = await ready({ loadLibc: noLibc, socket: { maxConnectionsPerUser: 1 } })
    await connectRaw(world.ipcPath)
    const socket = connect({ path: world.ipcPath, allowHalfOpen: true })
    onTestFinished(() => void socket.destroy())
    let accepted = 0
    const chunk = Buffer.alloc(16 * 1024, 'x')
    const send = (): void =>
      void socket.write(chunk, (error) => {
        if (error) return
        accepted += chunk.length
        send()
      })
    socket.on('error', () => undefined)
    socket.resume()
    const closed = new Promise((resolve) => socket.on('close', resolve))
    send()
    await closed
    // Beside it is what the kernel keeps for both.
    expect(accepted).toBeLessThan(1024 * 1024)
    await expectUntil('its end', () => world.ipc.counts().dropped['too-many-connections'] === 1)
  })
})

it('a client that reads nothing holds up the end of the daemon for 2.5 s at most', async () => {
  const world = await ready({ tokenOf: () => LARGE })
  const client = await connectRaw(world.ipcPath, { reads: false })
  client.write('{"type":"token.get","data":{"id":"1"}}\f'.repeat(400))
  await expectUntil('answers that wait', () => world.heldBytes() > 10_000)
  expect(TIMEOUTS.drainTimeoutMs).toBe(2_500)
  await world.stop()
  expect(world.ipc.counts().connections).toBe(0)
})

describe('an internal error', () => {
  it.each([
    ['at once', () => failNow()],
    ['later', () => Promise.reject(new Error('broken'))],
  ])('that comes %s costs one connection of ipc.sock and one record', async (_when, testAlert) => {
    const world = await ready({ testAlert })
    const other = await connectRaw(world.ipcPath)
    for (let count = 0; count < 3; count += 1) {
      const client = await connectRaw(world.ipcPath)
      client.ask('alert.test', { id: '1' })
      await client.closed()
    }
    expect(world.ipc.counts().dropped['fault-of-ours']).toBe(3)
    expect(world.records.filter(({ fields }) => fields.event === 'connection-fault')).toMatchObject([
      { level: 'error', fields: { detail: 'broken', transport: 'ipc' } },
    ])
    other.ask('token.get', { id: '1' })
    expect(await other.frame(0)).toMatchObject({ type: 'token.result' })
  })

  it('before a peer is known costs its connection', async () => {
    const libc = loadLibc()
    const world = await startDelivery({ loadLibc: () => ({ ...libc, peerOf: failNow }) })
    for (let count = 0; count < 2; count += 1) await (await connectRaw(world.ipcPath)).closed()
    expect(world.records.filter(({ fields }) => fields.event === 'connection-fault')).toMatchObject([
      { level: 'error', fields: { detail: 'broken', transport: 'ipc' } },
    ])
  })

  it('costs one connection of http.sock', async () => {
    const metrics = () => {
      throw new Error('broken')
    }
    const world = await ready({ metrics })
    const client = await connectRaw(world.httpPath, { reads: false })
    client.socket.resume()
    client.write('GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n')
    await client.closed()
    expect(world.http.counts().dropped['fault-of-ours']).toBe(1)
    await isServed(world)
  })
})

it('an internal error that comes later costs one connection of http.sock, too', async () => {
  const world = await startDelivery({ answer: () => failures.network })
  vi.spyOn(world.keeper, 'waitUntil').mockRejectedValue(new Error('broken'))
  const client = await connectRaw(world.httpPath, { reads: false })
  client.socket.resume()
  client.write('GET /v1/token?waitSeconds=60 HTTP/1.1\r\nHost: x\r\n\r\n')
  await client.closed()
  expect(world.http.counts().dropped['fault-of-ours']).toBe(1)
  expect(world.records.filter(({ fields }) => fields.event === 'connection-fault')).toMatchObject([
    { level: 'error', fields: { detail: 'broken', transport: 'http' } },
  ])
})

function failNow(): never {
  throw new Error('broken')
}

describe('turns', () => {
  it('go round: nothing is served twice before all others, and the event loop runs in between', async () => {
    const turns = createTurns()
    const served: string[] = []
    const rounds = Promise.withResolvers<void>()
    const serve = (name: string, left: number): void =>
      turns.add(() => {
        served.push(name)
        if (left > 1) serve(name, left - 1)
        else if (name === 'c') rounds.resolve()
      })
    for (const name of ['a', 'b', 'c']) serve(name, 3)
    let loops = 0
    const count = (): void => {
      loops += 1
      if (served.length < 9) setImmediate(count)
    }
    setImmediate(count)
    await rounds.promise
    expect(served.join('')).toBe('abcabcabc')
    expect(loops).toBeGreaterThan(1)
  })
})

describe('the lean path', () => {
  it('accepts several connections per round of the event loop', async () => {
    const world = await ready()
    const sockets = Array.from({ length: 500 }, () => connect(world.ipcPath))
    onTestFinished(() => sockets.forEach((socket) => socket.destroy()))
    let rounds = 0
    while (world.ipc.counts().connections < 500) {
      rounds += 1
      await new Promise((resolve) => void setImmediate(resolve))
    }
    expect(rounds).toBeLessThan(50)
  })

  it('brings no request through a stream, and is the one in use', async () => {
    const push = vi.spyOn(Socket.prototype, 'push')
    onTestFinished(() => push.mockRestore())
    const world = await ready()
    await isServed(world)
    const pushed = push.mock.calls.map(([chunk]) => String(chunk))
    expect(pushed.some((text) => text.includes('token.result'))).toBe(true)
    expect(pushed.some((text) => text.includes('token.get'))).toBe(false)
  })
})
