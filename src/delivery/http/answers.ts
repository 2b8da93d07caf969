// Answers over HTTP: headers, problem details (RFC 9457), and the last answer of a connection that is closed.
import { STATUS_CODES, type IncomingMessage, type ServerResponse } from 'node:http'
import type { Fault, FaultCode } from '../../protocol.ts'
import type { DropReason } from '../limits.ts'

/** The codes of the protocol, and those that only HTTP has. */
type ProblemCode = FaultCode | 'not-found' | 'method-not-allowed' | 'stalled'
type Problem = Omit<Fault, 'code'> & { readonly code: ProblemCode }

export const statusOf: Readonly<Record<ProblemCode, number>> = {
  'no-token-yet': 503,
  expired: 503,
  'account-inactive': 503,
  'account-not-found': 503,
  misconfigured: 503,
  stalled: 503,
  denied: 403,
  'bad-request': 400,
  'not-found': 404,
  'method-not-allowed': 405,
  busy: 429,
}

/** A whole answer. */
export interface Answer {
  readonly status: number
  /** Null: it has no body. */
  readonly contentType: string | null
  readonly body: string | Buffer
  readonly headers?: readonly string[]
  /** The connection ends with this answer, for this reason. */
  readonly drop?: DropReason
}

/** Sends the answer, which no cache may keep. */
export function send(res: ServerResponse, { status, contentType, body, headers }: Answer): void {
  const length = String(Buffer.byteLength(body))
  const content = contentType === null ? [] : ['Content-Type', contentType, 'Content-Length', length]
  res.writeHead(status, ['Cache-Control', 'no-store', ...content, ...(headers ?? [])])
  res.end(body)
}

export function json(body: object): Answer {
  return { status: 200, contentType: 'application/json', body: JSON.stringify(body) }
}

/** Problem details. `status`: another one than that of the fault's code. */
export function problem({
  fault,
  status = statusOf[fault.code],
  ...more
}: { readonly fault: Problem } & Partial<Answer>): Answer {
  const { code, message, reason } = fault
  const title = STATUS_CODES[status]
  const fields = { type: 'about:blank', title, status, detail: message, code, reason }
  return { status, contentType: 'application/problem+json', body: JSON.stringify(fields), ...more }
}

/** The answer as text, for a connection whose input is no request. */
export function closingText({ status, contentType, body }: Answer): string {
  return [
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
    `Content-Type: ${contentType}`,
    `Content-Length: ${Buffer.byteLength(body)}`,
    'Cache-Control: no-store',
    'Connection: close',
    '',
    body,
  ].join('\r\n')
}

/**
 * The first header of this lower-case name. Node's `headers` would build an object of all headers for each
 * request.
 */
export function headerOf({ rawHeaders }: IncomingMessage, name: string): string | undefined {
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const candidate = rawHeaders[index]
    if (candidate?.length === name.length && candidate.toLowerCase() === name) return rawHeaders[index + 1]
  }
  return undefined
}

/**
 * Reports whether a client names plain text alone, with a higher weight than JSON, or before it with the
 * same.
 */
export function prefersText(accept = ''): boolean {
  const weightOf = ([, , weight = '1']: RegExpMatchArray): number => Number(weight)
  const [best] = [...accept.matchAll(MEDIA_RANGE)]
    .filter((range) => weightOf(range) > 0)
    .toSorted((one, other) => weightOf(other) - weightOf(one))
  return best?.[1] !== undefined
}

/** A media range that names plain text (group 1), JSON or both, and its weight (RFC 9110, section 12.5.1). */
const MEDIA_RANGE =
  /(?:(text\/(?:plain|\*))|application\/(?:json|\*)|\*\/\*)[^,]*?(?:;\s*q=([\d.]+)[^,]*)?(?=,|$)/gi
