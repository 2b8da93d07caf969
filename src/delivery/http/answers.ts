// Answers over HTTP: JSON, problem details (RFC 9457), and how they are sent.
import { STATUS_CODES, type ServerResponse } from 'node:http'
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
