// A client of a daemon whose answers the test writes and a service that it calls.
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { expect, onTestFinished, vi } from 'vitest'
import { TokenClient, TokenClientError, type TokenClientOptions } from '../../src/client/index.ts'
import { startScriptedDaemon, tokenFields, type Asking, type ScriptedDaemon } from './scripted-daemon.ts'
import { tempDirectory } from './temp-directory.ts'

export async function daemonWith(script: (asking: Asking) => void, path?: string): Promise<ScriptedDaemon> {
  const daemon = await startScriptedDaemon(path ?? join(await tempDirectory(), 'ipc.sock'), script)
  onTestFinished(() => daemon.stop())
  return daemon
}
/** Gives `token-1` to every `token.get`. */
export const generous = ({ type, answer }: Asking): void => {
  if (type === 'token.get' || type === 'token.subscribe') answer('token.result', tokenFields('token-1'))
}
export function clientOf(daemon: { path: string }, options: TokenClientOptions = {}): TokenClient {
  const client = new TokenClient({ socketPath: daemon.path, ...options })
  onTestFinished(() => {
    client.close()
  })
  return client
}
export const codeOf = async (promise: Promise<unknown>): Promise<string> => {
  const error: unknown = await promise.catch((thrown: unknown) => thrown)
  expect(error).toBeInstanceOf(TokenClientError)
  return (error as TokenClientError).code
}

/** Timers and all clocks of the client; sockets and the loop stay real. */
export function useFakeTime(): void {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'Date'] })
  const [realS, fakeMs] = [process.uptime(), Date.now()]
  vi.spyOn(process, 'uptime').mockImplementation(() => realS + (Date.now() - fakeMs) / 1_000)
  onTestFinished(() => {
    vi.useRealTimers()
    vi.restoreAllMocks()
  })
}
/** Turns of the loop, in which sockets are read. */
export async function turns(): Promise<void> {
  for (let turn = 0; turn < 5; turn += 1) await new Promise((resolve) => setImmediate(resolve))
}
/** Lets fake time pass, and what happens in it. */
export async function pass(ms: number, { stepMs = 50 } = {}): Promise<void> {
  for (let passed = 0; passed < ms; passed += stepMs) {
    await vi.advanceTimersByTimeAsync(stepMs)
    await turns()
  }
}

interface Api {
  readonly url: string
  /** `METHOD path token body` of each request. */
  readonly seen: string[]
}
export async function startApi(
  answer: (request: IncomingMessage, response: ServerResponse, body: string) => void,
): Promise<Api> {
  const seen: string[] = []
  const server: Server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      const body = Buffer.concat(chunks).toString()
      seen.push(`${request.method} ${request.url} ${request.headers.authorization ?? '-'} ${body}`)
      answer(request, response, body)
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, seen }
}
/** Takes `token-2` alone. */
export const strict = (request: IncomingMessage, response: ServerResponse): void => {
  response.writeHead(request.headers.authorization === 'Bearer token-2' ? 200 : 401).end()
}
/** A daemon for this service that has `token-2` once `token-1` was reported. */
export async function renewingDaemon(baseUrl: string, fields: object = {}): Promise<ScriptedDaemon> {
  let token = tokenFields('token-1', { baseUrl, ...fields })
  const daemon = await daemonWith(({ type, answer }) => {
    if (type !== 'token.reject') return answer('token.result', token)
    token = tokenFields('token-2', { baseUrl, ...fields })
    answer('reject.result', { verdict: 'refreshing' })
    daemon.publish('token.changed', token)
  })
  return daemon
}
