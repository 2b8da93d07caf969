// The failure table, and the outcome of an answer by that table. Pure; any bytes have an outcome.
import { STATUS_CODES } from 'node:http'
import type { ServiceConfig, ServiceRefusal } from '../config/config.ts'
import { MAX_RETRY_AFTER_MS } from '../token/backoff.ts'
import { transientReasons, type Reason, type TransientReason } from '../protocol.ts'
import type { Grant, ServiceOutcome } from '../token/outcome.ts'
import {
  contentOf,
  dateOf,
  httpDateMs,
  textAt,
  wordsAt,
  type Content,
  type ServiceResponse,
} from './answer.ts'
import { bare, MAX_DETAIL_LENGTH, oneLine } from './detail.ts'
import { grantOf, otherTokenType, type Context } from './grant.ts'

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
  assertion: {
    answer: '(not asked: the ready-made assertion is missing or has ended)',
    follows: 'retried',
    covers: isUnread,
  },
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

type ClassifyOptions = Omit<Context, 'service'>

export type Classify = ReturnType<typeof createClassify>

interface Classified {
  readonly outcome: ServiceOutcome
  readonly row: Row
  /** See `otherTokenType`; undefined without a token, too. */
  readonly otherType?: string | undefined
}

/** Returns the function that gives the outcome of an answer and its row. */
export function createClassify(service: ServiceConfig) {
  const table = failureTable(service)
  return (answer: ServiceResponse, options: ClassifyOptions): Classified => {
    const context = { service, ...options }
    const { status } = answer
    const content = contentOf(answer)
    const grant = status === 200 || status === 201 ? grantOf(answer, content, context) : undefined
    const reading = { status, content, grant }
    const row = table.find(({ covers }) => covers(reading))!
    if (row.follows === 'token')
      return { outcome: grant as Grant, row, otherType: otherTokenType(content, service) }
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
  const said = paths.map((path) => path && wordsOf(content, path)).find(Boolean)
  return oneLine(said ?? '', secrets) || refusal?.says || answered + remarkOn(answer, service)
}

/** The text at the path; an error code of OAuth 2 with its description (RFC 6749, section 5.2). */
function wordsOf(content: Content, path: readonly string[]): string | undefined {
  const text = textAt(content, path)
  if (text === undefined || path.at(-1) !== 'error') return text
  const description = textAt(content, [...path.slice(0, -1), 'error_description'])
  return description === undefined ? text : `${text}: ${description}`
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
