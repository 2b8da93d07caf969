// The failure table, and the outcome of an answer by that table. Pure; any bytes have an outcome.
import { STATUS_CODES } from 'node:http'
import type { ServiceConfig, ServiceRefusal } from '../config/config.ts'
import { isRecord, parseJson } from '../lib/input.ts'
import { parseInstant } from '../lib/duration.ts'
import type { Credentials } from '../lib/credentials.ts'
import { holdsSecret } from '../lib/redaction.ts'
import {
  transientReasons,
  type Grant,
  type Reason,
  type ServiceOutcome,
  type TransientReason,
} from '../token/outcome.ts'
import { bare, MAX_DETAIL_LENGTH, oneLine } from './detail.ts'

/** Longest body that is read, in bytes. */
export const MAX_BODY_BYTES = 64 * 1024
/** Longest access token that is taken, in characters. */
export const MAX_TOKEN_LENGTH = 16 * 1024
/** The longest time for which `Retry-After` is followed, in ms. */
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
interface Row {
  readonly reason: Reason | 'ok'
  readonly answer: string
  readonly follows: 'token' | 'permanent' | 'retried' | 'retried every 5 to 10 min, with an alert'
  /** Reports whether the answer falls under it, and under none before it. */
  readonly covers: (reading: Reading) => boolean
  /** The setting that makes it a row; unset: it is always there. */
  readonly refusal?: ServiceRefusal
}

const hundredsOf = ({ status }: Reading): number => Math.floor(status / 100)
/** The exchange itself gives the reason, before there is an answer to read. */
const isUnread = (): boolean => false

/** The rows of failures that are retried, tried in the order of `transientReasons`. */
const retriedRows: Readonly<Record<TransientReason, Omit<Row, 'reason'>>> = {
  'rate-limited': { answer: '429', follows: 'retried', covers: ({ status }) => status === 429 },
  'server-error': {
    answer: 'any other 5xx, 408, 425',
    follows: 'retried',
    covers: (reading) => hundredsOf(reading) === 5 || reading.status === 408 || reading.status === 425,
  },
  // A status that HTTP does not have is malformed, too.
  'malformed-answer': {
    answer: '200 or 201 without such a token, any other 2xx, any redirect, or no HTTP at all',
    follows: 'retried',
    covers: (reading) => hundredsOf(reading) !== 4,
  },
  network: { answer: 'no answer: name, connection, reset', follows: 'retried', covers: isUnread },
  timeout: { answer: 'no answer in time', follows: 'retried', covers: isUnread },
  tls: { answer: 'no answer: certificate, TLS', follows: 'retried', covers: isUnread },
  rejected: {
    answer: "any other 4xx, and a 404 that is not the service's own",
    follows: 'retried every 5 to 10 min, with an alert',
    covers: () => true,
  },
}

/** The failure table of a service. The first row that covers an answer counts; one always does. */
export function failureTable(service: Pick<ServiceConfig, 'refusals' | 'token'>): readonly Row[] {
  const name = service.token.join('.')
  const refusals = service.refusals.map((refusal) => ({
    reason: refusal.reason,
    answer: `${refusal.status} that says "${refusal.says}"`,
    follows: 'permanent' as const,
    covers: (reading: Reading) => isRefusal(reading, refusal),
    refusal,
  }))
  const isEarly = ({ refusal }: { refusal: ServiceRefusal }): boolean => refusal.status < 300
  return [
    // Before the token: it may be in such an answer.
    ...refusals.filter(isEarly),
    {
      reason: 'ok',
      answer: `200 or 201 with ${/^[aeiou]/i.test(name) ? 'an' : 'a'} ${name} fit for a header`,
      follows: 'token',
      covers: ({ grant }) => typeof grant === 'object',
    },
    ...refusals.filter((row) => !isEarly(row)),
    ...transientReasons.map((reason) => ({ reason, ...retriedRows[reason] })),
  ]
}

