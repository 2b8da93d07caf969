// The configuration as the rest of the program sees it: read, judged, resolved, frozen.
import type { LogLevel } from '../lib/log.ts'
import type { Secret } from '../lib/secret.ts'

export type TokenFileFormat = 'raw' | 'header' | 'env' | 'json'

export interface TokenFileConfig {
  /** Absolute. */
  readonly path: string
  readonly format: TokenFileFormat
  /** Permission bits, such as 0o600. */
  readonly mode: number
  /** Numeric ids; null: as the file is created. */
  readonly uid: number | null
  readonly gid: number | null
}

export interface SocketConfig {
  /** Absolute. */
  readonly path: string
  readonly mode: number
  readonly gid: number | null
  /** Who may use it beside root and the daemon's user; both empty: the socket's mode alone decides. */
  readonly allow: { readonly uids: readonly number[]; readonly gids: readonly number[] }
  readonly maxConnections: number
  readonly maxConnectionsPerUser: number
  /** Per connection; null: no limit. */
  readonly maxRequestsPerSecond: number | null
}

export type LogFormat = 'auto' | 'journal' | 'text' | 'json'

export interface Config {
  /** The configuration file, absolute. */
  readonly file: string
  /** Without a trailing slash. */
  readonly baseUrl: string
  readonly credentials: { readonly apiKey: Secret; readonly apiSecret: Secret }
  /** Names of systemd credentials among the secret sources: they change only at a restart. */
  readonly systemdCredentials: readonly string[]
  readonly request: {
    readonly timeoutMs: number
    readonly connectTimeoutMs: number
    /** PEM text of `caFile`, read when the configuration was. */
    readonly ca: string | null
  }
  readonly refresh: { readonly maxAgeMs: number }
  readonly retry: { readonly initialDelayMs: number; readonly maxDelayMs: number }
  readonly tokenFiles: readonly TokenFileConfig[]
  readonly ipc: SocketConfig
  readonly http: SocketConfig | null
  readonly alerts: { readonly remindAfterMs: readonly number[] }
  readonly log: { readonly level: LogLevel; readonly format: LogFormat }
  /** Absolute. */
  readonly runtimeDirectory: string
  readonly stateDirectory: string
  /** Things that are allowed and unwise, one sentence each, for the log and for `check`. */
  readonly warnings: readonly string[]
}
