// Why there was no answer: the failure of an exchange by the code of its error.
import type { ServiceConfig } from '../config/config.ts'
import { errorCode } from '../lib/error.ts'
import type { TransientFailure } from '../token/outcome.ts'
import type { Proxy } from './proxy.ts'

const CERTIFICATE = 'request.clientCertificate'

interface Peer extends Pick<ServiceConfig, 'hostSetting'> {
  readonly host: string
  /** The proxy, if it has failed and not the host; null otherwise. */
  readonly proxy: Pick<Proxy, 'host' | 'setting' | 'login'> | null
  readonly isSent: boolean
  /** A client certificate is presented: a server that refuses it may say so by closing the connection. */
  readonly hasCertificate?: boolean
}

/**
 * The failure of an exchange that has ended with this error. The error's message is never shown, because it
 * quotes text of others.
 */
export function failureFromError(error: unknown, peer: Peer): TransientFailure {
  const { proxy } = peer
  const code = errorCode(error) ?? 'no code'
  const failure = (reason: TransientFailure['reason'], detail: string): TransientFailure => {
    return { kind: 'transient', reason, detail }
  }
  const ofProxy = proxy && proxyProblem(code, error, { proxy, service: peer.host })
  if (ofProxy !== null) return failure('network', ofProxy)
  const host = proxy === null ? peer.host : proxyInWords(proxy)
  const names = { host, setting: proxy?.setting ?? peer.hostSetting }
  if (code === 'ETIMEDOUT') return failure('timeout', `${host} does not answer`)
  const ofTls = tlsProblem(code, names)
  if (ofTls !== undefined) return failure('tls', ofTls)
  const ofAnswer = answerProblem(code, names)
  if (ofAnswer !== undefined) return failure('malformed-answer', ofAnswer)
  return failure('network', networkProblem(code, names, peer))
}

interface Names {
  readonly host: string
  /** The setting that names the host. */
  readonly setting: string
}

function networkProblem(code: string, { host, setting }: Names, peer: Peer): string {
  switch (code) {
    case 'ENOTFOUND':
      return `The name of ${host} was not found: check ${setting} and this host's DNS`
    case 'EAI_AGAIN':
      return `The name of ${host} could not be looked up: the DNS server does not answer`
    case 'ECONNREFUSED':
      return `${host} refused the connection`
    case 'EHOSTUNREACH':
    case 'ENETUNREACH':
      return `There is no route to ${host}`
    case 'EACCES':
    case 'EPERM':
      return `This host's firewall or sandbox forbids connections to ${host}`
    case 'ECONNRESET':
    case 'EPIPE':
    case 'ECONNABORTED': {
      const when = peer.isSent ? 'before its answer was whole' : 'while it was made'
      return `${host} closed the connection ${when}${hintOn(code, peer)}`
    }
    default:
      return `The connection to ${host} failed (${code})`
  }
}

function tlsProblem(code: string, { host, setting }: Names): string | undefined {
  const certificate = `The certificate of ${host}`
  const trust = 'name the file of the authority that signed it in request.caFile'
  switch (code) {
    case 'CERT_HAS_EXPIRED':
      return `${certificate} has expired, or this host's clock is wrong`
    case 'CERT_NOT_YET_VALID':
      return `${certificate} is not valid yet, or this host's clock is wrong`
    case 'ERR_TLS_CERT_ALTNAME_INVALID':
      return `${certificate} is for another name: check ${setting}`
    case 'DEPTH_ZERO_SELF_SIGNED_CERT':
      return `${certificate} is signed by itself: ${trust}`
    case 'SELF_SIGNED_CERT_IN_CHAIN':
    case 'UNABLE_TO_GET_ISSUER_CERT':
    case 'UNABLE_TO_GET_ISSUER_CERT_LOCALLY':
    case 'UNABLE_TO_VERIFY_LEAF_SIGNATURE':
      return `${certificate} comes from an authority that is not known here: ${trust}`
    case 'ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED':
      return `${host} wants a client certificate: set ${CERTIFICATE}, or another one there`
  }
  if (OTHER_CERTIFICATE_FAULT.test(code)) return `${certificate} does not hold (${code})`
  if (CERTIFICATE_ALERT.test(code)) {
    const check = `check ${CERTIFICATE} with whom it was registered`
    return `${host} does not accept the client certificate (${code}): ${check}`
  }
  if (/^ERR_SSL_.*ALERT_HANDSHAKE_FAILURE$/.test(code)) {
    const mayWant = `it may want a client certificate, or another one (${CERTIFICATE})`
    return `${host} ended the TLS handshake (${code}): ${mayWant}`
  }
  if (!/^(?:ERR_SSL_|ERR_TLS_|EPROTO$)/.test(code)) return undefined
  return `${host} does not speak TLS, or no version that the daemon supports (${code}): check ${setting}`
}

