// Paths of `http.sock` and what is answered there.
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Operations, Reply } from '../operations.ts'
import type { CachedToken, Replies } from '../replies.ts'
import { isRecord } from '../requests.ts'
import type { HttpConnection } from './connection.ts'
import { hasBody, MAX_BODY_BYTES, readBody } from './request-body.ts'
import { headerOf, headersFor, prefersText, send, sendJson, sendProblem } from './responses.ts'
import { monotonicMs } from '../../lib/monotonic.ts'

export interface Exchange {
  readonly req: IncomingMessage
  readonly res: ServerResponse
  /** Aborted when the client goes, and when the daemon stops. */
  readonly signal: AbortSignal
}
interface RequestContext extends Exchange {
  readonly client: HttpConnection
  /** After the question mark. */
  readonly query: string
}
type Route = (context: RequestContext) => Promise<void> | void
/** By path and method; GET serves HEAD as well. */
export type Routes = Readonly<Record<string, Readonly<Partial<Record<'GET' | 'POST', Route>>>>>

/** Answers at once, or later where a promise comes back. */
export type Serve = (client: HttpConnection, exchange: Exchange) => Promise<void> | void
/** The metrics as text, in the format that they name. */
export type Metrics = () => { readonly contentType: string; readonly body: string }

/** However often they are requested, metrics are rendered once in so long. */
const METRICS_EVERY_MS = 1_000
const QUERY_NAMES = ['minValidSeconds', 'waitSeconds', 'notFingerprint', 'client']

export function createHttpRoutes(routes: Routes, operations: Pick<Operations, 'denial'>): Serve {
  const paths = new Map(Object.entries(routes))
  return (client, exchange) => {
    const { req, res } = exchange
    if (headerOf(req, 'origin') !== undefined) return sendProblem(res, { code: 'denied', message: NO_ORIGIN })
    const fault = operations.denial(client.caller)
    if (fault !== null) return sendProblem(res, fault)
    const [path, query] = splitTarget(req.url ?? '')
    const methods = paths.get(path)
    if (methods === undefined)
      return sendProblem(res, { code: 'not-found', message: listPaths(paths.keys()) })
    const method = req.method === 'HEAD' ? 'GET' : req.method
    const route = method === 'GET' || method === 'POST' ? methods[method] : undefined
    if (route === undefined) return sendNotAllowed(res, methods)
    if (method === 'GET' && hasBody(req)) return refuseBody(client, res, 'A GET request has no body')
    return route({ ...exchange, client, query })
  }
}

// ---- the token ------------------------------------------------------------------------------------------------------

export function createTokenRoutes(operations: Operations): Routes {
  /** The token as requested, or a problem; `sendToken` writes the answer. */
  function withToken(
    context: RequestContext,
    { isTokenSent, sendToken }: { isTokenSent: boolean; sendToken: (token: CachedToken) => void },
  ): Promise<void> | void {
    const { client, query, res, signal } = context
    const caller = client.caller
    const plain = query === '' && isTokenSent ? operations.plainToken(caller) : null
    if (plain !== null) return sendToken(plain)
    const fields = parseQuery(query)
    if (typeof fields === 'string') return sendProblem(res, { code: 'bad-request', message: fields })
    const finish = (reply: Reply<'token.get'>): void => {
      if ('fault' in reply) sendProblem(res, reply.fault)
      else if (!res.destroyed) sendToken(reply.value)
    }
    const reply = operations.perform('token.get', fields, { caller, signal, sendsToken: isTokenSent })
    return reply instanceof Promise ? reply.then(finish) : finish(reply)
  }

  function getToken(context: RequestContext): Promise<void> | void {
    const { req, res } = context
    return withToken(context, {
      isTokenSent: req.method !== 'HEAD',
      sendToken(token) {
        const { json, text } = headersFor(token)
        const isText = prefersText(headerOf(req, 'accept'))
        res.writeHead(200, isText ? text : json)
        // As text it goes out together with the head, in one write.
        res.end(isText ? token.text : token.json, 'latin1')
      },
    })
  }

  /** For proxies that ask before each request which header to add (nginx `auth_request`, `forward_auth`). */
  function getAuthorization(context: RequestContext): Promise<void> | void {
    const { res } = context
    return withToken(context, {
      isTokenSent: true,
      sendToken(token) {
        res.writeHead(204, ['Authorization', `Bearer ${token.text}`, 'Cache-Control', 'no-store'])
        res.end()
      },
    })
  }

  function getEvents(context: RequestContext): void {
    const { client, req, res, query } = context
    const fields = parseQuery(query)
    if (typeof fields === 'string') return sendProblem(res, { code: 'bad-request', message: fields })
    const sendsToken = req.method !== 'HEAD'
    const by = { caller: client.caller, signal: context.signal, sendsToken }
    const reply = operations.perform('token.subscribe', fields, by)
    if (!(reply instanceof Promise)) client.startStream(res, reply)
  }

  async function reject({ client, req, res, signal }: RequestContext): Promise<void> {
    const body = await readBody(req, client.caller)
    if (body === null) return refuseBody(client, res, BODY_TOO_LONG)
    const data = parseBody(body)
    if (data === null) return sendProblem(res, { code: 'bad-request', message: BODY_SHAPE })
    sendReply(res, await operations.perform('token.reject', data, { caller: client.caller, signal }))
  }

  async function refresh({ client, req, res, signal }: RequestContext): Promise<void> {
    const body = await readBody(req, client.caller)
    if (body === null) return refuseBody(client, res, BODY_TOO_LONG)
    sendReply(res, await operations.perform('refresh.request', {}, { caller: client.caller, signal }))
  }

  async function getStatus({ client, res, signal }: RequestContext): Promise<void> {
    sendReply(res, await operations.perform('status.get', {}, { caller: client.caller, signal }))
  }

  return {
    '/v1/token': { GET: getToken },
    '/v1/token/events': { GET: getEvents },
    '/v1/authorization': { GET: getAuthorization },
    '/v1/token/reject': { POST: reject },
    '/v1/status': { GET: getStatus },
    '/v1/refresh': { POST: refresh },
  }
}

