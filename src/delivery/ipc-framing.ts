// node-ipc's server, as this daemon uses it: its framing and its parser, on sockets that are handed to it.
import type { Socket } from 'node:net'
// It has to come before the library.
import { hideNetworkInterfaces, showNetworkInterfaces } from '../lib/network-interfaces.ts'
import { GuardedParser, IPCModule, IPCProtocolError, type IpcSocket, type Server } from 'node-ipc'
import { FRAME_END, MAX_FRAME_BYTES } from '../protocol.ts'

showNetworkInterfaces()

/** A request just as every library writes it, without a field beside `id`: recognised without being parsed. */
export class PlainTokenGet {
  readonly id: string
  constructor(id: string) {
    this.id = id
  }
}

export type { IpcSocket, Server as IpcServer }

const PLAIN_START = '{"type":"token.get","data":{"id":"'
const PLAIN_END = '"}}'
/** Ids that stand in JSON as they are. */
export const PLAIN_ID = /^[\w.:-]{1,64}$/

/**
 * The library's guarded parser, for text that has a character for each byte, and but for two things. A message that is well framed and no request is not a broken
 * frame: it is handed on, and gets an answer. And reading stops as soon as `receive` returns false: that frame and what
 * follows is left for later.
 */
class RequestParser extends GuardedParser {
  override read(rest: string, chunk: string, receive: (message: unknown) => unknown): string {
    const text = rest === '' ? chunk : rest + chunk
    let start = 0
    for (let end = text.indexOf(FRAME_END); end !== -1; end = text.indexOf(FRAME_END, start)) {
      const message = plainTokenGet(text, start, end) ?? this.decode(utf8Of(text.slice(start, end)))
      if (receive(message) === false) return text.slice(start)
      start = end + 1
    }
    const left = text.slice(start)
    this.assertFrameSize(left.length, left.length)
    // A slice would keep the whole chunk in memory.
    return left.length < text.length ? Buffer.from(left, 'latin1').toString('latin1') : left
  }

  override decodeMessage(frame: string): unknown {
    try {
      return JSON.parse(frame)
    } catch (cause) {
      throw Object.assign(new IPCProtocolError('ERR_IPC_INVALID_JSON', 'A frame is not JSON'), { cause })
    }
  }
}

function utf8Of(bytes: string): string {
  return Buffer.from(bytes, 'latin1').toString()
}

/** What stands between these two places, where it is such a request. */
function plainTokenGet(text: string, start: number, end: number): PlainTokenGet | null {
  const isPlain = text.startsWith(PLAIN_START, start) && text.startsWith(PLAIN_END, end - PLAIN_END.length)
  if (!isPlain) return null
  const id = text.slice(start + PLAIN_START.length, end - PLAIN_END.length)
  return PLAIN_ID.test(id) ? new PlainTokenGet(id) : null
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