function answerProblem(code: string, { host, setting }: Names): string | undefined {
  if (code === 'HPE_HEADER_OVERFLOW' || code === 'ERR_HEAD_TOO_LONG')
    return `The answer of ${host} has a head of more than 16 KiB`
  if (code === 'ERR_TOO_MANY_INFORMATIONAL')
    return `The answer of ${host} begins with more than 8 informational ones (1xx)`
  if (code === 'ERR_ANSWER_TOO_LONG') return `The answer of ${host} is longer than 64 KiB`
  return code.startsWith('HPE_')
    ? `The answer of ${host} is not valid HTTP (${code}): check ${setting}`
    : undefined
}

/** OpenSSL's words for a certificate that does not hold (X509_verify_cert). */
const OTHER_CERTIFICATE_FAULT =
  /^(?:CERT_|CRL_|UNABLE_TO_|ERROR_IN_C|INVALID_(?:CA|PURPOSE)|PATH_LENGTH_|HOSTNAME_|EE_KEY_|CA_)/
/** The alerts of RFC 8446, section 6.2, that are about a certificate: those with it were sent to us. */
const CERTIFICATE_ALERT =
  /^ERR_SSL_.*ALERT_(?:BAD_CERTIFICATE|UNSUPPORTED_CERTIFICATE|CERTIFICATE_|UNKNOWN_CA|ACCESS_DENIED)/

/** What a proxy has answered instead of opening the way; null: it has failed as any host may. */
function proxyProblem(
  code: string,
  error: unknown,
  { proxy, service }: { proxy: Pick<Proxy, 'setting' | 'login'>; service: string },
): string | null {
  const name = `The proxy of ${proxy.setting}`
  if (/^(?:HPE|ERR_HEAD|ERR_TOO)_/.test(code))
    return `${name} answered with no HTTP, or with a head of more than 16 KiB`
  if (code !== 'ERR_PROXY_TUNNEL') return null
  const { statusCode } = error as { statusCode?: number }
  if (statusCode === 407) return `${name} ${loginProblem(proxy)}`
  if (statusCode === 403) return `${name} forbids the way to ${service} (403): have it allowed there`
  return `${name} opened no way to ${service} (it answered ${statusCode})`
}

function loginProblem({ setting, login }: Pick<Proxy, 'setting' | 'login'>): string {
  if (login === null) return 'wants a login (407): set request.proxy with url, user and password'
  const where =
    setting === 'request.proxy' ? 'request.proxy.user and request.proxy.password' : 'user and password in it'
  return `does not accept the login (407): correct ${where}, or another kind of login than Basic is wanted`
}

/** Some servers say by the end of the connection alone that they refuse a certificate. */
function hintOn(code: string, { proxy, hasCertificate }: Peer): string {
  if (hasCertificate !== true || proxy !== null || code !== 'ECONNRESET') return ''
  return `; it may not accept the client certificate (${CERTIFICATE})`
}

export function proxyInWords({ host, setting }: Pick<Proxy, 'host' | 'setting'>): string {
  return `${host} (the proxy of ${setting})`
}
