// Sends one request for a token and gives its answer, or why there is none, within limits of time and size. Afterwards no socket
// is open.
import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import type { SecureContext } from 'node:tls'
import type { Clock } from '../lib/clock.ts'
import { formatDuration } from '../lib/duration.ts'
import { readLimited } from '../lib/input.ts'
import type { TransientFailure } from '../token/outcome.ts'
import type { ServiceConfig } from '../config/config.ts'
import { errorCode } from '../lib/error.ts'
import { basicOf, type Credentials } from '../lib/secret.ts'
import program from '../../package.json' with { type: 'json' }
import { MAX_BODY_BYTES, type ServiceResponse } from './response.ts'

interface ExchangeOptions {
  /** For the whole exchange; and for its beginning: name look-up, connection (also through a proxy) and TLS. In ms. */
  readonly limits: { readonly timeoutMs: number; readonly connectTimeoutMs: number }
  /** The result of `proxyEnvOf`. */
  readonly proxyEnv: NodeJS.ProcessEnv
  /** Null: without TLS, which takes 3 MB to set up. */
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
  const { hostSetting, url } = asked
  const { host } = url
  const connection = await openConnection(asked, options)
  const { request, pendingProxy } = connection
  const { promise, resolve } = Promise.withResolvers<ServiceResponse | TransientFailure>()
  const over = new AbortController()
  const connecting = new AbortController()
  const fail = (error: unknown): void => {
    const isSent = connecting.signal.aborted
    resolve(failureFromError(error, { host, hostSetting, proxy: pendingProxy(), isSent }))
  }
  // The caller of an attempt that was cancelled ignores its outcome.
  const cancel = (): void => resolve({ kind: 'transient', reason: 'network', detail: 'It was given up' })
  async function limit(ms: number, until: AbortSignal, words: string, limiting: string): Promise<void> {
    await clock.sleep(ms, until)
    if (until.aborted) return
    const through = pendingProxy() && ` through ${pendingProxy()}`
    const detail = `No ${words} ${host}${through} within ${formatDuration(ms)} (request.${limiting})`
    resolve({ kind: 'transient', reason: 'timeout', detail })
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
    void limit(limits.connectTimeoutMs, connecting.signal, 'connection to', 'connectTimeout')
    void limit(limits.timeoutMs, over.signal, 'whole answer from', 'timeout')
    request.end(asked.body)
  }
  const result = await promise
  over.abort()
  connecting.abort()
  // Removed by hand: Node keeps a listener that another signal would remove, and with it the connection.
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
  // Set here, so that NODE_TLS_REJECT_UNAUTHORIZED in an environment cannot expose the secret to another server.
  const tls = { secureContext: secureContext ?? undefined, rejectUnauthorized: true }
  const agent = new Agent({ keepAlive: false, maxCachedSessions: 0, proxyEnv, ...tls })
  let socket: Socket | undefined
  const connect = agent.createConnection.bind(agent)
  agent.createConnection = (...given) => (socket = connect(...given) as Socket)
  const request = open(url, { method: 'POST', headers, agent, maxHeaderSize: MAX_HEADER_BYTES })
  const { https_proxy: proxy } = proxyEnv
  return {
    request,
    /** The proxy, which is to blame for a failure before its first answer; empty: there is none, or it has answered. */
    pendingProxy: (): string => {
      return proxy && !socket?.bytesRead ? `${new URL(proxy).host} (the proxy of HTTPS_PROXY)` : ''
    },
    /** Destroys its socket, also one to a proxy that has not connected it yet. */
    close: () => void socket?.destroy(),
  }
}

function headOf({ statusCode, headers }: IncomingMessage): Pick<ServiceResponse, 'status' | 'headers'> {
  return { status: statusCode ?? 0, headers }
}

/** Largest head of an answer, in bytes. */
const MAX_HEADER_BYTES = 16 * 1024

const TRUST = 'name the file of the authority that signed it in CA_FILE'
const PROXY = 'The proxy of HTTPS_PROXY'

/**
 * Failures by the code of the error; the first row that fits counts. The code of a proxy's refusal is followed by its HTTP
 * status. Messages of errors are never shown, because they quote text of others.
 */
