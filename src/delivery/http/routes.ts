// The paths of `http.sock` and their answers: headers, problem details (RFC 9457), and the last answers of closed connections.
import { STATUS_CODES, type IncomingMessage, type ServerResponse } from 'node:http'
import { fallbackOnSystemError } from '../../lib/error.ts'
import { isRecord, parseJson, readLimited } from '../../lib/input.ts'
import { monotonicMs } from '../../lib/clock.ts'
import type { Fault, FaultCode, RequestType } from '../../protocol.ts'
import type { DropReason } from '../connections/connection.ts'
import { MAX_BODY_BYTES } from '../limits.ts'
import { isInOrder, type Operations } from '../operations.ts'
import type { CachedToken, Replies, Result } from '../replies.ts'
import type { HttpConnection } from './connection.ts'

interface Exchange {
  readonly client: HttpConnection
  readonly req: IncomingMessage
  readonly res: ServerResponse
}
export type Route = (exchange: Exchange) => void
type Fields = Record<string, unknown>
/** By path and method; GET serves HEAD as well. */
type Routes = Readonly<Record<string, Readonly<Partial<Record<'GET' | 'POST', Route>>>>>

/** The metrics as text, in the format that they name. */
export type Metrics = () => { readonly contentType: string; readonly body: string }

/** The shortest time between two renderings of the metrics, however often they are requested. */
const METRICS_EVERY_MS = 1_000
const QUERY_NAMES = ['minValidSeconds', 'waitSeconds', 'notFingerprint', 'client']

export function createHttpRoutes(routes: Routes): Route {
  const paths = new Map(Object.entries(routes))
  return (exchange) => {
    const { client, req, res } = exchange
    if (headerOf(req, 'origin') !== undefined) return sendProblem(res, { code: 'denied', message: NO_ORIGIN })
    const { path } = splitTarget(req)
    const methods = paths.get(path)
    if (methods === undefined) {
      const message = `There is nothing at this path; there is ${[...paths.keys()].join(', ')}`
      return sendProblem(res, { code: 'not-found', message })
    }
    const method = req.method === 'HEAD' ? 'GET' : req.method
    const route = method === 'GET' || method === 'POST' ? methods[method] : undefined
    if (route === undefined) return sendNotAllowed(res, methods)
    if (method === 'GET' && bodyLengthOf(req) !== 0)
      return client.refuseRequest(res, 'A GET request has no body')
    route(exchange)
  }
}

export function createTokenRoutes(operations: Operations): Routes {
  function withQuery(
    type: 'token.get' | 'token.subscribe',
    { client, req, res }: Exchange,
    give: (reply: Result<CachedToken>) => void,
  ): void {
    const fields = parseQuery(splitTarget(req).query)
    if (typeof fields === 'string') sendProblem(res, badRequest(fields))
    else client.answer(operations.perform(type, fields, client), give)
  }

  function getToken(exchange: Exchange): void {
    const { req, res } = exchange
    const isText = prefersText(headerOf(req, 'accept'))
    withQuery('token.get', exchange, (reply) => {
      if ('fault' in reply) sendProblem(res, reply.fault)
      else if (isText) send(res, { contentType: TEXT_TYPE, body: reply.value.text })
      else send(res, { contentType: JSON_TYPE, body: reply.value.json })
    })
  }

  /** For proxies that ask before each request which header to add (nginx `auth_request`, `forward_auth`). */
  function getAuthorization(exchange: Exchange): void {
    const { res } = exchange
    withQuery('token.get', exchange, (reply) => {
      if ('fault' in reply) return sendProblem(res, reply.fault)
      if (res.destroyed) return
      const { text, fingerprint } = reply.value
      const headers = ['Authorization', `Bearer ${text}`, 'Token-Fingerprint', fingerprint]
      res.writeHead(204, [...headers, 'Cache-Control', 'no-store'])
      res.end()
    })
  }

  function getEvents(exchange: Exchange): void {
    const { client, res } = exchange
    withQuery('token.subscribe', exchange, (reply) => {
      if ('fault' in reply && !isInOrder(reply)) sendProblem(res, reply.fault)
      else client.startEvents(res, reply)
    })
  }

  function perform(type: RequestType, fieldsOf: (body: string) => unknown): Route {
    return ({ client, req, res }) => {
      const length = bodyLengthOf(req)
      if (length !== Infinity && length > MAX_BODY_BYTES) return client.refuseRequest(res, BODY_TOO_LONG)
      void readBody(req).then((body) =>
        client.guard(() => {
          if (body === null) return
          if (body === undefined) return client.refuseRequest(res, BODY_TOO_LONG)
          const fields = fieldsOf(body)
          if (!isRecord(fields)) return sendProblem(res, badRequest(BODY_SHAPE))
          client.answer(operations.perform(type, fields, client), (reply) => {
            if ('fault' in reply) sendProblem(res, reply.fault)
            else sendJson(res, reply.value)
          })
        }),
      )
    }
  }

  return {
    '/v1/token': { GET: getToken },
    '/v1/token/events': { GET: getEvents },
    '/v1/authorization': { GET: getAuthorization },
    '/v1/token/reject': { POST: perform('token.reject', parseJson) },
    '/v1/status': { GET: perform('status.get', () => ({})) },
    '/v1/refresh': { POST: perform('refresh.request', () => ({})) },
  }
}

