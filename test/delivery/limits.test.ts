// Every limit of the sockets, and that nothing is left behind by clients that go.
import { createHook } from 'node:async_hooks'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { TIMEOUTS } from '../../src/delivery/connections/server.ts'
import { METRICS_TIMEOUTS } from '../../src/delivery/http/server.ts'
import { createDescriptors, createQuota, createTurns } from '../../src/delivery/limits.ts'
import { loadLibc } from '../../src/lib/libc.ts'
import { asStranger, startDelivery, type DeliveryWorld } from '../support/delivery-world.ts'
import { failures } from '../support/failures.ts'
import { askOnce, connectRaw } from '../support/ipc-client.ts'
import { expectUntil } from '../support/until.ts'

const LARGE = 'x'.repeat(10_000)

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

/** Has the client ask more than it reads, until the daemon answers it no more. */
async function overfill(world: DeliveryWorld, socket: Socket): Promise<void> {
  const before = world.ipc.counts().reads
  socket.write('{"type":"token.get","data":{"id":"1"}}\f'.repeat(400))
  await expectUntil('some answers', () => world.ipc.counts().reads > before)
  for (let count = 0; count < 20; count += 1) await isServed(world)
}

describe('timeouts', () => {
  it('a connection that has asked nothing for 75 s is closed, and no sooner', async () => {
    const pass = playSweeps()
    const world = await ready()
    const client = await connectRaw(world.ipcPath)
    client.ask('status.get', { id: '1' })
    await client.frame(0)
    pass(75_000)
    expect(world.ipc.counts().dropped.idle).toBe(0)
    pass(TIMEOUTS.sweepMs)
    expect(world.ipc.counts().dropped.idle).toBe(1)
    await client.closed()
  })

  it('a client that reads nothing for 30 s is closed, and one that reads a little is kept', async () => {
    const pass = playSweeps()
    const world = await ready({ tokenOf: () => LARGE })
    const slow = await connectRaw(world.ipcPath, { reads: false })
    const stuck = await connectRaw(world.ipcPath, { reads: false })
    for (const { socket } of [slow, stuck]) await overfill(world, socket)
    for (let passedMs = 0; passedMs <= 30_000; passedMs += TIMEOUTS.sweepMs) {
      // More than the kernel keeps for both, so that the daemon sends.
      for (let chunks = 0; chunks < 5; chunks += 1) await readOnce(slow.socket)
      await isServed(world)
      pass(TIMEOUTS.sweepMs)
    }
    expect(world.ipc.counts().dropped.stalled).toBe(1)
    await expectUntil('one connection', () => world.ipc.counts().connections === 1)
    expect(slow.isClosed()).toBe(false)
  })

  it('a subscriber that was silent for long, and then begins a request without an end, is closed', async () => {
    const pass = playSweeps()
    const world = await ready()
    const client = await connectRaw(world.ipcPath)
    client.ask('token.subscribe', { id: '1' })
    await client.frame(0)
    pass(60_000)
    client.write('{"type":"status.get","data":{"id":"2"}}\fx')
    await client.frame(1)
    pass(30_000 + 2 * TIMEOUTS.sweepMs)
    expect(world.ipc.counts().dropped['incomplete-request']).toBe(1)
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
    const quota = createQuota(createDescriptors(10_000))
    const take = (peer: typeof user | null) => quota(peer, true, limits)
    for (let count = 0; count < 10; count += 1) expect(take(root)).not.toBeNull()
    const taken = [user, user, user, { ...user, uid: 4_002 }, null].map(take)
    expect(taken.map((release) => release !== null)).toEqual([true, true, false, true, false])
    taken[0]?.()
    expect([take(null), take(null), take(root)].map((release) => release !== null)).toEqual([
      true,
      false,
      true,
    ])
  })

  it('of peers that `allow` denies are none of the others', () => {
    const quota = createQuota(createDescriptors(10_000))
    const denied = Array.from({ length: 65 }, () => quota({ ...user, uid: 4_003 }, false, limits))
    expect(denied.findIndex((release) => release === null)).toBe(64)
    expect(quota(user, true, limits)).not.toBeNull()
  })

  it('end before the descriptors do, for root last', () => {
    const quota = createQuota(createDescriptors(1_024))
    const most = { maxConnections: 10_000, maxConnectionsPerUser: 10_000 }
    const takeAll = (peer: typeof user): number => {
      let count = 0
      while (quota(peer, true, most) !== null) count += 1
      return count
    }
    expect(takeAll(user)).toBe(1_024 - 320 - 32)
    expect(takeAll(root)).toBe(32)
  })

  it('to http.sock that send nothing, or are refused, cost no parser', async () => {
    const parsers: string[] = []
    const hook = createHook({
      init: (_id, type) => void (type === 'HTTPINCOMINGMESSAGE' && parsers.push(type)),
    })
    hook.enable()
    onTestFinished(() => void hook.disable())
    const world = await ready({ loadLibc: asStranger, socket: { maxConnections: 3 } })
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
})

describe('a client that goes', () => {
  it('is no longer counted: 2,000 connections of one user, one after another, are all answered', async () => {
    const world = await ready({ loadLibc: asStranger, socket: { maxConnectionsPerUser: 50 } })
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
    const world = await ready({ loadLibc: asStranger, socket: { maxConnectionsPerUser: 1 } })
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

it('metrics over TCP that are not read end within 10 s, as do idle connections', async () => {
  const { sweepMs, idle, stalled } = METRICS_TIMEOUTS
  expect(Math.max(idle, stalled) + sweepMs).toBeLessThanOrEqual(10_000)
  const url = (path: string): string => new URL(`../../src/delivery/${path}`, import.meta.url).href
  const program = `
    import { createMetricsServer } from '${url('http/server.ts')}'
    import { createDeliveryContext } from '${url('servers.ts')}'
    const log = () => undefined
    const context = createDeliveryContext({ replies: { onChange: () => log }, log })
    const metrics = () => ({ contentType: 'text/plain', body: 'x'.repeat(64 * 1024 * 1024) })
    const timeouts = { sweepMs: 20, idle: 100, stalled: 100, 'incomplete-request': 100 }
    const server = createMetricsServer({ ...context, inherited: [3], metrics, timeouts })
    await server.open()
    setInterval(() => console.log(JSON.stringify(server.counts().dropped)), 50)`
  const listener = createServer().listen(0, '127.0.0.1')
  await once(listener, 'listening')
  const { port } = listener.address() as AddressInfo
  const { fd } = Reflect.get(listener, '_handle') as { fd: number }
  const command = ['--input-type=module', '-e', program]
  const child = spawn(process.execPath, command, { stdio: ['ignore', 'pipe', 'inherit', fd] })
  listener.close()
  onTestFinished(() => void child.kill('SIGKILL'))
  let said = ''
  child.stdout!.setEncoding('utf8').on('data', (text: string) => (said += text))
  await expectUntil('the server', () => said !== '')
  for (const request of ['', 'GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n']) {
    const socket = connect(port, '127.0.0.1', () => void socket.write(request))
    onTestFinished(() => void socket.destroy())
    socket.on('error', () => undefined)
  }
  await expectUntil('the end of both', () => /"stalled":1,"idle":1,/.test(said))
})

it('a client that reads nothing holds up the end of the daemon for 2.5 s at most', async () => {
  const world = await ready({ tokenOf: () => LARGE })
  const client = await connectRaw(world.ipcPath, { reads: false })
  await overfill(world, client.socket)
  expect(TIMEOUTS.drainMs).toBe(2_500)
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
    const world = await ready({ metrics: failNow })
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

it('turns go round: nothing is served twice before all others, and the event loop runs in between', async () => {
  const turns = createTurns()
  const served: string[] = []
  const rounds = Promise.withResolvers<void>()
  const serve = (name: string, left: number): void =>
    turns(() => {
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