const FAILURES: readonly (readonly [RegExp, TransientFailure['reason'], string])[] = [
  [/^ENOTFOUND$/, 'network', "The name of HOST was not found: check SETTING and this host's DNS"],
  [/^EAI_AGAIN$/, 'network', 'The name of HOST could not be looked up: the DNS server does not answer'],
  [/^ECONNREFUSED$/, 'network', 'HOST refused the connection'],
  [/^EHOSTUNREACH$/, 'network', 'There is no route to HOST'],
  [/^ENETUNREACH$/, 'network', 'There is no network to HOST'],
  [/^(?:EACCES|EPERM)$/, 'network', "This host's firewall or sandbox forbids connections to HOST"],
  [/^(?:ECONNRESET|EPIPE|ECONNABORTED)$/, 'network', 'HOST closed the connection WHEN'],
  [/^ETIMEDOUT$/, 'timeout', 'HOST does not answer'],
  [/^ERR_PROXY_TUNNEL 407/, 'network', `${PROXY} wants a login (407): write it into its URL`],
  [/^ERR_PROXY_TUNNEL 403/, 'network', `${PROXY} forbids the way to SERVICE (403): have it allowed there`],
  [/^ERR_PROXY_TUNNEL \d/, 'network', `${PROXY} opened no way to SERVICE (it answered STATUS)`],
  [/^ERR_PROXY_TUNNEL $/, 'network', `${PROXY} opened no way to SERVICE`],
  [/^CERT_HAS_EXPIRED$/, 'tls', "The certificate of HOST has expired, or this host's clock is wrong"],
  [/^CERT_NOT_YET_VALID$/, 'tls', "The certificate of HOST is not valid yet, or this host's clock is wrong"],
  [/^CERT_REVOKED$/, 'tls', 'The certificate of HOST was revoked'],
  [/^ERR_TLS_CERT_ALTNAME_INVALID$/, 'tls', 'The certificate of HOST is for another name: check SETTING'],
  [/^DEPTH_ZERO_SELF_SIGNED_CERT$/, 'tls', `The certificate of HOST is signed by itself: ${TRUST}`],
  [
    /^(?:SELF_SIGNED_CERT_IN_CHAIN|UNABLE_TO_GET_ISSUER_CERT(?:_LOCALLY)?|UNABLE_TO_VERIFY_LEAF_SIGNATURE)$/,
    'tls',
    `The certificate of HOST comes from an authority that is not known here: ${TRUST}`,
  ],
  [
    // OpenSSL's other words for a certificate that does not hold (X509_verify_cert).
    /^(?:CERT_|CRL_|UNABLE_TO_|ERROR_IN_C|INVALID_CA|INVALID_PURPOSE|PATH_LENGTH_|HOSTNAME_MISMATCH|EE_KEY_|CA_KEY_|CA_MD_)/,
    'tls',
    'The certificate of HOST does not hold (CODE)',
  ],
  [
    /^(?:ERR_SSL_|ERR_TLS_|EPROTO$)/,
    'tls',
    'HOST does not speak TLS, or no version that the daemon supports (CODE): check SETTING',
  ],
  [/^HPE_HEADER_OVERFLOW$/, 'malformed-answer', 'The answer of HOST has headers of more than 16 KiB'],
  [/^HPE_/, 'malformed-answer', 'The answer of HOST is not valid HTTP (CODE): check SETTING'],
  [/^/, 'network', 'The connection to HOST failed (CODE)'],
]

interface Peer extends Pick<ServiceConfig, 'hostSetting'> {
  readonly host: string
  /** The proxy, if it has failed and not the host; empty otherwise. */
  readonly proxy: string
  readonly isSent: boolean
}

export function failureFromError(
  error: unknown,
  { host, hostSetting, proxy, isSent }: Peer,
): TransientFailure {
  const { statusCode = '' } = Object(error) as { statusCode?: unknown }
  const code = errorCode(error) ?? 'no code'
  const values: Readonly<Record<string, string>> = {
    HOST: proxy || host,
    SERVICE: host,
    SETTING: proxy === '' ? hostSetting : 'HTTPS_PROXY',
    CA_FILE: proxy === '' ? 'request.caFile' : 'NODE_EXTRA_CA_CERTS',
    CODE: code,
    STATUS: String(statusCode),
    WHEN: isSent ? 'before its answer was whole' : 'while it was made',
  }
  const key = code === 'ERR_PROXY_TUNNEL' ? `${code} ${values['STATUS']}` : code
  const [, reason, words] = FAILURES.find(([pattern]) => pattern.test(key))!
  const detail = words.replaceAll(
    /\b(?:HOST|SERVICE|SETTING|CA_FILE|CODE|STATUS|WHEN)\b/g,
    (name) => values[name]!,
  )
  return { kind: 'transient', reason, detail }
}

interface ServiceRequest extends Pick<ServiceConfig, 'hostSetting'> {
  readonly url: URL
  readonly headers: Readonly<Record<string, string>>
  /** Holds the secret: made for one attempt, and not kept. */
  readonly body: Buffer
}

/** The request for a token as the service is described. No compressed answer is accepted, because it could hide its size. */
export function serviceRequest(service: ServiceConfig, credentials: Credentials): ServiceRequest {
  const { send, names, parameters } = service
  const own =
    send === 'basic'
      ? {}
      : {
          [names.apiKey]: credentials.apiKey.reveal(),
          [names.apiSecret]: credentials.apiSecret.reveal(),
        }
  const fields = { ...own, ...parameters }
  const body = Buffer.from(send === 'json' ? JSON.stringify(fields) : new URLSearchParams(fields).toString())
  // Of two headers with one name, whatever their letter case, Node sends the last.
  const headers = {
    accept: 'application/json',
    'accept-encoding': 'identity',
    'content-type': send === 'json' ? 'application/json' : 'application/x-www-form-urlencoded',
    'content-length': String(body.length),
    'user-agent': `kyc-tokend/${program.version}`,
    ...(send === 'basic' && { authorization: `Basic ${basicOf(credentials)}` }),
    ...service.headers,
  }
  return { url: new URL(service.tokenUrl), hostSetting: service.hostSetting, headers, body }
}
