// A daemon as it is seen from outside: its commands, its HTTP answers, its files.
import { request, type IncomingHttpHeaders } from 'node:http'
import type { StatusResult, TokenResult } from '../../src/protocol.ts'
import type { Daemon } from './daemon.ts'
import { jwtOf } from './jwt.ts'
import { runCli, type Ended } from './run-cli.ts'
import { granting, startService, type Answer, type Service } from './service.ts'
import { onTestFinished } from 'vitest'

let issued = 0

/** A token that the service has not given before. */
export function freshToken(lifeS = 3_600): string {
  const now = Date.now() / 1000
  issued += 1
  return jwtOf({ iat: now, exp: now + lifeS }, issued)
}

/** A service until the test ends; it grants tokens where nothing else is said. */
export async function serviceOf(
  answer: Answer = () => granting(freshToken()),
  tls?: { cert: string; key: string },
): Promise<Service> {
  const service = await startService({ answer, ...(tls && { tls }) })
  onTestFinished(async () => service.stop())
  return service
}

/** `kyc-tokend …` against this daemon. */
export function command({ ipcPath }: Pick<Daemon, 'ipcPath'>, ...words: string[]): Promise<Ended> {
  return runCli(words, { env: { KYC_TOKEND_SOCKET: ipcPath } })
}

export interface HttpAnswer {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly body: string
  readonly json: Record<string, unknown>
}

/** One request on a connection of its own;  Rejects where there is no answer. */
export function httpAsk(
  { httpPath }: Pick<Daemon, 'httpPath'>,
  path: string,
  given: { method?: string; headers?: Record<string, string>; body?: string } = {},
): Promise<HttpAnswer> {
  const { method = 'GET', headers = {}, body: sent = '' } = given
  const length = sent === '' ? {} : { 'content-length': Buffer.byteLength(sent) }
  const options = { socketPath: httpPath, path, method, headers: { ...headers, ...length }, agent: false }
  return new Promise((resolve, reject) => {
    const asked = request(options, (response) => {
      const { statusCode: status = 0, headers: received } = response
      const type = received['content-type'] ?? ''
      let body = ''
      response.setEncoding('utf8').on('data', (chunk: string) => (body += chunk))
      response.on('error', reject)
      response.on('end', () => {
        const json = (type.includes('json') && body !== '' ? JSON.parse(body) : {}) as Record<string, unknown>
        resolve({ status, headers: received, body, json })
      })
    })
    asked.on('error', reject)
    asked.end(sent)
  })
}

export async function statusOf(daemon: Pick<Daemon, 'httpPath'>): Promise<StatusResult> {
  return (await httpAsk(daemon, '/v1/status')).json as unknown as StatusResult
}

/** The token as `GET /v1/token` gives it; fails where it gives none. */
export async function tokenOf(
  daemon: Pick<Daemon, 'httpPath'>,
  query = 'waitSeconds=10',
): Promise<TokenResult> {
  const { status, body, json } = await httpAsk(daemon, `/v1/token?${query}`)
  if (status !== 200) throw new Error(`There is no token: ${status} ${body}`)
  return json as unknown as TokenResult
}
