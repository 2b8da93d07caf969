// Accepts connections: several per round of the event loop, and read from past Node's streams.
//
// `net.Server` accepts one connection per round of the event loop, so under load newcomers queue for as long as the
// rounds of all before them take. And it wraps each in a stream that allocates a buffer for each read, queues it, and
// emits it: with `--jitless` that costs more than parsing the request and writing the answer together. The lean path
// avoids both:
//
// * The callback by which libuv announces a connection (`server._handle.onconnection`) is replaced. It does what Node's
//   does for a server without `maxConnections`, `blockList` or `pauseOnConnect`, which this daemon does not set: it
//   makes a `net.Socket` of the handle. Then it accepts what else is waiting, up to a limit, by accept4(2).
// * Each socket gets `onread`, which `net.connect` documents and the constructor understands as well: what is read is
//   in one buffer that all connections share, and is handed on in that very call. No code may keep the buffer: what is
//   left for later is copied. `pause`, `resume`, `end` and `close` work as always, and so do writes; only `data` is
//   never emitted.
//
// Skipped is thus the readable half of the stream, which adds nothing here: no encoding, no piping, no high-water mark,
// since a handler takes everything that it is given at once or pauses the socket.
//
// `_handle`, `onconnection`, `useUserBuffer` and the option `handle` are not documented. Where one of them is not as
// expected, Node accepts as it always does, and `data` brings the same bytes. Both ways call the same function, so the
// answers are the same; the tests of both protocols run both ways. Without libc (an unusual architecture, or koffi
// missing) one connection is accepted per round.
import { closeSync } from 'node:fs'
import { Socket, type Server } from 'node:net'
import type { Libc } from '../../lib/libc.ts'

/** The first `length` bytes of the buffer have arrived. */
export type Receive = (length: number, buffer: Buffer) => void
/** Makes the socket of a new connection, which reads into this function. */
export type MakeSocket = (receive: Receive) => Socket

/** Connections accepted per round of the event loop beside the one that libuv accepts. */
const ACCEPTS_PER_ROUND = 63
/** For all connections: what is read is gone after the call. */
const READ_BUFFER = Buffer.allocUnsafeSlow(16 * 1024)

interface Handle {
  readonly fd?: number
  readonly useUserBuffer?: unknown
  onconnection?: (this: Handle, error: number, client?: Handle) => void
}

/** The socket as `net.Server` made it. */
export function readThroughStream(socket: Socket): MakeSocket {
  return (receive) => socket.on('data', (chunk: Buffer) => receive(chunk.length, chunk))
}

/** Has a listening server hand over its connections this way. Where that cannot be it goes on as before. */
export function acceptDirectly(
  server: Server,
  options: { libc: Pick<Libc, 'accept'> | null; onConnection: (makeSocket: MakeSocket) => void },
): void {
  const { libc, onConnection } = options
  const { _handle: handle } = server as unknown as { _handle?: Handle | null }
  const nodes = handle?.onconnection
  if (!handle || typeof nodes !== 'function') return

  handle.onconnection = function onconnection(error, client) {
    if (error !== 0 || typeof client?.useUserBuffer !== 'function') return nodes.call(handle, error, client)
    onConnection((receive) => new Socket({ handle: client, ...readInto(receive) } as object))
    for (let count = 0; count < ACCEPTS_PER_ROUND; count += 1) if (!acceptOneMore(handle.fd)) break
    return undefined
  }

  function acceptOneMore(listening: number | undefined): boolean {
    if (libc === null || listening === undefined || listening < 0) return false
    const fd = libc.accept(listening)
    if (fd === null) return false
    onConnection((receive) => socketOf(fd, receive))
    return true
  }
}

function socketOf(fd: number, receive: Receive): Socket {
  try {
    return new Socket({ fd, ...readInto(receive) })
  } catch (error) {
    closeSync(fd)
    throw error
  }
}

function readInto(receive: Receive): object {
  // It returns nothing; `false` would stop reading.
  const onread = { buffer: READ_BUFFER, callback: receive }
  return { allowHalfOpen: true, readable: true, writable: true, onread }
}
