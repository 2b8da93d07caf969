// The token of an answer and its life, or why there is none.
import type { ServiceConfig } from '../config/config.ts'
import type { Credentials } from '../config/credentials.ts'
import { parseInstant } from '../lib/duration.ts'
import { holdsSecret } from '../lib/redaction.ts'
import type { Grant } from '../token/outcome.ts'
import { MAX_TOKEN_LENGTH, TOKEN } from '../token/token.ts'
import { dateOf, missing, valueAt, type Content, type Fields, type ServiceResponse } from './answer.ts'

/** What an answer is judged by. */
export interface Context {
  readonly service: ServiceConfig
  /** Our wall clock, for a `Retry-After` date or the end of a life if the answer has no `Date`. */
  readonly wallMs: number
  /** Removed from the detail: the service may echo them. */
  readonly secrets: Iterable<string>
  /** A token that contains one of them is not accepted. */
  readonly credentials?: Credentials
}

/** The token of a 200 or 201, or why there is none, as the words after "but". No value is quoted. */
export function grantOf(
  answer: ServiceResponse,
  { fields, inWords }: Content,
  { service, secrets, credentials, wallMs }: Context,
): Grant | string {
  if (fields === undefined) return `its body is ${inWords}`
  const value = valueAt(fields, service.token)
  const name = `its ${service.token.join('.')}`
  if (value === undefined) return missing(fields, service.token, secrets)
  if (typeof value !== 'string') return `${name} is no text`
  const accessToken = withoutPrefix(value, service.use.prefix)
  if (accessToken.length > MAX_TOKEN_LENGTH) return `${name} is longer than 16 KiB`
  if (!TOKEN.test(accessToken))
    return `${name} is empty or has a blank, a quote, a backslash, a comma, a semicolon, or what is no ASCII`
  if (credentials !== undefined && holdsCredentials(accessToken, credentials))
    return `${name} holds the key or the secret, and is not used`
  const serverDateMs = dateOf(answer)
  const answerLifeMs = answerLife(service, fields, serverDateMs ?? wallMs)
  if (answerLifeMs !== undefined && answerLifeMs <= 0) {
    const path = (service.lifetime ?? service.expires)!.join('.')
    return `its ${path} leaves the token no life: it is ${service.lifetime === null ? 'past' : '0 or less'}`
  }
  return { kind: 'ok', accessToken, serverDateMs, answerLifeMs }
}

/** Types of tokens that are registered (RFC 6749, section 11.1; RFC 8693) or usual: no other text is quoted. */
const TOKEN_TYPES = ['DPoP', 'mac', 'PoP', 'N_A', 'JWT']

/**
 * The type that the answer gives its token, if it is sent as a Bearer token and is none: words for people.
 * Undefined: it says none, or the right one.
 */
export function otherTokenType(
  { fields = {} }: Content,
  { token, use }: Pick<ServiceConfig, 'token' | 'use'>,
): string | undefined {
  const type = valueAt(fields, [...token.slice(0, -1), 'token_type'])
  if (typeof type !== 'string' || use.prefix.trim().toLowerCase() !== 'bearer') return undefined
  if (type.toLowerCase() === 'bearer') return undefined
  return TOKEN_TYPES.find((known) => known.toLowerCase() === type.toLowerCase()) ?? 'another'
}

/** From this number on an instant is in ms: in seconds it would be in the year 5138. */
const LEAST_MS = 1e11

/** The token's life by the fields of the answer, in ms; undefined if they do not say it. */
function answerLife(
  { lifetime, expires }: Pick<ServiceConfig, 'lifetime' | 'expires'>,
  fields: Fields,
  nowMs: number,
): number | undefined {
  if (lifetime !== null) {
    const seconds = numberOf(valueAt(fields, lifetime))
    return seconds && seconds * 1_000
  }
  const end = expires === null ? undefined : valueAt(fields, expires)
  const isoMs = typeof end === 'string' ? parseInstant(end.trim()) : undefined
  const number = numberOf(end)
  const endMs = isoMs ?? (number !== undefined && number < LEAST_MS ? number * 1_000 : number)
  return endMs === undefined ? undefined : endMs - nowMs
}

/** A number, also as digits; undefined if it is neither. */
function numberOf(value: unknown): number | undefined {
  if (typeof value === 'string' && /^-?\d+(?:\.\d+)?$/.test(value.trim())) return Number(value)
  return typeof value === 'number' ? value : undefined
}

function withoutPrefix(text: string, prefix: string): string {
  const isThere = text.slice(0, prefix.length).toLowerCase() === prefix.toLowerCase()
  return isThere ? text.slice(prefix.length) : text
}

/** The claims of a JWT, which are encoded, may name the key, or others by which the account is known. */
function holdsCredentials(token: string, { apiKey, apiSecret, further = {} }: Credentials): boolean {
  const names = [apiKey, ...Object.values(further)].flatMap((secret) => secret?.reveal() ?? [])
  return (
    (apiSecret !== null && holdsSecret(token, apiSecret.reveal())) ||
    names.some((name) => holdsSecret(token, name, { isEncoded: false }))
  )
}
