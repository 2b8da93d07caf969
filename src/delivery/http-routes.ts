// What is answered at each path of `http.sock`, whoever asks.
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Fault, RejectVerdict, TokenRequest } from '../protocol.ts'
import type { Door } from './door.ts'
import type { Guest } from './guest.ts'
import { headerOf, headOf, prefersText, send, sendJson, sendProblem } from './http-answers.ts'
import type { Answer, PreparedToken, Replies } from './replies.ts'
import { isRecord, readRejectRequest, readTokenRequest, type Reading } from './requests.ts'

/** One request, its answer to be, and the client. */
export interface Visit {
  readonly guest: Guest
  readonly req: IncomingMessage
  readonly res: ServerResponse
  readonly path: string
  /** What follows the question mark. */
  readonly query: string
  /** Aborted when the client goes, and when the daemon stops: who waits is then answered with what there is. */
  readonly signal: AbortSignal
}
export interface HttpRoutes {
  /** Answers at once, or later where a promise comes back. */
  serve(visit: Visit): Promise<void> | void
}
/** The metrics as text, in the format that they name. */
export type Metrics = () => Promise<{ readonly contentType: string; readonly body: string }>

type Route = (visit: Visit) => Promise<void> | void

const MAX_BODY_BYTES = 4096
/** So much of a longer one is read and thrown away: closed with something unread, the connection is reset and the answer lost. */
const MAX_DISCARDED_BYTES = 8 * 1024 * 1024
const TEXT_TYPE = 'text/plain; charset=utf-8'
const QUERY_NAMES = ['minValidSeconds', 'waitSeconds', 'notFingerprint', 'client']

export function createHttpRoutes(options: {
  door: Door
  replies: Replies
  metrics: Metrics
  onReject: (verdict: RejectVerdict) => void
  /** Goes on telling of changes on this answer. */
  onStream: (guest: Guest, res: ServerResponse) => void
}): HttpRoutes {
  const { door, replies, metrics, onReject, onStream } = options
  const headsOf = createHeads()

  const routes = new Map<string, Readonly<Record<string, Route>>>([
    ['/v1/token', { GET: getToken }],
    ['/v1/token/events', { GET: ({ guest, res }) => onStream(guest, res) }],
    ['/v1/token/reject', { POST: reject }],
    ['/v1/status', { GET: ({ res }) => sendAnswer(res, replies.status()) }],
    ['/v1/refresh', { POST: refresh }],
    ['/healthz', { GET: getHealth }],
    ['/readyz', { GET: getReadiness }],
    ['/metrics', { GET: getMetrics }],
  ])

  function serve(visit: Visit): Promise<void> | void {
    const { guest, req, res } = visit
    if (headerOf(req, 'origin') !== undefined) {
      return sendProblem(res, { code: 'denied', message: NO_ORIGIN })
    }
    if (!guest.isAllowed) return sendProblem(res, notAllowed)
    const route = routes.get(visit.path)
    if (route === undefined) return sendProblem(res, { code: 'not-found', message: pathsThereAre(routes) })
    const answer = route[req.method === 'HEAD' ? 'GET' : (req.method ?? '')]
    if (answer !== undefined) return answer(visit)
    const allowed = Object.keys(route).flatMap((method) => (method === 'GET' ? ['GET', 'HEAD'] : [method]))
    const message = `This path takes ${allowed.join(' and ')}`
    return sendProblem(res, { code: 'method-not-allowed', message }, ['Allow', allowed.join(', ')])
  }

  function getToken(visit: Visit): Promise<void> | void {
    if (visit.query === '') {
      const token = replies.prepared()
      if (token !== null) return sendToken(visit, token, null)
    }
    const reading = readQuery(visit.query)
    if ('mistake' in reading) {
      return sendProblem(visit.res, { code: 'bad-request', message: reading.mistake })
    }
    const client = reading.request.client ?? null
    const reply = replies.token(reading.request, visit.signal)
    const tell = (known: Answer<PreparedToken>): void => {
      if ('fault' in known) sendProblem(visit.res, known.fault)
      else sendToken(visit, known.value, client)
    }
    if (reply instanceof Promise) return reply.then(tell)
    return tell(reply)
  }

  function sendToken({ guest, req, res }: Visit, token: PreparedToken, client: string | null): void {
    if (res.destroyed) return
    // While it waited, a reload may have taken the right away.
    if (!guest.isAllowed) return sendProblem(res, notAllowed)
    const heads = headsOf(token)
    const isText = prefersText(headerOf(req, 'accept'))
    res.writeHead(200, isText ? heads.text : heads.json)
    // As text it goes out together with the head, in one write.
    res.end(isText ? token.text : token.json, 'latin1')
    if (req.method !== 'HEAD') door.took(guest, client)
  }

  async function reject({ guest, req, res }: Visit): Promise<void> {
    const body = await readBody(req, guest)
    if (body === null) {
      const message = `The body is at most ${MAX_BODY_BYTES} bytes: report a longer token by its \`fingerprint\``
      return sendProblem(res, { code: 'bad-request', message }, ['Connection', 'close'])
    }
    const reading = readRejectBody(body)
    if ('mistake' in reading) return sendProblem(res, { code: 'bad-request', message: reading.mistake })
    const reply = replies.reject(reading.request)
    if ('value' in reply) onReject(reply.value.verdict)
    sendAnswer(res, reply)
  }

  async function refresh({ guest, res, signal }: Visit): Promise<void> {
    if (await door.isPrivileged(guest)) return sendAnswer(res, await replies.refresh(signal))
    sendProblem(res, { code: 'denied', message: REFRESH_DENIED })
  }

  function getHealth({ res }: Visit): void {
    if (replies.isAlive()) sendJson(res, { status: 'ok' })
    else
      sendProblem(res, {
        code: 'stalled',
        message: 'The scheduler has not looked at the clock for 45 s: restart kyc-tokend',
      })
  }

  function getReadiness({ res }: Visit): void {
    const reply = replies.current()
    if ('fault' in reply) sendProblem(res, reply.fault)
    else sendJson(res, { status: 'ok' })
  }

  async function getMetrics({ res }: Visit): Promise<void> {
    const { contentType, body } = await metrics()
    send(res, { status: 200, contentType, body: Buffer.from(body) })
  }

  return { serve }
}