/** Visible ASCII but what ends or escapes a text in headers, shells and files of variables. */
export const TOKEN = /^[!#-&(-+\--:<-[\]-~]+$/

interface ClassifyOptions {
  /** Our wall clock, for a `Retry-After` date if the answer has no `Date`. */
  readonly wallMs: number
  /** Removed from the detail: the service may echo them. */
  readonly secrets: Iterable<string>
  /** A token that contains one of them is not accepted. */
  readonly credentials?: Credentials
}

interface Context extends ClassifyOptions {
  readonly service: ServiceConfig
}

export type Classify = ReturnType<typeof createClassify>

/** Returns the function that gives the outcome of an answer and its row. */
export function createClassify(service: ServiceConfig) {
  const table = failureTable(service)
  return (answer: ServiceResponse, options: ClassifyOptions): { outcome: ServiceOutcome; row: Row } => {
    const context = { service, ...options }
    const { status } = answer
    const content = contentOf(answer)
    const grant = status === 200 || status === 201 ? grantOf(answer, content, context) : undefined
    const reading = { status, content, grant }
    const row = table.find(({ covers }) => covers(reading))!
    if (row.follows === 'token') return { outcome: grant as Grant, row }
    const detail = detailOf(reading, row.refusal, answer, context)
    if (row.refusal !== undefined) {
      const { reason, says } = row.refusal
      return { outcome: { kind: 'permanent', reason, detail, status, says }, row }
    }
    const reason = row.reason as TransientReason
    const waitMs = MAY_WAIT.has(reason) ? retryAfter(answer, options.wallMs) : undefined
    const wait = waitMs !== undefined && { retryAfterMs: waitMs }
    return { outcome: { kind: 'transient', reason, detail, status, ...wait }, row }
  }
}

/** Only these rows honour `Retry-After`. */
const MAY_WAIT = new Set<TransientReason>(['rate-limited', 'server-error'])

/** An answer, read. */
interface Reading {
  readonly status: number
  readonly content: Content
  /** Of a 200 or 201: the token, or why there is none. */
  readonly grant: Grant | string | undefined
}

/** The words of the service, or ours. A 2xx is never quoted. */
function detailOf(
  { status, content, grant }: Reading,
  refusal: ServiceRefusal | undefined,
  answer: ServiceResponse,
  { service, secrets }: Context,
): string {
  const answered = `The service answered ${status} ${STATUS_CODES[status] ?? ''}`.trim()
  if (refusal !== undefined && status < 300) return refusal.says
  if (typeof grant === 'string') return `${answered}, but ${grant}`.slice(0, MAX_DETAIL_LENGTH)
  if (status < 300) return answered + remarkOn(answer, service)
  const usual = [['detail'], ['error_description'], ...service.refusals.map((known) => known.in)]
  const paths = refusal === undefined ? usual : [refusal.in]
  const said = paths.map((path) => path && textAt(content, path)).find(Boolean)
  return oneLine(said ?? '', secrets) || refusal?.says || answered + remarkOn(answer, service)
}

function remarkOn({ status, headers }: ServiceResponse, { description, hostSetting }: ServiceConfig): string {
  const isInBoth = description !== null && hostSetting === 'baseUrl'
  const check = isInBoth ? 'check baseUrl and service.tokenUrl' : `check ${hostSetting}`
  if (status === 404) return `, and not the service's own: ${check}`
  if (status < 300 || status >= 400) return ''
  return (
    ` and points elsewhere${originOf(headers['location'])}; ` +
    `it was not followed, because the secret would go there too: ${check}`
  )
}

/** The origin a redirect points to. The rest of it is not shown: it could contain the secret. */
function originOf(location: unknown): string {
  if (typeof location !== 'string' || !URL.canParse(location)) return ''
  const { origin } = new URL(location)
  return /^https?:\/\/[\w.:[\]-]{1,80}$/.test(origin) ? `, to ${origin}` : ''
}

/** The token of a 200 or 201, or why there is none, as the words after "but". No value is quoted. */
function grantOf(
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
  const names = [apiKey, ...Object.values(further)].map((secret) => secret.reveal())
  return (
    (apiSecret !== null && holdsSecret(token, apiSecret.reveal())) ||
    names.some((name) => holdsSecret(token, name, { isEncoded: false }))
  )
}

/** Names of an answer that are shown, and their length: a longer one could be a value. */
const MAX_NAMES = 8
const SHOWN_NAME = /^[A-Za-z_][\w-]{0,31}$/

function missing(fields: Fields, path: readonly string[], secrets: Iterable<string>): string {
  const depth = path.findIndex((_, index) => !isRecord(valueAt(fields, path.slice(0, index + 1))))
  const within = path.slice(0, depth)
  const shown = shownNames(valueAt(fields, within) as Fields, secrets, within)
  return `the answer has no "${path.join('.')}"${shown === '' ? '' : `; it has ${shown}`}`
}

function shownNames(fields: Fields, secrets: Iterable<string>, within: readonly string[] = []): string {
  const names = Object.keys(fields)
    .filter((name) => SHOWN_NAME.test(name))
    .slice(0, MAX_NAMES)
    .map((name) => `"${[...within, name].join('.')}"`)
  return oneLine(names.join(', '), secrets)
}

/** Describes an answer with the names of its fields, and without their values. */
export function describeAnswer(answer: ServiceResponse, secrets: Iterable<string>): string {
  const { fields, inWords } = contentOf(answer)
  const names = fields === undefined ? '' : shownNames(fields, secrets)
  return `HTTP ${answer.status}, and its body is ${inWords}${names === '' ? '' : ` with ${names}`}`
}

type Fields = Readonly<Record<string, unknown>>

interface Content {
  /** Its fields, if it is a JSON object. */
  readonly fields?: Fields
  /** The whole of it. */
  readonly text: string
  /** Describes it in words. */
  readonly inWords: string
}

function contentOf({ headers, body, isCut }: ServiceResponse): Content {
  const coding = headers['content-encoding']
  if (isCut === true || body.length > MAX_BODY_BYTES) return { text: '', inWords: 'longer than 64 KiB' }
  if (coding !== undefined && coding !== '' && coding !== 'identity')
    return { text: '', inWords: 'compressed' }
  const text = new TextDecoder().decode(body)
  const value = parseJson(text)
  if (isRecord(value)) return { fields: value, text, inWords: 'a JSON object' }
  if (value !== undefined) return { text, inWords: 'JSON, but no object' }
  return { text, inWords: text.trim() === '' ? 'empty' : 'not JSON' }
}

function valueAt(fields: Fields, path: readonly string[]): unknown {
  return path.reduce<unknown>(
    (value, name) => (isRecord(value) && Object.hasOwn(value, name) ? value[name] : undefined),
    fields,
  )
}

function textAt({ fields = {} }: Content, path: readonly string[]): string | undefined {
  const value = valueAt(fields, path)
  return typeof value === 'string' ? value : undefined
}

/** The words by which an answer may refuse; a number, true or false are words, too: a code may say it all. */
function wordsAt({ fields = {} }: Content, path: readonly string[]): string | undefined {
  const value = valueAt(fields, path)
  return ['string', 'number', 'boolean'].includes(typeof value) ? String(value) : undefined
}

function isRefusal({ status, content }: Omit<Reading, 'grant'>, refusal: ServiceRefusal): boolean {
  if (status !== refusal.status) return false
  // An answer with a token must not be taken for a refusal because of words elsewhere in it.
  const elsewhere = status < 300 && content.fields !== undefined ? '' : content.text
  const said = (refusal.in === null ? undefined : wordsAt(content, refusal.in)) ?? elsewhere
  return bare(said).includes(bare(refusal.says))
}

/** `Retry-After` (RFC 9110, section 10.2.3) in ms, at most an hour; undefined if it is none or is past. */
function retryAfter(answer: ServiceResponse, wallMs: number): number | undefined {
  const value = answer.headers['retry-after']
  if (typeof value !== 'string') return undefined
  if (/^\s*\d+\s*$/.test(value)) return Math.min(Number(value) * 1000, MAX_RETRY_AFTER_MS)
  const waitMs = (httpDateMs(value) ?? -Infinity) - (dateOf(answer) ?? wallMs)
  return waitMs < 0 ? undefined : Math.min(waitMs, MAX_RETRY_AFTER_MS)
}

/** The `Date` of an answer, in ms since the epoch; undefined if it has none. */
export function dateOf({ headers }: ServiceResponse): number | undefined {
  return httpDateMs(headers['date'])
}

/** How dates are sent (RFC 9110, section 5.6.7). `Date.parse` alone would take `-5` for a year. */
const HTTP_DATE = /^[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT$/

function httpDateMs(value: unknown): number | undefined {
  if (typeof value !== 'string' || !HTTP_DATE.test(value.trim())) return undefined
  const ms = Date.parse(value)
  return Number.isNaN(ms) ? undefined : ms
}
