// The paths of `http.sock`, and what each of them does.
import type { IncomingMessage } from 'node:http'
import { monotonicMs } from '../lib/clock.ts'
import { isRecord, parseJson } from '../lib/input.ts'
import type { RequestType } from '../protocol.ts'
import type { Connection } from './guard.ts'
import { MAX_BODY_BYTES, METRICS_EVERY_MS } from './limits.ts'
import type { Operations } from './operations.ts'
import { pageOf, problem, problemOf, type Page } from './pages.ts'
import { isToken, type MaybePromise, type Replies, type Reply } from './replies.ts'

/** Null: the client has gone amid its request. */
type Handler = (request: IncomingMessage, client: Connection, query: string) => MaybePromise<Page | null>
export type Route = (request: IncomingMessage, client: Connection) => MaybePromise<Page | null>
/** By path and method; GET serves HEAD as well. */
type Routes = Readonly<Record<string, Readonly<Partial<Record<'GET' | 'POST', Handler>>>>>

/** The metrics as text, in the format that they name. */
export type Metrics = () => { readonly contentType: string; readonly body: string }

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
  const giving =
    (form: (reply: Extract<Reply, { text: string }>, request: IncomingMessage) => Page): Handler =>
    (request, client, query) => {
      const fields = query === '' ? NO_FIELDS : fieldsOf(query)
      const give = (reply: Reply): Page => (isToken(reply) ? form(reply, request) : pageOfReply(reply))
      const reply = operations.perform('token.get', fields, client)
      return reply instanceof Promise ? reply.then(give) : give(reply)
    }

  const performing =
    (type: RequestType): Handler =>
    async (_request, client) =>
      pageOfReply(await operations.perform(type, NO_FIELDS, client))

  const getToken = giving((reply, { headers }) => (prefersText(headers) ? reply.textPage : reply.page))
  /** For proxies that ask before each request which header to add (nginx `auth_request`, `forward_auth`). */
  const getAuthorization = giving(({ authorization }) => authorization)

  async function postReject(request: IncomingMessage, client: Connection): Promise<Page | null> {
    if (Number(request.headers['content-length'] ?? 0) > MAX_BODY_BYTES)
      return { ...problemOf('bad-request', BODY_TOO_LONG), isLast: true }
    const body = await bodyOf(request)
    if (body === null) return null
    const fields = parseJson(body)
    if (!isRecord(fields)) return problemOf('bad-request', BODY_SHAPE)
    return pageOfReply(await operations.perform('token.reject', fields, client))
  }

  return {
    '/v1/token': { GET: getToken },
    '/v1/authorization': { GET: getAuthorization },
    '/v1/token/reject': { POST: postReject },
    '/v1/status': { GET: performing('status.get') },
    '/v1/refresh': { POST: performing('refresh.request') },
  }
}

export function createHealthRoutes({ replies, metrics }: { replies: Replies; metrics: Metrics }): Routes {
  const healthy = pageOf('application/json', JSON.stringify({ status: 'ok' }))
  const stalled = problemOf('stalled', STALLED)
  let rendered: Page | null = null
  let renderedAtMs = -Infinity

  function getMetrics(): Page {
    const nowMs = monotonicMs()
    if (rendered !== null && nowMs - renderedAtMs < METRICS_EVERY_MS) return rendered
    const { contentType, body } = metrics()
    renderedAtMs = nowMs
    rendered = pageOf(contentType, Buffer.from(body))
    return rendered
  }

  function getReadiness(): Page {
    const reply = replies.current()
    return 'fault' in reply ? problem(reply) : healthy
  }

  return {
    '/healthz': { GET: () => (replies.isAlive() ? healthy : stalled) },
    '/readyz': { GET: getReadiness },
    '/metrics': { GET: getMetrics },
  }
}

/** The body of a request whose length is known to be small; null: the client has gone amid it. */
function bodyOf(request: IncomingMessage): Promise<string | null> {
  return new Promise((resolve) => {
    const parts: Buffer[] = []
    request.on('data', (part: Buffer) => parts.push(part))
    request.on('end', () => resolve(Buffer.concat(parts).toString('utf8')))
    request.on('close', () => resolve(null))
  })
}

function pageOfReply(reply: Reply): Page {
  return 'fault' in reply ? problem(reply) : pageOf('application/json', reply.json)
}

/** Reports whether the client names plain text, and not JSON beside it. */
function prefersText({ accept = '' }: IncomingMessage['headers']): boolean {
  return /\btext\/plain\b/i.test(accept) && !/\bjson\b/i.test(accept)
}

/** The fields of the query. Anything but a number stays a text, which the operation refuses. */
function fieldsOf(query: string): Record<string, unknown> {
  const fields = [...new URLSearchParams(query)].map(([name, value]) => [
    name,
    name.endsWith('Seconds') && /^\d+(\.\d+)?$/.test(value) ? Number(value) : value,
  ])
  return Object.fromEntries(fields) as Record<string, unknown>
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
const BODY_TOO_LONG = `The body is at most ${MAX_BODY_BYTES / 1024} KiB: report a \`fingerprint\` instead`
