// The pair: which of two is the same, what identifies the account of a fleet, and all secrets in the clear.
import { Secret } from '../lib/secret.ts'
import type { Config, PairConfig, ServiceConfig } from './config.ts'

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

/** The secrets of the account in the clear, from which a fleet derives its key; empty: there are none. */
export function accountSecrets({ apiSecret, parameters, headers, assertion }: PairConfig): string[] {
  return secretsIn([apiSecret, parameters, headers, assertion?.kind === 'signed' ? assertion.key : null])
}

/** A token of another service is not served. */
export function isSameService(one: ServiceConfig, other: ServiceConfig): boolean {
  return one.baseUrl === other.baseUrl && one.tokenUrl === other.tokenUrl
}

/** Every secret in the clear, and logins as HTTP Basic has them: no log may show one. */
export function revealAll({ pair, share, request }: Pick<Config, 'pair' | 'share' | 'request'>): string[] {
  const { proxy } = request
  const logins = [
    [pair.apiKey?.reveal(), pair.apiSecret?.reveal()],
    ...(proxy ? [[proxy.user, proxy.password?.reveal()]] : []),
  ].map(([user, password]) => (user && password ? basicForms(user, password) : []))
  // A certificate's key, which has several lines, is never sent.
  return [...secretsIn([pair, share, proxy]), ...logins.flat()].filter((text) => !text.includes('\n'))
}

/** As they are, and form-encoded first (RFC 6749, section 2.3.1). */
function basicForms(user: string, password: string): string[] {
  const encoded = [user, password].map((text) => new URLSearchParams({ '': text }).toString().slice(1))
  return [`${user}:${password}`, encoded.join(':')].map((text) => Buffer.from(text).toString('base64'))
}

/** All secrets within a value, in the clear. */
function secretsIn(value: unknown): string[] {
  if (value instanceof Secret) return [value.reveal()]
  return typeof value === 'object' && value !== null ? Object.values(value).flatMap(secretsIn) : []
}

/** The value with its secrets in the clear and its keys in order. */
function revealed(value: unknown): unknown {
  if (value instanceof Secret) return value.reveal()
  if (typeof value !== 'object' || value === null) return value
  const entries = Object.entries(value).toSorted(([one], [other]) => (one < other ? -1 : 1))
  return entries.map(([name, inner]) => [name, revealed(inner)])
}
