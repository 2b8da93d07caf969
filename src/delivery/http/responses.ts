// Answers in HTTP: headers, problem details (RFC 9457), and the answers with which a connection is closed.
import { STATUS_CODES, type IncomingMessage, type ServerResponse } from 'node:http'
import type { Fault, FaultCode } from '../../protocol.ts'
import type { DropReason } from '../connections/connection.ts'

/** The codes of the protocol, and those that only HTTP has. */
export type ProblemCode = FaultCode | 'not-found' | 'method-not-allowed' | 'stalled'
export type Problem = Omit<Fault, 'code'> & { readonly code: ProblemCode }

const statusOf: Readonly<Record<ProblemCode, number>> = {
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
export const JSON_TYPE = 'application/json'
export const TEXT_TYPE = 'text/plain; charset=utf-8'
const PROBLEM_TYPE = 'application/problem+json'

/** An answer, whole; a server of tokens leaves nothing in caches. A text goes out in one write with the head. */
export function send(
  res: ServerResponse,
  answer: { status?: number; contentType: string; body: string | Buffer; headers?: readonly string[] },
): void {
  if (res.destroyed) return
  const { status = 200, contentType, body, headers = [] } = answer
  const length = String(Buffer.byteLength(body))
  const common = ['Content-Type', contentType, 'Content-Length', length, 'Cache-Control', 'no-store']
  res.writeHead(status, [...common, ...headers])
  res.end(body)
}

export function sendJson(res: ServerResponse, body: object): void {
  send(res, { contentType: JSON_TYPE, body: JSON.stringify(body) })
}

export function sendProblem(res: ServerResponse, problem: Problem, headers: readonly string[] = []): void {
  const status = statusOf[problem.code]
  send(res, { status, contentType: PROBLEM_TYPE, body: problemText(status, problem), headers })
}

function problemText(status: number, { code, message, reason }: Problem): string {
  return JSON.stringify({
    type: 'about:blank',
    title: STATUS_CODES[status],
    status,
    detail: message,
    code,
    ...(reason !== undefined && { reason }),
  })
}

/** A whole answer for a connection that is closed for this reason. */
export function closingAnswer(reason: DropReason, fault: Fault): string {
  const status = closingStatus[reason] ?? statusOf[fault.code]
  const body = problemText(status, fault)
  return [
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
    `Content-Type: ${PROBLEM_TYPE}`,
    `Content-Length: ${Buffer.byteLength(body)}`,
    'Cache-Control: no-store',
    'Connection: close',
    '',
    body,
  ].join('\r\n')
}
/** Statuses other than those of the faults' codes. */
const closingStatus: Partial<Record<DropReason, number>> = {
  'too-many-connections': 503,
  'incomplete-request': 408,
}

/** The first header of this lower-case name. Node's `headers` would make an object of all of them for each request. */
export function headerOf({ rawHeaders }: IncomingMessage, name: string): string | undefined {
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const candidate = rawHeaders[index]
    if (candidate?.length === name.length && candidate.toLowerCase() === name) return rawHeaders[index + 1]
  }
  return undefined
}

/** Reports whether a client names plain text alone, or before JSON. */
export function prefersText(accept = ''): boolean {
  return /(text\/(?:plain|\*))|application\/(?:json|\*)|\*\/\*/i.exec(accept)?.[1] !== undefined
}
