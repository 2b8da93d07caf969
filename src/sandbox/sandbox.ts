// The stand-in of the service: an HTTP server on 127.0.0.1 that takes requests as the service is described,
// and issues tokens or fails as its scenario says.
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Described } from '../config/config.ts'
import { standardService } from '../config/resolve.ts'
import type { Clock } from '../lib/clock.ts'
import { errorCode, exitStatus, UserError } from '../lib/error.ts'
import { isRecord, parseRecord, readLimited } from '../lib/input.ts'
import { untilAborted } from '../lib/tasks.ts'
import { scenarioNames, scenarios } from './scenarios.ts'
import type { Scenario, ScenarioName, Step, TokenKind } from './scenarios.ts'

interface SandboxOptions {
  /** The port on 127.0.0.1; 0: a free one. */
  readonly port: number
  readonly scenario: ScenarioName
  readonly tokenLifetimeMs: number
  readonly clock: Clock
  /** The configuration whose service it plays; by default that of the interface description. */
  readonly plan?: Described
  /** Gets a line for each request, when it is answered: without secrets and tokens. */
  readonly onRequest?: (line: string) => void
}

/** The credentials that the stand-in accepts; any others get `Account not found`. */
export const sandboxCredentials = { apiKey: 'sandbox-key', apiSecret: 'sandbox-secret' } as const

const MAX_REQUEST_BYTES = 16 * 1024

/** Resolves when it listens. Throws a UserError if the port is taken or may not be used. */
export async function createSandbox(options: SandboxOptions) {
  const { clock, port, plan = standardService(), onRequest, tokenLifetimeMs: lifetimeMs } = options
  const { service, pair: described } = plan
  const stopped = new AbortController()
  let { scenario } = options
  /** Requests for a token since the scenario began. */
  let asked = 0

  function setScenario(next: ScenarioName): void {
    scenario = next
    asked = 0
  }
  /** The error body of the interface description, section 2.3. */
  function problem(path: string, status: number, detail: string): Answer {
    const location = { instance: path, timestamp: clock.now().wallMs, 'full-path': `${url}${path}` }
    return { status, body: { type: 'about:blank', title: 'KnownRuntimeError', status, detail, ...location } }
  }
  function granted(kind: TokenKind): Answer {
    const token = placedAt({}, described.token, issued(kind, lifetimeMs, clock.now().wallMs))
    const seconds = Math.ceil(lifetimeMs / 1_000)
    const body = service.lifetime === null ? token : placedAt(token, service.lifetime, seconds)
    return { status: 200, body }
  }
  function answerOf(step: Step, path: string): Answer | null {
    if (step === 'cut') return null
    if ('token' in step) return granted(step.token)
    if ('page' in step) return { ...step, headers: { 'content-type': 'text/html' }, body: step.page }
    if ('detail' in step) {
      const after = step.retryAfterSeconds
      const headers = after === undefined ? {} : { 'retry-after': String(after) }
      return { ...problem(path, step.status, step.detail), headers }
    }
    const named = service.refusals.find(({ reason }) => reason === step.refusal)
    if (named === undefined) return problem(path, 400, `The description names no refusal for ${step.refusal}`)
    const { status, body } = problem(path, named.status, named.says)
    return { status, body: placedAt(body as Fields, named.in ?? ['detail'], named.says) }
  }
  async function issue({ headers }: IncomingMessage, path: string, body: string): Promise<Answer | null> {
    const pair = pairIn(described, { headers, body })
    if (typeof pair === 'string') return problem(path, 400, pair)
    const isRight = (['apiKey', 'apiSecret'] as const).every(
      (which) => pair[which] === undefined || pair[which] === sandboxCredentials[which],
    )
    if (!isRight) return answerOf({ refusal: 'account-not-found' }, path)
    const { steps, delayMs }: Scenario = scenarios[scenario]
    const step = steps[asked % steps.length]!
    asked += 1
    if (delayMs !== undefined) await clock.sleep(delayMs, stopped.signal)
    return answerOf(step, path)
  }
  /** Null: the connection is to be cut. */
  async function answer(request: IncomingMessage, path: string): Promise<Answer | null> {
    const read = await readLimited(request, { maxBytes: MAX_REQUEST_BYTES }).catch(() => undefined)
    if (read === undefined) return null
    const body = read.toString()
    const place = `${request.method} ${path}`
    if (place === `POST ${new URL(service.tokenUrl).pathname}`) return issue(request, path, body)
    if (place === 'PUT /scenario') {
      const name = scenarioNames.find((one) => one === body.trim())
      if (name === undefined) return problem(path, 400, `Scenarios are ${scenarioNames.join(', ')}`)
      setScenario(name)
    } else if (place !== 'GET /scenario') return problem(path, 404, `There is no ${place} here`)
    return { status: 200, body: `${scenario}\n` }
  }

  async function take(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const during = scenario
    const { method = '', url: target = '/' } = request
    const [path = '/'] = target.split('?')
    const given = await answer(request, path)
    if (given === null) response.destroy()
    else {
      const { status, headers, body } = given
      const isText = typeof body === 'string'
      const type = isText ? 'text/plain' : status < 400 ? 'application/json' : 'application/problem+json'
      response.writeHead(status, { 'content-type': type, 'cache-control': 'no-store', ...headers })
      response.end(isText ? body : JSON.stringify(body))
    }
    const time = new Date(clock.now().wallMs).toISOString()
    onRequest?.(`${time}  ${method} ${path}  ${given?.status ?? 'cut'}  (${during})`)
  }
  const server = createServer((request, response) => void take(request, response))
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error) => reject(portError(error, port)))
    server.listen(port, '127.0.0.1', resolve)
  })
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`

  return {
    /** Such as `http://127.0.0.1:40001`. */
    url,
    /** Changes the scenario from the next request on. */
    setScenario,
    /** Serves until the signal is aborted, then cuts what is open. */
    async run(signal: AbortSignal): Promise<void> {
      await untilAborted(signal)
      stopped.abort()
      const closed = once(server, 'close')
      server.close()
      server.closeAllConnections()
      await closed
    },
  }
}

