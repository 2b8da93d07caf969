// Frames that the daemon sends on `ipc.sock`, in ASCII.
import { FRAME_END } from '../../protocol.ts'
import { asciiOf } from '../ascii.ts'
import type { CachedToken } from '../replies.ts'
import { PLAIN_ID } from './plain-token-get.ts'

export type TokenFrameType = 'token.result' | 'token.changed'

/**
 * Makes frames with the token, whose JSON is ready: only the id is put in. The last frame is kept, because
 * subscribers of one library often have the same id.
 */
export function createTokenFrames(): (type: TokenFrameType, id: string, token: CachedToken) => string {
  let last: { type: TokenFrameType; id: string; token: CachedToken; frame: string } | null = null
  return (type, id, token) => {
    if (last !== null && last.token === token && last.id === id && last.type === type) return last.frame
    const frame = `{"type":"${type}","data":{"id":"${escapeId(id)}",${token.jsonTail}}${FRAME_END}`
    last = { type, id, token, frame }
    return frame
  }
}

function escapeId(id: string): string {
  return PLAIN_ID.test(id) ? id : asciiOf(JSON.stringify(id)).slice(1, -1)
}
