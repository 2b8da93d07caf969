// Every limit of the sockets, and that nothing is left behind by clients that go.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { createQuota, fitConnections } from '../../src/delivery/limits.ts'
import { loadLibc } from '../../src/lib/libc.ts'
import { fingerprintOf } from '../../src/token/token.ts'
import {
  asStranger,
  lateAnswer,
  playSweeps,
  startDelivery,
  startWithClient,
  startWithToken,
  type DeliveryWorld,
} from '../support/delivery-world.ts'
import { askOnce, connectRaw } from '../support/ipc-client.ts'
import { exchange } from '../support/raw-http.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'

const LARGE = 'x'.repeat(10_000)
const ASK = '{"type":"token.get","data":{"id":"1"}}\f'
const SWEEP_MS = 15_000

function pathOf(world: DeliveryWorld, transport: 'ipc' | 'http'): string {
  return transport === 'ipc' ? world.ipcPath : world.httpPath
}

async function isServed(world: DeliveryWorld): Promise<void> {
  expect(await askOnce(world.ipcPath, 'token.get', {})).toMatchObject({ type: 'token.result' })
}

/**
 * Has the client ask more than it reads, until the daemon answers it no more. Returns the number of answers.
 */
async function overfill(world: DeliveryWorld, socket: Socket): Promise<number> {
  const before = world.ipc.counts().reads
  socket.write(ASK.repeat(400))
  await expectUntil('some answers', () => world.ipc.counts().reads > before)
  for (let count = 0; count < 20; count += 1) await isServed(world)
  return world.ipc.counts().reads - before - 20
}

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

