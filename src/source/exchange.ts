// One request and its answer over the wire, within limits of time and size; afterwards no socket is left.
import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import type { SecureContext } from 'node:tls'
import type { Clock } from '../lib/clock.ts'
import { formatDuration } from '../lib/duration.ts'
import { readLimited } from '../lib/input.ts'
import type { TransientFailure } from '../token/outcome.ts'
import { failureFromError, MAX_HEADER_BYTES } from './network-error.ts'
import type { ServiceRequest } from './request.ts'
import { MAX_BODY_BYTES, type ServiceResponse } from './response.ts'

export interface ExchangeOptions {
  /** For the whole of it, and for name, connection (through a proxy, too) and TLS, in ms. */
  readonly limits: { readonly timeoutMs: number; readonly connectTimeoutMs: number }
  /** The agent's, by `proxyEnvOf`. */
  readonly proxyEnv: NodeJS.ProcessEnv
  /** null: without TLS, whose setting up takes 3 MB. */
  readonly secureContext: SecureContext | null
  readonly clock: Clock
  readonly signal: AbortSignal
}

/** The answer as it came, or why there is none. Never rejects. */
export async function exchange(
  asked: ServiceRequest,
  options: ExchangeOptions,
): Promise<ServiceResponse | TransientFailure> {
  const { limits, clock, signal } = options
  const {
    hostSetting: setting,
    url: { host },
  } = asked
  const connection = await openConnection(asked, options)
  const { request } = connection
  const { promise, resolve } = Promise.withResolvers<ServiceResponse | TransientFailure>()
  const over = new AbortController()
  const connecting = new AbortController()
  const fail = (error: unknown): void =>
    resolve(failureFromError(error, { host, setting, isSent: connecting.signal.aborted }))
  // The caller of an attempt that was cancelled ignores its outcome.
  const cancel = (): void =>
    resolve({
      kind: 'transient',
      reason: 'network',
      detail: 'The attempt was given up before there was an answer',
    })
  const limit = (ms: number, until: AbortSignal, words: string, limiting: string): void => {
    const detail = `No ${words} ${host} within ${formatDuration(ms)} (request.${limiting})`
    const tooSlow = (): void => resolve({ kind: 'transient', reason: 'timeout', detail })
    void clock.sleep(ms, until).then(() => (until.aborted ? undefined : tooSlow()))
  }
  // 'finish' fires only after the connection (and TLS) is up: written bytes wait for it.
  request.once('finish', () => connecting.abort())
  request.on('error', fail)
  request.once('response', (response) => {
    readLimited(response as AsyncIterable<Buffer>, { maxBytes: MAX_BODY_BYTES }).then(
      (body) => resolve({ ...headOf(response), body: body ?? new Uint8Array(), isCut: body === undefined }),
      fail,
    )
  })
  request.once('upgrade', (response) => resolve({ ...headOf(response), body: new Uint8Array() }))
  signal.addEventListener('abort', cancel)
  // Cancelled while the connection was prepared: nothing has been sent, and nothing will be.
  if (signal.aborted) cancel()
  else {
    limit(limits.connectTimeoutMs, connecting.signal, 'connection to', 'connectTimeout')
    limit(limits.timeoutMs, over.signal, 'whole answer from', 'timeout')
    request.end(asked.body)
  }
  const result = await promise
  over.abort()
  connecting.abort()
  // Not by signals that end the others: Node keeps what it makes for those, and with it the connection.
  signal.removeEventListener('abort', cancel)
  connection.close()
  return result
}

async function openConnection(
  { url, headers }: ServiceRequest,
  { proxyEnv, secureContext }: ExchangeOptions,
) {
  const isTls = url.protocol === 'https:'
  const { Agent, request: open } = isTls
    ? await import('node:https')
    : { Agent: HttpAgent, request: httpRequest }
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
    /** Destroys its sockets, also a way through a proxy that is not open yet. */
    close() {
      for (const socket of sockets) socket.destroy()
    },
  }
}

function headOf({ statusCode, headers }: IncomingMessage): Pick<ServiceResponse, 'status' | 'headers'> {
  return { status: statusCode ?? 0, headers }
}
