// Paths of `http.sock` and what is answered there.
import type { IncomingMessage, ServerResponse } from 'node:http'
import { fallbackOnSystemError } from '../../lib/error.ts'
import { isRecord, parseJson, readLimited } from '../../lib/input.ts'
import { monotonicMs } from '../../lib/clock.ts'
import type { Fault, RequestType } from '../../protocol.ts'
import { MAX_BODY_BYTES } from '../limits.ts'
import { isInOrder, type Operations } from '../operations.ts'
import type { CachedToken, Replies, Result } from '../replies.ts'
import type { HttpConnection } from './connection.ts'
import { headerOf, JSON_TYPE, prefersText, send, sendJson, sendProblem, TEXT_TYPE } from './responses.ts'

interface Exchange {
  readonly client: HttpConnection
  readonly req: IncomingMessage
  readonly res: ServerResponse
}
export type Route = (exchange: Exchange) => void
type Fields = Record<string, unknown>
/** By path and method; GET serves HEAD as well. */
export type Routes = Readonly<Record<string, Readonly<Partial<Record<'GET' | 'POST', Route>>>>>

/** The metrics as text, in the format that they name. */
export type Metrics = () => { readonly contentType: string; readonly body: string }

/** However often they are requested, metrics are rendered once in so long. */
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
    if (method === 'GET' && hasBody(req)) return client.refuseRequest(res, 'A GET request has no body')
    route(exchange)
  }
}

export function createTokenRoutes(operations: Operations): Routes {
  /** Performs the operation with the fields of the query. */
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

  /** Reads the body, and performs the operation with the fields that are made of it. */
  function perform(type: RequestType, fieldsOf: (body: string) => unknown): Route {
    return ({ client, req, res }) => {
      if (Number(headerOf(req, 'content-length') ?? 0) > MAX_BODY_BYTES)
        return client.refuseRequest(res, BODY_TOO_LONG)
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

/** Reports whether the head announces a body. */
function hasBody(req: IncomingMessage): boolean {
  return (
    Number(headerOf(req, 'content-length') ?? 0) !== 0 || headerOf(req, 'transfer-encoding') !== undefined
  )
}

/** Undefined where it is too long, null where the client goes away in the middle of it or the rest is no HTTP. */
async function readBody(req: IncomingMessage): Promise<string | undefined | null> {
  try {
    const stream = req.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>
    const body = await readLimited(stream, { maxBytes: MAX_BODY_BYTES })
    return body?.toString('utf8')
  } catch (error) {
    return fallbackOnSystemError(null)(error)
  }
}

function badRequest(message: string): Fault {
  return { code: 'bad-request', message }
}

function sendNotAllowed(res: ServerResponse, methods: object): void {
  const allowed = Object.keys(methods).flatMap((method) => (method === 'GET' ? ['GET', 'HEAD'] : [method]))
  const message = `This path takes ${allowed.join(' and ')}`
  sendProblem(res, { code: 'method-not-allowed', message }, ['Allow', allowed.join(', ')])
}

const NO_ORIGIN = 'Requests of web pages (with an `Origin` header) are refused: the token is not for browsers'
const STALLED = 'The scheduler has not ticked for 45 s: restart kyc-tokend'
const BODY_SHAPE = 'The body is a JSON object with `accessToken` or `fingerprint`'
const BODY_TOO_LONG = `The body is at most ${MAX_BODY_BYTES / 1024} KiB: report a longer token by its \`fingerprint\``