describe('timeouts', () => {
  it('a connection that asks nothing for 75 s is closed, unless it waits or subscribes', async () => {
    const pass = playSweeps()
    const world = await startWithToken()
    const [client, subscriber, waiter] = await Promise.all(
      [1, 2, 3].map(async () => connectRaw(world.ipcPath)),
    )
    client?.ask('status.get', { id: '1' })
    subscriber?.ask('token.subscribe', { id: '1' })
    const notFingerprint = world.keeper.state().token?.fingerprint
    waiter?.ask('token.get', { id: '1', notFingerprint, waitSeconds: 60 })
    await Promise.all([client?.frame(0), subscriber?.frame(0)])
    await isServed(world)
    await expectUntil('the three alone', () => world.ipc.counts().connections === 3)
    pass(75_000)
    expect(world.ipc.counts().dropped.idle).toBe(0)
    pass(SWEEP_MS)
    await client?.closed()
    pass(75_000)
    await expectUntil('the end of one alone', () => world.ipc.counts().connections === 2)
    expect(world.ipc.counts()).toMatchObject({ subscribers: 1, dropped: { idle: 1 } })
    for (const each of [subscriber, waiter]) each?.socket.destroy()
    await expectUntil('no connection', () => world.ipc.counts().connections === 0)
    pass(SWEEP_MS)
    // Nothing wakes a daemon that has no clients.
    expect(vi.getTimerCount()).toBe(0)
  })

  it('a client that reads nothing is answered no more, and closed after 30 s; one that reads is kept', async () => {
    const pass = playSweeps()
    const world = await startWithToken({ tokenOf: () => LARGE })
    const slow = await connectRaw(world.ipcPath, { reads: false })
    const stuck = await connectRaw(world.ipcPath, { reads: false })
    for (const { socket } of [slow, stuck])
      expect((await overfill(world, socket)) * LARGE.length).toBeLessThan(512 * 1024)
    for (let passedMs = 0; passedMs <= 30_000; passedMs += SWEEP_MS) {
      expect(world.ipc.counts().dropped.stalled).toBe(0)
      // More than the kernel keeps for both, so that the daemon sends.
      for (let chunks = 0; chunks < 8; chunks += 1) await readOnce(slow.socket)
      await isServed(world)
      pass(SWEEP_MS)
    }
    expect(world.ipc.counts().dropped.stalled).toBe(1)
    await expectUntil('one connection', () => world.ipc.counts().connections === 1)
    expect(slow.isClosed()).toBe(false)
  })

  it('a subscriber that was silent for long, and then sends a request byte by byte, is closed', async () => {
    const pass = playSweeps()
    const { world, client } = await startWithClient()
    client.ask('token.subscribe', { id: '1' })
    await client.frame(0)
    pass(60_000)
    client.write('{"type":"status.get","data":{"id":"2"}}\fx')
    await client.frame(1)
    for (let sweeps = 0; sweeps < 4; sweeps += 1) {
      // From the first sweep that finds it so, and not from its last request on.
      expect(world.ipc.counts().dropped['incomplete-request']).toBe(sweeps < 3 ? 0 : 1)
      client.write('x')
      await isServed(world)
      pass(SWEEP_MS)
    }
  })

  it('on http.sock 30 s for one that reads nothing, and 75 s for one that asks nothing or half of it', async () => {
    const pass = playSweeps()
    const world = await startWithToken({ tokenOf: () => LARGE })
    const dropped = () => {
      const { stalled, idle, 'incomplete-request': incomplete } = world.http.counts().dropped
      return [stalled, idle, incomplete]
    }
    const [stuck, , half] = await Promise.all(
      [false, true, true].map((reads) => connectRaw(world.httpPath, { reads })),
    )
    stuck?.write('GET /v1/token HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(400))
    half?.write('GET /v1/token HTTP/1.1\r\n')
    let reads = 0
    await expectUntil('no more answers', async () => {
      await isServed(world)
      const before = reads
      reads = world.http.counts().reads
      return reads > 0 && reads === before && world.http.counts().connections === 3
    })
    // A connection ends at the first sweep at which the one that found it so is long enough ago.
    const after = [30_000, SWEEP_MS, 30_000, SWEEP_MS].map((ms) => (pass(ms), dropped()))
    expect(after).toEqual([
      [0, 0, 0],
      [1, 0, 0],
      [1, 0, 0],
      [1, 1, 1],
    ])
  })
})

describe('a client that asks and asks', () => {
  it('gets 10,000 answers to 10,000 pipelined requests, in order, if it reads', async () => {
    const { world, client } = await startWithClient()
    const requests = Array.from({ length: 10_000 }, (_, id) => `{"type":"token.get","data":{"id":"${id}"}}\f`)
    client.write(requests.join(''))
    await client.frame(9_999)
    expect(client.frames.map(({ data }) => data['id'])).toEqual(requests.map((_, id) => String(id)))
    expect(world.ipc.counts().reads).toBe(10_000)
  })

  it('may have 16 requests waiting on ipc.sock; one more is `busy`, and the last', async () => {
    const { answer } = lateAnswer()
    const world = await startDelivery({ answer })
    const client = await connectRaw(world.ipcPath)
    client.write('{"type":"token.get","data":{"id":"1","waitSeconds":60}}\f'.repeat(16))
    client.ask('status.get', { id: 'alive' })
    expect(await client.frame(0)).toMatchObject({ type: 'status.result' })
    client.write('{"type":"token.get","data":{"id":"17","waitSeconds":60}}\f')
    await client.closed()
    const answers = client.frames.slice(1).map(({ data }) => [data['id'], data['code']])
    const waited = Array.from({ length: 16 }, () => ['1', 'no-token-yet'])
    expect(answers).toEqual([...waited, ['17', 'busy']])
    expect(world.ipc.counts().dropped['too-many-requests']).toBe(1)
  })

  it('may have 16 requests waiting on http.sock; with one more the last is 429', async () => {
    const { answer } = lateAnswer()
    const world = await startDelivery({ answer })
    const wait = 'GET /v1/token?waitSeconds=60 HTTP/1.1\r\nHost: x\r\n\r\n'
    const received = await exchange(world.httpPath, wait.repeat(17))
    expect(received.match(/HTTP\/1\.1 503/g)).toHaveLength(16)
    expect(received).toMatch(/HTTP\/1\.1 429 .*Connection: close.*"code":"busy"/s)
    expect(world.http.counts().dropped['too-many-requests']).toBe(1)
  })

  it('gets an answer to each of 1,000 pipelined requests for the status', async () => {
    const { client } = await startWithClient()
    client.write('{"type":"status.get","data":{"id":"1"}}\f'.repeat(1_000))
    expect(await client.frame(999)).toMatchObject({ type: 'status.result' })
  })

  it('may have 16 subscriptions', async () => {
    const { client } = await startWithClient()
    for (let id = 0; id <= 16; id += 1) client.ask('token.subscribe', { id: `${id}` })
    await client.closed()
    expect(client.frames.at(-1)).toMatchObject({ type: 'fault', data: { id: '16', code: 'busy' } })
  })
})

describe('connections', () => {
  const user = { pid: 1, uid: 4_001, gid: 4_001, isPrivileged: false }
  const root = { pid: 1, uid: 0, gid: 0, isPrivileged: true }
  const limits = { maxConnections: 3, maxConnectionsPerUser: 2, room: 1_000 }
  const isTaken = (taken: unknown): boolean => typeof taken === 'function'

  it('of root and of the own user are counted apart: they leave all of the others their own', () => {
    const quota = createQuota()
    const take = (peer: typeof user | null) => quota(peer, true, limits)
    for (let count = 0; count < 10; count += 1) expect(isTaken(take(root))).toBe(true)
    const taken = [user, user, user, { ...user, uid: 4_002 }, null].map(take)
    expect(taken.map(isTaken)).toEqual([true, true, false, true, false])
    expect(taken[2]).toEqual({ setting: 'maxConnectionsPerUser', limit: 2 })
    expect(taken[4]).toEqual({ setting: 'maxConnections', limit: 3 })
    if (typeof taken[0] === 'function') taken[0]()
    expect([take(null), take(null), take(root)].map(isTaken)).toEqual([true, false, true])
    const full = quota(root, true, { ...limits, room: 14 })
    expect(full).toEqual({ setting: 'LimitNOFILE', limit: 14 })
  })

  it('of peers that `allow` denies are none of the others', () => {
    const quota = createQuota()
    const denied = Array.from({ length: 65 }, () => quota({ ...user, uid: 4_003 }, false, limits))
    expect(denied.findIndex((release) => release === null)).toBe(64)
    expect(isTaken(quota(user, true, limits))).toBe(true)
    if (typeof denied[0] === 'function') denied[0]()
    expect(isTaken(quota({ ...user, uid: 4_003 }, false, limits))).toBe(true)
  })

  it.each([
    [16_384, 1_024, 1_024],
    [1_024, 1_024, 449],
    [8_192, 4_096, 3_968],
    [512, 1_024, 209],
    [128, 1_024, 29],
    [64, 128, 10],
  ])('beside all else that needs one of %i descriptors: of %i there fit %i', (openFiles, most, fits) => {
    const { share } = fitConnections({ ipc: most, http: most }, openFiles)
    expect(Math.floor(most * Math.min(1, share))).toBe(fits)
  })

  it.each(['ipc', 'http'] as const)(
    'one too many on %s.sock is closed without an answer, and no other; users do not see whose it was',
    async (transport) => {
      const world = await startWithToken({ loadLibc: asStranger, socket: { maxConnectionsPerUser: 3 } })
      const path = pathOf(world, transport)
      const [first] = [await connectRaw(path), await connectRaw(path), await connectRaw(path)]
      expect(await exchange(path, '')).toBe('')
      expect(world[transport].counts()).toMatchObject({
        connections: 3,
        dropped: { 'too-many-connections': 1 },
      })
      const lost = { transport, reason: 'too-many-connections', uid: 4_001, pid: 7 }
      expect(world.records.filter(({ fields }) => fields.event === 'client-dropped')).toMatchObject([
        { level: 'debug', fields: lost },
      ])
      const logged = world.records.filter(({ fields }) => fields.event === 'clients-limited')
      expect(logged).toHaveLength(1)
      expect(world.limited.list()).toMatchObject([{ socket: transport, uid: 4_001, limit: 3, count: 1 }])
      first.socket.destroy()
      await expectUntil('room', () => world[transport].counts().connections === 2)
      const status = await askOnce(world.ipcPath, 'status.get', {})
      expect(status?.data['clients']).not.toHaveProperty('limited')
      for (const name of ['readers', 'sockets']) expect(status?.data).not.toHaveProperty(name)
    },
  )

  it('that come during a pause of the daemon are not refused: there is room for 4,096', async () => {
    const path = join(await tempDirectory(), 'ipc.sock')
    const listener = new URL('../../src/delivery/listener/listener.ts', import.meta.url).href
    const program = `
      import { openListener } from '${listener}'
      const { createServer } = await import('node:net')
      const server = () => createServer((socket) => socket.end('hello'))
      const options = { createServer: server, transport: 'ipc', log() {} }
      await openListener({ path: '${path}', mode: 0o600, gid: null }, options)
      console.log('listening')`
    const daemon = spawn(process.execPath, ['--input-type=module', '-e', program], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    onTestFinished(() => void daemon.kill('SIGKILL'))
    await once(daemon.stdout, 'data')
    daemon.kill('SIGSTOP')
    const greeted = Array.from({ length: 4_096 }, async () => {
      const socket = connect(path)
      onTestFinished(() => void socket.destroy())
      const [chunk] = (await once(socket, 'data')) as [Buffer]
      return chunk.toString()
    })
    daemon.kill('SIGCONT')
    expect(new Set(await Promise.all(greeted))).toEqual(new Set(['hello']))
  })
})

describe('a client that goes', () => {
  it.each(['ipc', 'http'] as const)('ends its wait on %s.sock', async (transport) => {
    const world = await startWithToken()
    const waitUntil = vi.spyOn(world.keeper, 'waitUntil')
    const client = await connectRaw(pathOf(world, transport), { reads: false })
    const notFingerprint = fingerprintOf('token-1')
    if (transport === 'ipc') client.ask('token.get', { id: '1', waitSeconds: 60, notFingerprint })
    else client.write(`GET /v1/token?waitSeconds=60&notFingerprint=${notFingerprint} HTTP/1.1\r\n\r\n`)
    const [, { signal }] = await expectUntil('the wait', () => waitUntil.mock.calls[0])
    expect(signal.aborted).toBe(false)
    client.socket.destroy()
    await expectUntil('its end', () => signal.aborted)
    await isServed(world)
    expect(world[transport].counts().reads).toBe(transport === 'ipc' ? 1 : 0)
  })
})

describe('the end of the daemon', () => {
  const GET = 'GET /v1/token HTTP/1.1\r\nHost: x\r\n'
  const FIRST = fingerprintOf('token-1')
  const CHUNKED =
    'POST /v1/token/reject HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n' +
    '15\r\n{"accessToken":"old"}\r\n0\r\n\r\n'
  it.each([
    ['ipc', 100, 1, ASK, '"token.result"'],
    ['ipc', 10, 10, ASK, '"token.result"'],
    ['http', 100, 1, `${GET}Connection: close\r\n\r\n`, 'HTTP/1.1 200'],
    ['http', 10, 10, `${GET}\r\n`, 'HTTP/1.1 200'],
    ['http', 10, 20, CHUNKED, 'HTTP/1.1 200'],
  ] as const)(
    'answers all that waits in the backlog of its own %s.sock, %i connections with %i requests each',
    async (transport, connections, times, request, answer) => {
      const world = await startWithToken()
      const received = Array.from({ length: connections }, async () => {
        const socket = connect(pathOf(world, transport))
        socket.write(request.repeat(times))
        return Buffer.concat(await socket.toArray()).toString()
      })
      await world.stop()
      for (const text of await Promise.all(received)) expect(text.split(answer)).toHaveLength(times + 1)
    },
  )

  it('answers all that waits in the backlog, also if that takes longer than a second', async () => {
    const libc = loadLibc()
    const slow = () => ({
      ...libc,
      peerOf(fd: number) {
        for (const until = performance.now() + 90; performance.now() < until;);
        return libc.peerOf(fd)
      },
    })
    const world = await startDelivery({ loadLibc: slow })
    await world.rotate()
    const received = Array.from({ length: 25 }, async () => exchange(world.ipcPath, ASK))
    await world.stop()
    for (const text of await Promise.all(received)) expect(text).toContain('"token.result"')
  })

  it('leaves no request that has arrived unread, though its clients never pause', async () => {
    const world = await startWithToken()
    const errors: unknown[] = []
    const closed = Array.from({ length: 20 }, async () => {
      const socket = connect(world.ipcPath)
      socket.on('error', ({ code }: NodeJS.ErrnoException) => errors.push(code))
      socket.on('data', () => socket.write(ASK)).write(ASK)
      await new Promise((resolve) => socket.on('close', resolve))
    })
    await world.stop()
    await Promise.all(closed)
    expect(errors).not.toContain('ECONNRESET')
  })

  it.each([
    ['ipc', ASK.replace('"id"', `"waitSeconds":60,"notFingerprint":"${FIRST}","id"`), ASK],
    ['http', `${GET.replace('token', `token?waitSeconds=60&notFingerprint=${FIRST}`)}\r\n`, `${GET}\r\n`],
  ] as const)(
    'answers a client that has connected to %s.sock and sends its first request now',
    async (transport, wait, request) => {
      const world = await startWithToken()
      const path = pathOf(world, transport)
      const waiting = exchange(path, wait, { until: /token-1/ })
      const client = connect(path)
      const received = client.toArray()
      await expectUntil('both', () => world[transport].counts().connections === 2)
      const stopped = world.stop()
      // A wait for another token is answered as soon as the daemon ends.
      await waiting
      client.write(request)
      const text = Buffer.concat(await received).toString()
      expect(text).toContain('token-1')
      if (transport === 'http') expect(text).toContain('Connection: close')
      await stopped
    },
  )

  it('without requests is not held up', async () => {
    const world = await startWithToken()
    const begunAt = performance.now()
    await world.stop()
    expect(performance.now() - begunAt).toBeLessThan(2_000)
  })

  it('is held up for 2.5 s at most by a client that reads nothing', async () => {
    const world = await startWithToken({ tokenOf: () => LARGE })
    const client = await connectRaw(world.ipcPath, { reads: false })
    await overfill(world, client.socket)
    const begunAt = performance.now()
    await world.stop()
    expect(performance.now() - begunAt).toBeLessThan(4_000)
    await expectUntil('its end', () => world.ipc.counts().connections === 0)
  })
})

describe('an internal error', () => {
  it.each([
    ['at once', 'ipc', { testAlert: failNow }, '{"type":"alert.test","data":{"id":"1"}}\f'],
    ['later', 'ipc', { testAlert: failLater }, '{"type":"alert.test","data":{"id":"1"}}\f'],
    ['before the peer is known', 'ipc', { loadLibc: () => ({ ...loadLibc(), peerOf: failNow }) }, ''],
    ['at once', 'http', { metrics: failNow }, 'GET /metrics HTTP/1.1\r\n\r\n'],
  ] as const)(
    'that comes %s on %s.sock costs one connection, and has its stack in the log',
    async (_when, transport, options, text) => {
      const world = await startWithToken(options)
      for (let count = 0; count < 3; count += 1) {
        const client = await connectRaw(pathOf(world, transport), { reads: false })
        client.socket.resume()
        if (text !== '') client.write(text)
        await client.closed()
      }
      if (text !== '') {
        expect(world[transport].counts().dropped['fault-of-ours']).toBe(3)
        await isServed(world)
      }
      const stack = expect.stringMatching(/^Error: broken\n +at /) as string
      const fault = { level: 'crit', fields: { event: 'internal-fault', transport, stack } }
      expect(world.records.filter(({ level }) => level === 'crit')).toMatchObject([fault, fault, fault])
    },
  )

  it('at a new token costs the subscriber', async () => {
    const world = await startWithToken()
    const client = await connectRaw(world.ipcPath, { reads: false })
    client.socket.resume()
    client.ask('token.subscribe', { id: '1' })
    await expectUntil('the subscription', () => world.ipc.counts().subscribers === 1)
    const recordRead = vi.spyOn(world.audit, 'recordRead').mockImplementation(failNow)
    await world.rotate()
    await client.closed()
    recordRead.mockRestore()
    expect(world.ipc.counts().dropped['fault-of-ours']).toBe(1)
    await isServed(world)
  })
})

function failLater(): Promise<never> {
  return Promise.reject(new Error('broken'))
}

function failNow(): never {
  throw new Error('broken')
}

describe('frames', () => {
  it('are read wherever the stream is split', async () => {
    const world = await startWithToken()
    const frames = '{"type":"token.get","data":{"id":"é"}}\f{"type":"token.get","data":{"id":"2"}}\f'
    const bytes = Buffer.from(frames)
    for (let at = 1; at < bytes.length; at += 1) {
      const client = await connectRaw(world.ipcPath)
      client.write(bytes.subarray(0, at))
      await new Promise((resolve) => setImmediate(resolve))
      client.write(bytes.subarray(at))
      expect((await client.frame(1))?.data['id']).toBe('2')
      expect((await client.frame(0))?.data['id']).toBe('é')
      client.socket.destroy()
    }
  })
})
