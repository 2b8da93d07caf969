// The stand-in of the service: an HTTP server on 127.0.0.1 that takes requests as the service is described, and issues tokens or
// fails as its scenario says.
import { writeFile } from 'node:fs/promises'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { createHmac, randomBytes } from 'node:crypto'
import type { ServiceConfig } from '../config/config.ts'
import { standardService } from '../config/service.ts'
import { untilAborted } from '../lib/tasks.ts'
import { errorCode, exitStatus, UserError } from '../lib/error.ts'
import type { Clock } from '../lib/clock.ts'
import { isRecord, parseJson, readLimited } from '../lib/input.ts'
import type { PermanentReason } from '../token/outcome.ts'
import {
  isScenarioName,
  scenarioNames,
  scenarios,
  type Scenario,
  type SandboxAnswer,
  type ScenarioName,
  type TokenKind,
} from './scenarios.ts'

/** A request and what became of it. Holds neither secret nor token. */
export interface SandboxRequest {
  readonly atMs: number
  readonly method: string
  /** Without the query. */
  readonly path: string
  /** Of the answer; null if the connection was cut. */
  readonly status: number | null
  readonly scenario: ScenarioName
}
interface SandboxOptions {
  /** The port on 127.0.0.1; 0: a free one. */
  readonly port: number
  readonly scenario: ScenarioName
  readonly tokenLifetimeMs: number
  readonly clock: Clock
  /** The service that it imitates; by default that of the interface description. */
  readonly service?: ServiceConfig
  /** Called when an answer is sent. */
  readonly onRequest?: (request: SandboxRequest) => void
}
export type Sandbox = Awaited<ReturnType<typeof createSandbox>>

/** The credentials the stand-in takes; any others get `Account not found`. */
export const sandboxCredentials = { apiKey: 'sandbox-key', apiSecret: 'sandbox-secret' } as const

const MAX_REQUEST_BYTES = 16 * 1024

