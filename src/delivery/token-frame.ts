// A frame with the token: the bytes are ready, and only the id is put in.
import { FRAME_END, MAX_ID_LENGTH } from '../protocol.ts'
import type { PreparedToken } from './replies.ts'

export type TokenFrameType = 'token.result' | 'token.changed'

/** An id as it stands in JSON, in ASCII: of its own, or between two places in what a client sent. */
export type FrameId = string | Span
export interface Span {
  readonly bytes: Uint8Array
  readonly start: number
  readonly end: number
}

export interface TokenFrames {
  /** The frame for this id. The next call may write into the same bytes, unless they were kept. */
  frame(type: TokenFrameType, id: FrameId, token: PreparedToken): Buffer
  /** The frame is not sent yet: its bytes are to stay as they are. */
  keep(frame: Buffer): void
}

const startOf: Readonly<Record<TokenFrameType, string>> = {
  'token.result': '{"type":"token.result","data":{"id":"',
  'token.changed': '{"type":"token.changed","data":{"id":"',
}

/** By the length of the id. */
type Ready = Record<TokenFrameType, (Buffer | undefined)[]>
const nothingReady = (): Ready => ({ 'token.result': [], 'token.changed': [] })

/**
 * Frames are kept for the lengths of id that there are, and only for the newest token. What a frame costs is then what
 * the kernel takes for sending it.
 */
export function createTokenFrames(): TokenFrames {
  let of: PreparedToken | null = null
  let ready = nothingReady()

  return {
    frame(type, id, token) {
      if (of !== token) {
        of = token
        ready = nothingReady()
      }
      const length = typeof id === 'string' ? id.length : id.end - id.start
      const frames = ready[type]
      const frame = frames[length] ?? newFrame(type, length, token)
      // Longer is only what had to be escaped, and rare: made anew.
      if (length <= MAX_ID_LENGTH) frames[length] = frame
      putId(frame, { id, at: startOf[type].length, length })
      return frame
    },
    keep(frame) {
      for (const frames of Object.values(ready)) {
        const at = frames.indexOf(frame)
        if (at !== -1) frames[at] = undefined
      }
    },
  }
}

function putId(frame: Buffer, { id, at, length }: { id: FrameId; at: number; length: number }): void {
  if (typeof id === 'string')
    for (let index = 0; index < length; index += 1) frame[at + index] = id.charCodeAt(index)
  else for (let index = 0; index < length; index += 1) frame[at + index] = id.bytes[id.start + index] ?? 0
}

function newFrame(type: TokenFrameType, idLength: number, { tail }: PreparedToken): Buffer {
  return Buffer.from(`${startOf[type]}${' '.repeat(idLength)}",${tail}}${FRAME_END}`, 'latin1')
}
