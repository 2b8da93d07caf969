// The paths of `http.sock`, and what each of them does.
import type { IncomingMessage } from 'node:http'
import { monotonicMs } from '../../lib/clock.ts'
import { fallbackOnSystemError } from '../../lib/error.ts'
import { isRecord, parseJson, readLimited } from '../../lib/input.ts'
import type { RequestType } from '../../protocol.ts'
import { MAX_BODY_BYTES, type ClosingFault } from '../limits.ts'
import type { Caller, Operations, Reply } from '../operations.ts'
import type { MaybePromise, Replies } from '../replies.ts'
import { json, problem, type Answer } from './answers.ts'

/** One request, and the connection from which it came. */
interface Request {
  readonly client: Caller
  readonly req: IncomingMessage
  readonly query: string
}
/** An answer, or null: the client has gone amid its request. */
export type Outcome = Answer | null
type Route = (request: Request) => MaybePromise<Outcome>
type Fields = Record<string, unknown>
/** By path and method; GET serves HEAD as well. */
type Routes = Readonly<Record<string, Readonly<Partial<Record<'GET' | 'POST', Route>>>>>

/** The metrics as text, in the format that they name. */
export type Metrics = () => { readonly contentType: string; readonly body: string }

/** The shortest time between two renderings of the metrics, however often they are requested. */
export const METRICS_EVERY_MS = 1_000
const QUERY_NAMES = ['minValidSeconds', 'waitSeconds', 'notFingerprint', 'client']

/** Returns the function that gives the outcome of a request. */
export function createHttpRoutes(routes: Routes) {
  const paths = new Map(Object.entries(routes))
  return (client: Caller, req: IncomingMessage): MaybePromise<Outcome> => {
    if (req.headers.origin !== undefined) return problem({ fault: { code: 'denied', message: NO_ORIGIN } })
    const { path, query } = splitTarget(req)
    const methods = paths.get(path)
    if (methods === undefined) {
      const message = `There is nothing at this path; there is ${[...paths.keys()].join(', ')}`
      return problem({ fault: { code: 'not-found', message } })
    }
    const method = req.method === 'HEAD' ? 'GET' : req.method
    const route = method === 'GET' || method === 'POST' ? methods[method] : undefined
    return route === undefined ? notAllowed(methods) : route({ client, req, query })
  }
}

export function createTokenRoutes(operations: Operations): Routes {
  function ask(
    { client, query }: Request,
    give: (reply: Reply<'token.get'>) => Outcome,
  ): MaybePromise<Outcome> {
    const fields = parseQuery(query)
    if (typeof fields === 'string') return badRequest(fields)
    const reply = operations.perform('token.get', fields, client)
    return reply instanceof Promise ? reply.then(give) : give(reply)
  }

  function getToken(request: Request): MaybePromise<Outcome> {
    return ask(request, (reply) => {
      if ('fault' in reply) return problem(reply)
      const { text, json: body } = reply.value
      return prefersText(request.req.headers)
        ? { status: 200, contentType: 'text/plain; charset=utf-8', body: text }
        : { status: 200, contentType: 'application/json', body }
    })
  }

  /** For proxies that ask before each request which header to add (nginx `auth_request`, `forward_auth`). */
  function getAuthorization(request: Request): MaybePromise<Outcome> {
    return ask(request, (reply) => {
      if ('fault' in reply) return problem(reply)
      const { authorization, fingerprint } = reply.value
      const headers = [...authorization, 'Token-Fingerprint', fingerprint]
      return { status: 204, contentType: null, body: '', headers }
    })
  }

  async function getStatus({ client }: Request): Promise<Outcome> {
    const reply = await operations.perform('status.get', {}, client)
    if ('fault' in reply) return problem(reply)
    return { status: 200, contentType: 'application/json', body: reply.value.json }
  }

  async function perform(type: RequestType, client: Caller, fields: Fields): Promise<Outcome> {
    const reply = await operations.perform(type, fields, client)
    return 'fault' in reply ? problem(reply) : json(reply.value)
  }

  async function postReject({ client, req }: Request): Promise<Outcome> {
    const stream = req.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>
    const read = readLimited(stream, { maxBytes: MAX_BODY_BYTES })
    const body = await read.catch(fallbackOnSystemError(null))
    if (body === null) return null
    // What comes after it may be a part of it.
    if (body === undefined) return problem(closingFault(BODY_TOO_LONG))
    const fields = parseJson(body.toString('utf8'))
    return isRecord(fields) ? perform('token.reject', client, fields) : badRequest(BODY_SHAPE)
  }

  return {
    '/v1/token': { GET: getToken },
    '/v1/authorization': { GET: getAuthorization },
    '/v1/token/reject': { POST: postReject },
    '/v1/status': { GET: getStatus },
    '/v1/refresh': { POST: ({ client }) => perform('refresh.request', client, {}) },
  }
}

export function createHealthRoutes({ replies, metrics }: { replies: Replies; metrics: Metrics }): Routes {
  let rendered: Answer | null = null
  let renderedAtMs = -Infinity

  function getHealth(): Answer {
    return replies.isAlive()
      ? json({ status: 'ok' })
      : problem({ fault: { code: 'stalled', message: STALLED } })
  }

  function getReadiness(): Answer {
    const reply = replies.current()
    return 'fault' in reply ? problem(reply) : json({ status: 'ok' })
  }

  function getMetrics(): Answer {
    const nowMs = monotonicMs()
    if (rendered !== null && nowMs - renderedAtMs < METRICS_EVERY_MS) return rendered
    const { contentType, body } = metrics()
    renderedAtMs = nowMs
    rendered = { status: 200, contentType, body: Buffer.from(body) }
    return rendered
  }

  return { '/healthz': { GET: getHealth }, '/readyz': { GET: getReadiness }, '/metrics': { GET: getMetrics } }
}

/** For a request after which nothing that comes can be trusted to be one. */
export function closingFault(message: string): ClosingFault {
  return { fault: { code: 'bad-request', message }, drop: 'broken-framing' }
}

function badRequest(message: string): Answer {
  return problem({ fault: { code: 'bad-request', message } })
}

/** Path and query, also of the absolute form, which clients send to proxies (RFC 9112, section 3.2.2). */
function splitTarget({ url = '' }: IncomingMessage): { path: string; query: string } {
  const target = url.startsWith('/') ? url : url.replace(/^https?:\/\/[^/?]*/i, '')
  const mark = target.indexOf('?')
  return mark === -1
    ? { path: target, query: '' }
    : { path: target.slice(0, mark), query: target.slice(mark + 1) }
}

/** Reports whether the client names plain text, and not JSON beside it. */
function prefersText({ accept = '' }: IncomingMessage['headers']): boolean {
  return /\btext\/plain\b/i.test(accept) && !/\bjson\b/i.test(accept)
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

function notAllowed(methods: object): Answer {
  const allowed = Object.keys(methods).flatMap((method) => (method === 'GET' ? ['GET', 'HEAD'] : [method]))
  const fault = { code: 'method-not-allowed', message: `This path takes ${allowed.join(' and ')}` } as const
  return problem({ fault, headers: ['Allow', allowed.join(', ')] })
}

const NO_ORIGIN = 'Requests of web pages (with an `Origin` header) are refused: the token is not for browsers'
const STALLED = 'The scheduler has not ticked for 45 s: restart kyc-tokend'
const BODY_SHAPE = 'The body is a JSON object with `accessToken` or `fingerprint`'
const BODY_TOO_LONG = `The body is at most ${MAX_BODY_BYTES / 1024} KiB: report a \`fingerprint\` instead`