export function createHealthRoutes(options: { replies: Replies; metrics: Metrics }): Routes {
  const { replies, metrics } = options
  let rendered: { readonly contentType: string; readonly body: Buffer } | null = null
  let renderedAtMs = -Infinity

  function getHealth({ res }: Exchange): void {
    if (replies.isAlive()) sendJson(res, { status: 'ok' })
    else sendProblem(res, { code: 'stalled', message: STALLED })
  }

  function getReadiness({ res }: Exchange): void {
    const reply = replies.current()
    if ('fault' in reply) sendProblem(res, reply.fault)
    else sendJson(res, { status: 'ok' })
  }

  function getMetrics({ res }: Exchange): void {
    const nowMs = monotonicMs()
    if (rendered === null || nowMs - renderedAtMs >= METRICS_EVERY_MS) {
      const { contentType, body } = metrics()
      rendered = { contentType, body: Buffer.from(body) }
      renderedAtMs = nowMs
    }
    send(res, rendered)
  }

  return { '/healthz': { GET: getHealth }, '/readyz': { GET: getReadiness }, '/metrics': { GET: getMetrics } }
}

/** Path and query, also of the absolute form, which clients send to proxies (RFC 9112, section 3.2.2). */
function splitTarget({ url = '' }: IncomingMessage): { path: string; query: string } {
  const own = url.startsWith('/') ? url : url.replace(/^https?:\/\/[^/?]*/i, '')
  const at = own.indexOf('?')
  return at === -1 ? { path: own, query: '' } : { path: own.slice(0, at), query: own.slice(at + 1) }
}

/** The fields of the query, or the sentence that says what is wrong with it. */
function parseQuery(query: string): Fields | string {
  const fields: Fields = {}
  if (query === '') return fields
  for (const [name, value] of new URLSearchParams(query)) {
    if (!QUERY_NAMES.includes(name))
      return `There is no query parameter of this name: use ${QUERY_NAMES.join(', ')}`
    if (Object.hasOwn(fields, name)) return `\`${name}\` is given twice: give it once`
    // Anything but a number stays a text, which the operation refuses.
    fields[name] = name.endsWith('Seconds') && /^\d+(\.\d+)?$/.test(value) ? Number(value) : value
  }
  return fields
}

/** The body; undefined if it is too long, null if the client goes away before its end or the rest is no HTTP. */
async function readBody(req: IncomingMessage): Promise<string | undefined | null> {
  const stream = req.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>
  const limited = readLimited(stream, { maxBytes: MAX_BODY_BYTES })
  const body = await limited.catch(fallbackOnSystemError(null))
  return body === null ? null : body?.toString('utf8')
}

function badRequest(message: string): Fault {
  return { code: 'bad-request', message }
}

function sendNotAllowed(res: ServerResponse, methods: object): void {
  const allowed = Object.keys(methods).flatMap((method) => (method === 'GET' ? ['GET', 'HEAD'] : [method]))
  const message = `This path takes ${allowed.join(' and ')}`
  sendProblem(res, { code: 'method-not-allowed', message }, ['Allow', allowed.join(', ')])
}

/** Sends a whole answer that no cache may keep. A text goes out in one write with the head. */
function send(
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

function sendJson(res: ServerResponse, body: object): void {
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

/** The first header of this lower-case name. Node's `headers` would build an object of all headers for each request. */
export function headerOf({ rawHeaders }: IncomingMessage, name: string): string | undefined {
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const candidate = rawHeaders[index]
    if (candidate?.length === name.length && candidate.toLowerCase() === name) return rawHeaders[index + 1]
  }
  return undefined
}

/** The length of the body; Infinity: it comes in chunks, and only the parser knows its end. */
export function bodyLengthOf(req: IncomingMessage): number {
  const isChunked = headerOf(req, 'transfer-encoding') !== undefined
  return isChunked ? Infinity : Number(headerOf(req, 'content-length') ?? 0)
}

/** Reports whether a client names plain text alone, with a higher weight than JSON, or before it with the same. */
function prefersText(accept = ''): boolean {
  const weightOf = ([, , weight = '1']: RegExpMatchArray): number => Number(weight)
  const [best] = [...accept.matchAll(MEDIA_RANGE)]
    .filter((range) => weightOf(range) > 0)
    .toSorted((one, other) => weightOf(other) - weightOf(one))
  return best?.[1] !== undefined
}

/** A media range that names plain text (group 1), JSON or both, and its weight (RFC 9110, section 12.5.1). */
const MEDIA_RANGE =
  /(?:(text\/(?:plain|\*))|application\/(?:json|\*)|\*\/\*)[^,]*?(?:;\s*q=([\d.]+)[^,]*)?(?=,|$)/gi

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
const JSON_TYPE = 'application/json'
const TEXT_TYPE = 'text/plain; charset=utf-8'
const PROBLEM_TYPE = 'application/problem+json'

const NO_ORIGIN = 'Requests of web pages (with an `Origin` header) are refused: the token is not for browsers'
const STALLED = 'The scheduler has not ticked for 45 s: restart kyc-tokend'
const BODY_SHAPE = 'The body is a JSON object with `accessToken` or `fingerprint`'
const BODY_TOO_LONG = `The body is at most ${MAX_BODY_BYTES / 1024} KiB: report a longer token by its \`fingerprint\``
