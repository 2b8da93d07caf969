// The limits of the sockets, for kyc-tokend-protocol(7), with their numbers from the code.
import { WRITE_BYTES } from '../../src/delivery/client.ts'
import { HTTP_TIMEOUTS, METRICS_TIMEOUTS } from '../../src/delivery/http/server.ts'
import { METRICS_EVERY_MS } from '../../src/delivery/http/routes.ts'
import {
  MAX_BODY_BYTES,
  MAX_DENIED,
  MAX_HEAD_BYTES,
  MAX_HEAD_FIELDS,
  MAX_SUBSCRIPTIONS,
  MAX_WAITING,
  METRICS_CONNECTIONS,
  PRIVILEGED_CONNECTIONS,
} from '../../src/delivery/limits.ts'
import { BACKLOG } from '../../src/delivery/listener/listener.ts'
import { FULL_BYTES, STUCK_AFTER_MS } from '../../src/delivery/memory.ts'
import { TIMEOUTS } from '../../src/delivery/sweeper.ts'
import {
  MAX_FRAME_BYTES,
  MAX_ID_LENGTH,
  MAX_MIN_VALID_SECONDS,
  MAX_WAIT_SECONDS,
} from '../../src/protocol.ts'

const kib = (bytes: number): string => `${bytes / 1024} KiB`
const mib = (bytes: number): string => `${bytes / 1024 / 1024} MiB`
const seconds = (ms: number): string => `${ms / 1_000} s`

/** What is limited, the limit, and what happens beyond it. */
export function limitRows(): string[][] {
  const metricsEndMs = METRICS_TIMEOUTS.idle + METRICS_TIMEOUTS.sweepMs
  return [
    ['a frame of `ipc.sock`', kib(MAX_FRAME_BYTES), 'the connection is closed'],
    ['`data.id`', `1 to ${MAX_ID_LENGTH} characters`, '`bad-request`'],
    ['`minValidSeconds`', `0 to ${MAX_MIN_VALID_SECONDS}`, '`bad-request`'],
    ['`waitSeconds`', `0 to ${MAX_WAIT_SECONDS}`, '`bad-request`'],
    [
      'the head of an HTTP request',
      `${kib(MAX_HEAD_BYTES)}, ${MAX_HEAD_FIELDS} fields`,
      '`bad-request`, and the connection is closed',
    ],
    ['the body of an HTTP request', kib(MAX_BODY_BYTES), '`bad-request`, and the connection is closed'],
    [
      'requests of a connection that wait for a token',
      String(MAX_WAITING),
      '`busy`, and the connection is closed',
    ],
    ['subscriptions of a connection', String(MAX_SUBSCRIPTIONS), '`busy`, and the connection is closed'],
    [
      'requests of a connection in a second',
      '`maxRequestsPerSecond`',
      '`busy`, and the connection is closed',
    ],
    [
      'unsent answers of a connection',
      kib(WRITE_BYTES),
      'nothing more is read from it until the client reads',
    ],
    ['the time in which a client reads nothing', seconds(TIMEOUTS.stalled), 'the connection is closed'],
    ['the time to end a frame', seconds(TIMEOUTS['incomplete-request']), 'the connection is closed'],
    [
      'the time to end an HTTP request',
      seconds(HTTP_TIMEOUTS['incomplete-request']),
      '`bad-request` with status 408, and the connection is closed',
    ],
    [
      'the time without a request, a wait or a subscription',
      seconds(TIMEOUTS.idle),
      'the connection is closed',
    ],
    [
      'connections in all, and of one user',
      '`maxConnections`, `maxConnectionsPerUser`',
      'a new one is closed; root and the daemon’s user are not counted',
    ],
    [
      'descriptors (`LimitNOFILE=` of the unit)',
      'too few for all connections',
      `both become smaller in proportion (\`connections-clamped\`); ${PRIVILEGED_CONNECTIONS} of each socket stay for root and the daemon’s user`,
    ],
    ['connections of users whom `allow` excludes', String(MAX_DENIED), 'a new one is closed'],
    ['connections that are not accepted yet', String(BACKLOG), 'the kernel refuses'],
    [
      'memory of all connections together',
      mib(FULL_BYTES),
      `nothing is read from anybody; after ${seconds(STUCK_AFTER_MS)} the connection that holds most and has read nothing meanwhile is closed, and then the next one`,
    ],
    ['`/metrics`', `one rendering in ${seconds(METRICS_EVERY_MS)}`, 'the former text is given again'],
    [
      'connections of the metrics socket',
      `${METRICS_CONNECTIONS}, one answer each, ${seconds(metricsEndMs)}`,
      'the connection is closed',
    ],
  ]
}
