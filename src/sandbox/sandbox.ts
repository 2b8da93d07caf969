// The stand-in of the service: an HTTP server on 127.0.0.1 that takes requests as the service is described,
// and issues tokens or fails as its scenario says.
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { ServiceConfig } from '../config/config.ts'
import { standardService } from '../config/service.ts'
import { untilAborted } from '../lib/tasks.ts'
import { errorCode, exitStatus, UserError } from '../lib/error.ts'
import type { Clock } from '../lib/clock.ts'
import { readLimited } from '../lib/input.ts'
import type { PermanentReason } from '../protocol.ts'
import { credentialsOf, placedAt, type AskedPair, type Fields } from './described.ts'
import {
  isScenarioName,
  scenarioNames,
  scenarios,
  type Problem,
  type Scenario,
  type SandboxAnswer,
  type ScenarioName,
  type TokenKind,
} from './scenarios.ts'
import { createTokens } from './tokens.ts'

/** A request and what became of it. Holds neither secret nor token. */
interface SandboxRequest {
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

/** The credentials that the stand-in accepts; any others get `Account not found`. */
export const sandboxCredentials = { apiKey: 'sandbox-key', apiSecret: 'sandbox-secret' } as const

const MAX_REQUEST_BYTES = 16 * 1024

/** Resolves when it listens. Throws a UserError if the port is taken or may not be used. */
export async function createSandbox(options: SandboxOptions) {
  const { clock, port } = options
  const stopped = new AbortController()
  const server = createServer((request, response) => void handle(request, response))
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error) => reject(portError(error, port)))
    server.listen(port, '127.0.0.1', resolve)
  })
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const service = createService(options, stopped.signal)

  async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const scenario = service.scenario()
    const { method = '', headers } = request
    const [path = '/'] = (request.url ?? '/').split('?')
    const problem: Problem = (status, detail) => {
      const kind = { type: 'about:blank', title: 'KnownRuntimeError', status, detail }
      const location = { instance: path, timestamp: clock.now().wallMs, 'full-path': `${url}${path}` }
      return { status, body: { ...kind, ...location } }
    }
    const body = await bodyOf(request)
    const answer =
      body === null ? null : await service.answer(`${method} ${path}`, { headers, body, problem })
    if (answer === null) response.destroy()
    else sendAnswer(response, answer)
    options.onRequest?.({ atMs: clock.now().wallMs, method, path, status: answer?.status ?? null, scenario })
  }

  return {
    /** Such as `http://127.0.0.1:40001`. */
    url,
    /** Changes the scenario from the next request on. */
    setScenario: service.setScenario,
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

interface Asked {
  readonly headers: IncomingHttpHeaders
  readonly body: string
  readonly problem: Problem
}

/** Null: the request is too long, or has no end. */
async function bodyOf(request: AsyncIterable<Buffer>): Promise<string | null> {
  const body = await readLimited(request, { maxBytes: MAX_REQUEST_BYTES }).catch(() => undefined)
  return body?.toString() ?? null
}

/** What the stand-in does: issues tokens, shows who holds one, and changes its scenario. */
function createService(options: SandboxOptions, stopped: AbortSignal) {
  const { clock, tokenLifetimeMs, service = standardService() } = options
  const tokens = createTokens(tokenLifetimeMs)
  const tokenPath = new URL(service.tokenUrl).pathname
  let { scenario } = options
  let tokenRequests = 0

  async function issue({ headers, body, problem }: Asked): Promise<SandboxAnswer | null> {
    const pair = credentialsOf(service, { headers, body })
    if (typeof pair === 'string') return problem(400, pair)
    const refuse = (reason: PermanentReason): SandboxAnswer => refusal(service, reason, problem)
    if (!isKnown(pair)) return refuse('account-not-found')
    tokenRequests += 1
    const { answer, delayMs }: Scenario = scenarios[scenario]
    const number = tokenRequests
    if (delayMs !== undefined) await clock.sleep(delayMs, stopped)
    return answer({ number, problem, refuse, grant })
  }

  function grant(kind: TokenKind): SandboxAnswer {
    const { wallMs } = clock.now()
    const seconds = Math.ceil(tokenLifetimeMs / 1_000)
    const end = new Date(wallMs + tokenLifetimeMs).toISOString()
    const token = placedAt({}, service.token, tokens.issue(kind, wallMs))
    const lived = service.lifetime === null ? token : placedAt(token, service.lifetime, seconds)
    return { status: 200, body: service.expires === null ? lived : placedAt(lived, service.expires, end) }
  }

  function showMe({ headers, problem }: Asked): SandboxAnswer {
    const { header, prefix } = service.use
    const value = String(headers[header.toLowerCase()] ?? '')
    const isPrefixed = value.slice(0, prefix.length).toLowerCase() === prefix.toLowerCase()
    const token = isPrefixed ? value.slice(prefix.length) : ''
    const expiresAtMs = tokens.expiryOf(token, clock.now().wallMs)
    if (expiresAtMs !== undefined)
      return {
        status: 200,
        body: { account: 'sandbox', tokenExpiresAt: new Date(expiresAtMs).toISOString() },
      }
    const denied = problem(401, `A token that lives is needed, as ${header}: ${prefix}TOKEN`)
    return { ...denied, headers: { 'www-authenticate': 'Bearer' } }
  }

  function setScenario(next: ScenarioName): void {
    scenario = next
    tokenRequests = 0
  }

  return {
    scenario: () => scenario,
    setScenario,
    /** `place`: such as `GET /me`. Null: the connection is to be cut. */
    async answer(place: string, asked: Asked): Promise<SandboxAnswer | null> {
      switch (place) {
        case `POST ${tokenPath}`:
          return issue(asked)
        case 'GET /me':
          return showMe(asked)
        case 'PUT /scenario': {
          const name = asked.body.trim()
          if (!isScenarioName(name)) return asked.problem(400, `Scenarios are ${scenarioNames.join(', ')}`)
          setScenario(name)
          break
        }
        case 'GET /scenario':
          break
        default:
          return asked.problem(404, `There is no ${place} here`)
      }
      return { status: 200, body: `${scenario}\n` }
    },
  }
}

/** Key and secret are the stand-in's, as far as the service takes them. */
function isKnown(pair: AskedPair): boolean {
  const names = ['apiKey', 'apiSecret'] as const
  return names.every((name) => pair[name] === undefined || pair[name] === sandboxCredentials[name])
}

function refusal({ refusals }: ServiceConfig, reason: PermanentReason, problem: Problem): SandboxAnswer {
  const found = refusals.find((known) => known.reason === reason)
  if (found === undefined) return problem(400, `The description names no refusal for ${reason}`)
  const { status, body } = problem(found.status, found.says)
  return { status, body: placedAt(body as Fields, found.in ?? ['detail'], found.says) }
}

function sendAnswer(response: ServerResponse, { status, headers, body }: SandboxAnswer): void {
  const isText = typeof body === 'string'
  const type = isText ? 'text/plain' : status < 400 ? 'application/json' : 'application/problem+json'
  response.writeHead(status, { 'content-type': type, 'cache-control': 'no-store', ...headers })
  response.end(isText ? body : JSON.stringify(body))
}

function portError(cause: Error, port: number): Error {
  const code = errorCode(cause)
  const place = `Port ${port} of 127.0.0.1`
  if (code === 'EADDRINUSE') {
    const sentence = `${place} is in use: choose another with --port, or leave it out for a free one.`
    return new UserError(sentence, exitStatus.unavailable, { cause })
  }
  if (code !== 'EACCES') return cause
  const sentence = `${place} may not be used by this user: choose one above 1023 with --port.`
  return new UserError(sentence, exitStatus.noPermission, { cause })
}
