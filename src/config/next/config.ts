// The configuration as the rest of the program sees it: made of parts, one for each room, read-only.
import type { Secret } from '../../lib/secret.ts'

/**
 * A part has the names and meanings of its settings in kyc-tokend.config(5), with these differences: durations
 * are in ms and end in `Ms`, modes are permission bits, owners and groups are numeric ids, paths are absolute,
 * and secrets, also those of parameters and headers, are wrapped. A configuration is never changed: a reload
 * makes another one. Each room gets its part, and no room gets the whole.
 */
export interface Config {
  /** For `source/`: which service it is, and how its answers are read. */
  readonly service: ServiceConfig
  /** For `source/`: all that identifies the account. See `withPairOf` in `pair.ts`. */
  readonly pair: PairConfig
  /** For `source/`: limits, trust and proxy of a request. */
  readonly request: RequestConfig
  /** For `token/`: `refresh` and `retry`. */
  readonly policy: PolicyConfig
  /** For `delivery/`. */
  readonly tokenFiles: readonly TokenFileConfig[]
  readonly ipc: SocketConfig
  /** Null: `http` is off. */
  readonly http: SocketConfig | null
  /** For `report/`. */
  readonly alerts: AlertsConfig
  readonly log: LogConfig
  /** For `share/`; null: this host is by itself. */
  readonly share: ShareConfig | null
  /** Absolute. The daemon's own sockets are in the runtime directory: `ownSockets` of `host/paths.ts`. */
  readonly runtimeDirectory: string
  readonly stateDirectory: string
  /** For `running/`: what was read. */
  readonly read: ReadConfig
}

/**
 * Another `baseUrl` or `tokenUrl` is another service (`isSameService`). All else here is no part of the pair and
 * takes effect at once.
 */
export interface ServiceConfig {
  /** Without a trailing slash. */
  readonly baseUrl: string
  /** The whole URL of the token endpoint. */
  readonly tokenUrl: string
  /** The setting that names the host of `tokenUrl`, for remedies. */
  readonly hostSetting: 'baseUrl' | 'service.tokenUrl'
  /** Names of the answer's fields, one within the other; null: the answer has no life. */
  readonly lifetime: readonly string[] | null
  /** Permanent refusals, in the order in which they are looked for. `in`: names as above; null: anywhere. */
  readonly refusals: readonly ServiceRefusal[]
  /** Statuses by which the API says that a token is refused. */
  readonly refusedBy: readonly number[]
  /** The header in which the API wants the token, and the text before the token in it. */
  readonly use: { readonly header: string; readonly prefix: string }
}

export interface ServiceRefusal {
  readonly status: number
  readonly says: string
  readonly in: readonly string[] | null
  readonly reason: 'account-inactive' | 'account-not-found'
}

export type Value = string | number | boolean | Secret

/**
 * The pair: all that makes the request. Two pairs are the same if `pairText` is the same. `ends` and `files`
 * come along with it and identify nothing.
 */
export interface PairConfig {
  /** Null: the account is identified by a ready-made assertion alone. */
  readonly apiKey: Secret | null
  /** Null: the service takes none. */
  readonly apiSecret: Secret | null
  /** The certificate (PEM, with those between it and its authority) and its key; null: none. */
  readonly clientCertificate: { readonly cert: string; readonly key: Secret } | null
  readonly send: 'json' | 'form' | 'headers' | 'basic' | 'basic-plain' | 'assertion'
  /** Null: it is not sent. Without meaning for `basic`, `basic-plain` and `assertion`. */
  readonly names: { readonly apiKey: string | null; readonly apiSecret: string | null }
  readonly parameters: Readonly<Record<string, Value>>
  readonly headers: Readonly<Record<string, Value>>
  /** Where the token is in the answer: names of fields, one within the other. */
  readonly token: readonly string[]
  /** Not null exactly where `send` is `assertion`. */
  readonly assertion: SignedAssertion | ReadyAssertion | null
  /** When it ends, in ms since the epoch. */
  readonly ends: {
    /** `credentials.expiresAt`; null: not known. */
    readonly credentialsMs: number | null
    /** The life of the client certificate; null: there is none. */
    readonly certificate: { readonly fromMs: number; readonly endMs: number } | null
  }
  /** Files that it was read from; the configuration file, where no other holds a part of it. */
  readonly files: readonly string[]
}

/** Signed by the daemon (RFC 7523). */
export interface SignedAssertion {
  readonly kind: 'signed'
  /** PEM or JWK, fit for the algorithm. */
  readonly key: Secret
  readonly algorithm: 'RS256' | 'PS256' | 'ES256' | 'EdDSA'
  readonly keyId: string | null
  /** Null: `tokenUrl`. */
  readonly audience: string | null
  readonly lifetimeMs: number
  readonly as: 'client' | 'grant'
  /** Claims and fields of the head that replace its own; null leaves a claim out. */
  readonly claims: Readonly<Record<string, unknown>>
  readonly header: Readonly<Record<string, unknown>>
}