// ---- health and metrics ---------------------------------------------------------------------------------------------

export function createHealthRoutes(options: { replies: Replies; metrics: Metrics }): Routes {
  const { replies, metrics } = options
  let rendered: { readonly contentType: string; readonly body: Buffer } | null = null
  let renderedAtMs = -Infinity

  function getHealth({ res }: RequestContext): void {
    if (replies.isAlive()) sendJson(res, { status: 'ok' })
    else sendProblem(res, { code: 'stalled', message: STALLED })
  }

  function getReadiness({ res }: RequestContext): void {
    const reply = replies.current()
    if ('fault' in reply) sendProblem(res, reply.fault)
    else sendJson(res, { status: 'ok' })
  }

  function getMetrics({ res }: RequestContext): void {
    const nowMs = monotonicMs()
    if (rendered === null || nowMs - renderedAtMs >= METRICS_EVERY_MS) {
      const { contentType, body } = metrics()
      rendered = { contentType, body: Buffer.from(body) }
      renderedAtMs = nowMs
    }
    send(res, { status: 200, ...rendered })
  }

  return { '/healthz': { GET: getHealth }, '/readyz': { GET: getReadiness }, '/metrics': { GET: getMetrics } }
}

// ---- requests -------------------------------------------------------------------------------------------------------

/** Path and query, also of the absolute form, which clients send to proxies (RFC 9112, section 3.2.2). */
function splitTarget(target: string): [path: string, query: string] {
  const own = target.startsWith('/') ? target : target.replace(/^https?:\/\/[^/?]*/i, '')
  const at = own.indexOf('?')
  return at === -1 ? [own, ''] : [own.slice(0, at), own.slice(at + 1)]
}

/** The fields of the query, or the sentence that says what is wrong with it. */
function parseQuery(query: string): Record<string, unknown> | string {
  const fields: Record<string, unknown> = {}
  for (const [name, value] of new URLSearchParams(query)) {
    if (!QUERY_NAMES.includes(name))
      return `There is no query parameter of this name: use ${QUERY_NAMES.join(', ')}`
    if (Object.hasOwn(fields, name)) return `\`${name}\` is given twice: give it once`
    // Anything but a number stays a text, which the operation refuses.
    fields[name] = name.endsWith('Seconds') && /^\d+(\.\d+)?$/.test(value) ? Number(value) : value
  }
  return fields
}

function parseBody(body: string): Record<string, unknown> | null {
  try {
    const data: unknown = JSON.parse(body)
    return isRecord(data) ? data : null
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error
    return null
  }
}

// ---- answers --------------------------------------------------------------------------------------------------------

function sendReply(res: ServerResponse, reply: Reply): void {
  if ('fault' in reply) sendProblem(res, reply.fault)
  else sendJson(res, reply.value)
}

/** Nothing more is read of the request, so the connection is of no more use. */
function refuseBody(client: HttpConnection, res: ServerResponse, message: string): void {
  sendProblem(res, { code: 'bad-request', message }, ['Connection', 'close'])
  client.closeAnswered('broken-framing')
}

function sendNotAllowed(res: ServerResponse, methods: object): void {
  const allowed = Object.keys(methods).flatMap((method) => (method === 'GET' ? ['GET', 'HEAD'] : [method]))
  const message = `This path takes ${allowed.join(' and ')}`
  sendProblem(res, { code: 'method-not-allowed', message }, ['Allow', allowed.join(', ')])
}

function listPaths(paths: Iterable<string>): string {
  return `There is nothing at this path; there is ${[...paths].join(', ')}`
}

const NO_ORIGIN = 'Requests of web pages (with an `Origin` header) are refused: the token is not for browsers'
const STALLED = 'The scheduler has not ticked for 45 s: restart kyc-tokend'
const BODY_SHAPE = 'The body is a JSON object with `accessToken` or `fingerprint`'
const BODY_TOO_LONG = `The body is at most ${MAX_BODY_BYTES} bytes: report a longer token by its \`fingerprint\``
