// Sends one request for a token and gives its answer, or why there is none, within limits of time and size.
// Afterwards no socket is open.
import {
  request as httpRequest,
  type ClientRequest,
  type IncomingMessage,
  type RequestOptions,
} from 'node:http'
import { isIP, type Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { ConnectionOptions, SecureContext } from 'node:tls'
import type { Clock } from '../lib/clock.ts'
import { formatDuration } from '../lib/duration.ts'
import { readLimited } from '../lib/input.ts'
import type { TransientFailure } from '../token/outcome.ts'
import { MAX_BODY_BYTES, type ServiceResponse } from './answer.ts'
import { failureFromError, proxyInWords } from './failures.ts'
import type { Proxy } from './proxy.ts'
import type { ServiceRequest } from './request.ts'

interface ExchangeOptions {
  /** For the whole exchange, and for its beginning (name, connection, proxy and TLS). */
  readonly limits: { readonly timeoutMs: number; readonly connectTimeoutMs: number }
  readonly proxy: Proxy | null
  /** Null: without TLS, which takes 3 MB to set up. */
  readonly secureContext: SecureContext | null
  /** The same without the client certificate, for a proxy that is reached by TLS; null: there is none. */
  readonly proxyContext: SecureContext | null
  /** The context has a client certificate. */
  readonly hasCertificate: boolean
  readonly clock: Clock
  readonly signal: AbortSignal
  /** The request was written. */
  readonly onSent?: (() => void) | undefined
}

/** Node takes no shorter one. */
const MIN_ADDRESS_TIMEOUT_MS = 10

/** The answer as it came, or why there is none. Never rejects. */
export async function exchange(
  asked: ServiceRequest,
  { limits, proxy, secureContext, proxyContext, hasCertificate, clock, signal, ...on }: ExchangeOptions,
): Promise<ServiceResponse | TransientFailure> {
  // The caller of an attempt that was cancelled ignores its outcome.
  const givenUp: TransientFailure = { kind: 'transient', reason: 'network', detail: 'It was given up' }
  if (signal.aborted) return givenUp
  const { hostSetting, url } = asked
  const { host } = url
  const over = new AbortController()
  const connecting = new AbortController()
  const ended = Promise.withResolvers<TransientFailure>()
  const sockets = new Set<Duplex>()
  /** The proxy while it has not opened the way to the service; null: there is none, or it has. */
  let pendingProxy = proxy
  let isSent = false
  const attemptMs = Math.max(MIN_ADDRESS_TIMEOUT_MS, Math.floor(limits.connectTimeoutMs / 3))
  const tried = { autoSelectFamily: true, autoSelectFamilyAttemptTimeout: attemptMs }

  function onSocket(socket: Duplex): void {
    // Opened for an exchange that is over.
    if (over.signal.aborted) socket.destroy()
    sockets.add(socket)
  }
  function onSent(): void {
    isSent = true
    on.onSent?.()
    connecting.abort()
  }
  async function ask(): Promise<ServiceResponse | TransientFailure> {
    try {
      const through = proxy && (await tunnel(url, { proxy, proxyContext, tried, onSocket }))
      pendingProxy = null
      over.signal.throwIfAborted()
      return await send(asked, { through, secureContext, tried, onSocket, onSent })
    } catch (error) {
      return failureFromError(error, { host, hostSetting, proxy: pendingProxy, isSent, hasCertificate })
    }
  }
  /** Ends the exchange after this time, unless what is awaited has come before: a loop that is late reads it first. */
  async function limit(ms: number, until: AbortSignal, awaited: string, setting: string): Promise<void> {
    await clock.sleep(ms, until)
    if (!until.aborted) await nextTurn()
    if (until.aborted) return
    const by = pendingProxy === null ? '' : ` through ${proxyInWords(pendingProxy)}`
    const detail = `No ${awaited} ${host}${by} within ${formatDuration(ms)} (request.${setting})`
    ended.resolve({ kind: 'transient', reason: 'timeout', detail })
  }
  const cancel = (): void => ended.resolve(givenUp)
  signal.addEventListener('abort', cancel)
  void limit(limits.connectTimeoutMs, connecting.signal, 'connection to', 'connectTimeout')
  void limit(limits.timeoutMs, over.signal, 'whole answer from', 'timeout')
  try {
    return await Promise.race([ask(), ended.promise])
  } finally {
    over.abort()
    connecting.abort()
    // Removed by hand: Node keeps a listener that another signal would remove, and with it the connection.
    signal.removeEventListener('abort', cancel)
    for (const socket of sockets) socket.destroy()
  }
}

interface ConnectOptions {
  /**
   * The addresses of a name are tried one after the other, each but the last for this time. Node's own 250 ms
   * would cut off a distant one before it could answer.
   */
  readonly tried: { readonly autoSelectFamily: boolean; readonly autoSelectFamilyAttemptTimeout: number }
  readonly onSocket: (socket: Duplex) => void
}
interface SendOptions extends ConnectOptions {
  /** The connection to the service through a proxy; null: it is made here. */
  readonly through: Socket | null
  readonly secureContext: SecureContext | null
  /** The connection (and TLS) is up, and the request handed over. */
  readonly onSent: () => void
}

async function send(
  { url, headers, body }: ServiceRequest,
  { through, secureContext, tried, onSocket, onSent }: SendOptions,
): Promise<ServiceResponse> {
  const options: RequestOptions = { ...tried, method: 'POST', headers, maxHeaderSize: MAX_HEAD_BYTES }
  const secured = secureContext && (await secure(url, { through, secureContext, tried, onSocket }))
  const request =
    secured === null
      ? httpRequest(url, { ...options, agent: false })
      : (await import('node:https')).request(url, { ...options, createConnection: () => secured })
  const { promise, resolve, reject } = Promise.withResolvers<ServiceResponse>()
  bound(request, onSocket)
  request.on('error', reject)
  // It comes only after the connection (and TLS) is up: written bytes wait for it.
  request.once('finish', onSent)
  const answered = (
    { statusCode = 0, headers: had }: IncomingMessage,
    read: Uint8Array | undefined,
  ): void => {
    resolve({ status: statusCode, headers: had, body: read ?? new Uint8Array(), isCut: read === undefined })
  }
  request.once('upgrade', (response) => answered(response, new Uint8Array()))
  request.once('response', (response) => {
    const chunks = response as AsyncIterable<Buffer>
    readLimited(chunks, { maxBytes: MAX_BODY_BYTES }).then((read) => answered(response, read), reject)
  })
  request.end(body)
  return promise
}

/** Makes the TLS connection before anything is written, so that a refusal's error is the server's own. */
async function secure(
  { hostname, port }: URL,
  { through, secureContext, tried, onSocket }: Omit<SendOptions, 'onSent'> & { secureContext: SecureContext },
): Promise<Socket> {
  const { connect } = await import('node:tls')
  const { promise, resolve, reject } = Promise.withResolvers<Socket>()
  const socket = connect({
    ...tried,
    host: withoutBrackets(hostname),
    port: Number(port || 443),
    servername: serverNameOf(hostname),
    ...(through && { socket: through }),
    secureContext,
    // Set here, so that NODE_TLS_REJECT_UNAUTHORIZED cannot expose the secret to another server.
    rejectUnauthorized: true,
    ALPNProtocols: ['http/1.1'],
  })
  onSocket(socket)
  socket.on('error', reject).once('secureConnect', () => resolve(socket))
  return promise
}

/** An IPv6 address of a URL is in brackets. */
function withoutBrackets(hostname: string): string {
  return hostname.replaceAll(/[[\]]/g, '')
}

/** An address is no server name (RFC 6066, section 3). */
function serverNameOf(hostname: string): string {
  return isIP(withoutBrackets(hostname)) === 0 ? hostname : ''
}

/** Opens the way to the service (RFC 9110, section 9.3.6), or rejects with ERR_PROXY_TUNNEL. */
async function tunnel(
  { hostname, port }: URL,
  {
    proxy,
    proxyContext,
    tried,
    onSocket,
  }: ConnectOptions & { proxy: Proxy; proxyContext: SecureContext | null },
): Promise<Socket> {
  const target = `${hostname}:${port || 443}`
  const login = proxy.login === null ? {} : { 'proxy-authorization': `Basic ${proxy.login}` }
  const options: ConnectionOptions & RequestOptions = {
    ...tried,
    ...(proxyContext && { secureContext: proxyContext }),
    method: 'CONNECT',
    path: target,
    headers: { host: target, ...login },
    agent: false,
    maxHeaderSize: MAX_HEAD_BYTES,
    // As in `secure`: the proxy gets the login. Without a name Node would check that of the `Host` header.
    rejectUnauthorized: true,
    servername: serverNameOf(proxy.url.hostname),
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
    else reject(errorWith('ERR_PROXY_TUNNEL', { statusCode }))
  })
  request.end()
  return promise
}

