// The pair of a configuration: all that makes the request.
import type { Secret } from '../lib/secret.ts'
import type { ServiceSettings } from './schema.ts'

/** The type as it is in a configuration: read-only to its depth. */
export type Frozen<T> = unknown extends T
  ? T
  : T extends Secret
    ? T
    : { readonly [Key in keyof T]: Frozen<T[Key]> }

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
