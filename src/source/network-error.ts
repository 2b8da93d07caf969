// Explains why there is no answer: the errors of network, TLS and HTTP parser, in plain words.
import type { ServiceConfig } from '../config/config.ts'
import { errorCode } from '../lib/error.ts'
import type { TransientFailure } from '../token/outcome.ts'

/** Largest head of an answer, in bytes. */
export const MAX_HEADER_BYTES = 16 * 1024

const TRUST = 'name the file of the authority that signed it in request.caFile'
const PROXY = 'The proxy of HTTPS_PROXY'

/**
 * By code of the error; the first row that fits counts. A proxy answers before the service is asked: its status follows
 * the code. Messages of errors are never shown: they quote foreign text.
 */
const FAULTS: readonly (readonly [RegExp, TransientFailure['reason'], string])[] = [
  [/^ENOTFOUND$/, 'network', "The name of HOST was not found: check SETTING and this host's DNS"],
  [/^EAI_AGAIN$/, 'network', 'The name of HOST could not be looked up: the DNS server does not answer'],
  [/^ECONNREFUSED$/, 'network', 'HOST refused the connection'],
  [/^EHOSTUNREACH$/, 'network', 'There is no route to HOST'],
  [/^ENETUNREACH$/, 'network', 'There is no network to HOST'],
  [/^(?:EACCES|EPERM)$/, 'network', "This host's firewall or sandbox forbids connections to HOST"],
  [/^(?:ECONNRESET|EPIPE|ECONNABORTED)$/, 'network', 'HOST closed the connection WHEN'],
  [/^ETIMEDOUT$/, 'timeout', 'HOST does not answer'],
  [/^ERR_PROXY_TUNNEL 407$/, 'network', `${PROXY} wants a login (407): write it into its URL`],
  [/^ERR_PROXY_TUNNEL 403$/, 'network', `${PROXY} forbids the way to HOST (403): have it allowed there`],
  [/^ERR_PROXY_TUNNEL \d/, 'network', `${PROXY} opened no way to HOST (it answered STATUS)`],
  [/^ERR_PROXY_TUNNEL/, 'network', `${PROXY} opened no way to HOST`],
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
  [/^(?:ERR_SSL_|ERR_TLS_|EPROTO$)/, 'tls', 'HOST speaks no TLS that we speak (CODE): check SETTING'],
  [/^HPE_HEADER_OVERFLOW$/, 'malformed-answer', 'The answer of HOST has headers of more than 16 KiB'],
  [/^HPE_/, 'malformed-answer', 'What HOST answers is not HTTP (CODE): check SETTING'],
  [/^/, 'network', 'The connection to HOST failed (CODE)'],
]

/**
 * The failure behind an error of the connection. `host`: the service's host and port, which `setting` gives. `isSent`: the
 * request had been handed over, so the connection stood.
 */
export function failureFromError(
  error: unknown,
  { host, setting, isSent }: { host: string; setting: ServiceConfig['hostSetting']; isSent: boolean },
): TransientFailure {
  const { statusCode = '' } = Object(error) as { statusCode?: unknown }
  const code = errorCode(error) ?? 'no code'
  const values: Readonly<Record<string, string>> = {
    HOST: host,
    SETTING: setting,
    CODE: code,
    STATUS: String(statusCode),
    WHEN: isSent ? 'before its answer was whole' : 'while it was made',
  }
  const key = code === 'ERR_PROXY_TUNNEL' ? `${code} ${values['STATUS']}` : code
  const [, reason, words] = FAULTS.find(([pattern]) => pattern.test(key))!
  const detail = words.replaceAll(/\b(?:HOST|SETTING|CODE|STATUS|WHEN)\b/g, (name) => values[name]!)
  return { kind: 'transient', reason, detail }
}
