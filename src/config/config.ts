// The configuration as the rest of the program sees it: read, validated, resolved, frozen.
import { basicOf, type Credentials } from '../lib/secret.ts'
import type { Template } from '../lib/template.ts'
import type { createOutputs } from './resolve-outputs.ts'
import type { resolveService } from './service.ts'
import type { resolveShare } from './resolve-share.ts'
import type { Settings } from './schema.ts'

/** Settings keep the names and meanings of the schema; here are those that are more than what is written. */
type TokenFileSettings = Settings['tokenFiles'][number]
export type SocketConfig = Readonly<Awaited<ReturnType<ReturnType<typeof createOutputs>['socket']>>>
export type ServiceConfig = Readonly<ReturnType<typeof resolveService>>
export type ServiceRefusal = Readonly<ServiceConfig['refusals'][number]>
export type ShareConfig = Readonly<ReturnType<typeof resolveShare>>
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