/** Resolves when it listens. Throws a UserError if the port is taken or may not be used. */
export async function createSandbox(options: SandboxOptions) {
  const { clock, service = standardService() } = options
  const tokens = createTokens(options.tokenLifetimeMs)
  const stopped = new AbortController()
  let { scenario } = options
  let tokenRequests = 0

  const server = createServer((request, response) => void handle(request, response))

  async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const current = scenario
    const [path = '/'] = (request.url ?? '/').split('?')
    const answer = await respond(request, path)
    if (answer === undefined) return
    if (answer === null) request.socket.destroy()
    else sendAnswer(response, answer)
    options.onRequest?.({
      atMs: clock.now().wallMs,
      method: request.method ?? '',
      path,
      status: answer?.status ?? null,
      scenario: current,
    })
  }

  async function respond(request: IncomingMessage, path: string): Promise<SandboxAnswer | null | undefined> {
    const limits = { maxBytes: MAX_REQUEST_BYTES, maxDiscardedBytes: Infinity }
    const bytes = await readLimited(request as AsyncIterable<Buffer>, limits).catch(() => undefined)
    // The client has gone before its request was complete.
    if (!request.complete) return undefined
    const problem = (status: number, detail: string): SandboxAnswer => {
      const kind = { type: 'about:blank', title: 'KnownRuntimeError', status, detail }
      const location = { instance: path, timestamp: clock.now().wallMs, 'full-path': `${url}${path}` }
      return { status, body: { ...kind, ...location } }
    }
    if (bytes === undefined) return problem(413, `A request has at most ${MAX_REQUEST_BYTES} bytes here`)
    const route = routes[path]
    if (route === undefined) return problem(404, `Nothing is at ${path} here`)
    const act = route[request.method ?? '']
    if (act !== undefined) return act({ request, body: bytes.toString(), problem })
    const allow = Object.keys(route).join(', ')
    return { ...problem(405, `${path} takes ${allow}`), headers: { allow } }
  }

  const routes: Readonly<Record<string, Readonly<Record<string, Route>>>> = {
    '/me': { GET: showMe },
    '/scenario': {
      GET: () => ({ status: 200, body: `${scenario}\n` }),
      PUT: ({ body, problem }) => {
        const name = body.trim()
        if (!isScenarioName(name)) return problem(400, `Scenarios are ${scenarioNames.join(', ')}`)
        setScenario(name)
        return { status: 200, body: `${name}\n` }
      },
    },
    [new URL(service.tokenUrl).pathname]: { POST: issue },
  }

  async function issue({ request, body, problem }: RouteInput): Promise<SandboxAnswer | null> {
    const given = credentialsOf(service, { headers: request.headers, body })
    if (typeof given === 'string') return problem(400, given)
    const refuse = (reason: PermanentReason): SandboxAnswer => {
      const refusal = service.refusals.find((known) => known.reason === reason)
      if (refusal === undefined) return problem(400, `The description names no refusal for ${reason}`)
      const { status, body: fields } = problem(refusal.status, refusal.says)
      return { status, body: placedAt(fields as Fields, refusal.in ?? ['detail'], refusal.says) }
    }
    if (given.apiKey !== sandboxCredentials.apiKey || given.apiSecret !== sandboxCredentials.apiSecret)
      return refuse('account-not-found')
    tokenRequests += 1
    const { answer, delayMs }: Scenario = scenarios[scenario]
    const number = tokenRequests
    if (delayMs !== undefined) await clock.sleep(delayMs, stopped.signal)
    return answer({ number, problem, refuse, grant })
  }

  function grant(kind: TokenKind): SandboxAnswer {
    const body = placedAt({}, service.token, tokens.issue(kind, clock.now().wallMs))
    const seconds = Math.ceil(options.tokenLifetimeMs / 1_000)
    return { status: 200, body: service.lifetime === null ? body : placedAt(body, service.lifetime, seconds) }
  }

  function showMe({ request, problem }: RouteInput): SandboxAnswer {
    const denied = (challenge: string, detail: string): SandboxAnswer => {
      return { ...problem(401, detail), headers: { 'www-authenticate': challenge } }
    }
    const token = /^Bearer ([^\s]+)$/i.exec(request.headers.authorization ?? '')?.[1]
    if (token === undefined) return denied('Bearer', 'A Bearer token is needed')
    const expiresAtMs = tokens.expiryOf(token, clock.now().wallMs)
    if (expiresAtMs === undefined)
      return denied('Bearer error="invalid_token"', 'The token is unknown or has expired')
    return { status: 200, body: { account: 'sandbox', tokenExpiresAt: new Date(expiresAtMs).toISOString() } }
  }

  /** Changes the scenario from the next request on. */
  function setScenario(next: ScenarioName): void {
    scenario = next
    tokenRequests = 0
  }

  await new Promise<void>((resolve, reject) => {
    server.once('error', (error) => reject(portError(error, options.port)))
    server.listen(options.port, '127.0.0.1', resolve)
  })
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`

  return {
    /** Such as `http://127.0.0.1:40001`. */
    url,
    setScenario,
    /** Serves until the signal is aborted, then cuts what is open. */
    async run(signal: AbortSignal): Promise<void> {
      await untilAborted(signal)
      stopped.abort()
      await new Promise((resolve) => {
        server.close(resolve)
        server.closeAllConnections()
      })
    },
  }
}

interface RouteInput {
  readonly request: IncomingMessage
  readonly body: string
  readonly problem: (status: number, detail: string) => SandboxAnswer
}
type Route = (input: RouteInput) => SandboxAnswer | null | Promise<SandboxAnswer | null>

type Fields = Readonly<Record<string, unknown>>

/** The fields with this value at this path. */
function placedAt(fields: Fields, [name = '', ...rest]: readonly string[], value: unknown): Fields {
  const inner = fields[name]
  return {
    ...fields,
    [name]: rest.length === 0 ? value : placedAt(isRecord(inner) ? inner : {}, rest, value),
  }
}

