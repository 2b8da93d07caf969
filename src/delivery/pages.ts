// Answers over HTTP: JSON, and problem details (RFC 9457).
import { STATUS_CODES } from 'node:http'
import type { Fault, FaultCode } from '../protocol.ts'

/** A whole answer. */
export interface Page {
  readonly status: number
  /** Names and values, one after the other. */
  readonly headers: readonly string[]
  readonly body: string | Buffer
  /** The connection ends with it. */
  readonly isLast?: boolean
}
/** The codes of the protocol, and those that only HTTP has. */
type ProblemCode = FaultCode | 'not-found' | 'method-not-allowed' | 'stalled'

/** The status of each fault. */
export const statuses: Readonly<Record<ProblemCode, number>> = {
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
/** The page of a text, which no cache may keep. */
export function pageOf(contentType: string, body: string | Buffer, status = 200): Page {
  const length = String(Buffer.byteLength(body))
  const headers = ['Content-Type', contentType, 'Cache-Control', 'no-store', 'Content-Length', length]
  return { status, headers, body }
}

/** Problem details of a fault. */
export function problem({ fault }: { fault: Omit<Fault, 'code'> & { readonly code: ProblemCode } }): Page {
  const { code, message: detail, reason } = fault
  const status = statuses[code]
  const fields = { type: 'about:blank', title: STATUS_CODES[status], status, detail, code, reason }
  return pageOf('application/problem+json', JSON.stringify(fields), status)
}

export function problemOf(code: ProblemCode, message: string): Page {
  return problem({ fault: { code, message } })
}
