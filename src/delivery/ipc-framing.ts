// node-ipc's server, as this daemon uses it: its framing and its parser, on sockets that are handed to it.
import type { Socket } from 'node:net'
// It has to come before the library.
import { hideNetworkInterfaces, showNetworkInterfaces } from '../lib/network-interfaces.ts'
import { GuardedParser, IPCModule, IPCProtocolError, type IpcSocket, type Server } from 'node-ipc'
import { FRAME_END, MAX_FRAME_BYTES, MAX_ID_LENGTH } from '../protocol.ts'
import type { Span } from './token-frame.ts'

showNetworkInterfaces()

/** A request just as every library writes it, without a field beside `id`: recognised without being decoded or parsed. Its span is the id. */
export class PlainTokenGet implements Span {
  readonly bytes: Buffer
  readonly start: number
  readonly end: number
  constructor(bytes: Buffer, start: number, end: number) {
    this.bytes = bytes
    this.start = start
    this.end = end
  }
  get id(): string {
    return this.bytes.toString('latin1', this.start, this.end)
  }
}

export type { IpcSocket, Server as IpcServer }

const PLAIN_START = Buffer.from('{"type":"token.get","data":{"id":"')
const PLAIN_END = Buffer.from(`"}}${FRAME_END}`)
const FRAME_END_BYTE = FRAME_END.charCodeAt(0)
/** Ids that stand in JSON as they are. */
export const PLAIN_ID = /^[\w.:-]+$/
/** By the character: whether it may be in such an id. */
const IS_PLAIN = Uint8Array.from({ length: 256 }, (_, code) =>
  Number(PLAIN_ID.test(String.fromCharCode(code))),
)

/**
 * The library's guarded parser, for bytes, and but for two things. A message that is well framed and no request is not
 * a broken frame: it is handed on, and gets an answer. And reading stops as soon as `receive` returns false: that frame
 * and what follows is left for later.
 */
class RequestParser extends GuardedParser {
  override read(rest: Buffer | '', chunk: Buffer, receive: (message: unknown) => unknown): Buffer | '' {
    const bytes = rest === '' ? chunk : Buffer.concat([rest, chunk])
    let start = 0
    while (start < bytes.length) {
      const plain = plainTokenGet(bytes, start)
      const end = plain === null ? bytes.indexOf(FRAME_END_BYTE, start) : plain.end + PLAIN_END.length - 1
      if (end === -1) break
      if (receive(plain ?? this.decode(bytes.toString('utf8', start, end))) === false)
        return ownBytes(bytes, start)
      start = end + 1
    }
    const left = bytes.length - start
    this.assertFrameSize(left, left)
    return ownBytes(bytes, start)
  }

  override decodeMessage(frame: string): unknown {
    try {
      return JSON.parse(frame)
    } catch (cause) {
      throw Object.assign(new IPCProtocolError('ERR_IPC_INVALID_JSON', 'A frame is not JSON'), { cause })
    }
  }
}

/** What begins here, where it is the whole of such a request. */
function plainTokenGet(bytes: Buffer, at: number): PlainTokenGet | null {
  if (!standsAt(PLAIN_START, bytes, at)) return null
  const start = at + PLAIN_START.length
  let end = start
  while (IS_PLAIN[bytes[end] ?? 0] === 1) end += 1
  const isId = end > start && end - start <= MAX_ID_LENGTH
  return isId && standsAt(PLAIN_END, bytes, end) ? new PlainTokenGet(bytes, start, end) : null
}

function standsAt(words: Buffer, bytes: Buffer, at: number): boolean {
  for (let index = 0; index < words.length; index += 1) if (bytes[at + index] !== words[index]) return false
  return true
}

/** What stands from there on, without the rest of the chunk, which would be kept in memory. */
function ownBytes(bytes: Buffer, start: number): Buffer | '' {
  if (start === bytes.length) return ''
  const own = Buffer.allocUnsafeSlow(bytes.length - start)
  bytes.copy(own, 0, start)
  return own
}

/**
 * A server of node-ipc that does not listen itself. What it would do with timers, limits and backpressure is done
 * outside of it, where all clients are seen; hence those of its own are out of the way.
 */
export function createIpcFraming(options: { path: string; onViolation: (socket: Socket) => void }): Server {
  hideNetworkInterfaces()
  const ipc = new IPCModule()
  showNetworkInterfaces()
  Object.assign(ipc.config, {
    silent: true,
    secureSocketRoot: false,
    unlink: false,
    parser: RequestParser,
    maxMessageSize: MAX_FRAME_BYTES,
    maxPendingBytes: Infinity,
    messageTimeout: 0,
  })
  ipc.serve(options.path)
  ipc.server.protocolFailure = options.onViolation
  return ipc.server
}
