// Why there was no answer: the failure of an exchange by the code of its error.
import type { ServiceConfig } from '../config/config.ts'
import { errorCode } from '../lib/error.ts'
import type { TransientFailure } from '../token/outcome.ts'
import type { Proxy } from './proxy.ts'

const TRUST = 'name the file of the authority that signed it in CA_FILE'
const PROXY = 'The proxy of PROXY_SETTING'
const CERTIFICATE = 'request.clientCertificate'

/**
 * Failures by the code of the error; the first row that fits counts. The code of a proxy's refusal is
 * followed by its HTTP status. Messages of errors are never shown, because they quote text of others.
 */
const FAILURES: readonly (readonly [RegExp, TransientFailure['reason'], string])[] = [
  [/^ENOTFOUND$/, 'network', "The name of HOST was not found: check SETTING and this host's DNS"],
  [/^EAI_AGAIN$/, 'network', 'The name of HOST could not be looked up: the DNS server does not answer'],
  [/^ECONNREFUSED$/, 'network', 'HOST refused the connection'],
  [/^(?:EHOSTUNREACH|ENETUNREACH)$/, 'network', 'There is no route to HOST'],
  [/^(?:EACCES|EPERM)$/, 'network', "This host's firewall or sandbox forbids connections to HOST"],
  [/^(?:ECONNRESET|EPIPE|ECONNABORTED)$/, 'network', 'HOST closed the connection WHEN'],
  [/^ETIMEDOUT$/, 'timeout', 'HOST does not answer'],
  [
    /^ERR_PROXY_TUNNEL 407/,
    'network',
    `${PROXY} wants a login (407): set request.proxy with url, user and password`,
  ],
  [/^ERR_PROXY_TUNNEL 403/, 'network', `${PROXY} forbids the way to SERVICE (403): have it allowed there`],
  [/^ERR_PROXY_TUNNEL \d/, 'network', `${PROXY} opened no way to SERVICE (it answered STATUS)`],
  [/^CERT_HAS_EXPIRED$/, 'tls', "The certificate of HOST has expired, or this host's clock is wrong"],
  [/^CERT_NOT_YET_VALID$/, 'tls', "The certificate of HOST is not valid yet, or this host's clock is wrong"],
  [/^ERR_TLS_CERT_ALTNAME_INVALID$/, 'tls', 'The certificate of HOST is for another name: check SETTING'],
  [/^DEPTH_ZERO_SELF_SIGNED_CERT$/, 'tls', `The certificate of HOST is signed by itself: ${TRUST}`],
  [
    /^(?:SELF_SIGNED_CERT_IN_CHAIN|UNABLE_TO_GET_ISSUER_CERT(?:_LOCALLY)?|UNABLE_TO_VERIFY_LEAF_SIGNATURE)$/,
    'tls',
    `The certificate of HOST comes from an authority that is not known here: ${TRUST}`,
  ],
  [
    // OpenSSL's other words for a certificate that does not hold (X509_verify_cert).
    /^(?:CERT_|CRL_|UNABLE_TO_|ERROR_IN_C|INVALID_(?:CA|PURPOSE)|PATH_LENGTH_|HOSTNAME_|EE_KEY_|CA_)/,
    'tls',
    'The certificate of HOST does not hold (CODE)',
  ],
  [
    /^ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED$/,
    'tls',
    `HOST wants a client certificate: set ${CERTIFICATE}, or another one there`,
  ],
  [
    // The alerts of RFC 8446, section 6.2, that are about a certificate: those with it were sent to us.
    /^ERR_SSL_.*ALERT_(?:BAD_CERTIFICATE|UNSUPPORTED_CERTIFICATE|CERTIFICATE_|UNKNOWN_CA|ACCESS_DENIED)/,
    'tls',
    `HOST does not accept the client certificate (CODE): check ${CERTIFICATE} with whom it was registered`,
  ],
  [
    /^ERR_SSL_.*ALERT_HANDSHAKE_FAILURE$/,
    'tls',
    `HOST ended the TLS handshake (CODE): it may want a client certificate, or another one (${CERTIFICATE})`,
  ],
  [
    /^(?:ERR_SSL_|ERR_TLS_|EPROTO$)/,
    'tls',
    'HOST does not speak TLS, or no version that the daemon supports (CODE): check SETTING',
  ],
  [/^ERR_PROXY_HEAD$/, 'network', `${PROXY} answered with no HTTP, or with a head of more than 16 KiB`],
  [
    /^(?:HPE_HEADER_OVERFLOW|ERR_HEAD_TOO_LONG)$/,
    'malformed-answer',
    'The answer of HOST has a head of more than 16 KiB',
  ],
  [
    /^ERR_TOO_MANY_INFORMATIONAL$/,
    'malformed-answer',
    'The answer of HOST begins with more than 8 informational ones (1xx)',
  ],
  [/^HPE_/, 'malformed-answer', 'The answer of HOST is not valid HTTP (CODE): check SETTING'],
  [/^/, 'network', 'The connection to HOST failed (CODE)'],
]

interface Peer extends Pick<ServiceConfig, 'hostSetting'> {
  readonly host: string
  /** The proxy, if it has failed and not the host; null otherwise. */
  readonly proxy: Pick<Proxy, 'host' | 'setting'> | null
  readonly isSent: boolean
  /** A client certificate is presented: a server that refuses it may say so by closing the connection. */
  readonly hasCertificate?: boolean
}

/** The failure of an exchange that has ended with this error. */
export function failureFromError(
  error: unknown,
  { host, hostSetting, proxy, isSent, hasCertificate = false }: Peer,
): TransientFailure {
  const { statusCode = '' } = Object(error) as { statusCode?: unknown }
  const code = errorCode(error) ?? 'no code'
  const values: Readonly<Record<string, string>> = {
    HOST: proxy === null ? host : proxyInWords(proxy),
    SERVICE: host,
    SETTING: proxy?.setting ?? hostSetting,
    PROXY_SETTING: proxy?.setting ?? '',
    CA_FILE: proxy === null ? 'request.caFile' : 'NODE_EXTRA_CA_CERTS',
    CODE: code,
    STATUS: String(statusCode),
    WHEN: isSent ? 'before its answer was whole' : 'while it was made',
  }
  const key = [
    proxy !== null && /^(?:HPE|ERR_HEAD|ERR_TOO)_/.test(code) ? 'ERR_PROXY_HEAD' : code,
    statusCode,
  ]
  const [, reason, words] = FAILURES.find(([pattern]) => pattern.test(key.join(' ').trim()))!
  const detail = words.replaceAll(
    /\b(?:HOST|SERVICE|SETTING|PROXY_SETTING|CA_FILE|CODE|STATUS|WHEN)\b/g,
    (name) => values[name]!,
  )
  return { kind: 'transient', reason, detail: detail + hintOn(code, { proxy, hasCertificate }) }
}

/** Some servers say by the end of the connection alone that they refuse a certificate. */
function hintOn(code: string, { proxy, hasCertificate }: Pick<Peer, 'proxy' | 'hasCertificate'>): string {
  if (!hasCertificate || proxy !== null || code !== 'ECONNRESET') return ''
  return `; it may not accept the client certificate (${CERTIFICATE})`
}

export function proxyInWords({ host, setting }: Pick<Proxy, 'host' | 'setting'>): string {
  return `${host} (the proxy of ${setting})`
}
