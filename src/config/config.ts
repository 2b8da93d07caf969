// The configuration as the rest of the program sees it: read, validated, resolved, frozen.
import { basicOf, type Credentials, type Secret } from '../lib/secret.ts'
import type { Template } from '../lib/template.ts'
import type { PermanentReason } from '../token/outcome.ts'
import type { ServerAddress } from './schema-parts.ts'
import type { Settings } from './schema.ts'

/** Settings keep the names and meanings of the schema; here are those that are more than what is written. */
type TokenFileSettings = Settings['tokenFiles'][number]
type ShareSettings = NonNullable<Settings['share']>
export type TokenFileFormat = TokenFileSettings['format']

export interface TokenFileConfig extends Readonly<Pick<TokenFileSettings, 'format' | 'mode'>> {
  /** Absolute. */
  readonly path: string
  /** With the format `template`, and only then; read when the configuration was. */
  readonly template?: Template | null
  /** Numeric ids; null: as the file is created. */
  readonly uid: number | null
  readonly gid: number | null
}

export interface SocketConfig extends Readonly<Omit<Settings['ipc'], 'group' | 'allow'>> {
  /** Absolute. */
  readonly path: string
  readonly gid: number | null
  /** Users and groups that may use it beside root and the daemon's user; both empty: the socket's mode alone decides. */
  readonly allow: { readonly uids: readonly number[]; readonly gids: readonly number[] }
}

/** One token for all hosts of the account, through Redis. */
export interface ShareConfig extends Readonly<
  Omit<ShareSettings, 'servers' | 'sentinel' | 'tls' | 'password' | 'key' | 'timeout'>
> {
  /** One server, all sentinels of one master, nodes of one cluster, or one Unix socket (absolute). */
  readonly servers: readonly ServerAddress[]
  /** The servers are sentinels then. */
  readonly sentinel: {
    readonly name: string
    readonly user: string | null
    readonly password: Secret | null
  } | null
  /** Null: without TLS. PEM texts, read when the configuration was. */
  readonly tls: {
    readonly ca: string | null
    readonly serverName: string | null
    readonly cert: string | null
    readonly key: Secret | null
  } | null
  readonly password: Secret | null
  /** For one command. */
  readonly timeoutMs: number
  /** Mixed into the key of the seal. */
  readonly key: Secret | null
}

/** An answer that refuses the account for good. */
export interface ServiceRefusal {
  readonly status: number
  /** Words that are looked for, case and white space aside. */
  readonly says: string
  /** Path of the text in the answer's JSON object; null: anywhere in the answer. */
  readonly in: readonly string[] | null
  readonly reason: PermanentReason
  /** A JSON object without a text at that path does not say them. */
  readonly isStrict: boolean
}

/** The request to the service, and the reading of its answers. */
export interface ServiceConfig {
  /** The whole URL of the token endpoint. */
  readonly tokenUrl: string
  /** Key and secret as fields of a JSON object or of a form, or as HTTP Basic beside a form. */
  readonly send: 'json' | 'form' | 'basic'
  /** Names of those fields; not with `basic`. */
  readonly names: { readonly apiKey: string; readonly apiSecret: string }
  /** Further fields. */
  readonly parameters: Readonly<Record<string, string>>
  readonly headers: Readonly<Record<string, string>>
  /** Path of the token in the answer's JSON object. */
  readonly token: readonly string[]
  /** Path of its life in seconds; null: the answer has none. */
  readonly lifetime: readonly string[] | null
  readonly refusals: readonly ServiceRefusal[]
  /** Statuses by which the API, not the token endpoint, says that a token is refused. */
  readonly refusedBy: readonly number[]
  /**
   * Everything by which this is another service at the same `baseUrl` (URL, `send`, names, parameters, headers, token),
   * as one canonical text; null: it is the standard service.
   */
  readonly description: string | null
}

export interface Config {
  /** The configuration file, absolute. */
  readonly file: string
  /** Without a trailing slash. */
  readonly baseUrl: string
  readonly service: ServiceConfig
  readonly credentials: Credentials
  /** Files that the credentials come from, absolute; null: another source. */
  readonly secretFiles: { readonly apiKey: string | null; readonly apiSecret: string | null }
  /** Every file that was read beside the configuration itself, absolute. */
  readonly inputs: readonly string[]
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
  readonly alerts: {
    /** Ages of an alert at which it is reminded of, in rising order. */
    readonly remindAfterMs: readonly number[]
    /** Time without a usable token after which `no-token` is raised; null: never. */
    readonly noTokenAfterMs: number | null
    /** Person to call, in one line. */
    readonly contact: string | null
  }
  /** Null: this host is by itself. */
  readonly share: ShareConfig | null
  readonly log: Readonly<Settings['log']>
  /** Absolute. */
  readonly runtimeDirectory: string
  /** Another than `runtimeDirectory` after a reload that changed it: it counts from the next start. */
  readonly wantedRuntimeDirectory: string
  readonly stateDirectory: string
  /** Things that are allowed and unwise, one sentence each, for the log and for `check`. */
  readonly warnings: readonly string[]
}

/** A shorter value of a header is a word. */
const MIN_HEADER_SECRET = 8

/**
 * Every secret of the configuration, in the clear, also as HTTP Basic has them: for what must not appear in a log. The
 * values of headers may be secrets (`X-Api-Key`).
 */
export function revealAll({ credentials, share, service }: Config): string[] {
  const shared = [share?.password, share?.key, share?.sentinel?.password, share?.tls?.key]
  const secrets = [credentials.apiKey, credentials.apiSecret, ...shared]
  const headers = Object.values(service.headers).filter((value) => value.length >= MIN_HEADER_SECRET)
  return [basicOf(credentials), ...headers, ...secrets.flatMap((secret) => secret?.reveal() ?? [])]
}
