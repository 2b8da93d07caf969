// node-ipc's framing, parser and limits, on connections that are accepted elsewhere.
// It has to come before the library.
import { hideNetworkInterfaces, showNetworkInterfaces } from '../../lib/network-interfaces.ts'
import { FastParser, GuardedParser, IPCModule, IPCProtocolError, type IpcSocket, type Server } from 'node-ipc'
import { FRAME_END, MAX_FRAME_BYTES } from '../../protocol.ts'
import { asciiOf } from '../ascii.ts'

showNetworkInterfaces()

export type { IpcSocket, Server as IpcServer }
export const FRAME_END_BYTE = FRAME_END.charCodeAt(0)
const NON_ASCII = /[\u0080-\u00ff]/

/**
 * The library's guarded parser, but for three things. It is given latin1 text, one character per byte, because a chunk
 * may end within a character of UTF-8. A well-framed message that is no request is handed on, and gets an answer. And
 * answers may be longer than requests, and are ASCII, so that they are written without being encoded.
 */
class RequestParser extends GuardedParser {
  override decodeMessage(frame: string): unknown {
    try {
      return JSON.parse(NON_ASCII.test(frame) ? Buffer.from(frame, 'latin1').toString('utf8') : frame)
    } catch (cause) {
      throw Object.assign(new IPCProtocolError('ERR_IPC_INVALID_JSON', 'A frame is not JSON'), { cause })
    }
  }

  override assertFrameSize(bytes: number): void {
    super.assertFrameSize(bytes, bytes)
  }

  override encode(type: string, data: object): string {
    return asciiOf(FastParser.prototype.encode.call(this, type, data))
  }
}

/**
 * A server of node-ipc that does not listen itself. Its timers, connection limit and back-pressure see one connection
 * at a time and are switched off: `connections/` enforces those limits for all clients together.
 */
export function createIpcFraming(options: { path: string }): Server {
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
  ipc.server.protocolFailure = (socket) => socket.ipcViolation()
  return ipc.server
}
