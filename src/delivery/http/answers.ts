// Answers over HTTP: headers, problem details (RFC 9457), and the last answer of a connection that is closed.
import { STATUS_CODES, type IncomingMessage, type ServerResponse } from 'node:http'
import type { Fault, FaultCode } from '../../protocol.ts'

/** The codes of the protocol, and those that only HTTP has. */
export type ProblemCode = FaultCode | 'not-found' | 'method-not-allowed' | 'stalled'
type Problem = Omit<Fault, 'code'> & { readonly code: ProblemCode }

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

interface Answer {
  readonly status?: number
  readonly contentType: string
  readonly body: string | Buffer
  readonly headers?: readonly string[]
}

/** Sends a whole answer that no cache may keep. */
export function send(res: ServerResponse, { status = 200, contentType, body, headers = [] }: Answer): void {
  if (res.destroyed) return
  const length = String(Buffer.byteLength(body))
  const common = ['Content-Type', contentType, 'Content-Length', length, 'Cache-Control', 'no-store']
  res.writeHead(status, headers.length === 0 ? common : [...common, ...headers])
  res.end(body)
}

export function sendJson(res: ServerResponse, body: object): void {
  send(res, { contentType: JSON_TYPE, body: JSON.stringify(body) })
}

export function sendProblem(
  res: ServerResponse,
  problem: Problem,
  { status = statusOf[problem.code], headers = [] }: { status?: number; headers?: readonly string[] } = {},
): void {
  send(res, { status, contentType: PROBLEM_TYPE, body: problemText(status, problem), headers })
}

export function badRequest(message: string): Fault {
  return { code: 'bad-request', message }
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

/** A whole answer, for a connection whose input is no request. */
export function closingAnswer(status: number, fault: Fault): string {
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
