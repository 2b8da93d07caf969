import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { connect } from 'node:net'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, it, onTestFinished } from 'vitest'
import { asStranger, lateAnswer, startDelivery, type DeliveryWorld } from '../support/delivery-world.ts'
import { askOnce, connectRaw, type RawClient } from '../support/ipc-client.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { eventually } from '../support/until.ts'

const LARGE = 'x'.repeat(10_000)

async function ready(options: Parameters<typeof startDelivery>[0] = {}): Promise<DeliveryWorld> {
  const world = await startDelivery(options)
  await world.rotate()
  return world
}

async function isServed(world: DeliveryWorld): Promise<void> {
  const startedAt = performance.now()
  expect(await askOnce(world.ipcPath, 'token.get', {})).toMatchObject({ type: 'token.result' })
  expect(performance.now() - startedAt).toBeLessThan(2_000)
}

describe('a client that asks and asks', () => {
  it('gets 10,000 answers to 10,000 pipelined requests, in order, if it reads', async () => {
    const world = await ready({ tokenOf: () => LARGE })
    const client = await connectRaw(world.ipcPath)
    const requests = Array.from({ length: 10_000 }, (_, id) => `{"type":"token.get","data":{"id":"${id}"}}\f`)
    client.write(requests.join(''))
    await client.frame(9_999)
    expect(client.frames.map(({ data }) => data['id'])).toEqual(requests.map((_, id) => String(id)))
    expect(world.ipc.counts().reads).toBe(10_000)
  })

  it('is not answered beyond 16 KiB while it does not read, and is dropped in the end', async () => {
    const timeouts = { sweepMs: 20, stalled: 200 }
    const world = await ready({ tokenOf: () => LARGE, timeouts })
    const client = await connectRaw(world.ipcPath, { reads: false })
    client.write('{"type":"token.get","data":{"id":"1"}}\f'.repeat(10_000))
    await eventually(() => expect(world.ipc.counts().dropped.stalled).toBe(1))
    // The kernel keeps little, too; the client itself reads 64 KiB.
    expect(world.ipc.counts().reads * LARGE.length).toBeLessThan(128 * 1024)
    await isServed(world)
  })

  it('may have so many requests waiting, and the rest is answered after them', async () => {
    const { answer, grant } = lateAnswer()
    const world = await startDelivery({ answer })
    const client = await connectRaw(world.ipcPath)
    client.write('{"type":"token.get","data":{"id":"1","waitSeconds":60}}\f'.repeat(1_000))
    client.write('{"type":"token.get","data":{"id":"last"}}\f')
    await isAnswered(world)
    expect(client.frames).toHaveLength(0)
    grant()
    expect(await client.frame(1_000)).toMatchObject({ data: { id: 'last', accessToken: 'late' } })
  })

  it('may have so many subscriptions', async () => {
    const world = await ready()
    const client = await connectRaw(world.ipcPath)
    for (let id = 0; id <= 16; id += 1) client.ask('token.subscribe', { id: `${id}` })
    await client.closed()
    expect(client.frames.at(-1)).toMatchObject({ type: 'fault', data: { id: '16', code: 'busy' } })
  })
})

async function isAnswered(world: DeliveryWorld): Promise<void> {
  expect(await askOnce(world.ipcPath, 'status.get', {})).toMatchObject({ type: 'status.result' })
}

describe('a client that does nothing', () => {
  it('is shown out, and one with a subscription or a wait is not', async () => {
    const world = await startDelivery({
      timeouts: { sweepMs: 20, idle: 100 },
      answer: () => new Promise(() => undefined),
    })
    const idle = await connectRaw(world.ipcPath)
    const subscriber = await connectRaw(world.ipcPath)
    subscriber.ask('token.subscribe', { id: '1' })
    const waiter = await connectRaw(world.ipcPath)
    waiter.ask('token.get', { id: '1', waitSeconds: 60 })
    await idle.closed()
    expect(world.ipc.counts().dropped.idle).toBe(1)
    expect([subscriber.isClosed(), waiter.isClosed()]).toEqual([false, false])
  })

  it('is shown out with half a frame, also where it adds to it byte by byte', async () => {
    const world = await ready({ timeouts: { sweepMs: 20, 'incomplete-request': 100 } })
    const client = await connectRaw(world.ipcPath)
    client.ask('token.subscribe', { id: '1' })
    const drip = setInterval(() => client.write('x'), 10)
    onTestFinished(() => clearInterval(drip))
    await client.closed()
    expect(world.ipc.counts().dropped['incomplete-request']).toBe(1)
  })
})

