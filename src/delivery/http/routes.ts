// The paths of `http.sock`, and what each of them does.
import type { IncomingMessage, ServerResponse } from 'node:http'
import { monotonicMs } from '../../lib/clock.ts'
import { fallbackOnSystemError } from '../../lib/error.ts'
import { isRecord, parseJson, readLimited } from '../../lib/input.ts'
import type { Fault, RequestType } from '../../protocol.ts'
import type { Client } from '../connections.ts'
import { MAX_BODY_BYTES } from '../limits.ts'
import { isInOrder, type Operations, type Reply } from '../operations.ts'
import type { CachedToken, Later, Replies, Result } from '../replies.ts'
import {
  badRequest,
  headerOf,
  JSON_TYPE,
  prefersText,
  send,
  sendJson,
  sendProblem,
  TEXT_TYPE,
} from './answers.ts'

/** One request. */
export interface Exchange {
  readonly client: Client
  readonly req: IncomingMessage
  readonly res: ServerResponse
}
/** The server as a route sees it. */
export interface HttpHost {
  /**
   * Sends the reply, once it is there. `isWait`: the request waits for a token, as at most 16 of a connection
   * may.
   */
  answer<T>(
    exchange: Exchange,
    reply: Later<T>,
    options: { readonly send: (reply: T) => void; readonly isWait?: boolean },
  ): void
  /** Answers with the fault and closes the connection: what comes after the request may be a part of it. */
  refuse(exchange: Exchange, fault: Fault): void
  /** Answers with an event stream, with one event for each change of the token. */
  startEvents(exchange: Exchange, first: Reply<'token.subscribe'>): void
}
type Route = (exchange: Exchange) => void
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
    const { req, res } = exchange
    if (headerOf(req, 'origin') !== undefined) return sendProblem(res, { code: 'denied', message: NO_ORIGIN })
    const methods = paths.get(splitTarget(req).path)
    if (methods === undefined) {
      const message = `There is nothing at this path; there is ${[...paths.keys()].join(', ')}`
      return sendProblem(res, { code: 'not-found', message })
    }
    const method = req.method === 'HEAD' ? 'GET' : req.method
    const route = method === 'GET' || method === 'POST' ? methods[method] : undefined
    if (route === undefined) sendNotAllowed(res, methods)
    else route(exchange)
  }
}

export function createTokenRoutes(operations: Operations, host: HttpHost): Routes {
  function withQuery(
    type: 'token.get' | 'token.subscribe',
    exchange: Exchange,
    give: (reply: Result<CachedToken>) => void,
  ): void {
    const { client, req, res } = exchange
    const fields = parseQuery(splitTarget(req).query)
    if (typeof fields === 'string') sendProblem(res, badRequest(fields))
    else host.answer(exchange, operations.perform(type, fields, client), { send: give, isWait: true })
  }

  function getToken(exchange: Exchange): void {
    const { req, res } = exchange
    withQuery('token.get', exchange, (reply) => {
      if ('fault' in reply) sendProblem(res, reply.fault)
      else if (prefersText(headerOf(req, 'accept')))
        send(res, { contentType: TEXT_TYPE, body: reply.value.text })
      else send(res, { contentType: JSON_TYPE, body: reply.value.json })
    })
  }

  /** For proxies that ask before each request which header to add (nginx `auth_request`, `forward_auth`). */
  function getAuthorization(exchange: Exchange): void {
    const { res } = exchange
    withQuery('token.get', exchange, (reply) => {
      if ('fault' in reply) return sendProblem(res, reply.fault)
      if (res.destroyed) return
      const { authorization, fingerprint } = reply.value
      const headers = [...authorization, 'Token-Fingerprint', fingerprint]
      res.writeHead(204, [...headers, 'Cache-Control', 'no-store'])
      res.end()
    })
  }

  function getEvents(exchange: Exchange): void {
    withQuery('token.subscribe', exchange, (reply) => {
      if ('fault' in reply && !isInOrder(reply)) sendProblem(exchange.res, reply.fault)
      else host.startEvents(exchange, reply)
    })
  }

  function perform(type: RequestType, exchange: Exchange, fields: Fields): void {
    const { client, res } = exchange
    const answer = (reply: Reply): void => {
      if ('fault' in reply) sendProblem(res, reply.fault)
      else sendJson(res, reply.value)
    }
    host.answer(exchange, operations.perform(type, fields, client), { send: answer })
  }

  function postReject(exchange: Exchange): void {
    const report = (body: Body): void => {
      if (body.kind === 'gone') return
      if (body.kind === 'too-long') return host.refuse(exchange, badRequest(BODY_TOO_LONG))
      const fields = parseJson(body.text)
      if (isRecord(fields)) perform('token.reject', exchange, fields)
      else sendProblem(exchange.res, badRequest(BODY_SHAPE))
    }
    host.answer(exchange, readBody(exchange.req), { send: report })
  }

  return {
    '/v1/token': { GET: getToken },
    '/v1/token/events': { GET: getEvents },
    '/v1/authorization': { GET: getAuthorization },
    '/v1/token/reject': { POST: postReject },
    '/v1/status': { GET: (exchange) => perform('status.get', exchange, {}) },
    '/v1/refresh': { POST: (exchange) => perform('refresh.request', exchange, {}) },
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

/** `gone`: the client went away before the end of the body. */
type Body =
  | { readonly kind: 'whole'; readonly text: string }
  | { readonly kind: 'too-long' }
  | { readonly kind: 'gone' }

async function readBody(req: IncomingMessage): Promise<Body> {
  const stream = req.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>
  const read = readLimited(stream, { maxBytes: MAX_BODY_BYTES })
  const body = await read.catch(fallbackOnSystemError(null))
  if (body === null) return { kind: 'gone' }
  return body === undefined ? { kind: 'too-long' } : { kind: 'whole', text: body.toString('utf8') }
}

function sendNotAllowed(res: ServerResponse, methods: object): void {
  const allowed = Object.keys(methods).flatMap((method) => (method === 'GET' ? ['GET', 'HEAD'] : [method]))
  const message = `This path takes ${allowed.join(' and ')}`
  sendProblem(res, { code: 'method-not-allowed', message }, { headers: ['Allow', allowed.join(', ')] })
}

const NO_ORIGIN = 'Requests of web pages (with an `Origin` header) are refused: the token is not for browsers'
const STALLED = 'The scheduler has not ticked for 45 s: restart kyc-tokend'
const BODY_SHAPE = 'The body is a JSON object with `accessToken` or `fingerprint`'
const BODY_TOO_LONG = `The body is at most ${MAX_BODY_BYTES / 1024} KiB: report a longer token by its \`fingerprint\``
