// Sends one request for a token and gives its answer, or why there is none, within limits of time and size.
// Afterwards no socket is open.
import http, { type ClientRequest, type IncomingMessage, type RequestOptions } from 'node:http'
import { isIP, type Socket } from 'node:net'
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { SecureContext } from 'node:tls'
import type { Clock } from '../lib/clock.ts'
import { formatDuration } from '../lib/duration.ts'
import { readLimited } from '../lib/input.ts'
import type { TransientFailure } from '../token/outcome.ts'
import { MAX_BODY_BYTES, type ServiceResponse } from './answer.ts'
import { failureFromError, proxyInWords, type Peer } from './errors.ts'
import type { Proxy } from './proxy.ts'
import type { ServiceRequest } from './request.ts'

interface ExchangeOptions extends Pick<Peer, 'hostSetting' | 'proxy'> {
  /** For the whole exchange, and for its beginning (name, connection, proxy and TLS). */
  readonly limits: { readonly timeoutMs: number; readonly connectTimeoutMs: number }
  /** Null: without TLS, which takes 3 MB to set up. */
  readonly secureContext: SecureContext | null
  readonly clock: Clock
  readonly signal: AbortSignal
  /** The request was written. */
  readonly onSent?: (() => void) | undefined
}

/** The answer as it came, or why there is none. Never rejects. */
export async function exchange(
  asked: ServiceRequest,
  { limits, proxy, hostSetting, secureContext, clock, signal, ...on }: ExchangeOptions,
): Promise<ServiceResponse | TransientFailure> {
  const { host } = asked.url
  const over = new AbortController()
  const connecting = new AbortController()
  /** The proxy while it has not opened the way to the service; null: there is none, or it has. */
  let pendingProxy = proxy
  let late: TransientFailure | null = null
  const common: Common = {
    agent: false,
    signal: over.signal,
    maxHeaderSize: MAX_HEAD_BYTES,
    // The addresses of a name are tried in turn. Node's own 250 ms would cut off a distant one.
    autoSelectFamily: true,
    autoSelectFamilyAttemptTimeout: Math.ceil(limits.connectTimeoutMs / 3),
    // Set here, so that NODE_TLS_REJECT_UNAUTHORIZED cannot expose the secret, or a proxy's login, to others.
    rejectUnauthorized: true,
  }
  /** Ends the exchange after this time, unless `until` comes first. A loop that is late reads what has come. */
  async function limit(ms: number, until: AbortSignal, awaited: string, setting: string): Promise<void> {
    await clock.sleep(ms, until)
    if (!until.aborted) await nextTurn()
    if (until.aborted) return
    const by = pendingProxy === null ? '' : ` through ${proxyInWords(pendingProxy)}`
    const detail = `No ${awaited} ${host}${by} within ${formatDuration(ms)} (request.${setting})`
    late = { kind: 'transient', reason: 'timeout', detail }
    over.abort()
  }
  const cancel = (): void => over.abort()
  if (signal.aborted) cancel()
  signal.addEventListener('abort', cancel)
  void limit(limits.connectTimeoutMs, connecting.signal, 'connection to', 'connectTimeout')
  void limit(limits.timeoutMs, over.signal, 'whole answer from', 'timeout')
  try {
    const through = proxy && (await tunnel(asked.url, proxy, common))
    pendingProxy = null
    const onSent = (): void => {
      connecting.abort()
      on.onSent?.()
    }
    return await send(asked, { common, through, secureContext, onSent })
  } catch (error) {
    // The caller of an attempt that was cancelled ignores its outcome.
    return late ?? failureFromError(error, { host, hostSetting, proxy: pendingProxy })
  } finally {
    connecting.abort()
    over.abort()
    // Removed by hand: Node keeps a listener that another signal would remove, and with it the connection.
    signal.removeEventListener('abort', cancel)
  }
}

type Common = RequestOptions & {
  readonly autoSelectFamily: true
  readonly autoSelectFamilyAttemptTimeout: number
  readonly rejectUnauthorized: true
}

