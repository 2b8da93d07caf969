// The credentials of an account, and the texts that are made of them: to compare, to hash and to send.
import { formEncoded } from '../lib/redaction.ts'
import type { Secret } from '../lib/secret.ts'

/** Everything by which the service knows the account. */
export interface Credentials {
  /** Null: the account is known by a ready-made assertion alone. */
  readonly apiKey: Secret | null
  /** Null: the service takes none. */
  readonly apiSecret: Secret | null
  /** Further ones, by their settings' key paths: those of `service`, the client certificate and its key. */
  readonly further?: Readonly<Record<string, Secret>>
}

/** All of them as one value that can be compared and hashed; of key and secret alone, these two. */
export function credentialTexts({ apiKey, apiSecret, further = {} }: Credentials): readonly unknown[] {
  const more = Object.entries(further).map(([at, secret]) => [at, secret.reveal()] as const)
  const sorted = more.toSorted(([one], [other]) => (one < other ? -1 : 1))
  return [apiKey?.reveal() ?? null, apiSecret?.reveal() ?? null, ...sorted]
}

/**
 * The secrets from which the key of a fleet is made: the account's and `share.key`. Not the client
 * certificate, which each host may have of its own.
 */
export function sharedTexts(credentials: Credentials, key: Secret | null): readonly unknown[] {
  const further = Object.entries(credentials.further ?? {}).filter(([at]) => !at.startsWith('request.'))
  const [, secret, ...more] = credentialTexts({ ...credentials, further: Object.fromEntries(further) })
  return [secret, key?.reveal() ?? null, ...more]
}

/** Key and secret as HTTP Basic has them; `isEncoded`: each form-encoded first (RFC 6749, section 2.3.1). */
export function basicOf({ apiKey, apiSecret }: Credentials, { isEncoded = true } = {}): string {
  const pair = [apiKey?.reveal() ?? '', apiSecret?.reveal() ?? '']
  return Buffer.from(pair.map((text) => (isEncoded ? formEncoded(text) : text)).join(':')).toString('base64')
}

/**
 * All of them in the forms in which they may be sent. A certificate and its key, which have several lines,
 * never are.
 */
export function sentTexts(credentials: Credentials): string[] {
  const { apiKey, apiSecret, further = {} } = credentials
  const texts = [apiKey, apiSecret, ...Object.values(further)].flatMap((secret) => secret?.reveal() ?? [])
  const basic = apiKey === null ? [] : [true, false].map((isEncoded) => basicOf(credentials, { isEncoded }))
  return [...texts.filter((text) => !text.includes('\n')), ...basic]
}
