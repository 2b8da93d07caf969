// The configuration as the rest of the program sees it: made of parts, one for each room, read-only.
import type { Secret } from '../lib/secret.ts'
import type { Frozen } from './pair-config.ts'
import type { resolveConfig, ServiceConfig } from './resolve.ts'

export type { PairConfig, ReadyAssertion, SignedAssertion, Value } from './pair-config.ts'
export type { ServiceConfig, SocketConfig, TokenFileConfig } from './resolve.ts'

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

export type ServiceRefusal = ServiceConfig['refusals'][number]
/** Limits, trust and proxy of a request. */
export type RequestConfig = Config['request']
export type AlertsConfig = Config['alerts']
export type ShareConfig = NonNullable<Config['share']>