/** Signed by another program; `source/` reads the file at each request. Its content and path are not the pair's. */
export interface ReadyAssertion {
  readonly kind: 'ready'
  readonly file: string
  readonly as: 'client' | 'grant' | 'exchange'
  /** Null: that of `as`. */
  readonly type: string | null
}

export interface RequestConfig {
  readonly timeoutMs: number
  /** At most `timeoutMs`. */
  readonly connectTimeoutMs: number
  /** Further authorities, PEM, as the start or the reload read them; null: none. */
  readonly ca: string | null
  /** Node's own list is trusted, too. */
  readonly isBuiltInTrusted: boolean
  /** Null: that of HTTPS_PROXY and NO_PROXY; false: none. `user` holds no ":". */
  readonly proxy:
    | {
        readonly url: string
        readonly user: string | null
        readonly password: Secret | null
      }
    | null
    | false
}

export interface PolicyConfig {
  /** Life of a token that does not say its own. */
  readonly maxAgeMs: number
  /** At most `maxDelayMs`. */
  readonly initialDelayMs: number
  readonly maxDelayMs: number
}

export interface TokenFileConfig {
  readonly path: string
  readonly format: 'raw' | 'header' | 'env' | 'json' | 'template'
  /** A text with `{token}`; null exactly where `format` is another. */
  readonly template: string | null
  readonly mode: number
  /** Null: as the file is created. */
  readonly uid: number | null
  readonly gid: number | null
}

export interface SocketConfig {
  /** Mode and group of a socket of the daemon's own; null: as it is created. */
  readonly mode: number
  readonly gid: number | null
  /** Users and groups that may use the socket beside operators; both empty: the mode alone decides. */
  readonly allow: { readonly uids: readonly number[]; readonly gids: readonly number[] }
  readonly maxConnections: number
  /** At most `maxConnections`. */
  readonly maxConnectionsPerUser: number
  /** On one connection; null: no limit. */
  readonly maxRequestsPerSecond: number | null
}

export interface AlertsConfig {
  /** Ages of an alert at which it is repeated, in rising order. */
  readonly remindAfterMs: readonly number[]
  /** Null: never. */
  readonly noTokenAfterMs: number | null
  readonly contact: string | null
}

export interface LogConfig {
  readonly level: 'alert' | 'crit' | 'error' | 'warning' | 'notice' | 'info' | 'debug'
  readonly format: 'auto' | 'text' | 'json'
}

/** A server of the store: an IPv6 address has no brackets; `path` is that of a Unix socket. */
export type ServerAddress = { readonly host: string; readonly port: number } | { readonly path: string }

export interface ShareConfig {
  /** One server, all sentinels of one master, nodes of one cluster, or one Unix socket. */
  readonly servers: readonly ServerAddress[]
  /** Not null: the servers are sentinels. */
  readonly sentinel: {
    readonly name: string
    readonly user: string | null
    readonly password: Secret | null
  } | null
  readonly cluster: boolean
  /** PEM texts, read when the configuration was; null: without TLS. `cert` and `key` are there together. */
  readonly tls: {
    readonly ca: string | null
    readonly serverName: string | null
    readonly cert: string | null
    readonly key: Secret | null
  } | null
  readonly user: string | null
  readonly password: Secret | null
  readonly database: number
  readonly prefix: string
  /** A part of the seal, at least 16 bytes; null: the account's secret alone. */
  readonly key: Secret | null
  /** For one command. */
  readonly timeoutMs: number
  readonly asks: boolean
  readonly whenAlone: 'fetch' | 'wait'
}

/** What was read, from where, and what of it is not in force. */
export interface ReadConfig {
  /** The configuration file. */
  readonly file: string
  /** All files that were read, with the configuration file: `versionOf` says whether one of them changed. */
  readonly files: readonly string[]
  /** The document, to compare: it differs exactly if somebody changed a setting in the file. May hold secrets. */
  readonly document: Secret
  /** Names of systemd credentials among the secret sources, which systemd loads at the start only. */
  readonly systemdCredentials: readonly string[]
  /**
   * Settings that differ from those of the running daemon (`running` of `loadConfig`) and take effect at a restart
   * only. The configuration has them as they are in force.
   */
  readonly needsRestart: readonly string[]
  /** Things that are allowed and unwise, one sentence each, for the log and for `check`. */
  readonly warnings: readonly string[]
}
