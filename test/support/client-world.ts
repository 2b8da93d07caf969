// A client of a daemon whose answers the test writes, and a service that it calls.
import { createHash } from 'node:crypto'
import { rmSync } from 'node:fs'
import { createServer as createApi, type IncomingMessage, type ServerResponse } from 'node:http'
import { createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { expect, onTestFinished, vi } from 'vitest'
import { TokenClient, TokenClientError, type TokenClientOptions } from '../../src/client/index.ts'
import { listening } from './listening.ts'
import { tempDirectory } from './temp-directory.ts'

interface AskedFrame {
  readonly type: string
  readonly data: Record<string, unknown>
}
interface Asking extends AskedFrame {
  /** Sends a frame that repeats the id. */
  readonly answer: (type: string, data: object) => void
  /** Sends whatever text. */
  readonly write: (text: string | Buffer) => void
  /** Cuts this connection. */
  readonly cut: () => void
}
export type ScriptedDaemon = Awaited<ReturnType<typeof daemonWith>>

/** The fields of a token result, for this token. */
export function tokenFields(accessToken: string, fields: object = {}): Record<string, unknown> {
  return {
    accessToken,
    tokenType: 'Bearer',
    header: 'Authorization',
    prefix: 'Bearer ',
    obtainedAt: '2030-01-01T00:00:00.000Z',
    expiresAt: '2030-01-01T01:00:00.000Z',
    expirySource: 'jwt',
    baseUrl: 'https://api.example.com',
    refusedBy: [401],
    refreshAt: '2030-01-01T00:40:00.000Z',
    generation: 1,
    fingerprint: createHash('sha256').update(accessToken).digest('hex').slice(0, 16),
    state: 'ready',
    stale: false,
    ...fields,
  }
}

/** A daemon until the test ends, started already. `script` is called with each request. */
export async function daemonWith(script: (asking: Asking) => void, given?: string) {
  const path = given ?? join(await tempDirectory(), 'ipc.sock')
  const asked: AskedFrame[] = []
  const sockets = new Set<Socket>()
  const subscribers = new Map<Socket, string>()
  let made = 0
  const server = createServer((socket) => {
    made += 1
    sockets.add(socket)
    let rest = ''
    socket.on('error', () => undefined)
    socket.on('close', () => {
      sockets.delete(socket)
      subscribers.delete(socket)
    })
    socket.on('data', (chunk) => {
      const frames = (rest + chunk.toString()).split('\f')
      rest = frames.pop() ?? ''
      for (const text of frames) {
        const frame = JSON.parse(text) as AskedFrame
        const { id } = frame.data
        asked.push(frame)
        if (frame.type === 'token.subscribe') subscribers.set(socket, String(id))
        script({
          ...frame,
          answer: (type, data) => socket.write(`${JSON.stringify({ type, data: { id, ...data } })}\f`),
          write: (text_) => socket.write(text_),
          cut: () => socket.destroy(),
        })
      }
    })
  })
  const start = (): Promise<void> =>
    new Promise((resolve, reject) => {
      server.once('error', reject)
      server.listen(path, resolve)
    })
  /** Cuts all connections and takes the socket away; `start` makes it again. */
  const stop = async (): Promise<void> => {
    if (!server.listening) return
    const closed = new Promise((resolve) => server.close(resolve))
    for (const socket of sockets) socket.destroy()
    await closed
    rmSync(path, { force: true })
  }
  onTestFinished(stop)
  await start()
  return {
    path,
    /** The requests, oldest first. */
    asked: asked as readonly AskedFrame[],
    /** Connections that were ever made, and that are open now. */
    connections: {
      get made() {
        return made
      },
      get open() {
        return sockets.size
      },
    },
    /** Sends to every subscriber. */
    publish: (type: string, data: object): void => {
      for (const [socket, id] of subscribers)
        socket.write(`${JSON.stringify({ type, data: { id, ...data } })}\f`)
    },
    /** Ends all connections once what was written is sent. */
    cutAll: (): void => {
      for (const socket of sockets) socket.end()
    },
    start,
    stop,
  }
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
  const server = createApi((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      const body = Buffer.concat(chunks).toString()
      seen.push(`${request.method} ${request.url} ${request.headers.authorization ?? '-'} ${body}`)
      answer(request, response, body)
    })
  })
  const port = await listening(server)
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  return { url: `http://127.0.0.1:${port}`, seen }
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
