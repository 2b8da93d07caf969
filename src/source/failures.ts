// The failure table as data, and the outcome of an answer by that table. Pure; any bytes have an outcome.
import { STATUS_CODES } from 'node:http'
import type { PairConfig, ServiceConfig, ServiceRefusal } from '../config/config.ts'
import { parseRecord } from '../lib/input.ts'
import type { Reason, TransientReason } from '../protocol.ts'
import type { Grant, ServiceOutcome } from '../token/outcome.ts'
import * as read from './answer.ts'

/** One row of the failure table: which answers fall under it, and what follows. */
interface Row {
  readonly reason: Reason | 'ok'
  readonly answer: string
  readonly follows: string
  /** Reports whether the answer falls under it, and under none before it. Unset: there is no answer to read. */
  readonly covers?: (reading: Reading) => boolean
  /** The setting that makes it a row; unset: it is always there. */
  readonly refusal?: ServiceRefusal
}

/** An answer, read. */
interface Reading {
  readonly status: number
  readonly text: string
  /** Undefined: its text is no JSON object. */
  readonly fields: read.Fields | undefined
  /** Of a 200 or 201: the token, or why there is none. */
  readonly grant: Grant | string | undefined
  /** The `iat` of our assertion and the answer's `Date` are so far apart that it may be refused for that alone. */
  readonly isClockOff: boolean
}

const TOLERATED_CLOCK_MS = 30_000
/** The `Retry-After` of these reasons counts; the wait in ms where there is none. */
const BUSY: Readonly<Record<string, number>> = { 'rate-limited': 60_000, 'server-error': 0 }

const isIn = (first: number, last: number) => ({ status }: Reading) => status >= first && status <= last // prettier-ignore

const retriedRows: readonly (Row & { reason: TransientReason })[] = [
  { reason: 'rate-limited', answer: '429', follows: 'retried', covers: isIn(429, 429) },
  {
    reason: 'server-error',
    answer: 'any other 5xx, 408, 425',
    follows: 'retried',
    covers: (reading) => isIn(500, 599)(reading) || reading.status === 408 || reading.status === 425,
  },
  {
    reason: 'rejected',
    answer: "any other 4xx, and a 404 that is not the service's own",
    follows: 'retried every 5 to 10 min, with an alert',
    covers: isIn(400, 499),
  },
  {
    reason: 'malformed-answer',
    answer: '200 or 201 without such a token, any other 2xx, any redirect, or no HTTP at all',
    follows: 'retried',
    covers: () => true,
  },
  { reason: 'network', answer: 'no answer: name, connection, reset', follows: 'retried' },
  { reason: 'timeout', answer: 'no answer in time', follows: 'retried' },
  { reason: 'tls', answer: 'no answer: certificate, TLS', follows: 'retried' },
  {
    reason: 'assertion',
    answer: '(not asked: the ready-made assertion is missing or has ended)',
    follows: 'retried, and at once when it is good',
  },
]

/** The failure table of a service. The first row that covers an answer counts; one always does. */
export function failureTable({
  refusals,
  token,
}: Pick<ServiceConfig, 'refusals'> & Pick<PairConfig, 'token'>): readonly Row[] {
  const name = token.join('.')
  const isRefused = (reading: Reading): boolean => refusals.some((refusal) => isRefusal(reading, refusal))
  return [
    {
      reason: 'ok',
      answer: `200 or 201 with ${/^[aeiou]/i.test(name) ? 'an' : 'a'} ${name} fit for a header`,
      follows: 'token',
      covers: ({ grant }) => typeof grant === 'object',
    },
    {
      reason: 'assertion',
      answer: "a permanent row, where the `iat` of our assertion is over 30 s from the answer's `Date`",
      follows: "retried by the service's clock",
      covers: (reading) => reading.isClockOff && isRefused(reading),
    },
    ...refusals.map((refusal) => ({
      reason: refusal.reason,
      answer: `${refusal.status} that says "${refusal.says}"`,
      follows: 'permanent',
      covers: (reading: Reading) => isRefusal(reading, refusal),
      refusal,
    })),
    ...retriedRows,
  ]
}

/** `status`, and the words at the path of the refusal, or in the whole answer where there are none. */
function isRefusal(
  { status, fields, text }: Reading,
  { says, in: path, ...refusal }: ServiceRefusal,
): boolean {
  if (status !== refusal.status) return false
  const value = path && read.valueAt(fields ?? {}, path)
  // A number, true or false are words, too: a code may say it all.
  const isSaid = ['string', 'number', 'boolean'].includes(typeof value)
  return bare(isSaid ? String(value) : text).includes(bare(says))
}

/** Case and white space do not count. */
function bare(text: string): string {
  return text.toLowerCase().replace(/\s/g, '')
}

interface AnswerContext {
  readonly service: ServiceConfig
  readonly pair: PairConfig
  /** Our wall clock, for a `Retry-After` date where the answer has no `Date`. */
  readonly wallMs: number
  /** Left out of the detail: the service may echo them. */
  readonly secrets: readonly string[]
  /** The `iat` of the assertion that was signed for the request, in ms. */
  readonly iatMs?: number | undefined
}

/** The outcome of an answer, by the first row that covers it. */
export function outcomeOf(answer: read.ServiceResponse, context: AnswerContext): ServiceOutcome {
  const { service, pair, wallMs, iatMs } = context
  const { status, body } = answer
  const text = new TextDecoder().decode(body ?? new Uint8Array())
  const fields = parseRecord(text)
  const grant = status === 200 || status === 201 ? read.grantOf(answer, fields, context) : undefined
  const serverDateMs = read.dateOf(answer)
  const isClockOff = Math.abs((serverDateMs ?? NaN) - (iatMs ?? NaN)) > TOLERATED_CLOCK_MS
  const reading = { status, text, fields, grant, isClockOff }
  const row = failureTable({ ...service, ...pair }).find(({ covers }) => covers?.(reading))!
  if (row.reason === 'ok') return grant as Grant
  const failed = { detail: detailOf(reading, row, context), status, serverDateMs }
  if (row.refusal !== undefined) return { kind: 'permanent', reason: row.refusal.reason, ...failed }
  const reason = row.reason as TransientReason
  const retryAfterMs = reason in BUSY ? (read.retryAfterOf(answer, wallMs) ?? BUSY[reason]) : undefined
  return { kind: 'transient', reason, ...failed, ...(retryAfterMs !== undefined && { retryAfterMs }) }
}

/** The words of the service, or ours. A 2xx is never quoted. */
function detailOf(
  { status, fields = {}, grant }: Reading,
  { reason, refusal }: Row,
  { service, secrets }: AnswerContext,
): string {
  const answered = `The service answered ${status} ${STATUS_CODES[status] ?? ''}`.trim()
  if (typeof grant === 'string') return `${answered}, but ${grant}`.slice(0, read.MAX_DETAIL_LENGTH)
  const usual = [['detail'], ['error_description'], ...service.refusals.map((known) => known.in)]
  const said = status < 300 ? [] : usual.map((path) => path && read.valueAt(fields, path))
  const quoted = read.oneLine(said.filter((text) => typeof text === 'string').find(Boolean) ?? '', secrets)
  const words = quoted || refusal?.says || answered
  return reason === 'assertion' ? `The iat of the assertion is not the service's time: ${words}` : words
}
