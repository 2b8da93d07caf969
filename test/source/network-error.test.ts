import { describe, expect, test } from 'vitest'
import { failureFromError } from '../../src/source/network-error.ts'

const host = 'api.example.com'
const options = { host, setting: 'service.tokenUrl', isSent: true } as const
const reported = (code: string | undefined, isSent = true) =>
  failureFromError(Object.assign(new Error('words of others'), { code }), { ...options, isSent })

const TRUST = /request\.caFile$/
const rows: [reason: string, words: RegExp, codes: string[]][] = [
  ['network', /^The name of HOST was not found: check service\.tokenUrl/, ['ENOTFOUND']],
  ['network', /^The name of HOST could not be looked up/, ['EAI_AGAIN']],
  ['network', /^HOST refused the connection$/, ['ECONNREFUSED']],
  ['network', /no route to HOST$/, ['EHOSTUNREACH']],
  ['network', /no network to HOST$/, ['ENETUNREACH']],
  ['network', /firewall or sandbox forbids connections to HOST$/, ['EACCES', 'EPERM']],
  ['network', /^The proxy of HTTPS_PROXY opened no way to HOST$/, ['ERR_PROXY_TUNNEL']],
  ['network', /^HOST closed the connection before its answer/, ['ECONNRESET', 'EPIPE', 'ECONNABORTED']],
  ['timeout', /^HOST does not answer$/, ['ETIMEDOUT']],
  ['tls', /^The certificate of HOST has expired/, ['CERT_HAS_EXPIRED']],
  ['tls', /^The certificate of HOST is not valid yet/, ['CERT_NOT_YET_VALID']],
  ['tls', /^The certificate of HOST was revoked$/, ['CERT_REVOKED']],
  [
    'tls',
    /^The certificate of HOST is for another name: check service\.tokenUrl$/,
    ['ERR_TLS_CERT_ALTNAME_INVALID'],
  ],
  ['tls', /^The certificate of HOST is signed by itself/, ['DEPTH_ZERO_SELF_SIGNED_CERT']],
  [
    'tls',
    /^The certificate of HOST comes from an authority that is not known here/,
    [
      'SELF_SIGNED_CERT_IN_CHAIN',
      'UNABLE_TO_GET_ISSUER_CERT',
      'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
      'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
    ],
  ],
  [
    'tls',
    /^The certificate of HOST does not hold \(CODE\)$/,
    'CERT_SIGNATURE_FAILURE CERT_CHAIN_TOO_LONG CERT_UNTRUSTED CERT_REJECTED CRL_HAS_EXPIRED CRL_NOT_YET_VALID UNABLE_TO_GET_CRL UNABLE_TO_DECODE_ISSUER_PUBLIC_KEY ERROR_IN_CERT_NOT_BEFORE_FIELD ERROR_IN_CRL_NEXT_UPDATE_FIELD INVALID_CA INVALID_PURPOSE PATH_LENGTH_EXCEEDED HOSTNAME_MISMATCH EE_KEY_TOO_SMALL CA_KEY_TOO_SMALL CA_MD_TOO_WEAK'.split(
      ' ',
    ),
  ],
  [
    'tls',
    /^HOST speaks no TLS that we speak \(CODE\): check service\.tokenUrl$/,
    ['ERR_SSL_WRONG_VERSION_NUMBER', 'ERR_TLS_HANDSHAKE_TIMEOUT', 'EPROTO'],
  ],
  ['malformed-answer', /^The answer of HOST has headers of more than 16 KiB$/, ['HPE_HEADER_OVERFLOW']],
  [
    'malformed-answer',
    /^What HOST answers is not HTTP \(CODE\): check service\.tokenUrl$/,
    ['HPE_INVALID_CONSTANT'],
  ],
  [
    'network',
    /^The connection to HOST failed \(CODE\)$/,
    ['EMFILE', 'EPROTONOSUPPORT', 'X_CERT_', 'X_ERR_SSL_', 'X_HPE_', 'X_EPROTO'],
  ],
]

describe.each(rows)('%s: %s', (reason, words, codes) => {
  test.each(codes)('%s', (code) => {
    const fault = reported(code)
    expect(fault).toMatchObject({ kind: 'transient', reason })
    const withNames = words.source
      .replaceAll('HOST', host.replaceAll('.', String.raw`\.`))
      .replace('CODE', code)
    expect(fault.detail).toMatch(new RegExp(withNames))
  })
})

test('a connection that is closed before the request was handed over is reported so', () => {
  expect(reported('ECONNRESET', false).detail).toBe(`${host} closed the connection while it was made`)
})

test('an authority that is not known is reported with the remedy', () => {
  for (const code of ['DEPTH_ZERO_SELF_SIGNED_CERT', 'SELF_SIGNED_CERT_IN_CHAIN'])
    expect(reported(code).detail).toMatch(TRUST)
})

test('a fault without a code is one of the network, and its words are not reported', () => {
  for (const error of [new Error('words of others'), undefined, 'text', { code: 7 }]) {
    expect(failureFromError(error, options)).toEqual({
      kind: 'transient',
      reason: 'network',
      detail: `The connection to ${host} failed (no code)`,
    })
  }
})
