// The configuration as the rest of the program sees it: made of parts, one for each room, read-only. And the pair:
// which of two is the same, and all secrets in the clear.
import { Secret } from '../lib/secret.ts'
import type { describedService, Frozen, resolveConfig } from './resolve.ts'

/**
 * A part has the names and meanings of its settings in kyc-tokend.config(5), with these differences: durations
 * are in ms and end in `Ms`, modes are permission bits, owners and groups are numeric ids, paths are absolute,
 * and secrets, also those of parameters and headers, are wrapped. `resolveConfig` has the rest. A configuration is
 * never changed: a reload makes another one.
 */
export type Config = Frozen<Awaited<ReturnType<typeof resolveConfig>>>
/** Another `baseUrl` or `tokenUrl` is another service. All else here takes effect at once. */
export type ServiceConfig = Config['service']
export type ServiceRefusal = ServiceConfig['refusals'][number]
/**
 * The pair: all that makes the request. Two pairs are the same if `pairText` is the same. `ends` and `files`
 * come along with it and identify nothing.
 */
export type PairConfig = Config['pair']
export type SignedAssertion = Extract<PairConfig['assertion'], { kind: 'signed' }>
/** A service and the shape of its request, without secrets and files: what the stand-in plays. */
export type Described = Frozen<ReturnType<typeof describedService>>
/** The value of a parameter or a header. */
export type Value = PairConfig['headers'][string]
/** Limits, trust and proxy of a request. */
export type RequestConfig = Config['request']
export type AlertsConfig = Config['alerts']
export type ShareConfig = NonNullable<Config['share']>
export type SocketConfig = Config['ipc']
export type TokenFileConfig = Config['tokenFiles'][number]

/**
 * The pair as one text: another text is another pair. It holds the secrets in the clear and is to be hashed
 * with a key. A ready-made assertion counts without its file.
 */
export function pairText({ ends: _ends, files: _files, assertion, ...pair }: PairConfig): string {
  const counting = assertion?.kind === 'ready' ? { ...assertion, file: null } : assertion
  return JSON.stringify(revealed({ ...pair, assertion: counting }))
}

/** The pair without the client certificate, of which each host of a fleet may have its own, likewise. */
export function accountText(pair: PairConfig): string {
  return pairText({ ...pair, clientCertificate: null })
}

/** Every secret in the clear: no log may show one. A certificate's key, which has several lines, is never sent. */
export function revealAll({ pair, share, request }: Pick<Config, 'pair' | 'share' | 'request'>): string[] {
  return secretsIn([pair, share, request]).filter((text) => text !== '' && !text.includes('\n'))
}

/** All secrets within a value, in the clear. */
function secretsIn(value: unknown): string[] {
  if (value instanceof Secret) return [value.reveal()]
  return typeof value === 'object' && value !== null ? Object.values(value).flatMap(secretsIn) : []
}

/** Reports whether two parts are the same, with their secrets. */
export function isSamePart(one: unknown, other: unknown): boolean {
  return JSON.stringify(revealed(one)) === JSON.stringify(revealed(other))
}

/** The value with its secrets in the clear and its keys in order. */
function revealed(value: unknown): unknown {
  if (value instanceof Secret) return value.reveal()
  if (typeof value !== 'object' || value === null) return value
  const entries = Object.entries(value).toSorted(([one], [other]) => (one < other ? -1 : 1))
  return entries.map(([name, inner]) => [name, revealed(inner)])
}
