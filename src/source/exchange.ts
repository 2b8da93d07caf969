// Sends one request for a token, perhaps through a proxy, and gives its answer or why there is none, within limits of
// time and size. Afterwards no socket is open.
import http, { type IncomingMessage } from 'node:http'
import type { RequestOptions } from 'node:https'
import { isIP, type Socket } from 'node:net'
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { SecureContext } from 'node:tls'
import type { RequestConfig } from '../config/config.ts'
import type { Clock } from '../lib/clock.ts'
import { formatDuration } from '../lib/duration.ts'
import { errorCode } from '../lib/error.ts'
import { readLimited } from '../lib/input.ts'
import type { TransientFailure } from '../token/outcome.ts'
import { MAX_BODY_BYTES, type ServiceResponse } from './answer.ts'
import type { ServiceRequest } from './request.ts'

interface ExchangeOptions {
  readonly request: RequestConfig
  /** For HTTPS_PROXY and NO_PROXY. */
  readonly env: NodeJS.ProcessEnv
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
  { request, env, secureContext, clock, signal, ...on }: ExchangeOptions,
): Promise<ServiceResponse | TransientFailure> {
  const over = new AbortController()
  const connecting = new AbortController()
  /** The service, or the proxy while it has not opened the way there. */
  let peer = asked.url.host
  let late: TransientFailure | null = null
  /** Ends the exchange after this time, unless `until` comes first. A loop that is late reads what has come. */
  async function limit(setting: 'timeout' | 'connectTimeout', until: AbortSignal): Promise<void> {
    const ms = request[`${setting}Ms`]
    await clock.sleep(ms, until)
    if (!until.aborted) await nextTurn()
    if (until.aborted) return
    const detail = `No answer from ${peer} within ${formatDuration(ms)} (request.${setting})`
    late = { kind: 'transient', reason: 'timeout', detail }
    over.abort()
  }
  const cancel = (): void => over.abort()
  if (signal.aborted) cancel()
  signal.addEventListener('abort', cancel)
  void limit('connectTimeout', connecting.signal)
  void limit('timeout', over.signal)
  try {
    const common = commonOptions(request, over.signal)
    const proxy = proxyOf(asked.url, request.proxy, env)
    if (proxy !== null) peer = `${proxy.url.host} (the proxy of ${proxy.setting})`
    const through = proxy && (await tunnel(asked.url, proxy, common))
    peer = asked.url.host
    const onSent = (): void => {
      connecting.abort()
      on.onSent?.()
    }
    return await send(asked, { common, through, secureContext, onSent })
  } catch (error) {
    // The caller of an attempt that was cancelled ignores its outcome.
    return late ?? failureOf(error, peer)
  } finally {
    connecting.abort()
    over.abort()
    // Node keeps a listener that another signal would remove, and with it the connection.
    signal.removeEventListener('abort', cancel)
  }
}

/**
 * Why there was no answer, by the code of the error; the first row counts. The codes of certificates are those of
 * OpenSSL's X509_verify_cert.
 */
const rows: readonly (readonly [codes: RegExp, reason: TransientFailure['reason'], words: string])[] = [
  [/^(?:ENOTFOUND|EAI_)/, 'network', 'The name of PEER was not found'],
  [/^ETIMEDOUT$/, 'timeout', 'PEER does not answer'],
  [/^(?:ERR_SSL_|EPROTO$)/, 'tls', 'TLS with PEER failed'],
  [
    /^(?:ERR_TLS_|CERT_|CRL_|UNABLE_TO_|DEPTH_ZERO_SELF_SIGNED|SELF_SIGNED_CERT|ERROR_IN_C|INVALID_(?:CA|PURPOSE)|PATH_LENGTH_|HOSTNAME_|EE_KEY_|CA_)/,
    'tls',
    'The certificate of PEER does not hold',
  ],
  [/^(?:HPE_|ERR_TOO_LONG$)/, 'malformed-answer', 'The answer of PEER is no HTTP, or too long'],
  [/^ERR_INVALID_(?:URL|PROTOCOL)$/, 'network', 'HTTPS_PROXY must be like http://proxy.example.com:3128'],
  [/^/, 'network', 'The connection to PEER failed'],
]

/** The error's message is never shown: it quotes others. */
function failureOf(error: unknown, peer: string): TransientFailure {
  const code = errorCode(error) ?? 'no code'
  const [, reason, words] = rows.find(([codes]) => codes.test(code))!
  return { kind: 'transient', reason, detail: `${words.replace('PEER', peer)} (${code})` }
}

type Common = ReturnType<typeof commonOptions>

function commonOptions({ connectTimeoutMs }: RequestConfig, signal: AbortSignal) {
  return {
    agent: false,
    signal,
    maxHeaderSize: MAX_HEAD_BYTES,
    // The addresses of a name are tried in turn. Node's own 250 ms would cut off a distant one.
    autoSelectFamily: true,
    autoSelectFamilyAttemptTimeout: Math.ceil(connectTimeoutMs / 3),
    // It is set here, so that NODE_TLS_REJECT_UNAUTHORIZED cannot expose the secret, or a proxy's login, to others.
    rejectUnauthorized: true,
  } as const
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
  const secured: object = { ...(secureContext && { secureContext }), ...(through && { socket: through }) }
  const how = { ...common, method: 'POST', headers, ...secured }
  const { request, promise, resolve, reject } = await begin<ServiceResponse>(url, how)
  // It comes only after the connection (and TLS) is up: written bytes wait for it.
  request.once('finish', onSent)
  request.once('response', (response) => void answerIn(response).then(resolve, reject))
  request.end(body)
  return promise
}

