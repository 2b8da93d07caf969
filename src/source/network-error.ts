// Explains why there is no answer: the errors of network, TLS and HTTP parser, in plain words.
import { errorCode } from '../lib/error.ts'
import type { TransientFailure } from '../token/outcome.ts'

/** Largest head of an answer, in bytes. */
export const MAX_HEADER_BYTES = 16 * 1024

type Explanation = Pick<TransientFailure, 'reason' | 'detail'>

const TRUST = 'name the file of the authority that signed it in request.caFile'

/** By code of the error: `host` is the service's host and port. Messages of errors are never shown: they quote foreign text. */
const FAULTS: Readonly<Record<string, (host: string) => Explanation>> = {
  ENOTFOUND: (host) => network(`The name of ${host} was not found: check baseUrl and this host's DNS`),
  EAI_AGAIN: (host) => network(`The name of ${host} could not be looked up: the DNS server does not answer`),
  ECONNREFUSED: (host) => network(`${host} refused the connection`),
  EHOSTUNREACH: (host) => network(`There is no route to ${host}`),
  ENETUNREACH: (host) => network(`There is no network to ${host}`),
  EACCES: (host) => network(`This host's firewall or sandbox forbids connections to ${host}`),
  EPERM: (host) => network(`This host's firewall or sandbox forbids connections to ${host}`),
  ETIMEDOUT: (host) => ({ reason: 'timeout', detail: `${host} does not answer` }),
  CERT_HAS_EXPIRED: (host) => tls(`The certificate of ${host} has expired, or this host's clock is wrong`),
  CERT_NOT_YET_VALID: (host) =>
    tls(`The certificate of ${host} is not valid yet, or this host's clock is wrong`),
  CERT_REVOKED: (host) => tls(`The certificate of ${host} was revoked`),
  ERR_TLS_CERT_ALTNAME_INVALID: (host) =>
    tls(`The certificate of ${host} is for another name: check baseUrl`),
  DEPTH_ZERO_SELF_SIGNED_CERT: (host) => tls(`The certificate of ${host} is signed by itself: ${TRUST}`),
  SELF_SIGNED_CERT_IN_CHAIN: unknownIssuer,
  UNABLE_TO_GET_ISSUER_CERT: unknownIssuer,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: unknownIssuer,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: unknownIssuer,
  HPE_HEADER_OVERFLOW: (host) => malformed(`The answer of ${host} has headers of more than 16 KiB`),
}

/** OpenSSL's other words for a certificate that does not hold (X509_verify_cert). */
const CERTIFICATE_CODE =
  /^(?:CERT_|CRL_|UNABLE_TO_|ERROR_IN_C|INVALID_CA|INVALID_PURPOSE|PATH_LENGTH_|HOSTNAME_MISMATCH|EE_KEY_|CA_KEY_|CA_MD_)/
const TLS_CODE = /^(?:ERR_SSL_|ERR_TLS_|EPROTO$)/
const RESET_CODES = new Set(['ECONNRESET', 'EPIPE', 'ECONNABORTED'])

/**
 * The failure behind an error of the connection. `isSent`: the request had been handed over, so the connection stood.
 */
export function failureFromError(
  error: unknown,
  options: { host: string; isSent: boolean },
): TransientFailure {
  const code = errorCode(error) ?? 'no code'
  const { statusCode } = Object(error) as { statusCode?: unknown }
  const explanation =
    code === 'ERR_PROXY_TUNNEL' ? proxyRefusal(options.host, statusCode) : explanationOf(code, options)
  return { kind: 'transient', ...explanation }
}

/** A proxy answers before the service is asked: its status is not the service's. */
function proxyRefusal(host: string, status: unknown): Explanation {
  if (status === 407) return network('The proxy of HTTPS_PROXY wants a login (407): write it into its URL')
  if (status === 403)
    return network(`The proxy of HTTPS_PROXY forbids the way to ${host} (403): have it allowed there`)
  const answered = typeof status === 'number' ? ` (it answered ${status})` : ''
  return network(`The proxy of HTTPS_PROXY opened no way to ${host}${answered}`)
}

function explanationOf(code: string, { host, isSent }: { host: string; isSent: boolean }): Explanation {
  const known = FAULTS[code]
  if (known !== undefined) return known(host)
  if (RESET_CODES.has(code)) {
    return network(
      `${host} closed the connection ${isSent ? 'before its answer was whole' : 'while it was made'}`,
    )
  }
  if (CERTIFICATE_CODE.test(code)) return tls(`The certificate of ${host} does not hold (${code})`)
  if (TLS_CODE.test(code)) return tls(`${host} speaks no TLS that we speak (${code}): check baseUrl`)
  if (code.startsWith('HPE_')) return malformed(`What ${host} answers is not HTTP (${code}): check baseUrl`)
  return network(`The connection to ${host} failed (${code})`)
}

function network(detail: string): Explanation {
  return { reason: 'network', detail }
}
function tls(detail: string): Explanation {
  return { reason: 'tls', detail }
}
function malformed(detail: string): Explanation {
  return { reason: 'malformed-answer', detail }
}
function unknownIssuer(host: string): Explanation {
  return tls(`The certificate of ${host} comes from an authority that is not known here: ${TRUST}`)
}
