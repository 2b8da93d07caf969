// Classifies an answer of the service by the failure table. Pure, and total on any bytes.
import { STATUS_CODES } from 'node:http'
import type { PermanentReason, Reason, ServiceOutcome, TransientReason } from '../token/outcome.ts'
import { holdsSecret } from '../lib/secret.ts'
import { bare, oneLine } from './detail.ts'

/** Longest body that is read, in bytes. */
export const MAX_BODY_BYTES = 64 * 1024
/** Longest access token that is taken, in characters. */
export const MAX_TOKEN_LENGTH = 16 * 1024
/** Longest time that `Retry-After` can hold us off, in ms. */
const MAX_RETRY_AFTER_MS = 3_600_000

/** An answer as it came. */
export interface ServiceResponse {
  readonly status: number
  /** By lower-case name. */
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>
  readonly body: Uint8Array
  /** The body was longer than MAX_BODY_BYTES, and the rest of it was not read. */
  readonly isCut?: boolean
}

/** One row of the failure table: which answers fall under it, and what follows. */
export interface Row {
  readonly reasons: readonly (Reason | 'ok')[]
  readonly answer: string
  readonly follows: 'token' | 'permanent' | 'retried' | 'retried every 5 to 10 min, with an alert'
}

/** The failure table, in the order in which its rows are tried. Each reason has one row. */
export const failureTable: readonly Row[] = [
  { reasons: ['ok'], answer: '200 with an accessToken fit for a Bearer header', follows: 'token' },
  {
    reasons: ['account-inactive'],
    answer: '500 that says "Your account is not active"',
    follows: 'permanent',
  },
  { reasons: ['account-not-found'], answer: '404 that says "Account not found"', follows: 'permanent' },
  { reasons: ['rate-limited'], answer: '429', follows: 'retried' },
  { reasons: ['server-error'], answer: 'any other 5xx, 408, 425', follows: 'retried' },
  {
    reasons: ['malformed-answer'],
    answer: '200 without such a token, any other 2xx, any redirect, or no HTTP at all',
    follows: 'retried',
  },
  { reasons: ['network', 'timeout', 'tls'], answer: 'no answer', follows: 'retried' },
  {
    reasons: ['rejected'],
    answer: "any other 4xx, and a 404 that is not the service's own",
    follows: 'retried every 5 to 10 min, with an alert',
  },
]

/** The row of the table that an outcome fell under. */
export function rowOf(outcome: ServiceOutcome): Row {
  const reason = outcome.kind === 'ok' ? 'ok' : outcome.reason
  const row = failureTable.find(({ reasons }) => reasons.includes(reason))
  if (row === undefined) throw new Error(`No row of the failure table holds ${reason}`)
  return row
}

/** The words with which the service refuses for good (interface description, section 7). */
const REFUSALS: readonly { status: number; reason: PermanentReason; words: string }[] = [
  { status: 500, reason: 'account-inactive', words: 'Your account is not active' },
  { status: 404, reason: 'account-not-found', words: 'Account not found' },
]
/** RFC 6750, section 2.1 (b64token), and no `~` at its head: a shell would take it for a home directory. */
export const BEARER_TOKEN = /^(?!~)[A-Za-z0-9._~+/-]+=*$/
const RETRIED_4XX = new Set([408, 425])

/**
 * The outcome of an answer. `wallMs` is our wall clock, for a `Retry-After` date where the answer has no `Date`;
 * `secrets` are kept out of the detail, where the service echoes them; a token that holds one of the `credentials` is none.
 */
export function classify(
  answer: ServiceResponse,
  options: { wallMs: number; secrets: Iterable<string>; credentials?: Readonly<Echoed> },
): ServiceOutcome {
  const { status } = answer
  const content = contentOf(answer)
  const detail = (words: string): string => {
    const said =
      typeof content.detail === 'string' && status >= 300 ? oneLine(content.detail, options.secrets) : ''
    return said === '' ? words : said
  }
  if (status === 200) return granted(answer, content, options.credentials)
  const refusal = REFUSALS.find((known) => known.status === status && says(content, known.words))
  if (refusal !== undefined) {
    return { kind: 'permanent', reason: refusal.reason, detail: detail(refusal.words), status }
  }
  const reason = reasonOf(status)
  const text = detail(`The service answered ${nameOf(status)}${remarkOn(answer)}`)
  const failure = { kind: 'transient', reason, detail: text, status } as const
  const retryAfterMs = isHeldOff(reason) ? retryAfter(answer, options.wallMs) : undefined
  return retryAfterMs === undefined ? failure : { ...failure, retryAfterMs }
}

/** The reason of an answer that is neither a token nor a refusal. A status that HTTP does not have is malformed too. */
function reasonOf(status: number): TransientReason {
  if (status === 429) return 'rate-limited'
  const hundreds = Math.floor(status / 100)
  if (hundreds === 5 || RETRIED_4XX.has(status)) return 'server-error'
  return hundreds === 4 ? 'rejected' : 'malformed-answer'
}

function isHeldOff(reason: TransientReason): boolean {
  return reason === 'rate-limited' || reason === 'server-error'
}

function nameOf(status: number): string {
  return `${status} ${STATUS_CODES[status] ?? ''}`.trim()
}

