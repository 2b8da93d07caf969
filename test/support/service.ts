// A service to be asked: a real HTTP(S) server with scripted answers and a record of what arrived.
import { once } from 'node:events'
import http, { type IncomingMessage, type ServerResponse } from 'node:http'
import https from 'node:https'
import type { AddressInfo, Socket } from 'node:net'
import { text } from 'node:stream/consumers'
import { expectUntil } from './until.ts'

/** A request as it arrived, whole. */
export interface ArrivedRequest {
  readonly method: string
  readonly path: string
  readonly headers: http.IncomingHttpHeaders
  readonly body: string
  /** On the wall clock, in ms. */
  readonly atMs: number
}
/** An answer as data; `json` sets the content type. */
export interface ScriptedAnswer {
  readonly status?: number
  readonly headers?: Readonly<Record<string, string>>
  readonly json?: unknown
  readonly body?: string
}
/**
 * The answer: data, or a function of the request and its number (from 1). A function may also write the
 * answer itself, to the response or to the bare socket, and return nothing.
 */
export type Answer =
  | ScriptedAnswer
  | ((
      request: ArrivedRequest,
      raw: { response: ServerResponse; socket: Socket; number: number },
    ) => ScriptedAnswer | void | Promise<ScriptedAnswer | void>)

export type Service = Awaited<ReturnType<typeof startService>>

/** The answer that grants this token. */
export const granting = (accessToken: string): ScriptedAnswer => ({ status: 200, json: { accessToken } })

/** The error body of the interface description, section 2.3. */
function refusing(status: number, detail: string): ScriptedAnswer {
  const instance = '/token/external/jwt'
  const known = { type: 'about:blank', title: 'KnownRuntimeError', instance, timestamp: 1_700_000_000_000 }
  return { status, json: { ...known, status, detail, 'full-path': `https://api.example.com${instance}` } }
}
export const accountInactive = refusing(500, 'Your account is not active')
export const accountNotFound = refusing(404, 'Account not found')

/** Starts a service on a free port of 127.0.0.1. Register `stop` for the end of the test first of all. */
export async function startService(options: { answer: Answer; tls?: { cert: string; key: string } }) {
  let { answer } = options
  /** Those that arrived, oldest first. */
  const requests: ArrivedRequest[] = []
  const sockets = new Set<Socket>()
  /** Those that were ever opened, and how many are open now. */
  const connections = { opened: 0, open: 0 }

  async function take(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method = '', url: path = '', headers, socket } = request
    const arrived = { method, path, headers, body: await text(request), atMs: Date.now() }
    const raw = { response, socket, number: requests.push(arrived) }
    const given = typeof answer === 'function' ? await answer(arrived, raw) : answer
    if (!given) return
    const { status = 200, json, body = json === undefined ? '' : JSON.stringify(json) } = given
    const type = json === undefined ? {} : { 'content-type': 'application/json' }
    response.writeHead(status, { ...type, ...given.headers }).end(body)
  }

  const listener = (request: IncomingMessage, response: ServerResponse): void => {
    take(request, response).catch(() => request.socket.destroy())
  }
  const server = options.tls ? https.createServer(options.tls, listener) : http.createServer(listener)
  server.on('connection', (socket: Socket) => {
    sockets.add(socket)
    connections.opened += 1
    connections.open = sockets.size
    socket.on('error', () => socket.destroy())
    socket.on('close', () => {
      sockets.delete(socket)
      connections.open = sockets.size
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo

  return {
    /** Such as `http://127.0.0.1:40001`; with TLS `https://localhost:40001`. */
    url: options.tls ? `https://localhost:${port}` : `http://127.0.0.1:${port}`,
    port,
    requests: requests as readonly ArrivedRequest[],
    connections: connections as Readonly<typeof connections>,
    /** Answers otherwise from now on. */
    answer: (next: Answer): void => {
      answer = next
    },
    /** Resolves when so many requests have arrived. */
    arrived: async (count: number): Promise<void> =>
      void (await expectUntil(`request ${count}`, () => requests.length >= count)),
    /** Stops at once, cutting connections. */
    stop: (): Promise<void> =>
      new Promise((resolve) => {
        server.close(() => resolve())
        for (const socket of sockets) socket.destroy()
      }),
  }
}
