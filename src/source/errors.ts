// Why there was no answer: the failure of an exchange by the code of its error, as data.
import { errorCode } from '../lib/error.ts'
import type { TransientFailure } from '../token/outcome.ts'
import type { Proxy } from './proxy.ts'

export interface Peer {
  readonly host: string
  /** The setting that names the host. */
  readonly hostSetting: string
  /** The proxy while it has not opened the way to the host; null otherwise. */
  readonly proxy: Proxy | null
}

const CERTIFICATE = 'request.clientCertificate'

/**
 * The first row whose codes match counts. HOST, SETTING and CODE are replaced. The codes of certificates are
 * those of OpenSSL's X509_verify_cert, the alerts those of RFC 8446, section 6.2, which were sent to us.
 */
const rows: readonly (readonly [codes: RegExp, reason: TransientFailure['reason'], words: string])[] = [
  [/^ENOTFOUND$/, 'network', "The name of HOST was not found: check SETTING and this host's DNS"],
  [/^EAI_AGAIN$/, 'network', 'The name of HOST could not be looked up: the DNS server does not answer'],
  [/^ECONNREFUSED$/, 'network', 'HOST refused the connection'],
  [
    /^(?:ECONNRESET|EPIPE|ECONNABORTED)$/,
    'network',
    'HOST closed the connection before its answer was whole',
  ],
  [/^(?:EACCES|EPERM)$/, 'network', "This host's firewall or sandbox forbids connections to HOST"],
  [/^ETIMEDOUT$/, 'timeout', 'HOST does not answer'],
  [
    /^CERT_(?:HAS_EXPIRED|NOT_YET)/,
    'tls',
    "The certificate of HOST is not valid now (CODE), or this host's clock is wrong",
  ],
  [/^ERR_TLS_CERT_ALTNAME/, 'tls', 'The certificate of HOST is for another name: check SETTING'],
  [
    /^(?:DEPTH_ZERO_SELF_SIGNED|SELF_SIGNED_CERT|UNABLE_TO_GET_ISSUER_CERT|UNABLE_TO_VERIFY_LEAF)/,
    'tls',
    'The certificate of HOST comes from an authority that is not known here (CODE): name its file in request.caFile',
  ],
  [
    /^(?:CERT_|CRL_|UNABLE_TO_|ERROR_IN_C|INVALID_(?:CA|PURPOSE)|PATH_LENGTH_|HOSTNAME_|EE_KEY_|CA_)/,
    'tls',
    'The certificate of HOST does not hold (CODE)',
  ],
  [
    /^ERR_SSL_.*ALERT_(?:HANDSHAKE_FAILURE|BAD_CERTIFICATE|UNSUPPORTED_CERT|CERTIFICATE_|UNKNOWN_CA|ACCESS_DENIED)/,
    'tls',
    `HOST wants a client certificate, or another one (CODE): check ${CERTIFICATE}`,
  ],
  [
    /^(?:ERR_SSL_|ERR_TLS_|EPROTO$)/,
    'tls',
    'HOST speaks no TLS that the daemon supports (CODE): check SETTING',
  ],
  [
    /^(?:HPE_HEADER_OVERFLOW|ERR_TOO_LONG)$/,
    'malformed-answer',
    'The answer of HOST has a head of more than 16 KiB, or is longer than 64 KiB',
  ],
  [/^HPE_/, 'malformed-answer', 'The answer of HOST is not valid HTTP (CODE): check SETTING'],
  [/^/, 'network', 'The connection to HOST failed (CODE)'],
]

/** The failure of an exchange that ended with this error, whose message is never shown: it quotes others. */
export function failureFromError(error: unknown, { proxy, host, hostSetting }: Peer): TransientFailure {
  const code = errorCode(error) ?? 'no code'
  const [, reason, words] = rows.find(([codes]) => codes.test(code))!
  const ofProxy = proxy && proxyProblem(code, error as { statusCode?: number }, proxy)
  const detail = (ofProxy ?? words)
    .replace('HOST', proxy === null || ofProxy !== null ? host : proxyInWords(proxy))
    .replace('SETTING', proxy?.setting ?? hostSetting)
    .replace('CODE', code)
  return { kind: 'transient', reason: ofProxy === null ? reason : 'network', detail }
}

/** The status of a proxy's answer to CONNECT, or that it is no HTTP; null: it failed as any host may. */
function proxyProblem(
  code: string,
  { statusCode }: { statusCode?: number },
  { setting }: Proxy,
): string | null {
  if (/^(?:HPE_|ERR_TOO_LONG)/.test(code))
    return `The proxy of ${setting} answered with no HTTP, or with a head of more than 16 KiB`
  if (code !== 'ERR_PROXY_TUNNEL') return null
  if (statusCode === 407)
    return `The proxy of ${setting} wants a login, or another one (407): check its user and password`
  return `The proxy of ${setting} opened no way to HOST (it answered ${statusCode}): have it allowed there`
}

export function proxyInWords({ url, setting }: Proxy): string {
  return `${url.host} (the proxy of ${setting})`
}
