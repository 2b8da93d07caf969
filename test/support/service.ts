// A service to be asked: a real HTTP(S) server with scripted answers and a record of what arrived.
import http, { type IncomingMessage, type ServerResponse } from 'node:http'
import https from 'node:https'
import type { AddressInfo, Socket } from 'node:net'
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
  readonly body?: string | Buffer
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
export function refusing(status: number, detail: string): ScriptedAnswer {
  return {
    status,
    json: {
      type: 'about:blank',
      title: 'KnownRuntimeError',
      status,
      detail,
      instance: '/token/external/jwt',
      timestamp: 1_700_000_000_000,
      'full-path': 'https://api.example.com/token/external/jwt',
    },
  }
}
export const accountInactive = refusing(500, 'Your account is not active')
export const accountNotFound = refusing(404, 'Account not found')

/** Starts a service on a free port of 127.0.0.1. Register `stop` for the end of the test first of all. */
export async function startService(options: { answer: Answer; tls?: { cert: string; key: string } }) {
  let { answer } = options
  /** Those that arrived, oldest first. */
  const requests: ArrivedRequest[] = []
  const sockets = new Set<Socket>()
  let opened = 0

  async function take(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk as Buffer)
    const arrived: ArrivedRequest = {
      method: request.method ?? '',
      path: request.url ?? '',
      headers: request.headers,
      body: Buffer.concat(chunks).toString('utf8'),
      atMs: Date.now(),
    }
    requests.push(arrived)
    const number = requests.length
    const given =
      typeof answer === 'function'
        ? await answer(arrived, { response, socket: request.socket, number })
        : answer
    if (given) send(given, response)
  }

  const listener = (request: IncomingMessage, response: ServerResponse): void => {
    take(request, response).catch(() => request.socket.destroy())
  }
  const server = options.tls ? https.createServer(options.tls, listener) : http.createServer(listener)
  server.on('connection', (socket: Socket) => {
    opened += 1
    sockets.add(socket)
    socket.on('error', () => socket.destroy())
    socket.on('close', () => sockets.delete(socket))
  })
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(0, '127.0.0.1', resolve)
  })
  const { port } = server.address() as AddressInfo

  return {
    /** Such as `http://127.0.0.1:40001`; with TLS `https://localhost:40001`. */
    url: options.tls ? `https://localhost:${port}` : `http://127.0.0.1:${port}`,
    port,
    requests: requests as readonly ArrivedRequest[],
    /** Those that were ever opened, and how many are open now. */
    connections: {
      get opened() {
        return opened
      },
      get open() {
        return sockets.size
      },
    },
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

function send(answer: ScriptedAnswer, response: ServerResponse): void {
  const body = answer.json === undefined ? (answer.body ?? '') : JSON.stringify(answer.json)
  const type = answer.json === undefined ? {} : { 'content-type': 'application/json' }
  response.writeHead(answer.status ?? 200, { ...type, ...answer.headers })
  response.end(body)
}