interface SendOptions {
  readonly common: Common
  /** The connection to the service through a proxy; null: it is made here. */
  readonly through: Socket | null
  readonly secureContext: SecureContext | null
  /** The connection (and TLS) is up, and the request handed over. */
  readonly onSent: () => void
}

async function send(
  { url, headers, body }: ServiceRequest,
  { common, through, secureContext, onSent }: SendOptions,
): Promise<ServiceResponse> {
  const options = { ...common, method: 'POST', headers }
  const secured: object = { secureContext, ...(through && { socket: through }) }
  const request =
    secureContext === null
      ? http.request(url, options)
      : (await import('node:https')).request(url, { ...options, ...secured })
  const { promise, resolve, reject } = Promise.withResolvers<ServiceResponse>()
  request.on('error', reject)
  bound(request)
  // It comes only after the connection (and TLS) is up: written bytes wait for it.
  request.once('finish', onSent)
  request.once('response', (response) => void answerIn(response).then(resolve, reject))
  request.end(body)
  return promise
}

async function answerIn(response: IncomingMessage): Promise<ServiceResponse> {
  const { statusCode: status = 0, headers } = response
  const body = await readLimited(response as AsyncIterable<Buffer>, { maxBytes: MAX_BODY_BYTES })
  return { status, headers, body: body ?? new Uint8Array(), isCut: body === undefined }
}

/**
 * Opens the way to the service (RFC 9110, section 9.3.6), or rejects with ERR_PROXY_TUNNEL. Not by the proxy
 * support of Node's agent: there an answer to CONNECT in twenty pieces takes all memory (Node 24.21), and
 * the environment switches off the checks of a proxy's TLS.
 */
async function tunnel({ hostname, port }: URL, proxy: Proxy, common: Common): Promise<Socket> {
  const target = `${hostname}:${port || 443}`
  const login = proxy.login === null ? {} : { 'proxy-authorization': `Basic ${proxy.login}` }
  const { request: open } = proxy.url.protocol === 'https:' ? await import('node:https') : http
  const options = { ...common, method: 'CONNECT', path: target, headers: { host: target, ...login } }
  // Else the name would be that of the `Host`. An address is no server name (RFC 6066, section 3).
  const request = open(proxy.url, { ...options, servername: isIP(proxy.url.hostname) ? '' : proxy.url.hostname }) // prettier-ignore
  // The connection goes on as the tunnel.
  request.removeHeader('connection')
  const { promise, resolve, reject } = Promise.withResolvers<Socket>()
  request.on('error', reject)
  bound(request)
  request.once('connect', ({ statusCode = 0 }, socket) => {
    // TLS reports what happens on it from now on.
    socket.on('error', reject)
    common.signal!.addEventListener('abort', () => socket.destroy())
    if (statusCode >= 200 && statusCode < 300) resolve(socket)
    else reject(Object.assign(new Error('ERR_PROXY_TUNNEL'), { code: 'ERR_PROXY_TUNNEL', statusCode }))
  })
  request.end()
  return promise
}

/** Largest head of an answer with the informational ones before it, in bytes. */
const MAX_HEAD_BYTES = 16 * 1024
/** Largest answer with all that frames it (the sizes of chunks and their extensions), in bytes. */
const MAX_ANSWER_BYTES = 1024 * 1024

/** Ends the request if its answer exceeds these limits: Node's are for each head and chunk alone. */
function bound(request: ClientRequest): void {
  let leftBytes = MAX_HEAD_BYTES
  request.prependOnceListener('response', () => (leftBytes += MAX_ANSWER_BYTES))
  // The connection is no longer that of an answer.
  request.prependOnceListener('connect', () => (leftBytes = Infinity))
  request.once('socket', (socket) => {
    socket.on('data', (chunk: Buffer) => {
      leftBytes -= chunk.length
      if (leftBytes < 0) request.destroy(Object.assign(new Error('ERR_TOO_LONG'), { code: 'ERR_TOO_LONG' }))
    })
  })
}
