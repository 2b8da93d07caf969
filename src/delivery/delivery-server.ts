// The servers of the daemon have this in common, whatever is spoken on them.
import { tmpdir } from 'node:os'
import type { SocketConfig } from '../config/config.ts'
import type { Log } from '../lib/log.ts'
import type { MemoryBudget } from './connections/limits.ts'
import type { ConnectionServer, ConnectionServerOptions, ConnectionStatistics } from './connections/server.ts'
import type { OperationCounts, TestAlert } from './operations.ts'
import type { PeerCredentials } from './peer-credentials.ts'
import type { Replies } from './replies.ts'
import type { TokenAudit } from './token-audit.ts'

export type ServerCounts = ConnectionStatistics & OperationCounts

export interface DeliveryServer extends Pick<ConnectionServer, 'run' | 'reconfigure' | 'repair'> {
  counts(): ServerCounts
}

/** Shared by all servers. */
export interface DeliveryContext {
  readonly replies: Replies
  readonly peers: PeerCredentials
  readonly audit: TokenAudit
  readonly memory: MemoryBudget
  readonly log: Log
  /** Raises a test alert; without it `alert.test` is refused. */
  readonly testAlert?: TestAlert
}

/** Limits of a socket that was handed over, where the configuration has none for it; the path is not used. */
export const HANDED_OVER: SocketConfig = {
  path: tmpdir(),
  mode: 0,
  gid: null,
  allow: { uids: [], gids: [] },
  maxConnections: 4096,
  maxConnectionsPerUser: 1024,
  maxRequestsPerSecond: null,
}

export type ServerOptions = DeliveryContext &
  Pick<ConnectionServerOptions, 'socket' | 'inherited' | 'timeouts'> & {
    /** False: through Node's streams, as where Node does not offer what the lean path needs (connections/accept.ts). */
    readonly isDirect?: boolean
  }
