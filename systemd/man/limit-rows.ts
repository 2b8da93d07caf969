// The limits of the sockets, for kyc-tokend-protocol(7), with their numbers from the code.
import * as most from '../../src/delivery/limits.ts'
import {
  CONNECTION_IDLE_MS,
  MAX_FRAME_BYTES,
  MAX_ID_LENGTH,
  MAX_MIN_VALID_SECONDS,
  MAX_WAIT_SECONDS,
} from '../../src/protocol.ts'
import { hanging } from './setting-rows.ts'

const kib = (bytes: number): string => `${bytes / 1024} KiB`
const seconds = (ms: number): string => `${ms / 1_000} s`
const busy = 'busy, closed'
const bad = 'bad-request, closed'

/** Everything that is limited, the limit, and the consequence beyond it. */
export function limitLines(): string[] {
  return [
    ['a frame of ipc.sock', kib(MAX_FRAME_BYTES), bad],
    ['data.id', `1 to ${MAX_ID_LENGTH} characters`, 'bad-request'],
    ['minValidSeconds', `0 to ${MAX_MIN_VALID_SECONDS}`, 'bad-request'],
    ['waitSeconds', `0 to ${MAX_WAIT_SECONDS}`, 'bad-request'],
    ['the head of an HTTP request', `${kib(most.MAX_HEAD_BYTES)}, ${most.MAX_HEAD_FIELDS} fields`, bad],
    ['the body of an HTTP request', `${kib(most.MAX_BODY_BYTES)}, with Content-Length`, bad],
    ['unanswered requests on http.sock', String(most.MAX_UNANSWERED), 'closed'],
    ['requests on ipc.sock that wait', String(most.MAX_WAITING), 'it waits until one is answered'],
    ['subscriptions', String(most.MAX_SUBSCRIPTIONS), busy],
    ['requests in a second', 'maxRequestsPerSecond', busy],
    ['unsent answers', kib(most.WRITE_BYTES), 'it waits until the client reads'],
    ['time in which a client reads nothing', seconds(most.STALLED_MS), 'closed'],
    ['time without a request, a wait or a subscription', seconds(CONNECTION_IDLE_MS), 'closed'],
    [
      'connections in all, and of one user',
      'maxConnections, maxConnectionsPerUser',
      'a new one is closed; operators have as many of their own',
    ],
  ].map(([name, limit, beyond]) => hanging(`${name}: ${limit} (${beyond})`))
}
