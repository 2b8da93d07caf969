// One request and its answer over the wire, within limits of time and size; afterwards no socket is left.
import http, { type ClientRequest, type IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import type { SecureContext } from 'node:tls'
import type { Clock } from '../lib/clock.ts'
import { tellDuration } from '../lib/duration.ts'
import type { TransientFailure } from '../token/outcome.ts'
import { faultOf, MAX_HEADER_BYTES } from './fault.ts'
import type { TokenRequest } from './request.ts'
import { MAX_BODY_BYTES, type Answer } from './response.ts'

export interface ExchangeOptions {
  /** For the whole of it, and for name, connection (through a proxy, too) and TLS, in ms. */
  readonly limits: { readonly timeoutMs: number; readonly connectTimeoutMs: number }
  /** The agent's, see proxy.ts. */
  readonly proxyEnv: NodeJS.ProcessEnv
  /** null: without TLS, whose setting up takes 3 MB. */
  readonly secureContext: SecureContext | null
  readonly clock: Clock
  readonly signal: AbortSignal
}

/** The answer as it came, or why there is none. Never rejects. */
export async function exchange(
  asked: TokenRequest,
  options: ExchangeOptions,
): Promise<Answer | TransientFailure> {
  const { limits, clock, signal } = options
  const { host } = asked.url
  const connection = await openConnection(asked, options)
  const { request } = connection
  const over = new AbortController()
  const sent = new AbortController()
  const result = await new Promise<Answer | TransientFailure>((resolve) => {
    const fail = (error: unknown): void => resolve(faultOf(error, { host, isSent: sent.signal.aborted }))
    const limit = (ms: number, until: AbortSignal, detail: string): void => {
      const tooSlow = (): void => resolve({ kind: 'transient', reason: 'timeout', detail })
      void clock.sleep(ms, until).then(() => (until.aborted ? undefined : tooSlow()))
    }
    // What is written waits for the connection, TLS included: once it is handed over, the connection stands.
    request.once('finish', () => sent.abort())
    request.on('error', fail)
    request.once('response', (response) => collect(response, { resolve, fail }))
    request.once('upgrade', (response) => resolve({ ...headOf(response), body: new Uint8Array() }))
    signal.addEventListener('abort', () => resolve(givenUp), { signal: over.signal })
    // Stopped while the connection was prepared: nothing has been sent, and nothing will be.
    if (signal.aborted) return resolve(givenUp)
    limit(
      limits.connectTimeoutMs,
      AbortSignal.any([sent.signal, over.signal]),
      `No connection to ${host} within ${tellDuration(limits.connectTimeoutMs)} (request.connectTimeout)`,
    )
    limit(
      limits.timeoutMs,
      over.signal,
      `No whole answer from ${host} within ${tellDuration(limits.timeoutMs)} (request.timeout)`,
    )
    request.end(asked.body)
  })
  over.abort()
  connection.close()
  return result
}

/** What an attempt comes to that was stopped; whoever stopped it does not look at it. */
const givenUp: TransientFailure = {
  kind: 'transient',
  reason: 'network',
  detail: 'The attempt was given up before there was an answer',
}

interface Connection {
  readonly request: ClientRequest
  /** Destroys what was opened for it, also a way through a proxy that is not open yet. */
  close(): void
}

async function openConnection(
  { url, headers }: TokenRequest,
  { proxyEnv, secureContext }: ExchangeOptions,
): Promise<Connection> {
  const isTls = url.protocol === 'https:'
  const { Agent, request: open } = isTls ? await import('node:https') : http
  // Said here, so that NODE_TLS_REJECT_UNAUTHORIZED of some environment does not hand the secret to anybody.
  const tls = { secureContext: secureContext ?? undefined, rejectUnauthorized: true }
  const agent = new Agent({ keepAlive: false, maxCachedSessions: 0, proxyEnv, ...tls })
  const sockets: Socket[] = []
  const connect = agent.createConnection.bind(agent)
  agent.createConnection = (...given) => {
    const socket = connect(...given)
    if (socket) sockets.push(socket as Socket)
    return socket
  }
  const request = open(url, { method: 'POST', headers, agent, maxHeaderSize: MAX_HEADER_BYTES })
  return {
    request,
    close() {
      for (const socket of sockets) socket.destroy()
    },
  }
}

function collect(
  response: IncomingMessage,
  { resolve, fail }: { resolve: (answer: Answer) => void; fail: (error: unknown) => void },
): void {
  const chunks: Buffer[] = []
  let size = 0
  response.on('data', (chunk: Buffer) => {
    size += chunk.length
    if (size <= MAX_BODY_BYTES) chunks.push(chunk)
    else resolve({ ...headOf(response), body: new Uint8Array(), isCut: true })
  })
  response.on('error', fail)
  response.once('end', () => resolve({ ...headOf(response), body: Buffer.concat(chunks) }))
}

function headOf({ statusCode, headers }: IncomingMessage): Pick<Answer, 'status' | 'headers'> {
  return { status: statusCode ?? 0, headers }
}
