// Writes past Node's streams: the same bytes in the same order, whatever the kernel takes at once.
import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import type { Connection } from '../../src/delivery/connections/connection.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'

const CHUNK = 'x'.repeat(9_999)
/** More than the kernel keeps for one client, in bytes. */
const MUCH = 16 * 1024 * 1024

interface Pair {
  readonly connection: Connection
  /** Bytes that the client has read. */
  readonly read: () => number
  readonly client: Socket
  readonly writeDirectly: (connection: Connection, text: string) => boolean
}

/** A connection as the server has it, and its client, which is paused. */
async function pair(): Promise<Pair> {
  vi.resetModules()
  const { writeDirectly } = await import('../../src/delivery/connections/direct-write.ts')
  const path = join(await tempDirectory(), 'pair.sock')
  const server = createServer({ allowHalfOpen: true }).listen(path)
  await once(server, 'listening')
  const accepted = once(server, 'connection')
  const client = connect(path).pause()
  const [socket] = (await accepted) as [Socket]
  socket.on('error', () => undefined)
  onTestFinished(() => {
    client.destroy()
    socket.destroy()
    server.close()
  })
  let bytes = 0
  client.on('data', (chunk: Buffer) => (bytes += chunk.length))
  client.pause()
  const connection = { socket, unsentDirectly: 0 } as Connection
  return { connection, client, read: () => bytes, writeDirectly }
}

/** Writes until the kernel takes no more, and returns how many characters that were. */
function fill({ connection, writeDirectly }: Pair): number {
  let written = CHUNK.length
  for (; writeDirectly(connection, CHUNK); written += CHUNK.length)
    if (written > MUCH) throw new Error('The kernel takes everything')
  return written
}

describe('a direct write', () => {
  it('does not use the stream, but for the first', async () => {
    const { connection, client, read, writeDirectly } = await pair()
    const write = vi.spyOn(connection.socket, 'write')
    client.resume()
    for (let count = 0; count < 3; count += 1) expect(writeDirectly(connection, 'abc')).toBe(true)
    await expectUntil('three answers', () => read() === 9)
    expect(write).toHaveBeenCalledTimes(1)
    expect(connection.socket.bytesWritten).toBe(9)
  })

  it('counts what the kernel does not take until the client reads it', async () => {
    const made = await pair()
    const written = fill(made)
    expect(made.connection.unsentDirectly).toBeGreaterThan(0)
    expect(made.connection.unsentDirectly).toBeLessThanOrEqual(CHUNK.length)
    made.client.resume()
    await expectUntil('all of it', () => made.read() === written)
    expect(made.connection.unsentDirectly).toBe(0)
    const write = vi.spyOn(made.connection.socket, 'write')
    expect(made.writeDirectly(made.connection, 'more')).toBe(true)
    expect(write).not.toHaveBeenCalled()
  })

  it('comes before what is written and ended later', async () => {
    const made = await pair()
    const written = fill(made)
    expect(made.writeDirectly(made.connection, 'second')).toBe(false)
    made.connection.socket.end('third')
    let text = ''
    made.client.on('data', (chunk: Buffer) => (text = (text + chunk.toString('latin1')).slice(-20)))
    made.client.resume()
    await once(made.client, 'end')
    expect(made.read()).toBe(written + 'secondthird'.length)
    expect(text).toBe('xxxxxxxxxsecondthird')
  })

  it('has a request object of its own for each connection that waits', async () => {
    const one = await pair()
    const written = fill(one)
    const other = await pair()
    const writtenToOther = fill({ ...other, writeDirectly: one.writeDirectly })
    one.client.resume()
    other.client.resume()
    await expectUntil('all of both', () => one.read() === written && other.read() === writtenToOther)
    expect([one.connection.unsentDirectly, other.connection.unsentDirectly]).toEqual([0, 0])
  })

  it('destroys the socket of a client that is gone', async () => {
    const { connection, client, writeDirectly } = await pair()
    writeDirectly(connection, 'first')
    client.destroy()
    await once(client, 'close')
    writeDirectly(connection, 'late')
    expect(connection.socket.destroyed).toBe(true)
    writeDirectly(connection, 'later')
  })

  it('forgets what was unsent when the client goes', async () => {
    const made = await pair()
    fill(made)
    made.client.destroy()
    await expectUntil('the end', () => made.connection.socket.destroyed)
    expect(made.connection.unsentDirectly).toBe(0)
  })

  it('has another request object next time, if libuv used the last one and sent everything', async () => {
    const { connection, requests, writeDirectly } = await fakePair({
      request: class WriteWrap {
        isUsed = false
        getAsyncId = () => (this.isUsed ? 7 : -1)
      },
    })
    for (let count = 0; count < 3; count += 1) expect(writeDirectly(connection, 'abc')).toBe(true)
    expect(new Set(requests).size).toBe(3)
  })

  it.each([
    ['has no writeLatin1String', { handle: { writeLatin1String: undefined } }],
    ['has no writeQueueSize', { handle: { writeQueueSize: undefined } }],
    ['has requests without an async id', { request: Object }],
  ])('goes through the stream in a Node that %s', async (_, node) => {
    const { connection, write, writeDirectly } = await fakePair(node)
    for (let count = 0; count < 3; count += 1) expect(writeDirectly(connection, 'abc')).toBe(true)
    expect(write).toHaveBeenCalledTimes(3)
  })
})

/** A socket of a Node that may be another one. It sends everything, and always uses the request object. */
async function fakePair(node: { handle?: object; request?: new () => object }) {
  vi.resetModules()
  const { writeDirectly } = await import('../../src/delivery/connections/direct-write.ts')
  const requests: object[] = []
  // Node has its methods on the prototype.
  const handle = Object.create({
    writeLatin1String: (request: object) => {
      requests.push(Object.assign(request, { isUsed: true }))
      return 0
    },
    writeQueueSize: 0,
    ...node.handle,
  }) as { writeLatin1String?: (request: object) => number }
  const RequestClass = node.request ?? Object
  const write = vi.fn<() => unknown>(() => handle.writeLatin1String?.(new RequestClass()))
  const socket = { _handle: handle, writableLength: 0, write }
  const connection = { socket, unsentDirectly: 0 } as unknown as Connection
  return { connection, requests, write, writeDirectly }
}
