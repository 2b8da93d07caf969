// The failure table as data, and the outcome of an answer by that table. Pure; any bytes have an outcome.
import { STATUS_CODES } from 'node:http'
import type { PairConfig, ServiceConfig, ServiceRefusal } from '../config/config.ts'
import { formatDuration } from '../lib/duration.ts'
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
  /** `Retry-After` counts. */
  readonly mayWait?: boolean
}

/** An answer, read. */
interface Reading {
  readonly status: number
  readonly content: read.Content
  /** Of a 200 or 201: the token, or why there is none. */
  readonly grant: Grant | string | undefined
  /** How far the `iat` of our assertion is behind the answer's `Date`; null: none was signed, or none is known. */
  readonly behindMs: number | null
}

/** Beyond this difference a service may refuse an assertion for its time alone. */
const TOLERATED_CLOCK_MS = 30_000

const isIn = (first: number, last: number) => ({ status }: Reading) => status >= first && status <= last // prettier-ignore

const retriedRows: readonly (Row & { reason: TransientReason })[] = [
  { reason: 'rate-limited', answer: '429', follows: 'retried', covers: isIn(429, 429), mayWait: true },
  {
    reason: 'server-error',
    answer: 'any other 5xx, 408, 425',
    follows: 'retried',
    covers: (reading) => isIn(500, 599)(reading) || reading.status === 408 || reading.status === 425,
    mayWait: true,
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
      covers: (reading) =>
        Math.abs(reading.behindMs ?? 0) > TOLERATED_CLOCK_MS &&
        refusals.some((refusal) => isRefusal(reading, refusal)),
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
function isRefusal({ status, content }: Reading, { says, in: path, ...refusal }: ServiceRefusal): boolean {
  if (status !== refusal.status) return false
  const value = path && read.valueAt(content.fields ?? {}, path)
  // A number, true or false are words, too: a code may say it all.
  const isSaid = ['string', 'number', 'boolean'].includes(typeof value)
  return read.bare(isSaid ? String(value) : content.text).includes(read.bare(says))
}

interface ClassifyOptions {
  /** Our wall clock, for a `Retry-After` date where the answer has no `Date`. */
  readonly wallMs: number
  /** Left out of the detail: the service may echo them. */
  readonly secrets: Iterable<string>
  /** The `iat` of the assertion that was signed for the request, in ms. */
  readonly iatMs?: number | undefined
}

/** Returns the function that gives the outcome of an answer and its row. */
export function createClassify({ service, pair }: { service: ServiceConfig; pair: PairConfig }) {
  const table = failureTable({ ...service, ...pair })
  return (answer: read.ServiceResponse, options: ClassifyOptions): { outcome: ServiceOutcome; row: Row } => {
    const { secrets, wallMs, iatMs } = options
    const { status } = answer
    const content = read.contentOf(answer)
    const isToken = status === 200 || status === 201
    const grant = isToken ? read.grantOf(answer, content, { service, pair }) : undefined
    const serverDateMs = read.dateOf(answer)
    const behindMs = iatMs === undefined || serverDateMs === undefined ? null : serverDateMs - iatMs
    const reading = { status, content, grant, behindMs }
    const row = table.find(({ covers }) => covers?.(reading))!
    if (row.reason === 'ok') return { outcome: grant as Grant, row }
    const detail = detailOf(reading, { row, service, secrets })
    const failed = { detail, status, serverDateMs }
    if (row.refusal !== undefined) {
      const { reason } = row.refusal
      return { outcome: { kind: 'permanent', reason, ...failed }, row }
    }
    const waitMs = row.mayWait === true ? read.retryAfterOf(answer, wallMs) : undefined
    const wait = waitMs !== undefined && { retryAfterMs: waitMs }
    return { outcome: { kind: 'transient', reason: row.reason as TransientReason, ...failed, ...wait }, row }
  }
}

interface Told {
  readonly row: Row
  readonly service: ServiceConfig
  readonly secrets: Iterable<string>
}

/** The words of the service, or ours. A 2xx is never quoted. */
function detailOf({ status, content, grant, behindMs }: Reading, { row, service, secrets }: Told): string {
  const answered = `The service answered ${status} ${STATUS_CODES[status] ?? ''}`.trim()
  if (typeof grant === 'string') return `${answered}, but ${grant}`.slice(0, read.MAX_DETAIL_LENGTH)
  const { refusal, reason } = row
  const usual = [['detail'], ['error_description'], ...service.refusals.map((known) => known.in)]
  const said = status < 300 ? [] : usual.map((path) => path && read.valueAt(content.fields ?? {}, path))
  const quoted = read.oneLine(said.filter((text) => typeof text === 'string').find(Boolean) ?? '', secrets)
  const words = quoted || refusal?.says || answered + remarkOn(status, service)
  if (reason !== 'assertion') return words
  const off = formatDuration(Math.abs(behindMs ?? 0))
  return `${words}; the iat of the assertion was ${off} ${behindMs! > 0 ? 'behind' : 'ahead of'} the service's clock`
}

function remarkOn(status: number, { hostSetting }: ServiceConfig): string {
  if (status === 404) return `, and not the service's own: check ${hostSetting}`
  if (status < 300 || status >= 400) return ''
  return ` and points elsewhere; it was not followed, because the secret would go there too: check ${hostSetting}`
}
