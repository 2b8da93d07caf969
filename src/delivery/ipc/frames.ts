// Frames of `ipc.sock`, read and written by node-ipc's parsers. The server of node-ipc itself is not used: its limits and
// timers see one connection at a time, and it asks for the host's network interfaces, which the service's sandbox forbids.
import { FastParser, GuardedParser, IPCProtocolError } from 'node-ipc/parsers'
import { FRAME_END, MAX_FRAME_BYTES } from '../../protocol.ts'
import type { CachedToken } from '../replies.ts'

/** The guarded parser, but a well-framed message that is no request is handed on, and gets an answer. */
class RequestParser extends GuardedParser {
  override decodeMessage(frame: string): unknown {
    try {
      return JSON.parse(frame)
    } catch (cause) {
      throw Object.assign(new IPCProtocolError('ERR_IPC_INVALID_JSON', 'A frame is not JSON'), { cause })
    }
  }
}

const requests = new RequestParser({
  delimiter: FRAME_END,
  maxMessageSize: MAX_FRAME_BYTES,
  maxPendingBytes: MAX_FRAME_BYTES,
  maxEventNameLength: MAX_FRAME_BYTES,
  messageTimeout: 0,
  allowReservedEvents: true,
})
/** Answers may be longer than requests. */
const answers = new FastParser({ delimiter: FRAME_END })

/** The message of a frame without its end. Throws IPCProtocolError where it is too long or no JSON. */
export function decodeFrame(frame: string): unknown {
  return requests.decode(frame)
}

export function isProtocolError(error: unknown): boolean {
  return error instanceof IPCProtocolError
}

export function encodeFrame(type: string, data: object): string {
  return answers.encode(type, data)
}

/** A frame with the token, whose JSON is ready: only the id is put in. */
export function encodeTokenFrame(type: string, id: string, token: CachedToken): string {
  return `{"type":"${type}","data":{"id":${JSON.stringify(id)},${token.jsonTail}}${FRAME_END}`
}
