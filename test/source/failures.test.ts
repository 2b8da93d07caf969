import { expect, test } from 'vitest'
import { failureFromError } from '../../src/source/failures.ts'

const options = { host: 'HOST', hostSetting: 'service.tokenUrl', proxy: null, isSent: true } as const
const reported = (error: object, isSent = true) =>
  failureFromError(Object.assign(new Error('words of others'), error), { ...options, isSent })

const TRUST = 'name the file of the authority that signed it in request.caFile'
const UNKNOWN = `The certificate of HOST comes from an authority that is not known here: ${TRUST}`
/** Codes that no test here gets from a real server. */
const rows: [codes: string, reason: string, detail: string][] = [
  ['EAI_AGAIN', 'network', 'The name of HOST could not be looked up: the DNS server does not answer'],
  ['EHOSTUNREACH ENETUNREACH', 'network', 'There is no route to HOST'],
  ['EACCES EPERM', 'network', "This host's firewall or sandbox forbids connections to HOST"],
  ['ETIMEDOUT', 'timeout', 'HOST does not answer'],
  ['SELF_SIGNED_CERT_IN_CHAIN UNABLE_TO_GET_ISSUER_CERT', 'tls', UNKNOWN],
  ['UNABLE_TO_GET_ISSUER_CERT_LOCALLY UNABLE_TO_VERIFY_LEAF_SIGNATURE', 'tls', UNKNOWN],
  ['CERT_REVOKED INVALID_CA CA_MD_TOO_WEAK', 'tls', 'The certificate of HOST does not hold (CODE)'],
  [
    'ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED',
    'tls',
    'HOST wants a client certificate: set request.clientCertificate, or another one there',
  ],
  [
    'ERR_SSL_SSLV3_ALERT_BAD_CERTIFICATE ERR_SSL_TLSV1_ALERT_UNKNOWN_CA',
    'tls',
    'HOST does not accept the client certificate (CODE): ' +
      'check request.clientCertificate with whom it was registered',
  ],
  [
    'ERR_SSL_SSLV3_ALERT_HANDSHAKE_FAILURE',
    'tls',
    'HOST ended the TLS handshake (CODE): ' +
      'it may want a client certificate, or another one (request.clientCertificate)',
  ],
  ['EMFILE EPROTONOSUPPORT', 'network', 'The connection to HOST failed (CODE)'],
]

test.each(rows)('%s: %s, and why', (codes, reason, detail) => {
  for (const code of codes.split(' '))
    expect(reported({ code })).toEqual({ kind: 'transient', reason, detail: detail.replace('CODE', code) })
})

test('a code that only holds a known one is not that one', () => {
  for (const code of rows.flatMap(([row]) => row.split(' ')).map((known) => `X_${known}`))
    expect(reported({ code }).detail).toBe(`The connection to HOST failed (${code})`)
})

test('a proxy is named as such, and its settings are', () => {
  const proxied = (
    error: object,
    setting: 'HTTPS_PROXY' | 'request.proxy' = 'HTTPS_PROXY',
    login: string | null = null,
  ): string => failureFromError(error, { ...options, proxy: { host: 'p:3128', setting, login } }).detail
  expect(proxied({ code: 'ENOTFOUND' })).toBe(
    "The name of p:3128 (the proxy of HTTPS_PROXY) was not found: check HTTPS_PROXY and this host's DNS",
  )
  expect(proxied({ code: 'DEPTH_ZERO_SELF_SIGNED_CERT' })).toMatch(
    /^The certificate of p:3128 .* request\.caFile$/,
  )
  const refused = { code: 'ERR_PROXY_TUNNEL', statusCode: 407 }
  expect(proxied(refused, 'request.proxy')).toBe(
    'The proxy of request.proxy wants a login (407): set request.proxy with url, user and password',
  )
  const another = 'or another kind of login than Basic is wanted'
  expect(proxied(refused, 'request.proxy', 'login')).toBe(
    'The proxy of request.proxy does not accept the login (407): ' +
      `correct request.proxy.user and request.proxy.password, ${another}`,
  )
  expect(proxied({ code: 'ERR_TOO_MANY_INFORMATIONAL' })).toBe(
    'The proxy of HTTPS_PROXY answered with no HTTP, or with a head of more than 16 KiB',
  )
})

test('a connection that is closed before the request was handed over is reported so', () => {
  expect(reported({ code: 'ECONNRESET' }, false).detail).toBe('HOST closed the connection while it was made')
})

test('a fault without a code is one of the network, and its words are not reported', () => {
  for (const error of [new Error('words of others'), undefined, 'text', { code: 7 }]) {
    const detail = 'The connection to HOST failed (no code)'
    expect(failureFromError(error, options)).toEqual({ kind: 'transient', reason: 'network', detail })
  }
})