type Fields = Readonly<Record<string, unknown>>

/** An object is sent as JSON, a string as it is. */
interface Answer {
  readonly status: number
  readonly headers?: Readonly<Record<string, string>>
  readonly body: string | Fields
}

/** Time since the expiry of an expired token. */
const EXPIRED_MS = 60_000

/** A JWT has no signature that holds: nobody here checks one. */
function issued(kind: TokenKind, lifetimeMs: number, nowMs: number): string {
  const encoded = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url')
  const jti = randomBytes(24).toString('base64url')
  if (kind === 'opaque') return jti
  // Whole seconds, as most services have them: `exp` is `iat` and the life.
  const iat = Math.floor((kind === 'expired' ? nowMs - lifetimeMs - EXPIRED_MS : nowMs) / 1_000)
  const exp = iat + Math.ceil(lifetimeMs / 1_000)
  const claims = { iss: 'kyc-tokend sandbox', sub: 'sandbox', iat, exp, jti }
  return `${encoded({ alg: 'HS256', typ: 'JWT' })}.${encoded(claims)}.${jti}`
}

function portError(cause: Error, port: number): UserError {
  const sentence = `Port ${port} of 127.0.0.1 cannot be used (${errorCode(cause)}): choose another one with --port.`
  return new UserError(sentence, exitStatus.unavailable, { cause })
}

/** The fields with this value at this path. */
function placedAt(fields: Fields, [name = '', ...rest]: readonly string[], value: unknown): Fields {
  const inner = fields[name]
  return {
    ...fields,
    [name]: rest.length === 0 ? value : placedAt(isRecord(inner) ? inner : {}, rest, value),
  }
}

/** Key and secret of a request; undefined: the service takes none. */
type AskedPair = Partial<Record<'apiKey' | 'apiSecret', unknown>>

const ASSERTION_FIELDS = {
  client: 'client_assertion',
  grant: 'assertion',
  exchange: 'subject_token',
} as const

/**
 * Key and secret of a request to this service, or what is wrong with it, without its values. The signature of
 * an assertion is not checked: the stand-in has no key.
 */
function pairIn(
  { send, names, assertion }: Described['pair'],
  { headers, body }: { headers: IncomingHttpHeaders; body: string },
): AskedPair | string {
  const isJson = send === 'json' || send === 'headers'
  const fields = isJson ? (parseRecord(body) ?? {}) : Object.fromEntries(new URLSearchParams(body))
  if (send === 'basic' || send === 'basic-plain')
    return basicPair(headers.authorization ?? '', { isEncoded: send === 'basic' })
  if (send === 'assertion') {
    const name = ASSERTION_FIELDS[assertion!.as]
    const [, claims = ''] = String(fields[name]).split('.')
    const { iss, exp } = parseRecord(Buffer.from(claims, 'base64url').toString()) ?? {}
    if (typeof exp !== 'number' || exp * 1_000 < Date.now())
      return `The field ${name} must be a JWT that has not expired`
    return { apiKey: assertion!.kind === 'ready' ? fields['client_id'] : iss }
  }
  const place =
    send === 'headers' ? (name: string) => headers[name.toLowerCase()] : (name: string) => fields[name]
  const sent = Object.entries(names).filter(([, name]) => name !== null) as [string, string][]
  const pair = Object.fromEntries(sent.map(([which, name]) => [which, place(name)]))
  const isWhole = Object.values(pair).every((value) => typeof value === 'string')
  return isWhole ? pair : `The request must have ${sent.map(([, name]) => name).join(' and ')}, as ${send}`
}

function basicPair(authorization: string, { isEncoded }: { isEncoded: boolean }): AskedPair | string {
  const [, basic = ''] = /^Basic (\S+)$/i.exec(authorization) ?? []
  const [, apiKey, apiSecret] = /^([^:]*):(.*)$/.exec(Buffer.from(basic, 'base64').toString()) ?? []
  if (apiKey === undefined) return 'Key and secret must be sent as HTTP Basic'
  const decoded = (part = ''): unknown => (isEncoded ? new URLSearchParams(`=${part}`).get('') : part)
  return { apiKey: decoded(apiKey), apiSecret: decoded(apiSecret) }
}
