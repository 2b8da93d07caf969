// Sends one request for a token and gives its answer, or why there is none, within limits of time and size. Afterwards no socket
// is open.
import {
  request as httpRequest,
  type ClientRequest,
  type IncomingMessage,
  type RequestOptions,
} from 'node:http'
import { isIP, type Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import type { ConnectionOptions, SecureContext } from 'node:tls'
import type { Clock } from '../lib/clock.ts'
import { formatDuration } from '../lib/duration.ts'
import { readLimited } from '../lib/input.ts'
import type { TransientFailure } from '../token/outcome.ts'
import { failureFromError, proxyInWords } from './failures.ts'
import type { Proxy } from './proxy.ts'
import type { ServiceRequest } from './request.ts'
import { MAX_BODY_BYTES, type ServiceResponse } from './response.ts'

interface ExchangeOptions {
  /** For the whole exchange; and for its beginning: name look-up, connection (also through a proxy) and TLS. In ms. */
  readonly limits: { readonly timeoutMs: number; readonly connectTimeoutMs: number }
  readonly proxy: Proxy | null
  /** Null: without TLS, which takes 3 MB to set up. */
  readonly secureContext: SecureContext | null
  /** The context has a client certificate. */
  readonly hasCertificate: boolean
  readonly clock: Clock
  readonly signal: AbortSignal
}

/** How far an exchange has come. */
interface Progress {
  /** The proxy while it has not opened the way to the service; null: there is none, or it has. */
  pendingProxy: Proxy | null
  isSent: boolean
}

/** The answer as it came, or why there is none. Never rejects. */
export async function exchange(
  asked: ServiceRequest,
  { limits, proxy, secureContext, hasCertificate, clock, signal }: ExchangeOptions,
): Promise<ServiceResponse | TransientFailure> {
  // The caller of an attempt that was cancelled ignores its outcome.
  const givenUp: TransientFailure = { kind: 'transient', reason: 'network', detail: 'It was given up' }
  if (signal.aborted) return givenUp
  const { hostSetting, url } = asked
  const { host } = url
  const over = new AbortController()
  const connecting = new AbortController()
  const sockets = new Set<Duplex>()
  const progress: Progress = { pendingProxy: proxy, isSent: false }
  const onSocket = (socket: Duplex): void => {
    // Opened for an exchange that is over.
    if (over.signal.aborted) socket.destroy()
    sockets.add(socket)
  }

  async function ask(): Promise<ServiceResponse> {
    const through = proxy && (await tunnel(url, { proxy, onSocket }))
    progress.pendingProxy = null
    over.signal.throwIfAborted()
    return send(asked, { through, secureContext, onSocket, onSent })
  }
  function onSent(): void {
    progress.isSent = true
    connecting.abort()
  }
  /** Resolves after this time with what was awaited in vain, or with the answer if it was there before. */
  async function limit(
    ms: number,
    until: AbortSignal,
    { awaited, setting }: { awaited: string; setting: string },
  ): Promise<ServiceResponse | TransientFailure> {
    await clock.sleep(ms, until)
    if (until.aborted) return answer
    const by = progress.pendingProxy && ` through ${proxyInWords(progress.pendingProxy)}`
    const detail = `No ${awaited} ${host}${by ?? ''} within ${formatDuration(ms)} (request.${setting})`
    return { kind: 'transient', reason: 'timeout', detail }
  }
  const answer: Promise<ServiceResponse | TransientFailure> = ask().catch((error: unknown) =>
    failureFromError(error, {
      host,
      hostSetting,
      proxy: progress.pendingProxy,
      isSent: progress.isSent,
      hasCertificate,
    }),
  )
  const cancelled = Promise.withResolvers<TransientFailure>()
  const cancel = (): void => cancelled.resolve(givenUp)
  signal.addEventListener('abort', cancel)
  try {
    return await Promise.race([
      answer,
      cancelled.promise,
      limit(limits.connectTimeoutMs, connecting.signal, {
        awaited: 'connection to',
        setting: 'connectTimeout',
      }),
      limit(limits.timeoutMs, over.signal, { awaited: 'whole answer from', setting: 'timeout' }),
    ])
  } finally {
    over.abort()
    connecting.abort()
    // Removed by hand: Node keeps a listener that another signal would remove, and with it the connection.
    signal.removeEventListener('abort', cancel)
    for (const socket of sockets) socket.destroy()
  }
}

interface SendOptions {
  /** The connection to the service through a proxy; null: it is made here. */
  readonly through: Socket | null
  readonly secureContext: SecureContext | null
  readonly onSocket: (socket: Duplex) => void
  /** The connection (and TLS) is up, and the request handed over. */
  readonly onSent: () => void
}

async function send(
  { url, headers, body }: ServiceRequest,
  { through, secureContext, onSocket, onSent }: SendOptions,
): Promise<ServiceResponse> {
  const options: RequestOptions = { method: 'POST', headers, maxHeaderSize: MAX_HEAD_BYTES }
  const secured = secureContext && (await secure(url, { through, secureContext, onSocket }))
  const request =
    secured === null
      ? httpRequest(url, { ...options, agent: false })
      : (await import('node:https')).request(url, { ...options, createConnection: () => secured })
  const { promise, resolve, reject } = Promise.withResolvers<ServiceResponse>()
  bound(request, onSocket)
  request.on('error', reject)
  // It comes only after the connection (and TLS) is up: written bytes wait for it.
  request.once('finish', onSent)
  request.once('upgrade', (response) => resolve({ ...headOf(response), body: new Uint8Array() }))
  request.once('response', (response) => {
    readLimited(response as AsyncIterable<Buffer>, { maxBytes: MAX_BODY_BYTES }).then(
      (read) => resolve({ ...headOf(response), body: read ?? new Uint8Array(), isCut: read === undefined }),
      reject,
    )
  })
  request.end(body)
  return promise
}

/** Makes the TLS connection. Nothing is written before it is there: so the error of a refusal is the one that the server gave. */
async function secure(
  { hostname, port }: URL,
  { through, secureContext, onSocket }: Omit<SendOptions, 'onSent'> & { secureContext: SecureContext },
): Promise<Socket> {
  const { connect } = await import('node:tls')
  const { promise, resolve, reject } = Promise.withResolvers<Socket>()
  const socket = connect({
    host: hostname.replaceAll(/[[\]]/g, ''),
    port: Number(port || 443),
    servername: serverNameOf({ hostname }),
    ...(through && { socket: through }),
    secureContext,
    // Set here, so that NODE_TLS_REJECT_UNAUTHORIZED in an environment cannot expose the secret to another server.
    rejectUnauthorized: true,
    ALPNProtocols: ['http/1.1'],
  })
  onSocket(socket)
  socket.on('error', reject).once('secureConnect', () => resolve(socket))
  return promise
}

/** An address is no name that a server could be told (RFC 6066, section 3). */
function serverNameOf({ hostname }: Pick<URL, 'hostname'>): string {
  return isIP(hostname.replaceAll(/[[\]]/g, '')) === 0 ? hostname : ''
}

/** Opens the way to the service through the proxy (RFC 9110, section 9.3.6). Rejects with ERR_PROXY_TUNNEL if it does not. */
async function tunnel(
  { hostname, port }: URL,
  { proxy, onSocket }: { proxy: Proxy; onSocket: (socket: Duplex) => void },
): Promise<Socket> {
  const target = `${hostname}:${port || 443}`
  const login = proxy.login === null ? {} : { 'proxy-authorization': `Basic ${proxy.login}` }
  const options: ConnectionOptions & RequestOptions = {
    method: 'CONNECT',
    path: target,
    headers: { host: target, ...login },
    agent: false,
    maxHeaderSize: MAX_HEAD_BYTES,
    // As in `secure`: the proxy gets the login. Without a name Node would check that of the `Host` header, the service's.
    rejectUnauthorized: true,
    servername: serverNameOf(proxy.url),
  }
  const { request: open } =
    proxy.url.protocol === 'https:' ? await import('node:https') : { request: httpRequest }
  const request = open(proxy.url, options)
  // The connection goes on as the tunnel.
  request.removeHeader('connection')
  const { promise, resolve, reject } = Promise.withResolvers<Socket>()
  bound(request, onSocket)
  request.on('error', reject)
  request.once('connect', ({ statusCode = 0 }, socket) => {
    // TLS reports what happens on it from now on.
    socket.on('error', reject)
    if (statusCode >= 200 && statusCode < 300) resolve(socket)
    else reject(Object.assign(new ExchangeError('ERR_PROXY_TUNNEL'), { statusCode }))
  })
  request.end()
  return promise
}

class ExchangeError extends Error {
  override readonly name = 'ExchangeError'
  readonly code: string
  constructor(code: string) {
    super(code)
    this.code = code
  }
}

/** Largest head of an answer, in bytes. */
const MAX_HEAD_BYTES = 16 * 1024
/** The most informational answers (1xx) before the real one. */
const MAX_INFORMATIONAL = 8

/** Ends the request if its answer does not begin within these limits, which Node has for one head, and not for all of them. */
function bound(request: ClientRequest, onSocket: (socket: Duplex) => void): void {
  let informational = 0
  let headBytes = 0
  let isOver = false
  for (const event of ['response', 'upgrade', 'connect'])
    request.prependOnceListener(event, () => (isOver = true))
  request.on('information', () => {
    informational += 1
    if (informational > MAX_INFORMATIONAL) request.destroy(new ExchangeError('ERR_TOO_MANY_INFORMATIONAL'))
  })
  request.once('socket', (socket) => {
    onSocket(socket)
    socket.on('data', (chunk: Buffer) => {
      headBytes += chunk.length
      if (!isOver && headBytes > MAX_HEAD_BYTES) request.destroy(new ExchangeError('ERR_HEAD_TOO_LONG'))
    })
  })
}

function headOf({ statusCode, headers }: IncomingMessage): Pick<ServiceResponse, 'status' | 'headers'> {
  return { status: statusCode ?? 0, headers }
}
