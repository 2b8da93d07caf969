// The paths of `http.sock` and what each of them does. Answers are JSON, and problem details (RFC 9457).
import { STATUS_CODES, type IncomingMessage } from 'node:http'
import { text } from 'node:stream/consumers'
import { parseRecord } from '../lib/input.ts'
import type { Fault, FaultCode, RequestType } from '../protocol.ts'
import type { Connection } from './guard.ts'
import type { Operations } from './operations.ts'
import { isToken, type MaybePromise, type Replies, type Reply, type TokenAnswer } from './replies.ts'

/** A whole answer. */
export interface Page {
  readonly status: number
  /** Names and values, one after the other. */
  readonly headers: readonly string[]
  readonly body: string
}
export type Route = (request: IncomingMessage, client: Connection) => MaybePromise<Page>
type Handler = (request: IncomingMessage, client: Connection, query: string) => MaybePromise<Page>
/** By path and method; GET serves HEAD as well. */
type Routes = Readonly<Record<string, Readonly<Partial<Record<'GET' | 'POST', Handler>>>>>

/** The metrics in the text format 0.0.4 of Prometheus. */
export type Metrics = () => string

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
function pageOf(contentType: string, body: string, status = 200): Page {
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

/** Returns the function that answers a request. */
export function createRoute(routes: Routes): Route {
  const paths = new Map(Object.entries(routes))
  return (request, client) => {
    if (request.headers.origin !== undefined) return problemOf('denied', NO_ORIGIN)
    const { url: target = '' } = request
    const mark = target.indexOf('?')
    const methods = paths.get(mark === -1 ? target : target.slice(0, mark))
    if (methods === undefined)
      return problemOf('not-found', `There is nothing at this path; there is ${[...paths.keys()].join(', ')}`)
    const method = request.method === 'HEAD' ? 'GET' : request.method
    const handler = method === 'GET' || method === 'POST' ? methods[method] : undefined
    if (handler === undefined) return notAllowed(methods)
    return handler(request, client, mark === -1 ? '' : target.slice(mark + 1))
  }
}

export function createTokenRoutes(operations: Operations): Routes {
  /** Answers `token.get` in one of the forms in which a token is given. */
  function giving(pageOfToken: (reply: TokenAnswer, request: IncomingMessage) => Page): Handler {
    const give = (request: IncomingMessage, reply: Reply): Page =>
      isToken(reply) ? pageOfToken(reply, request) : pageOfReply(reply)
    return (request, client, query) => {
      const reply = operations.perform('token.get', query === '' ? NO_FIELDS : fieldsOf(query), client)
      return reply instanceof Promise ? reply.then((late) => give(request, late)) : give(request, reply)
    }
  }

  const performing =
    (type: RequestType): Handler =>
    async (_request, client) =>
      pageOfReply(await operations.perform(type, NO_FIELDS, client))

  async function postReject(request: IncomingMessage, client: Connection): Promise<Page> {
    // The client may go amid it: then nobody gets the answer.
    const fields = parseRecord(await text(request).catch(() => ''))
    if (fields === undefined) return problemOf('bad-request', BODY_SHAPE)
    return pageOfReply(await operations.perform('token.reject', fields, client))
  }

  return {
    '/v1/token': { GET: giving(tokenPage) },
    // For proxies that ask before each request which header to add (nginx `auth_request`, `forward_auth`).
    '/v1/authorization': { GET: giving(authorizationPage) },
    '/v1/token/reject': { POST: postReject },
    '/v1/status': { GET: performing('status.get') },
    '/v1/refresh': { POST: performing('refresh.request') },
  }
}

export function createHealthRoutes({ replies, metrics }: { replies: Replies; metrics: Metrics }): Routes {
  const healthy = pageOf('application/json', JSON.stringify({ status: 'ok' }))
  const stalled = problemOf('stalled', STALLED)
  const readiness = (reply: Reply): Page => ('fault' in reply ? problem(reply) : healthy)

  return {
    '/healthz': { GET: () => (replies.isAlive() ? healthy : stalled) },
    '/readyz': { GET: () => readiness(replies.current()) },
    '/metrics': { GET: () => pageOf('text/plain; version=0.0.4; charset=utf-8', metrics()) },
  }
}

function pageOfReply(reply: Reply): Page {
  return 'fault' in reply ? problem(reply) : pageOf('application/json', reply.json)
}

function tokenPage(reply: TokenAnswer, { headers }: IncomingMessage): Page {
  return prefersText(headers)
    ? pageOf('text/plain; charset=utf-8', reply.token.accessToken)
    : pageOfReply(reply)
}

function authorizationPage({ token, use }: TokenAnswer): Page {
  const authorization = [use.header, use.prefix + token.accessToken, 'Token-Fingerprint', token.fingerprint]
  return { status: 204, headers: ['Cache-Control', 'no-store', ...authorization], body: '' }
}

/** Reports whether the client names plain text, and not JSON beside it. */
function prefersText({ accept = '' }: IncomingMessage['headers']): boolean {
  return /\btext\/plain\b/i.test(accept) && !/\bjson\b/i.test(accept)
}

/** The fields of the query. A number that is none is NaN, which the operation refuses. */
function fieldsOf(query: string): Record<string, unknown> {
  const fields = [...new URLSearchParams(query)]
  return Object.fromEntries(
    fields.map(([name, value]) => [name, name.endsWith('Seconds') ? Number(value) : value]),
  )
}

function notAllowed(methods: object): Page {
  const allowed = Object.keys(methods).flatMap((method) => (method === 'GET' ? ['GET', 'HEAD'] : [method]))
  const page = problemOf('method-not-allowed', `This path takes ${allowed.join(' and ')}`)
  return { ...page, headers: [...page.headers, 'Allow', allowed.join(', ')] }
}

const NO_FIELDS: Record<string, unknown> = {}
const NO_ORIGIN = 'Requests of web pages (with an `Origin` header) are refused: the token is not for browsers'
const STALLED = 'The scheduler has not ticked for 45 s: restart kyc-tokend'
const BODY_SHAPE = 'The body is a JSON object with `accessToken` or `fingerprint`'