/** Key and secret of a request as the service is described, or what is wrong with it. Shows no value of the request. */
function credentialsOf(
  { send, names, parameters, headers: wanted }: ServiceConfig,
  { headers, body }: { headers: IncomingMessage['headers']; body: string },
): { apiKey: unknown; apiSecret: unknown } | string {
  const fields = send === 'json' ? fieldsOf(body) : Object.fromEntries(new URLSearchParams(body))
  for (const [name, value] of Object.entries(wanted))
    if (headers[name.toLowerCase()] !== value) return `The header ${name} must be as it is described`
  for (const [name, value] of Object.entries(parameters))
    if (fields[name] !== value) return `The field ${name} must be as it is described`
  if (send === 'basic') {
    const [, basic = ''] = /^Basic (\S+)$/i.exec(headers.authorization ?? '') ?? []
    const encodedPair = Buffer.from(basic, 'base64').toString().split(':')
    const [apiKey, apiSecret] = encodedPair.map((text) => new URLSearchParams(`=${text}`).get(''))
    return apiSecret === undefined ? 'Key and secret must be sent as HTTP Basic' : { apiKey, apiSecret }
  }
  const { [names.apiKey]: apiKey, [names.apiSecret]: apiSecret } = fields
  return typeof apiKey === 'string' && typeof apiSecret === 'string'
    ? { apiKey, apiSecret }
    : `The body must have the strings ${names.apiKey} and ${names.apiSecret}, as ${send}`
}

function fieldsOf(body: string): Fields {
  const fields = parseJson(body)
  return isRecord(fields) ? fields : {}
}

function sendAnswer(response: ServerResponse, { status, headers, body }: SandboxAnswer): void {
  const isText = typeof body === 'string'
  const type = isText ? 'text/plain' : status < 400 ? 'application/json' : 'application/problem+json'
  response.writeHead(status, { 'content-type': type, 'cache-control': 'no-store', ...headers })
  response.end(isText ? body : JSON.stringify(body))
}

function portError(cause: Error, port: number): Error {
  const code = errorCode(cause)
  if (code === 'EADDRINUSE') {
    const sentence = `Port ${port} of 127.0.0.1 is in use: choose another with --port, or leave it out for a free one`
    return new UserError(sentence, exitStatus.unavailable, { cause })
  }
  if (code !== 'EACCES') return cause
  const sentence = `Port ${port} may not be used by this user: choose one above 1023 with --port`
  return new UserError(sentence, exitStatus.noPermission, { cause })
}

/** Writes a configuration for the stand-in into the directory, which is also that of the sockets, and returns its path. */
export async function writeSandboxConfig(directory: string, url: string): Promise<string> {
  const file = join(directory, 'kyc-tokend.config.json')
  const config = {
    baseUrl: url,
    credentials: sandboxCredentials,
    runtimeDirectory: directory,
    stateDirectory: join(directory, 'state'),
    log: { level: 'warning' },
  }
  await writeFile(file, JSON.stringify(config, null, 2), { mode: 0o600 })
  return file
}

/** Time since the expiry of an expired token. */
const EXPIRED_MS = 60_000

function createTokens(lifetimeMs: number) {
  const key = randomBytes(32)
  const expiries = new Map<string, number>()

  function jwt(claims: object): string {
    const content = `${encoded({ alg: 'HS256', typ: 'JWT' })}.${encoded(claims)}`
    return `${content}.${createHmac('sha256', key).update(content).digest('base64url')}`
  }

  return {
    issue(kind: TokenKind, nowMs: number): string {
      for (const [old, expiresAtMs] of expiries) if (expiresAtMs <= nowMs) expiries.delete(old)
      // Whole seconds, as most services have them: `exp` is `iat` and the life.
      const iat = Math.floor((kind === 'expired' ? nowMs - lifetimeMs - EXPIRED_MS : nowMs) / 1_000)
      const exp = iat + Math.ceil(lifetimeMs / 1_000)
      const jti = randomBytes(24).toString('base64url')
      const token =
        kind === 'opaque' ? jti : jwt({ iss: 'kyc-tokend sandbox', sub: 'sandbox', iat, exp, jti })
      expiries.set(token, exp * 1_000)
      return token
    },
    /** When a valid token expires, in ms since the epoch; undefined for any other. */
    expiryOf(token: string, nowMs: number): number | undefined {
      const expiresAtMs = expiries.get(token)
      return expiresAtMs !== undefined && expiresAtMs > nowMs ? expiresAtMs : undefined
    },
  }
}

function encoded(value: unknown): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url')
}
