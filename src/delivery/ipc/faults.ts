// Sentences for clients of `ipc.sock` whose requests cannot be performed.
import { answerTypes, MAX_FRAME_BYTES, type FaultCode } from '../../protocol.ts'
import type { DropReason } from '../connections/connection.ts'
import type { Reply } from '../operations.ts'

export const MAX_SUBSCRIPTIONS = 64

export const ID_SHAPE =
  'A request is {"type": …, "data": {"id": …}}, and `data.id` is a string of 1 to 64 characters'
export const TYPES = `\`type\` is one of ${Object.keys(answerTypes).join(', ')}`
export const TOO_OFTEN = 'More requests per second than `maxRequestsPerSecond` allows: send fewer'
export const TOO_MANY_SUBSCRIPTIONS = `One connection has at most ${MAX_SUBSCRIPTIONS} subscriptions: open another`

/** The fault was sent with the id of the request. */
export const ANSWERED = null
export const closeFaults: Partial<
  Record<DropReason, { code: FaultCode; message: string } | typeof ANSWERED>
> = {
  'too-many-connections': {
    code: 'busy',
    message: 'Too many connections: close some, or raise `maxConnections` and `maxConnectionsPerUser`',
  },
  'broken-framing': {
    code: 'bad-request',
    message: `A frame is one JSON object of at most ${MAX_FRAME_BYTES} bytes and a form feed`,
  },
  'too-many-requests': ANSWERED,
  'too-many-subscriptions': ANSWERED,
}

/** A subscription needs no token, but a request that is in order. */
export function isAccepted(reply: Reply | Promise<Reply>): boolean {
  return !('fault' in reply) || (reply.fault.code !== 'bad-request' && reply.fault.code !== 'denied')
}