async function answerIn(response: IncomingMessage): Promise<ServiceResponse> {
  const { statusCode: status = 0, headers } = response
  const body = await readLimited(response as AsyncIterable<Buffer>, { maxBytes: MAX_BODY_BYTES })
  return { status, headers, body: body ?? null }
}

interface Proxy {
  /** Its host and port alone. */
  readonly url: URL
  /** User and password with a colon between them; null: without a login. A secret. */
  readonly login: string | null
  /** The setting that names it. */
  readonly setting: 'request.proxy' | 'HTTPS_PROXY'
}

/**
 * The proxy of a service; null: none. Plain HTTP (a service on loopback) never uses one, which would see the
 * secret. Throws if HTTPS_PROXY is no URL.
 */
function proxyOf(service: URL, proxy: RequestConfig['proxy'], env: NodeJS.ProcessEnv): Proxy | null {
  if (service.protocol !== 'https:' || proxy === false) return null
  if (proxy !== null) {
    const login = proxy.user === null ? null : `${proxy.user}:${proxy.password?.reveal() ?? ''}`
    return { url: new URL(proxy.url), login, setting: 'request.proxy' }
  }
  const value = (env['https_proxy'] || env['HTTPS_PROXY'])?.trim()
  if (!value || isExcepted(service, env['no_proxy'] || env['NO_PROXY'] || '')) return null
  // As curl has it: no scheme means HTTP, and a "%" that begins no escape stands for itself.
  const { protocol, host, username, password } = new URL(value.includes('://') ? value : `http://${value}`)
  const escaped = `${username}:${password}`.replaceAll(/%(?![\da-f]{2})/gi, '%25')
  const login = username === '' ? null : decodeURIComponent(escaped)
  return { url: new URL(`${protocol}//${host}`), login, setting: 'HTTPS_PROXY' }
}

/** NO_PROXY: names, each for itself and all below it, and addresses, perhaps with a port; or `*`. */
function isExcepted({ hostname, port }: URL, exceptions: string): boolean {
  const host = hostname.replaceAll(/[[\]]|\.$/g, '')
  return exceptions
    .toLowerCase()
    .split(/[\s,]+/)
    .some((entry) => {
      const [, name = entry, onPort] = /^(\[.*\]|[^:]*):(\d+)$/.exec(entry) ?? []
      if (name === '*') return true
      if (onPort !== undefined && onPort !== (port || '443')) return false
      const domain = name.replaceAll(/^\*?\.|\.$|[[\]]/g, '')
      return domain !== '' && (host === domain || (isIP(host) === 0 && host.endsWith(`.${domain}`)))
    })
}

/**
 * Opens the way to the service (RFC 9110, section 9.3.6), or rejects with the status of the proxy as the code. Not by
 * the proxy support of Node's agent: there an answer to CONNECT in twenty pieces takes all memory (Node 24.21), and
 * the environment switches off the checks of a proxy's TLS.
 */
async function tunnel({ hostname, port }: URL, proxy: Proxy, common: Common): Promise<Socket> {
  const target = `${hostname}:${port || 443}`
  const login = proxy.login && `Basic ${Buffer.from(proxy.login).toString('base64')}`
  const options = {
    ...common,
    method: 'CONNECT',
    path: target,
    headers: { host: target, ...(login && { 'proxy-authorization': login }) },
    // Else the name would be that of the `Host`. An address is no server name (RFC 6066, section 3).
    servername: isIP(proxy.url.hostname) ? '' : proxy.url.hostname,
  }
  const { request, promise, resolve, reject } = await begin<Socket>(proxy.url, options)
  // The connection goes on as the tunnel.
  request.removeHeader('connection')
  request.once('connect', ({ statusCode = 0 }, socket) => {
    // TLS reports what happens on it from now on.
    socket.on('error', reject)
    common.signal.addEventListener('abort', () => socket.destroy())
    if (statusCode >= 200 && statusCode < 300) resolve(socket)
    else reject(errorWith(`CONNECT answered ${statusCode}`))
  })
  request.end()
  return promise
}

/** Largest head of an answer with the informational ones before it, in bytes. */
const MAX_HEAD_BYTES = 16 * 1024
/** Largest answer with all that frames it (the sizes of chunks and their extensions), in bytes. */
const MAX_ANSWER_BYTES = 1024 * 1024

/**
 * Opens a request, which ends if its answer exceeds these limits: Node's are for each head and chunk alone. The
 * promise rejects if the request fails.
 */
async function begin<T>(url: URL, options: RequestOptions) {
  const { request: open } = url.protocol === 'https:' ? await import('node:https') : http
  const request = open(url, options)
  const answered = Promise.withResolvers<T>()
  request.on('error', answered.reject)
  // Node reports no error where it has ended the connection by itself, as it does after a 101.
  options.signal?.addEventListener('abort', () => answered.reject(errorWith('ABORT_ERR')))
  let leftBytes = MAX_HEAD_BYTES
  request.prependOnceListener('response', () => (leftBytes += MAX_ANSWER_BYTES))
  // The connection is no longer that of an answer.
  request.prependOnceListener('connect', () => (leftBytes = Infinity))
  request.once('socket', (socket) => {
    socket.on('data', (chunk: Buffer) => {
      leftBytes -= chunk.length
      if (leftBytes < 0) request.destroy(errorWith('ERR_TOO_LONG'))
    })
  })
  return { request, ...answered }
}

function errorWith(code: string): Error {
  return Object.assign(new Error(code), { code })
}
