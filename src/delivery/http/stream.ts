// A connection as Node's HTTP server sees it. It is given what was read in pieces, because Node would parse
// 64 KiB of requests in one turn of the event loop, whatever that takes.
import type { Socket } from 'node:net'
import { Duplex } from 'node:stream'
import { WRITE_BYTES } from '../client.ts'

interface Chunk {
  readonly chunk: string | Buffer
  readonly encoding: BufferEncoding
}
type Done = (error?: Error | null) => void

export class HttpStream extends Duplex {
  readonly #socket: Socket
  #onWanted: (() => void) | null = null

  constructor(socket: Socket) {
    super({ allowHalfOpen: true, decodeStrings: false, highWaterMark: WRITE_BYTES })
    this.#socket = socket
    socket.once('close', () => this.destroy())
    this.on('error', () => socket.destroy())
  }

  /** Has the function called whenever Node can use more input. */
  attach(onWanted: () => void): void {
    this.#onWanted = onWanted
  }

  /** As that of `net.Socket`: ends once all is sent. Node calls it after the last answer. */
  destroySoon(): void {
    this.end(() => this.#socket.destroySoon())
  }

  override _read(): void {
    this.#onWanted?.()
  }

  override _write(chunk: string | Buffer, encoding: BufferEncoding, done: Done): void {
    this.#socket.write(chunk, encoding, done)
  }

  /** In one call of the system. Node ends each answer with an empty write. */
  override _writev(chunks: Chunk[], done: Done): void {
    const filled = chunks.filter(({ chunk }) => chunk.length > 0)
    const last = filled.pop()
    if (last === undefined) return done()
    if (filled.length > 0) this.#socket.cork()
    for (const { chunk, encoding } of filled) this.#socket.write(chunk, encoding)
    this.#socket.write(last.chunk, last.encoding, done)
    if (filled.length > 0) this.#socket.uncork()
  }

  override _final(done: Done): void {
    this.#socket.end(() => done())
  }

  override _destroy(error: Error | null, done: Done): void {
    this.#socket.destroy()
    done(error)
  }
}