describe('many clients', () => {
  it('one too many is answered so and loses its own connection', async () => {
    const world = await ready({ loadLibc: asStranger, socket: { maxConnectionsPerUser: 3 } })
    const clients: RawClient[] = []
    for (let count = 0; count < 4; count += 1) clients.push(await connectRaw(world.ipcPath))
    const last = clients.at(-1)
    expect(await last?.frame(0)).toMatchObject({ type: 'fault', data: { id: null, code: 'busy' } })
    await last?.closed()
    expect(clients.filter((client) => client.isClosed())).toHaveLength(1)
    expect(world.ipc.counts().dropped['too-many-connections']).toBe(1)
  })

  it('connects during a pause of the daemon are not refused', async () => {
    const path = join(await tempDirectory(), 'ipc.sock')
    const program = `
      import { openListener } from '${new URL('../../src/delivery/listener/listener.ts', import.meta.url).href}'
      const onConnection = (socket) => socket.end('hello')
      await openListener({ path: '${path}', mode: 0o600, gid: null }, { onConnection, onFault() {} })
      console.log('listening')`
    const daemon = spawn(process.execPath, ['--input-type=module', '-e', program], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    onTestFinished(() => void daemon.kill('SIGKILL'))
    await once(daemon.stdout, 'data')
    daemon.kill('SIGSTOP')
    const greeted = Array.from({ length: 1_000 }, async () => {
      const socket = connect(path)
      onTestFinished(() => void socket.destroy())
      const [chunk] = (await once(socket, 'data')) as [Buffer]
      return chunk.toString()
    })
    daemon.kill('SIGCONT')
    expect(new Set(await Promise.all(greeted))).toEqual(new Set(['hello']))
  })

  it('hanging up in the midst of an answer harms no other', async () => {
    const world = await ready({ tokenOf: () => LARGE })
    for (let count = 0; count < 50; count += 1) {
      const client = await connectRaw(world.ipcPath, { reads: false })
      client.write('{"type":"token.get","data":{"id":"1"}}\f'.repeat(100))
      client.socket.destroy()
    }
    await isServed(world)
    expect(world.records.filter(({ level }) => level !== 'debug')).toHaveLength(
      world.records.filter(({ fields }) => fields.event === 'token-taken').length,
    )
  })
})

describe('frames', () => {
  it('are read wherever the stream is split', async () => {
    const world = await ready()
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

  it('of random bytes are answered or lose the connection, and nothing else', async () => {
    const world = await ready()
    await fc.assert(
      fc.asyncProperty(fc.array(fc.uint8Array({ maxLength: 300 }), { maxLength: 5 }), async (chunks) => {
        const client = await connectRaw(world.ipcPath)
        for (const chunk of chunks) client.write(Buffer.from([...chunk, 0x0c]))
        // Now and then random bytes are JSON, such as a digit: then the connection lives on.
        if (chunks.length > 0) await client.frame(0)
        for (const { type } of client.frames) expect(type).toBe('fault')
        client.socket.destroy()
      }),
      { numRuns: 200 },
    )
    await isServed(world)
  })

  it('of any JSON get an answer each', async () => {
    const world = await ready()
    await fc.assert(
      fc.asyncProperty(fc.array(fc.json({ maxDepth: 3 }), { minLength: 1, maxLength: 10 }), async (texts) => {
        fc.pre(texts.every((text) => Buffer.byteLength(text) <= 4096))
        const client = await connectRaw(world.ipcPath)
        client.write(texts.map((text) => `${text}\f`).join(''))
        await client.frame(texts.length - 1)
        expect(client.frames).toHaveLength(texts.length)
        expect(client.isClosed()).toBe(false)
        client.socket.destroy()
      }),
      { numRuns: 200 },
    )
    await isServed(world)
  })
})
