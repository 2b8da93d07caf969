// The limits of the sockets, for kyc-tokend-protocol(7), with their numbers from the code.
import * as most from '../../src/delivery/limits.ts'
import {
  CONNECTION_IDLE_MS,
  MAX_FRAME_BYTES,
  MAX_ID_LENGTH,
  MAX_MIN_VALID_SECONDS,
  MAX_WAIT_SECONDS,
} from '../../src/protocol.ts'

const kib = (bytes: number): string => `${bytes / 1024} KiB`
const seconds = (ms: number): string => `${ms / 1_000} s`
const busy = '`busy`, and the connection is closed'
const bad = '`bad-request`, and the connection is closed'

/** The things that are limited, the limit, and the consequence beyond it. */
export function limitRows(): string[][] {
  return [
    ['a frame of `ipc.sock`', kib(MAX_FRAME_BYTES), bad],
    ['`data.id`', `1 to ${MAX_ID_LENGTH} characters`, '`bad-request`'],
    ['`minValidSeconds`', `0 to ${MAX_MIN_VALID_SECONDS}`, '`bad-request`'],
    ['`waitSeconds`', `0 to ${MAX_WAIT_SECONDS}`, '`bad-request`'],
    ['the head of an HTTP request', `${kib(most.MAX_HEAD_BYTES)}, ${most.MAX_HEAD_FIELDS} fields`, bad],
    ['the body of an HTTP request', `${kib(most.MAX_BODY_BYTES)}, with \`Content-Length\``, bad],
    ['unanswered requests of a connection of `http.sock`', String(most.MAX_UNANSWERED), 'it is closed'],
    [
      'requests of a connection of `ipc.sock` that wait',
      String(most.MAX_WAITING),
      'nothing more is read from it until one is answered',
    ],
    ['subscriptions of a connection', String(most.MAX_SUBSCRIPTIONS), busy],
    ['requests of a connection in a second', '`maxRequestsPerSecond`', busy],
    [
      'unsent answers of a connection',
      kib(most.WRITE_BYTES),
      'nothing more is read from it until the client reads',
    ],
    ['the time in which a client reads nothing', seconds(most.STALLED_MS), 'the connection is closed'],
    [
      'the time without a whole request, a wait or a subscription',
      seconds(CONNECTION_IDLE_MS),
      'the connection is closed',
    ],
    [
      'connections in all, and of one user',
      '`maxConnections`, `maxConnectionsPerUser`',
      'a new one is closed; root and the daemon’s user have `maxConnections` of their own',
    ],
    ['connections of users whom `allow` excludes', String(most.MAX_DENIED), 'a new one is closed'],
    ['connections that are not accepted yet', String(most.BACKLOG), 'the kernel refuses'],
    ['`/metrics`', `one rendering in ${seconds(most.METRICS_EVERY_MS)}`, 'the former text is given again'],
    ['connections of the metrics socket', String(most.METRICS_CONNECTIONS), 'a new one is closed'],
  ]
}