function errorWith(code: string, more: object = {}): Error {
  return Object.assign(new Error(code), { code, ...more })
}

/** Largest head of an answer, in bytes. */
const MAX_HEAD_BYTES = 16 * 1024
/** Largest answer with all that frames it (the sizes of chunks and their extensions), in bytes. */
const MAX_ANSWER_BYTES = 1024 * 1024
/** The most informational answers (1xx) before the real one. */
const MAX_INFORMATIONAL = 8

/** Ends the request if its answer exceeds these limits: Node's are for each head and chunk alone. */
function bound(request: ClientRequest, onSocket: (socket: Duplex) => void): void {
  let informational = 0
  let bytes = 0
  let maxBytes = MAX_HEAD_BYTES
  request.prependOnceListener('response', () => (maxBytes = MAX_ANSWER_BYTES))
  // The connection is no longer that of an answer.
  for (const event of ['upgrade', 'connect']) request.prependOnceListener(event, () => (maxBytes = Infinity))
  request.on('information', () => {
    informational += 1
    if (informational > MAX_INFORMATIONAL) request.destroy(errorWith('ERR_TOO_MANY_INFORMATIONAL'))
  })
  request.once('socket', (socket) => {
    onSocket(socket)
    socket.on('data', (chunk: Buffer) => {
      bytes += chunk.length
      if (bytes <= maxBytes) return
      request.destroy(errorWith(maxBytes === MAX_HEAD_BYTES ? 'ERR_HEAD_TOO_LONG' : 'ERR_ANSWER_TOO_LONG'))
    })
  })
}
