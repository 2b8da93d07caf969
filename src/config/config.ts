// The configuration as the rest of the program sees it: made of parts, one for each room, read-only.
import type { Secret } from '../lib/secret.ts'
import type { resolveConfig, resolveSocket, resolveTokenFiles } from './resolve.ts'
import type { ServiceSettings } from './schema.ts'

type Frozen<T> = unknown extends T ? T : T extends Secret ? T : { readonly [Key in keyof T]: Frozen<T[Key]> }

/**
 * A part has the names and meanings of its settings in kyc-tokend.config(5), with these differences: durations
 * are in ms and end in `Ms`, modes are permission bits, owners and groups are numeric ids, paths are absolute,
 * and secrets, also those of parameters and headers, are wrapped. `resolveConfig` has the rest. A configuration is
 * never changed: a reload makes another one. Each room gets its part, and no room gets the whole.
 */
export type Config = Frozen<Resolved>
type Resolved = Awaited<ReturnType<typeof resolveConfig>> & { read: LoadedFacts }

interface LoadedFacts {
  /** The document in JSON, to compare: another text, if somebody changed a setting. May hold secrets. */
  document: Secret
  /** Things that are allowed and unwise, one sentence each, for the log and for `check`. */
  warnings: string[]
}

/** Another `baseUrl` or `tokenUrl` is another service. All else here takes effect at once. */
export type ServiceConfig = Config['service']
export type ServiceRefusal = ServiceConfig['refusals'][number]
/** Limits, trust and proxy of a request. */
export type RequestConfig = Config['request']
/** `refresh` and `retry`. */
export type PolicyConfig = Config['policy']
export type TokenFileConfig = Frozen<Awaited<ReturnType<typeof resolveTokenFiles>>[number]>
export type SocketConfig = Frozen<Awaited<ReturnType<typeof resolveSocket>>>
export type AlertsConfig = Config['alerts']
export type LogConfig = Config['log']
export type ShareConfig = NonNullable<Config['share']>

export type Value = string | number | boolean | Secret

/**
 * The pair: all that makes the request. Two pairs are the same if `pairText` is the same. `ends` and `files`
 * come along with it and identify nothing.
 */
export interface PairConfig extends Frozen<Pick<ServiceSettings, 'send' | 'names' | 'token'>> {
  /** Null: the account is identified by a ready-made assertion alone. */
  readonly apiKey: Secret | null
  /** Null: the service takes none. */
  readonly apiSecret: Secret | null
  /** PEM, with the certificates between it and its authority. */
  readonly clientCertificate: { readonly cert: string; readonly key: Secret } | null
  readonly parameters: Readonly<Record<string, Value>>
  readonly headers: Readonly<Record<string, Value>>
  /** Not null exactly where `send` is `assertion`. */
  readonly assertion: SignedAssertion | ReadyAssertion | null
  /** When it ends, and the life of its certificate, in ms since the epoch; null: not known, none. */
  readonly ends: {
    readonly credentialsMs: number | null
    readonly certificate: { readonly fromMs: number; readonly endMs: number } | null
  }
  /** Files that it was read from; the configuration file, where no other holds a part of it. */
  readonly files: readonly string[]
}

type AssertionSettings = Frozen<NonNullable<ServiceSettings['assertion']>>

/** Signed by the daemon (RFC 7523). `key`: PEM or JWK, fit for the algorithm. */
export interface SignedAssertion extends Pick<
  AssertionSettings,
  'algorithm' | 'keyId' | 'audience' | 'claims' | 'header'
> {
  readonly kind: 'signed'
  readonly key: Secret
  readonly lifetimeMs: number
  readonly as: 'client' | 'grant'
}

/** Signed by another program; `source/` reads the file at each request. Its content and path are not the pair's. */
export interface ReadyAssertion extends Pick<AssertionSettings, 'as' | 'type'> {
  readonly kind: 'ready'
  readonly file: string
}
