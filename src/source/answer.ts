// An answer of the service: its fields, dates and words, and the token in it.
import type { PairConfig, ServiceConfig } from '../config/config.ts'
import { isRecord } from '../lib/input.ts'
import { createRedaction, formsOf, holdsSecret, REDACTED, Secret } from '../lib/secret.ts'
import type { Grant } from '../token/outcome.ts'
import { MAX_TOKEN_LENGTH, TOKEN } from '../token/token.ts'

/** Longest body that is read, in bytes. */
export const MAX_BODY_BYTES = 64 * 1024

/** An answer as it came. */
export interface ServiceResponse {
  readonly status: number
  /** By lower-case name. */
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>
  /** Null: it was longer than MAX_BODY_BYTES, and the rest of it was not read. */
  readonly body: Uint8Array | null
}

export type Fields = Readonly<Record<string, unknown>>

export function valueAt(fields: Fields, path: readonly string[]): unknown {
  return path.reduce<unknown>(
    (value, name) => (isRecord(value) && Object.hasOwn(value, name) ? value[name] : undefined),
    fields,
  )
}

/** The token of a 200 or 201 with these fields, or why there is none, as words after "but". No value is quoted. */
export function grantOf(
  answer: ServiceResponse,
  fields: Fields | undefined,
  { service: { lifetime, use }, pair }: { service: ServiceConfig; pair: PairConfig },
): Grant | string {
  if (fields === undefined) return 'its body is no JSON object of at most 64 KiB'
  const value = valueAt(fields, pair.token)
  const path = pair.token.join('.')
  const text = typeof value === 'string' ? value : ''
  const isPrefixed = text.slice(0, use.prefix.length).toLowerCase() === use.prefix.toLowerCase()
  const accessToken = isPrefixed ? text.slice(use.prefix.length) : text
  if (!TOKEN.test(accessToken) || accessToken.length > MAX_TOKEN_LENGTH)
    return `it has no ${path} of 1 to 16,384 visible ASCII characters other than " ' \\ , ;`
  if (isSecret(accessToken, pair)) return `its ${path} holds the secret, and is not used`
  const seconds = lifetime === null ? undefined : numberOf(valueAt(fields, lifetime))
  if (seconds !== undefined && seconds <= 0) return `its ${lifetime!.join('.')} leaves the token no life`
  const answerLifeMs = seconds && seconds * 1_000
  return { kind: 'ok', accessToken, serverDateMs: dateOf(answer), answerLifeMs }
}

/** A token contains no secret, and is no other value of a secret source. It may contain the key, or an id. */
function isSecret(token: string, { apiSecret, parameters, headers }: PairConfig): boolean {
  const others = [...Object.values(parameters), ...Object.values(headers)]
  return (
    (apiSecret !== null && holdsSecret(token, apiSecret.reveal())) ||
    others.some((value) => value instanceof Secret && value.reveal() === token)
  )
}

/** A number, also as digits; undefined: it is neither. */
function numberOf(value: unknown): number | undefined {
  if (typeof value === 'string' && /^-?\d+(?:\.\d+)?$/.test(value.trim())) return Number(value)
  return typeof value === 'number' ? value : undefined
}

/** RFC 9110, section 5.6.7. `Date.parse` alone would take `-5` for a year. */
const HTTP_DATE = /^[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT$/

function httpDateMs(value: unknown): number | undefined {
  const ms = typeof value === 'string' && HTTP_DATE.test(value.trim()) ? Date.parse(value) : NaN
  return Number.isNaN(ms) ? undefined : ms
}

/** The `Date` of an answer, in ms since the epoch; undefined: it has none. */
export function dateOf({ headers }: ServiceResponse): number | undefined {
  return httpDateMs(headers['date'])
}

/** The longest `Retry-After` that is followed. */
const MAX_RETRY_AFTER_MS = 3_600_000

/** `Retry-After` (RFC 9110, section 10.2.3) in ms, at most an hour; undefined: it is none, or is past. */
export function retryAfterOf(answer: ServiceResponse, wallMs: number): number | undefined {
  const value = answer.headers['retry-after']
  const isSeconds = typeof value === 'string' && /^\s*\d+\s*$/.test(value)
  const waitMs = isSeconds
    ? Number(value) * 1_000
    : (httpDateMs(value) ?? -Infinity) - (dateOf(answer) ?? wallMs)
  return waitMs < 0 ? undefined : Math.min(waitMs, MAX_RETRY_AFTER_MS)
}

/** Longest detail, in characters. */
export const MAX_DETAIL_LENGTH = 200

/** A character that is escaped, in HTML or JSON: the punctuation of a secret may be. */
const ESCAPE = /&#?\w+;|\\u00[\da-f]{2}/gi
/** Text that looks like a token: after `Bearer`, or JSON in base64url. */
const TOKEN_LIKE = [/\bbearer\s+\S+/gi, /\beyJ[\w-]{4,}(?:\.[\w-]*)*/g]

/**
 * The words of the service on one line of at most MAX_DETAIL_LENGTH visible characters, without secrets and
 * tokens. Empty where their letters and digits contain those of a secret.
 */
export function oneLine(text: string, secrets: readonly string[]): string {
  const line = text.replace(/\s+/g, ' ').replace(/\p{C}/gu, '').trim()
  const redacted = createRedaction(secrets, { isShortReplaced: true })(line)
  const clean = TOKEN_LIKE.reduce((left, shape) => left.replace(shape, REDACTED), redacted)
  const left = clean.replaceAll(REDACTED, '')
  const said = [left, left.replaceAll(ESCAPE, '')].map(lettersOf)
  const forms = secrets.flatMap(formsOf).map(lettersOf)
  if (forms.some((form) => form !== '' && said.some((words) => words.includes(form)))) return ''
  if (clean.length <= MAX_DETAIL_LENGTH) return clean
  // Cut last, so that no part of a secret stays. Half a surrogate pair is no character.
  return `${clean.slice(0, MAX_DETAIL_LENGTH - 1).replace(/[\uD800-\uDBFF]$/, '')}…`
}

function lettersOf(text: string): string {
  return text.toLowerCase().replaceAll(/[^\p{L}\p{N}]/gu, '')
}