const NO_ORIGIN = 'Requests of web pages (with an `Origin` header) are refused: the token is not for browsers'
/** What a peer is told that `http.allow` does not name. */
export const notAllowed: Fault = {
  code: 'denied',
  message: 'This user may not use this socket: have an administrator add it to `http.allow`',
}
const REFRESH_DENIED =
  "Only root and the daemon's own user may ask for a refresh, and only where the daemon can know who asks: use sudo, or send the daemon SIGUSR2"

function sendAnswer(res: ServerResponse, reply: Answer<object>): void {
  if ('fault' in reply) sendProblem(res, reply.fault)
  else sendJson(res, reply.value)
}

function pathsThereAre(routes: ReadonlyMap<string, unknown>): string {
  return `There is nothing at this path; there is ${[...routes.keys()].join(', ')}`
}

/** The heads of the answers with a token are made once for each token. */
function createHeads(): (token: PreparedToken) => { json: string[]; text: string[] } {
  let made: { of: PreparedToken; json: string[]; text: string[] } | null = null
  return (token) => {
    if (made?.of !== token) {
      made = {
        of: token,
        json: headOf('application/json', token.json.length),
        text: headOf(TEXT_TYPE, token.text.length),
      }
    }
    return made
  }
}

function readQuery(query: string): Reading<TokenRequest> {
  const fields: Record<string, unknown> = {}
  for (const [name, value] of new URLSearchParams(query)) {
    if (!QUERY_NAMES.includes(name)) {
      return { mistake: `There is no query parameter of this name; there is ${QUERY_NAMES.join(', ')}` }
    }
    if (Object.hasOwn(fields, name)) return { mistake: `\`${name}\` is given twice` }
    // What is no number stays a text, and is told as a mistake by the reader of requests.
    fields[name] = name.endsWith('Seconds') && /^\d+(\.\d+)?$/.test(value) ? Number(value) : value
  }
  return readTokenRequest(fields)
}

/** The body, or null where it is too long; what follows is not read. */
async function readBody(req: IncomingMessage, guest: Guest): Promise<string | null> {
  const chunks: Buffer[] = []
  let length = 0
  guest.hasPartialRequest = true
  try {
    for await (const chunk of req.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
      length += chunk.length
      if (length <= MAX_BODY_BYTES) chunks.push(chunk)
      else if (length > MAX_DISCARDED_BYTES) return null
    }
    return length > MAX_BODY_BYTES ? null : Buffer.concat(chunks).toString('utf8')
  } catch (error) {
    // The client went away in the middle of it; nobody hears the answer.
    if (req.complete) throw error
    return null
  } finally {
    guest.hasPartialRequest = false
  }
}

function readRejectBody(body: string): ReturnType<typeof readRejectRequest> {
  const mistake = 'The body is a JSON object with `accessToken` or `fingerprint`'
  try {
    const data: unknown = JSON.parse(body)
    return isRecord(data) ? readRejectRequest(data) : { mistake }
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error
    return { mistake }
  }
}