function remarkOn({ status, headers }: ServiceResponse): string {
  if (status === 404) return ", and not the service's own: check baseUrl"
  if (status < 300 || status >= 400) return ''
  return ` and points elsewhere${originOf(headers['location'])}; it was not followed, because the secret would go there too: check baseUrl`
}

/** The origin a redirect points to. The rest of it is not shown: it could contain the secret. */
function originOf(location: unknown): string {
  if (typeof location !== 'string' || !URL.canParse(location)) return ''
  const { origin } = new URL(location)
  return /^https?:\/\/[\w.:[\]-]{1,80}$/.test(origin) ? `, to ${origin}` : ''
}

// ---- a token ----------------------------------------------------------------------------------------------------------

/** The outcome of a 200. Its body is never quoted. */
function granted(
  { status, headers }: ServiceResponse,
  content: Content,
  credentials: Readonly<Echoed> | undefined,
): ServiceOutcome {
  const malformed = (why: string): ServiceOutcome => ({
    kind: 'transient',
    reason: 'malformed-answer',
    detail: `The service answered 200 OK, but ${why}`,
    status,
  })
  if (content.fields === undefined) return malformed(`its body is ${content.is}`)
  const { accessToken } = content.fields
  if (typeof accessToken !== 'string') return malformed('without a string accessToken')
  if (accessToken.length > MAX_TOKEN_LENGTH) return malformed('its accessToken is longer than 16 KiB')
  if (!BEARER_TOKEN.test(accessToken)) {
    return malformed('its accessToken is empty or has characters that a Bearer token cannot have (RFC 6750)')
  }
  if (credentials !== undefined && isEcho(accessToken, credentials)) {
    return malformed('its accessToken holds the key or the secret, and is not used')
  }
  const serverDateMs = httpDateMs(headers['date'])
  return serverDateMs === undefined ? { kind: 'ok', accessToken } : { kind: 'ok', accessToken, serverDateMs }
}

/** The credentials, which a service may echo. */
interface Echoed {
  apiKey: string
  apiSecret: string
}

/** Reports whether the token gives the credentials away. The claims of a JWT, which are encoded, may well name the key. */
function isEcho(accessToken: string, { apiKey, apiSecret }: Readonly<Echoed>): boolean {
  return holdsSecret(accessToken, apiSecret) || holdsSecret(accessToken, apiKey, { isEncoded: false })
}

// ---- what a body says --------------------------------------------------------------------------------------------------

interface Content {
  /** Its fields, where it is a JSON object. */
  readonly fields?: Readonly<Record<string, unknown>>
  /** `detail` of the JSON object. */
  readonly detail?: unknown
  /** The whole of it, where it is none. */
  readonly text?: string
  /** Describes a JSON value in words. */
  readonly is: string
}

function contentOf({ headers, body, isCut }: ServiceResponse): Content {
  const coding = headers['content-encoding']
  if (isCut === true || body.length > MAX_BODY_BYTES) return { is: 'longer than 64 KiB' }
  if (coding !== undefined && coding !== '' && coding !== 'identity') return { is: 'compressed' }
  const text = new TextDecoder().decode(body)
  try {
    const value: unknown = JSON.parse(text)
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) {
      const fields = value as Record<string, unknown>
      return { fields, detail: fields['detail'], is: 'a JSON object' }
    }
    return { text, is: 'JSON, but no object' }
  } catch {
    // Not JSON: a gateway's page, or nothing.
    return { text, is: text.trim() === '' ? 'empty' : 'not JSON' }
  }
}

/** Reports whether the detail, or the text if it is not JSON, contains these words, case and white space aside. */
function says({ fields, detail, text }: Content, words: string): boolean {
  const said = fields === undefined ? text : detail
  return typeof said === 'string' && bare(said).includes(bare(words))
}

// ---- dates -----------------------------------------------------------------------------------------------------------

/** `Retry-After` (RFC 9110, section 10.2.3) in ms, at most an hour; undefined where it is none or is past. */
function retryAfter({ headers }: ServiceResponse, wallMs: number): number | undefined {
  const value = headers['retry-after']
  if (typeof value !== 'string') return undefined
  if (/^\s*\d+\s*$/.test(value)) return Math.min(Number(value) * 1000, MAX_RETRY_AFTER_MS)
  const atMs = httpDateMs(value)
  if (atMs === undefined) return undefined
  const waitMs = atMs - (httpDateMs(headers['date']) ?? wallMs)
  return waitMs < 0 ? undefined : Math.min(waitMs, MAX_RETRY_AFTER_MS)
}

const TIME = String.raw`\d{2}:\d{2}:\d{2}`
/** The three forms of RFC 9110, section 5.6.7. `Date.parse` alone would take `-5` for a year. */
const HTTP_DATES = [
  new RegExp(String.raw`^[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} ${TIME} GMT$`),
  new RegExp(String.raw`^[A-Z][a-z]{5,8}, \d{2}-[A-Z][a-z]{2}-\d{2} ${TIME} GMT$`),
  new RegExp(String.raw`^[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d ${TIME} \d{4}$`),
]

function httpDateMs(value: unknown): number | undefined {
  if (typeof value !== 'string') return undefined
  const text = value.trim()
  if (!HTTP_DATES.some((form) => form.test(text))) return undefined
  const ms = Date.parse(text.endsWith('GMT') ? text : `${text} GMT`)
  return Number.isNaN(ms) ? undefined : ms
}
